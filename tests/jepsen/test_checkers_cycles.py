"""Cycles of readers and writers in time, beside a search that looks at every pair of operations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkers.cycles import Cycles, Order
from checkers.versions import versions_of
from histories.history import OK, History
from histories.synthetic import LegalOptions, Story, legal_history, polled, sent
from tests.examples import examples

pytestmark = pytest.mark.feature("FI-02", "FI-11")


@st.composite
def overlapping(draw: Any) -> Story:
    """Transactions of four processes; each writes a value to a key of its own and reads any others."""
    count = draw(st.integers(2, 5))
    keys = range(0, 2 * count, 2)
    story = Story()
    open_: dict[int, int] = {}
    begun = 0
    while begun < count or open_:
        process = draw(st.integers(0, 3))
        if process in open_:
            key = open_.pop(process)
            reads = draw(st.lists(st.sampled_from(list(keys)), unique=True, max_size=2))
            found = {other: [(0, 1)] for other in reads if other != key}
            story.line(process, "ok", "txn", [sent(key, 1, 0), polled(found)])
        elif begun < count:
            story.invoke(process, "txn", [["send", keys[begun], 1], ["poll"]])
            open_[process] = keys[begun]
            begun += 1
    return story


def has_cycle(history: History, order: Order) -> bool:
    """By the matrix of who reaches whom."""
    operations, versions = history.operations, versions_of(history)
    count = len(operations)
    reaches = np.zeros((count, count), dtype=bool)
    for value, reader in zip(versions.read_value, versions.read_operation, strict=True):
        writer = versions.writer[value]
        if writer >= 0 and writer != reader:
            reaches[writer, reader] = True
    for one in range(count):
        for other in range(count):
            before = operations.outcome[one] == OK and operations.completed[one] < operations.invoked[other]
            of_one_process = operations.process[one] == operations.process[other]
            if before and (order == "realtime" or (order == "process" and of_one_process)):
                reaches[one, other] = True
    for middle in range(count):
        reaches |= np.outer(reaches[:, middle], reaches[middle])
    return bool(reaches.diagonal().any())


@given(overlapping())
@settings(max_examples=examples(40), deadline=None)
def test_every_cycle_in_time_is_found_and_no_other(story: Story) -> None:
    history = story.history()
    plain = Cycles().check(history)
    assert (plain.valid == "false") == has_cycle(history, "")
    for order in ("process", "realtime"):
        verdict = Cycles(order).check(history)
        found = verdict.valid == "false" or plain.valid == "false"
        assert found == has_cycle(history, order)
        for finding in verdict.findings:
            assert finding.anomaly == f"G1c-{order}" and len(finding.operations) >= 2


@given(st.integers(0, 2**32))
@settings(max_examples=examples(8), deadline=None)
def test_a_log_that_keeps_its_promises_has_no_cycle_of_reads(seed: int) -> None:
    history = History.of(legal_history(LegalOptions(operations=60, transactions=1.0), seed), {"workload": "queue"})
    assert not has_cycle(history, "realtime")
    orders: tuple[Order, ...] = ("", "process", "realtime")
    assert [Cycles(order).check(history).valid for order in orders] == ["true"] * 3


def test_a_realtime_cycle_is_described_edge_by_edge() -> None:
    story = Story()
    story.poll(1, {0: [(0, 1)]})
    story.send(2, 2, 1, 0)
    story.txn(0, [sent(0, 1, 0), polled({2: [(0, 1)]})])
    [finding] = Cycles("realtime").check(story.history()).findings
    assert finding.operations == [1, 5]
    assert "1 was over before operation 5" in finding.description
    assert "5 wrote 1 to t0-0, which was read by operation 1" in finding.description
