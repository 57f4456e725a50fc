"""Stories of one share partition: who gets which records, and what becomes of them.

`Script` says what happens, in the order of the log: batches of the log are ranges of offsets.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from barnabas.broker.fetch_context import at_once
from barnabas.broker.shares.acquisition import AcquiredRange, Wanted
from barnabas.broker.shares.in_flight import Change, OffsetRange
from barnabas.broker.shares.record_state import RecordState
from barnabas.broker.shares.share_partition import (
    SPANS_IN_A_STEP,
    Acknowledgement,
    SharePartition,
    Terms,
    without,
)
from barnabas.broker.shares.state import ShareState, StateBatch
from barnabas.protocol.errors import ErrorCode, KafkaError

pytestmark = pytest.mark.feature("CG-17", "CG-19")

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVING, ARCHIVED = RecordState
LOCK_MS = 30_000


class Script:
    """A share partition over a log with these batches."""

    def __init__(
        self,
        *batches: tuple[int, int],
        start: int = 0,
        limit: int = 5,
        locks: int = 2_000,
        stored: Sequence[tuple[int, int, int, int]] = (),
    ) -> None:
        self.log = [OffsetRange(*each) for each in batches]
        self.limit = limit
        self.locks = locks
        self.terms = Terms(LOCK_MS, limit, locks, may_renew=True)
        self.now_ms = 0
        self.partition = SharePartition(ShareState(1, start, tuple(StateBatch(*it) for it in stored)), start)

    def fetch(
        self, member: str = "a", most: int = 500, batch_size: int = 500, *, by_record: bool = False, batches: int = 100
    ) -> list[tuple[int, int, int]]:
        partition = self.partition
        if not partition.can_acquire(self.locks):
            return []
        offset = partition.next_fetch_offset()
        fetched = [it for it in self.log if it.last_offset >= offset][:batches]
        wanted = Wanted(member, most, batch_size, by_record, self.limit, self.locks)
        return [tuple(it) for it in partition.acquire(wanted, fetched, offset, self.now_ms, LOCK_MS)]

    def begin(self, member: str, first: int, last: int, *types: int) -> Change:
        acknowledgement = Acknowledgement(first, last, types)
        return at_once(self.partition.acknowledge(member, [acknowledgement], self.now_ms, self.terms))

    def end(self, change: Change, *, stored: bool = True) -> bool:
        return at_once(self.partition.finish(change, self.terms, self.now_ms, stored=stored))

    def say(self, member: str, first: int, last: int, *types: int) -> list[tuple[int, int, int, int]]:
        """An acknowledgement that is stored at once; gives what is stored."""
        change = self.begin(member, first, last, *types)
        self.end(change)
        return [tuple(it) for it in change.stored]

    def refused(self, member: str, first: int, last: int, *types: int) -> ErrorCode:
        with pytest.raises(KafkaError) as caught:
            self.begin(member, first, last, *types)
        return caught.value.code

    def wait(self, ms: int) -> list[tuple[int, int, int, int]]:
        """Gives what is stored of expired locks."""
        self.now_ms += ms
        return [tuple(it) for it in at_once(self.partition.expire(self.now_ms, self.terms)).stored]

    def leave(self, member: str) -> None:
        self.end(at_once(self.partition.release(member, self.terms)))

    @property
    def ends(self) -> tuple[int, int]:
        return self.partition.start_offset, self.partition.end_offset

    @property
    def spans(self) -> list[tuple[int, int, RecordState, int]]:
        return list(self.partition.spans())


# -- new records


def test_new_records_come_in_whole_batches_of_the_log() -> None:
    it = Script((0, 4), (5, 9), (10, 14))
    assert it.fetch(most=7) == [(0, 9, 1)]
    assert it.fetch("b") == [(10, 14, 1)]
    assert it.fetch("c") == []


def test_new_records_are_reported_in_ranges_of_the_wanted_size() -> None:
    it = Script((0, 4), (5, 9), (10, 14), (15, 16))
    assert it.fetch(batch_size=10) == [(0, 9, 1), (10, 16, 1)]
    it = Script((0, 4), (5, 9), (10, 14), (15, 16))
    assert it.fetch(batch_size=1) == [(0, 4, 1), (5, 9, 1), (10, 14, 1), (15, 16, 1)]


def test_by_record_there_are_never_more_than_wanted() -> None:
    it = Script((0, 9), (10, 19))
    assert it.fetch(most=4, by_record=True) == [(0, 3, 1)]
    assert it.fetch("b", most=4, by_record=True) == [(4, 7, 1)]
    assert it.fetch("c", most=4, by_record=True) == [(8, 9, 1), (10, 11, 1)]
    assert it.spans[-1] == (12, 19, AVAILABLE, 0)


def test_a_start_offset_within_a_batch_of_the_log() -> None:
    it = Script((0, 9), start=6)
    assert it.fetch() == [(6, 9, 1)]


def test_offsets_without_records_before_the_first_batch_are_not_waited_for() -> None:
    it = Script((5, 9), (20, 24))
    assert it.fetch(batches=1) == [(5, 9, 1)]
    assert it.ends == (5, 10)
    assert it.fetch() == [(20, 24, 1)]
    it.say("a", 5, 9, ACCEPT)
    assert it.ends == (20, 25)


def test_no_more_are_in_flight_than_allowed() -> None:
    it = Script((0, 3), (4, 7), (8, 11), locks=6)
    assert it.fetch() == [(0, 7, 1)], "the batch that reaches the limit is acquired as a whole"
    assert it.fetch("b") == []
    it.say("a", 2, 2, RELEASE)
    assert it.fetch("b") == [(2, 2, 2)], "a released record is acquired nevertheless"
    it.say("a", 0, 1, ACCEPT)
    it.say("a", 3, 3, ACCEPT)
    assert it.fetch("b") == [], "record 2 holds the window"
    it.say("b", 2, 2, ACCEPT)
    assert it.ends == (4, 8)
    assert it.fetch("b") == [(8, 11, 1)]


# -- records again


def test_a_released_batch_is_acquired_as_it_was() -> None:
    it = Script((0, 4), (5, 9))
    it.fetch()
    it.leave("a")
    assert it.fetch("b", most=1) == [(0, 9, 2)], "one acquisition was one batch"


def test_released_records_come_before_new_ones() -> None:
    it = Script((0, 9), (10, 19))
    it.fetch(batches=1)
    it.say("a", 3, 4, RELEASE)
    it.say("a", 7, 7, RELEASE)
    assert it.fetch("b") == [(3, 4, 2), (7, 7, 2), (10, 19, 1)]


def test_a_batch_is_halved_as_it_comes_closer_to_its_last_delivery() -> None:
    it = Script((0, 15), (16, 31), limit=6)
    for count in (1, 2, 3):
        assert it.fetch(batches=1) == [(0, 15, count)]
        it.leave("a")
    # Delivered three times, half as often as allowed: half of the batch from now on, and alone.
    assert it.fetch() == [(0, 7, 4)]
    assert it.fetch("b") == [(8, 15, 4)]
    it.leave("a")
    it.leave("b")
    assert it.fetch() == [(0, 3, 5)]
    it.leave("a")
    # The last delivery is that of a single record.
    assert it.fetch() == [(0, 0, 6)]
    assert it.fetch("b") == [(1, 1, 6)]
    it.leave("a")
    it.leave("b")
    assert it.ends[0] == 2, "both are given up"
    assert it.fetch() == [(2, 2, 6)]


def test_records_are_given_up_at_the_limit() -> None:
    it = Script((0, 1), limit=2)
    assert it.fetch() == [(0, 1, 1)]
    it.say("a", 0, 1, RELEASE)
    assert it.fetch() == [(0, 1, 2)]
    change = it.begin("a", 0, 1, RELEASE)
    assert change.given_up == [(0, 1)] and change.stored == [(0, 1, ARCHIVED, 2)]
    it.end(change)
    assert it.ends == (2, 2)


# -- acknowledgements


def test_each_offset_may_have_a_type_of_its_own() -> None:
    it = Script((0, 5))
    it.fetch()
    stored = it.say("a", 0, 5, ACCEPT, ACCEPT, RELEASE, REJECT, GAP, RELEASE)
    assert stored == [(0, 1, 2, 1), (2, 2, 0, 1), (3, 4, 4, 1), (5, 5, 0, 1)]
    assert it.spans == [(2, 2, AVAILABLE, 1), (3, 4, ARCHIVED, 1), (5, 5, AVAILABLE, 1)]
    assert it.partition.delivery_complete_count == 2
    assert it.fetch("b") == [(2, 2, 2), (5, 5, 2)]


def test_nothing_happens_if_a_part_of_an_acknowledgement_is_refused() -> None:
    it = Script((0, 4), (5, 9))
    it.fetch(batches=1)
    it.fetch("b")
    before = it.spans
    assert it.refused("a", 0, 9, ACCEPT) is ErrorCode.INVALID_RECORD_STATE
    assert it.refused("a", 0, 10, ACCEPT) is ErrorCode.INVALID_REQUEST
    assert it.refused("a", 10, 11, ACCEPT) is ErrorCode.INVALID_REQUEST
    assert it.refused("c", 0, 0, ACCEPT) is ErrorCode.INVALID_RECORD_STATE
    assert it.spans == before and it.partition.delivery_complete_count == 0
    it.say("a", 0, 4, ACCEPT)
    assert it.say("a", 0, 4, ACCEPT) == [], "what is behind the start offset is not checked"
    assert it.refused("a", 5, 5, ACCEPT) is ErrorCode.INVALID_RECORD_STATE


def test_records_stay_acquired_until_their_acknowledgement_is_stored() -> None:
    it = Script((0, 4))
    it.fetch()
    change = it.begin("a", 0, 4, RELEASE)
    assert it.fetch("b") == []
    assert it.refused("a", 2, 2, ACCEPT) is ErrorCode.INVALID_RECORD_STATE
    assert not it.end(change, stored=False)
    assert it.fetch("b") == []
    assert it.say("a", 0, 4, ACCEPT) == [(0, 4, 2, 1)]
    assert it.ends == (5, 5)


def test_a_lock_that_expires_meanwhile_counts_if_nothing_is_stored() -> None:
    it = Script((0, 4))
    it.fetch()
    change = it.begin("a", 0, 4, ACCEPT)
    assert it.wait(LOCK_MS) == []
    assert it.end(change, stored=False)
    assert it.fetch("b") == [(0, 4, 2)]
    it.wait(LOCK_MS - 1)
    change = it.begin("b", 0, 4, ACCEPT)
    assert it.wait(1) == []
    it.end(change)
    assert it.ends == (5, 5)


def test_a_renewed_lock_begins_again() -> None:
    it = Script((0, 4))
    it.fetch()
    it.wait(LOCK_MS - 1)
    assert it.say("a", 2, 3, RENEW) == []
    assert it.wait(1) == [(0, 1, 0, 1), (4, 4, 0, 1)]
    assert it.partition.next_deadline_ms() == 2 * LOCK_MS - 1
    assert it.wait(LOCK_MS) == [(2, 3, 0, 1)]
    assert it.partition.next_deadline_ms() is None
    it.terms = Terms(LOCK_MS, 5, 2_000, may_renew=False)
    it.fetch()
    assert it.refused("a", 0, 4, RENEW) is ErrorCode.INVALID_RECORD_STATE


# -- the log moves


def test_records_that_leave_the_log_are_not_waited_for() -> None:
    it = Script((0, 4), (5, 9))
    it.fetch()
    change = it.begin("a", 0, 6, ACCEPT)
    it.partition.log_start_moved(3)
    assert it.ends == (3, 10) and it.partition.delivery_complete_count == 4
    it.end(change)
    assert it.ends == (7, 10)
    it.partition.log_start_moved(20)
    assert it.ends == (20, 20)
    assert it.say("a", 7, 9, ACCEPT) == []
    it.log = [OffsetRange(20, 22)]
    assert it.fetch("b") == [(20, 22, 1)]


def test_released_records_that_compaction_removes_are_archived() -> None:
    it = Script((0, 4), (5, 9), (10, 14))
    it.fetch()
    it.leave("a")
    it.log = [OffsetRange(10, 14)]
    assert it.fetch("b") == [(10, 14, 2)]
    assert it.ends == (10, 15)


def test_records_of_aborted_transactions_are_archived_at_once() -> None:
    it = Script((0, 4), (5, 9), (10, 10), (11, 14))
    acquired = [AcquiredRange(*each) for each in it.fetch()]
    left = it.partition.archive_aborted(acquired, [OffsetRange(0, 4), OffsetRange(11, 12)])
    assert left == [(5, 10, 1), (13, 14, 1)]
    assert it.ends == (5, 15)
    assert it.partition.delivery_complete_count == 2
    it.say("a", 5, 10, ACCEPT)
    assert it.ends == (13, 15)


def test_a_window_of_aborted_records_does_not_stop_the_group() -> None:
    it = Script((0, 9), (10, 19), locks=10)
    acquired = [AcquiredRange(*each) for each in it.fetch()]
    assert it.partition.archive_aborted(acquired, [OffsetRange(0, 9)]) == []
    assert it.fetch() == [(10, 19, 1)]


@pytest.mark.parametrize(
    ("removed", "left"),
    [
        ([], [(0, 9), (20, 29)]),
        ([(0, 29)], []),
        ([(3, 4)], [(0, 2), (5, 9), (20, 29)]),
        ([(8, 21), (25, 25)], [(0, 7), (22, 24), (26, 29)]),
        ([(10, 19)], [(0, 9), (20, 29)]),
        ([(0, 0), (9, 9), (29, 40)], [(1, 8), (20, 28)]),
    ],
)
def test_ranges_without_others(removed: list[tuple[int, int]], left: list[tuple[int, int]]) -> None:
    acquired = [AcquiredRange(0, 9, 1), AcquiredRange(20, 29, 2)]
    found = without(acquired, [OffsetRange(*each) for each in removed])
    assert [(first, last) for first, last, _ in found] == left


# -- stored states


def test_a_new_leader_delivers_what_the_last_one_had_acquired() -> None:
    stored = [(5, 7, ACKNOWLEDGED, 1), (8, 9, AVAILABLE, 3), (12, 14, ARCHIVED, 5)]
    it = Script((0, 4), (5, 9), (10, 14), (15, 19), stored=stored)
    assert it.ends == (0, 15)
    assert it.fetch(most=3) == [(0, 4, 1)], "a whole batch of the log"
    assert it.fetch("b") == [(8, 8, 4)], "delivered often, so less of it"
    assert it.fetch("c") == [(9, 9, 4)]
    assert it.fetch("d") == [(10, 11, 1), (15, 19, 1)]
    for member, first, last in (("a", 0, 4), ("b", 8, 8), ("c", 9, 9), ("d", 10, 11)):
        it.say(member, first, last, ACCEPT)
    assert it.ends == (15, 20)


def test_a_gap_of_the_stored_state_may_have_no_records() -> None:
    stored = [(0, 1, ACKNOWLEDGED, 1), (4, 4, AVAILABLE, 1), (8, 9, ACKNOWLEDGED, 1)]
    it = Script((0, 1), (8, 9), stored=stored)
    assert it.ends == (2, 10)
    assert it.fetch() == [], "the log has nothing between 2 and 7"
    assert it.ends == (10, 10)


def test_a_state_without_available_records_moves_on() -> None:
    it = Script((0, 9), start=2, stored=[(2, 4, ACKNOWLEDGED, 1), (5, 9, ARCHIVED, 5)])
    assert it.ends == (10, 10)


@pytest.mark.parametrize(
    "stored",
    [[(3, 4, 2, 1)], [(5, 4, 2, 1)], [(5, 6, 2, 1), (6, 7, 2, 1)], [(5, 6, 1, 1)], [(5, 6, 5, 1)]],
)
def test_a_state_that_contradicts_itself_is_refused(stored: list[tuple[int, int, int, int]]) -> None:
    with pytest.raises(ValueError):
        Script(start=5, stored=stored)


# -- the cost


def test_a_huge_batch_costs_no_more_than_its_parts() -> None:
    it = Script((0, 10**12))
    assert it.fetch() == [(0, 10**12, 1)]
    it.say("a", 5, 10**11, RELEASE)
    assert it.fetch("b") == [(5, 10**11, 2)]
    assert len(it.spans) == 3


def test_long_acknowledgements_are_taken_in_steps() -> None:
    count = 20 * SPANS_IN_A_STEP
    it = Script((0, count - 1))
    it.fetch()
    types = [ACCEPT, RELEASE] * (count // 2)
    steps = it.partition.acknowledge("a", [Acknowledgement(0, count - 1, types)], 0, it.terms)
    taken = sum(1 for _ in steps)
    assert taken == 20
    assert it.partition.delivery_complete_count == count // 2
    # The member leaves without an answer of the store: its lock ends.
    assert it.wait(LOCK_MS) == []


def test_the_steps_of_an_acknowledgement_may_be_interrupted_by_a_new_log_start() -> None:
    count = 4 * SPANS_IN_A_STEP
    it = Script((0, count - 1))
    it.fetch()
    types = [ACCEPT, RELEASE] * (count // 2)
    steps = it.partition.acknowledge("a", [Acknowledgement(0, count - 1, types)], 0, it.terms)
    next(steps)
    it.partition.log_start_moved(count - 10)
    change = at_once(steps)
    it.end(change)
    assert it.ends == (count - 9, count)
    assert it.fetch("b") == [(each, each, 2) for each in range(count - 9, count, 2)]
