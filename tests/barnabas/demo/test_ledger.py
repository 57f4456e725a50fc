"""The ledger finds every planted loss, duplicate and reordering, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.demo.ledger import Ledger, Verdict


@dataclass
class History:
    """The records of one partition: outcomes in the order of sending, and the log."""

    outcomes: list[str]
    log: list[int]
    """Numbers by offset."""

    def replay(self, ledger: Ledger, partition: int, read: list[tuple[int, int]] | None = None) -> None:
        """All of it; `read` (offset, number) takes the place of reading the log once."""
        values = {}
        for outcome in self.outcomes:
            number, values[number] = ledger.send(partition)
            if outcome == "acked":
                ledger.acked(partition, number, self.log.index(number), now_ms=0)
            elif outcome == "failed":
                ledger.failed(partition, number)
            else:
                ledger.unknown(partition, number)
        for offset, number in enumerate(self.log) if read is None else read:
            ledger.read(partition, offset, values[number])


@st.composite
def histories(draw: st.DrawFn) -> History:
    """A history of a correct cluster: acked records are in the log, failed ones are not, others may be."""
    kinds = draw(st.lists(st.sampled_from(["acked", "acked", "acked", "failed", "there", "not there"]), max_size=30))
    log = [number for number, kind in enumerate(kinds) if kind in ("acked", "there")]
    return History([kind if kind in ("acked", "failed") else "unknown" for kind in kinds], log)


def ledger_of(*all_histories: History) -> Ledger:
    ledger = Ledger("run", len(all_histories), began_ms=0)
    for partition, history in enumerate(all_histories):
        history.replay(ledger, partition)
    return ledger


def faults(verdict: Verdict) -> tuple[int, int, int, int]:
    return verdict.lost, verdict.duplicated, verdict.out_of_order, verdict.misplaced


@given(st.lists(histories(), min_size=1, max_size=3))
def test_a_correct_history_is_clean(all_histories: list[History]) -> None:
    verdict = ledger_of(*all_histories).verdict()
    assert verdict.clean
    assert verdict.sent == sum(len(each.outcomes) for each in all_histories)
    assert verdict.sent == verdict.acked + verdict.failed + verdict.unknown
    assert verdict.read == sum(len(each.log) for each in all_histories)


@given(histories(), st.data())
def test_each_loss_is_found(history: History, data: st.DataObject) -> None:
    acked = [number for number, outcome in enumerate(history.outcomes) if outcome == "acked"]
    lost = data.draw(st.sets(st.sampled_from(acked)) if acked else st.just(set()))
    ledger = Ledger("run", 1, began_ms=0)
    history.replay(ledger, 0, [(offset, number) for offset, number in enumerate(history.log) if number not in lost])
    assert faults(ledger.verdict()) == (len(lost), 0, 0, 0)
    assert ledger.verdict().clean is not bool(lost)


@given(histories(), st.data())
def test_each_duplicate_is_found(history: History, data: st.DataObject) -> None:
    again = data.draw(st.lists(st.sampled_from(history.log), max_size=5) if history.log else st.just([]))
    ledger = Ledger("run", 1, began_ms=0)
    history.replay(ledger, 0, list(enumerate([*history.log, *again])))
    assert faults(ledger.verdict()) == (0, len(again), 0, 0)


@given(histories(), st.data())
def test_each_record_out_of_order_is_found(history: History, data: st.DataObject) -> None:
    """The log holds them in another order, and the cluster says so in its acks."""
    shuffled = replace(history, log=data.draw(st.permutations(history.log)))
    after_later_ones = sum(
        any(earlier > number for earlier in shuffled.log[:offset]) for offset, number in enumerate(shuffled.log)
    )
    ledger = Ledger("run", 1, began_ms=0)
    shuffled.replay(ledger, 0)
    assert faults(ledger.verdict()) == (0, 0, after_later_ones, 0)


def test_a_record_at_another_offset_than_acked_is_misplaced() -> None:
    ledger = Ledger("run", 2, began_ms=0)
    _number, value = ledger.send(0)
    ledger.acked(0, 0, offset=7, now_ms=0)
    ledger.read(0, 8, value)
    assert faults(ledger.verdict()) == (0, 0, 0, 1)


def test_an_ack_without_an_offset_matches_any_offset() -> None:
    ledger = Ledger("run", 1, began_ms=0)
    _number, value = ledger.send(0)
    ledger.acked(0, 0, offset=-1, now_ms=0)
    ledger.read(0, 8, value)
    assert ledger.verdict().clean


@pytest.mark.parametrize("value", [b"run 1 0", b"run 0 1", b"run 0 x", b"run", b"run nonsense"])
def test_a_record_that_was_never_sent_is_misplaced_unless_it_is_of_another_run(value: bytes) -> None:
    ledger = Ledger("run", 2, began_ms=0)
    ledger.send(0)
    ledger.read(0, 0, value)
    assert ledger.verdict().misplaced == (value != b"run")


def test_a_failed_record_in_the_log_is_misplaced() -> None:
    ledger = Ledger("run", 1, began_ms=0)
    _number, value = ledger.send(0)
    ledger.failed(0, 0)
    ledger.read(0, 0, value)
    assert faults(ledger.verdict()) == (0, 0, 0, 1)


def test_other_runs_in_the_same_topic_do_not_count() -> None:
    ledger = Ledger("run", 1, began_ms=0)
    for value in (b"runner 0 0", b"hello", None):
        ledger.read(0, 0, value)
    assert ledger.verdict() == Verdict(0, 0, 0, 0, 0, 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("acked", "times_read", "expected"),
    [
        (True, 1, (0, 0, 0, 0)),
        (True, 0, (1, 0, 0, 0)),
        (True, 2, (0, 1, 0, 0)),
        (False, 0, (0, 0, 0, 0)),
        (False, 1, (0, 0, 0, 0)),
    ],
)
def test_a_write_outside_the_stream_counts_by_its_ack(
    acked: bool, times_read: int, expected: tuple[int, int, int, int]
) -> None:
    ledger = Ledger("run", 1, began_ms=0)
    value = ledger.value_aside("zombie")
    ledger.aside(value, acked=acked)
    for offset in range(times_read):
        ledger.read(0, offset, value)
    assert faults(ledger.verdict()) == expected
    assert ledger.was_read(value) is bool(times_read)


# Gaps


class Acks:
    """Acks of one partition at given moments."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    def __call__(self, *moments_ms: int) -> None:
        for now_ms in moments_ms:
            number, _value = self.ledger.send(0)
            self.ledger.acked(0, number, number, now_ms)


