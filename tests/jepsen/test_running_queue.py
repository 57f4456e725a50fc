"""Queue and list-append, played over an honest Kafka in memory and over lying ones, by the real runner."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkers.all_checkers import check_all, of_workload
from checkers.verdict import Verdict
from histories.history import History
from tests.jepsen.fake_client import run_over
from tests.jepsen.fake_kafka import FakeKafka
from workloads.catalogue import make_workload
from workloads.workload import WorkloadOptions

pytestmark = pytest.mark.feature("FI-01")

PROCESSES = 4
OPTIONS = WorkloadOptions(processes=PROCESSES, keys=3, max_writes_per_key=40, crash_every_seconds=3.0)


def play(workload: str, kafka: FakeKafka, directory: Path, seed: int = 1) -> tuple[History, Verdict]:
    made = make_workload(workload, OPTIONS)
    history = run_over(kafka, made, directory, processes=PROCESSES, seconds=4.0, seed=seed)
    return history, check_all(history, of_workload(history.run))


def illegal(verdict: Verdict) -> set[str]:
    return {finding.anomaly for finding in verdict.findings if not finding.legal}


@pytest.mark.parametrize("workload", ["queue", "list-append"])
@pytest.mark.parametrize("timeouts", [0.0, 0.05])
def test_an_honest_cluster_is_found_valid(workload: str, timeouts: float, tmp_path: Path) -> None:
    history, verdict = play(workload, FakeKafka(1, timeouts=timeouts), tmp_path)

    assert verdict.valid == "true", verdict.findings
    assert {"send", "poll", "txn", "crash"} <= set(history.fs)


@pytest.mark.parametrize(
    ("workload", "lie", "anomalies"),
    [
        ("queue", "lose", {"lost-write", "unseen"}),
        ("queue", "duplicate", {"duplicate"}),
        ("queue", "dirty-reads", {"G1a", "precommitted-read"}),
        ("queue", "skip", {"poll-skip", "int-poll-skip"}),
        ("list-append", "lose", {"lost-write", "unseen"}),
        ("list-append", "dirty-reads", {"G1a", "precommitted-read"}),
    ],
)
def test_a_lie_of_the_cluster_is_found(workload: str, lie: str, anomalies: set[str], tmp_path: Path) -> None:
    kafka = FakeKafka(2, lies={lie: 0.05})
    _history, verdict = play(workload, kafka, tmp_path)

    assert kafka.lies_so_far > 0
    assert verdict.valid == "false"
    assert illegal(verdict) & anomalies


def test_the_same_seed_writes_the_same_history(tmp_path: Path) -> None:
    written = []
    for name, seed in (("a", 5), ("b", 5), ("c", 6)):
        play("queue", FakeKafka(3, timeouts=0.02), tmp_path / name, seed)
        written.append((tmp_path / name / "history.jsonl").read_bytes())

    assert written[0] == written[1]
    assert written[0] != written[2]


def test_values_of_a_key_are_sent_once_each_and_in_their_order(tmp_path: Path) -> None:
    play("queue", FakeKafka(4), tmp_path)
    history = History.load(tmp_path)
    asked = [
        (each[1], each[2])
        for i in history.operations.invoked
        for each in (history.operation(int(i)).value or ())
        if isinstance(each, list) and each[0] == "send"
    ]
    for key in {key for key, _ in asked}:
        values = [value for each, value in asked if each == key]
        assert values == list(range(1, len(values) + 1))
        assert len(values) <= OPTIONS.max_writes_per_key
    assert len({key for key, _ in asked}) > OPTIONS.keys, "no key has ever retired"
