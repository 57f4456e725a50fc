"""Attacks are judged apart from the cores that all processes share."""

from __future__ import annotations

import os
import time
from dataclasses import replace

from attacks.budgets import excesses
from attacks.cpu_twins import SLOT_SECONDS, CpuRecorder, beyond_idle, run_twins, use
from attacks.scene import Outcome
from attacks.target import Latencies, environment_of_own_modules


def test_a_twin_uses_as_much_cpu_time_as_its_node_did() -> None:
    before = time.thread_time()
    use([0.01, 0.0, 0.03])
    assert time.thread_time() - before >= 0.04


def test_the_recorder_sees_what_a_process_uses() -> None:
    recorder = CpuRecorder({"node": os.getpid()})
    before = time.process_time()
    recorder.start()
    use([0.02] * 10)
    recorder.stop()
    used = time.process_time() - before  # of ended threads, too, such as the recorder's
    assert 0.1 <= sum(recorder.slots["node"]) <= used, "but for its last slot"


def test_the_use_of_idle_nodes_is_left_to_them() -> None:
    assert beyond_idle([0.0, 0.001, 0.015], idle_rate=0.05) == [0.0, 0.0, 0.015 - 0.05 * SLOT_SECONDS]


def test_twins_of_all_nodes_run_to_their_end() -> None:
    began, ended = run_twins({"a": [0.01] * 3, "b": [0.0] * 5}, environment_of_own_modules(), preferred=False)
    assert ended - began >= 4 * SLOT_SECONDS


def test_a_producer_may_wait_for_busy_cores_and_not_for_busy_nodes() -> None:
    quick, slow = Latencies(300, 2, 4, 5), Latencies(200, 4, 40, 50)
    outcome = Outcome("story", before=quick, during=slow, slow_steps=0)
    assert list(excesses(outcome)) == ["p99 > 5 times"]
    assert list(excesses(replace(outcome, with_twins=Latencies(200, 3, 19, 30)))) == ["p99 > 5 times"]
    assert not list(excesses(replace(outcome, with_twins=Latencies(200, 3, 20, 30))))
    assert not list(excesses(replace(outcome, during=Latencies(200, 4, 20, 50))))


def test_steps_that_wait_for_a_core_happen_with_twins_as_well() -> None:
    quick = Latencies(300, 2, 4, 5)
    outcome = Outcome("story", before=quick, during=quick, slow_steps=7, with_twins=quick, slow_steps_with_twins=3)
    assert list(excesses(outcome)) == ["7 steps > 20 ms"]
    assert not list(excesses(replace(outcome, slow_steps=6)))
