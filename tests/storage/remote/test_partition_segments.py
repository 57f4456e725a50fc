"""The remote segments of a partition: the answers are those of Kafka's RemoteLogMetadataCache, and of a naive model."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from barnabas.storage.remote.partition_segments import PartitionSegments
from barnabas.storage.remote.segment import RemoteSegment, SegmentState, may_move
from tests.storage.remote.kafkas import epochs_in, lines
from tests.storage.remote.remote_rig import (
    DELETED,
    DELETING,
    FINISHED,
    KEY,
    STARTED,
    copied,
    moved,
    number_of,
    numbers,
    of_epoch,
    segment,
    segment_id,
)

pytestmark = pytest.mark.feature("TS-04")

EPOCHS, OFFSETS = 5, 40


def test_a_segment_is_read_when_it_is_copied_and_until_its_deletion_begins() -> None:
    known = PartitionSegments(KEY)
    assert known.apply(segment(1, 0, 99))
    assert known.segment_for(0, 50) is None
    assert of_epoch(known, 0) == [1]
    assert known.apply(moved(1, FINISHED))
    found = known.segment_for(0, 50)
    assert found is not None
    assert (number_of(found), found.state) == (1, FINISHED)
    assert known.segment_for(0, 100) is None
    assert known.segment_for(1, 50) is None
    assert known.finished_bytes == 100
    assert known.apply(moved(1, DELETING))
    assert known.segment_for(0, 50) is None
    assert numbers(known.unfinished()) == [1]
    assert known.apply(moved(1, DELETED))
    assert (len(known), known.finished_bytes, of_epoch(known, 0), known.unfinished()) == (0, 0, [], [])
    assert known.highest_offset(0) == 99


def test_moves_that_the_table_does_not_have_change_nothing() -> None:
    known = copied(segment(1, 0, 99))
    assert not known.apply(segment(1, 0, 99))
    assert not known.apply(moved(1, DELETED))
    assert not known.apply(moved(2, FINISHED))
    assert number_of(known.segment_for(0, 50)) == 1
    assert known.apply(moved(1, FINISHED)), "its publisher has tried again"
    assert known.apply(moved(1, DELETING))
    assert not known.apply(moved(1, FINISHED)), "a deposed leader has finished its copy too late"
    assert known.segment_for(0, 50) is None


def test_the_successor_covers_what_a_leader_with_a_lag_has_copied() -> None:
    known = copied(segment(1, 0, 100), segment(2, 0, 200))
    assert [number_of(known.segment_for(0, offset)) for offset in (0, 100, 101, 200, 201)] == [2, 2, 2, 2, None]
    assert numbers(known.unreferenced(0)) == [1]
    known.apply(moved(2, DELETING))
    assert [number_of(known.segment_for(0, offset)) for offset in (0, 100, 101)] == [1, 1, None]


def test_a_shorter_copy_that_comes_late_hides_nothing() -> None:
    """The offsets 101 to 200 cannot be read any more in Kafka 4.3."""
    known = copied(segment(2, 0, 200), segment(1, 0, 100))
    assert [number_of(known.segment_for(0, offset)) for offset in (0, 100, 101, 200)] == [2, 2, 2, 2]
    known = copied(segment(2, 5, 100), segment(3, 101, 200), segment(1, 10, 90))
    assert [number_of(known.segment_for(0, offset)) for offset in (5, 50, 95, 101)] == [2, 2, 2, 3]


def test_a_segment_of_two_epochs_is_found_by_each_epoch_in_its_part() -> None:
    known = copied(segment(1, 0, 99, {3: 0, 5: 60}), segment(2, 100, 149, {5: 100}))
    assert [number_of(known.segment_for(3, offset)) for offset in (0, 59, 60)] == [1, 1, None]
    assert [number_of(known.segment_for(5, offset)) for offset in (59, 60, 99, 100, 149)] == [None, 1, 1, 2, 2]
    assert (known.highest_offset(3), known.highest_offset(5), known.highest_offset(4)) == (59, 149, None)
    assert (known.first_offset(3), known.first_offset(5)) == (0, 60)
    assert known.leader_epochs() == [3, 5]


def test_before_all_earlier_records_are_read_a_stranger_is_one_that_was_deleted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    known = PartitionSegments(KEY)
    assert not known.apply(moved(1, DELETED))
    assert not caplog.records
    known.is_complete = True
    assert not known.apply(moved(1, DELETED))
    assert "is unknown" in caplog.text


# -- Kafka's answers


def replayed(operations: str) -> PartitionSegments:
    known = PartitionSegments(KEY)
    known.is_complete = True
    for operation in operations.split(";"):
        if operation.startswith("+"):
            number, start, end, epochs = operation[1:].split(" ")
            known.apply(segment(int(number), int(start), int(end), epochs_in(epochs)))
        else:
            name, _, state = operation.partition(">")
            known.apply(moved(int(name), SegmentState(int(state))))
    return known


def listed(text: str) -> list[int]:
    return [] if text == "-" else sorted(map(int, text.split(",")))


def as_written(found: object) -> str:
    return "-" if found is None else str(found)


@pytest.mark.parametrize("kind", ["orderly", "leaders", "any"])
def test_histories_have_the_same_answers_as_in_kafka(kind: str) -> None:
    """Where copies overlap, Kafka loses some offsets, and here they are found."""
    count = compared = 0
    for line in lines(f"history {kind}"):
        operations, answers = line.removeprefix("| ").split(" | ")
        known = replayed(operations)
        *of_epochs, everything = answers.split(";")
        assert sorted(numbers(known.all())) == listed(everything)
        for epoch, answer in enumerate(of_epochs):
            found, in_epoch, highest = answer.split(" ")
            assert as_written(known.highest_offset(epoch)) == highest, (operations, epoch)
            ours = [as_written(number_of(known.segment_for(epoch, offset))) for offset in range(OFFSETS)]
            both = list(zip(ours, found.split(","), strict=True))
            assert all(own != "-" for own, kafkas in both if kafkas != "-"), (operations, epoch)
            assert set(listed(in_epoch)) <= set(of_epoch(known, epoch)), (operations, epoch)
            if kind == "orderly" or (kind == "leaders" and ">2" not in operations):
                assert ours == found.split(","), (operations, epoch)
                assert of_epoch(known, epoch) == listed(in_epoch), (operations, epoch)
                compared += 1
        count += 1
    assert count > 100
    assert (compared > 50) == (kind != "any")


# -- the model


def epochs_of(start: int, end: int, cuts: list[int], first_epoch: int) -> dict[int, int]:
    starts = [start, *sorted({cut for cut in cuts if start < cut <= end})]
    return {first_epoch + place: offset for place, offset in enumerate(starts)}


class AnyHistory(RuleBasedStateMachine):
    """Whatever is published, in whatever order: an offset is readable exactly if a finished segment has it."""

    def __init__(self) -> None:
        super().__init__()
        self.known = PartitionSegments(KEY)
        self.known.is_complete = True
        self.states: dict[int, SegmentState] = {}
        self.begun: dict[int, RemoteSegment] = {}

    @rule(
        start=st.integers(0, 30),
        length=st.integers(1, 12),
        cuts=st.lists(st.integers(0, 40), max_size=2),
        epoch=st.integers(0, 2),
    )
    def begin(self, start: int, length: int, cuts: list[int], epoch: int) -> None:
        number, end = len(self.begun) + 1, start + length - 1
        self.begun[number] = segment(number, start, end, epochs_of(start, end, cuts, epoch))
        self.states[number] = STARTED
        assert self.known.apply(self.begun[number])

    @precondition(lambda self: self.begun)
    @rule(data=st.data(), state=st.sampled_from(SegmentState))
    def move(self, data: st.DataObject, state: SegmentState) -> None:
        number = data.draw(st.sampled_from(sorted(self.begun)))
        before = self.states.get(number)
        update = moved(number, state) if state is not STARTED else self.begun[number]
        assert self.known.apply(update) == may_move(before, state)
        if may_move(before, state):
            self.states[number] = state
            if state is DELETED:
                del self.states[number]

    def _with(self, epoch: int, *states: SegmentState) -> list[int]:
        """Numbers of the segments in these states with records of the epoch."""
        return [each for each, state in self.states.items() if state in states and self._range(each, epoch)]

    def _range(self, number: int, epoch: int) -> range:
        starts = dict(self.begun[number].leader_epochs)
        return range(starts[epoch], self.begun[number].end_offset_of(epoch) + 1) if epoch in starts else range(0)

    @invariant()
    def answers_are_those_of_the_model(self) -> None:
        assert {number_of(each): each.state for each in self.known.all()} == dict(self.states.items())
        finished = [number for number, state in self.states.items() if state is FINISHED]
        assert self.known.finished_bytes == 100 * len(finished)
        assert set(numbers(self.known.unfinished())) == set(self.states) - set(finished)
        for epoch in range(EPOCHS):
            readable = self._with(epoch, FINISHED)
            assert of_epoch(self.known, epoch) == sorted(self._with(epoch, STARTED, FINISHED, DELETING))
            referenced = [self._range(each, epoch) for each in numbers(list(self.known.referenced(epoch)))]
            assert all(one.start < other.start and one.stop < other.stop for one, other in pairwise(referenced))
            for offset in range(0, 44, 3):
                having = [each for each in readable if offset in self._range(each, epoch)]
                found = self.known.segment_for(epoch, offset)
                assert (number_of(found) in having) if having else found is None


TestAnyHistory = AnyHistory.TestCase


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 10)), min_size=1, max_size=8))
def test_copied_records_stay_readable_whatever_is_copied_besides(ranges: list[tuple[int, int]]) -> None:
    known, readable = PartitionSegments(KEY), set[int]()
    for number, (start, length) in enumerate(ranges):
        known.apply(segment(number, start, start + length - 1))
        known.apply(moved(number, FINISHED))
        readable |= set(range(start, start + length))
        assert {offset for offset in range(32) if known.segment_for(0, offset) is not None} == readable
    assert segment_id(0) == bytes(16)