def test_a_gap_counts_for_the_fault_before_it_and_not_for_the_calm() -> None:
    ledger = Ledger("run", 1, began_ms=0)
    ack = Acks(ledger)
    ack(100)
    calm = ledger.begin_window("calm", 100)
    ack(110, 120)
    kill = ledger.begin_window("kill", 125)
    ack(1_120, 1_130)
    start = ledger.begin_window("start", 1_135)
    ack(1_160)
    ledger.finish(1_200)
    assert [window.gap_ms for window in (calm, kill, start)] == [10, 1_000, 30]


def test_a_gap_that_outlasts_the_next_fault_counts_for_both() -> None:
    ledger = Ledger("run", 1, began_ms=0)
    ack = Acks(ledger)
    ack(100)
    first = ledger.begin_window("first", 110)
    second = ledger.begin_window("second", 500)
    third = ledger.begin_window("third", 900)
    ack(700 + 100, 950)
    assert [window.gap_ms for window in (first, second, third)] == [700, 700, 150]


def test_a_gap_counts_while_records_are_undecided() -> None:
    ledger = Ledger("run", 2, began_ms=0)
    Acks(ledger)(100)
    ledger.send(1)
    ledger.acked(1, 0, 0, 100)
    window = ledger.begin_window("kill", 100)
    ledger.finish(5_000)
    assert window.gap_ms == 0
    ledger.send(1)
    ledger.finish(5_000)
    assert (window.gap_ms, window.ended_ms) == (4_900, 5_000)


def test_acks_are_counted_by_time() -> None:
    ledger = Ledger("run", 1, began_ms=1_000)
    Acks(ledger)(1_000, 1_099, 1_100, 1_350)
    assert ledger.accounts[0].acks == [2, 1, 0, 1]
    assert ledger.silence_ms(0, 1_400) == 50


@given(st.lists(histories(), min_size=1, max_size=3), st.lists(st.integers(0, 40)), st.data())
def test_settled_records_are_removed_and_the_verdict_stays_the_same(
    all_histories: list[History], moments: list[int], data: st.DataObject
) -> None:
    """Whatever is read, in whatever order, and whenever it is settled."""
    kept, forgetting = Ledger("run", len(all_histories), 0), Ledger("run", len(all_histories), 0)
    for partition, history in enumerate(all_histories):
        entries = list(enumerate(history.log))
        read = data.draw(st.lists(st.sampled_from(entries), max_size=40)) if entries else []
        history.replay(kept, partition, read)
        history.replay(forgetting, partition, [])
        for moment, (offset, number) in enumerate(read):
            if moment in moments:
                forgetting.accounts[partition].settle()
            forgetting.read(partition, offset, b"run %d %d" % (partition, number))
        forgetting.accounts[partition].settle()
        assert forgetting.accounts[partition].end_of_acked == kept.accounts[partition].end_of_acked
        assert forgetting.accounts[partition].undecided == kept.accounts[partition].undecided
    assert forgetting.verdict() == kept.verdict()


def test_a_long_run_needs_little_memory() -> None:
    ledger = Ledger("run", 1, 0)
    (account,) = ledger.accounts
    for moment in range(5_000):
        number, value = ledger.send(0)
        ledger.acked(0, number, offset=moment, now_ms=moment)
        ledger.read(0, moment, value)
        account.settle()
    assert not account.acked and not account.read
    assert ledger.verdict().clean and ledger.verdict().acked == ledger.verdict().read == 5_000
    ledger.read(0, 5_000, b"run 0 17")
    assert ledger.verdict().duplicated == 1


def test_a_skipped_record_is_found_before_the_end() -> None:
    ledger = Ledger("run", 1, 0)
    values = [ledger.send(0)[1] for _ in range(3)]
    for number in range(3):
        ledger.acked(0, number, offset=number, now_ms=0)
    ledger.read(0, 0, values[0])
    assert ledger.accounts[0].skipped == 0
    ledger.read(0, 2, values[2])
    assert ledger.accounts[0].skipped == 1
