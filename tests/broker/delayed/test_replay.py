"""A leader reads pending records back from the delayed batches of its log, segment by segment, the newest first."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.delayed.carrying import Carrying, to_carry
from barnabas.broker.delayed.pending import PendingRecords
from barnabas.broker.delayed.replay import Replay, SegmentScan
from barnabas.protocol.records.batch import CorruptBatch, iterate_batches, read_header, set_base_offset_and_epoch
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.delayed import (
    OWN_OFFSET,
    Pending,
    Settled,
    build_pending,
    build_settled,
    read_delayed,
)
from barnabas.protocol.records.delivery_time import AT_ONCE
from barnabas.protocol.records.record import Record

pytestmark = pytest.mark.feature("RP-12")


class Log:
    """A log in segments."""

    def __init__(self) -> None:
        self.segments = [bytearray()]
        self.bases: list[int] = []
        self.end = 0
        self.epoch = 0

    def add(self, batch: bytes) -> int:
        """Returns its base offset."""
        data = bytearray(batch)
        first = self.end
        set_base_offset_and_epoch(data, 0, first, self.epoch)
        self.segments[-1] += data
        self.bases.append(first)
        self.end = read_header(data).next_offset
        return first

    def produce(self, count: int = 1) -> int:
        return self.add(build_batch([Record(0, 0, None, b"v")] * count))

    def hold(self, *times: int) -> int:
        batch = build_batch([Record(0, 0, b"k", b"v")] * len(times), compression=1)
        return self.add(build_pending(Pending(OWN_OFFSET, array("q", times), batch), read_header(batch), 5))

    def carry(self, arrival: int, *times: int) -> int:
        batch = build_batch([Record(0, 0, b"k", b"v")] * len(times))
        return self.add(build_pending(Pending(arrival, array("q", times), batch), read_header(batch), 5))

    def settle(self, *arrivals: int, floor: int = 0) -> int:
        return self.add(build_settled(Settled(floor, array("q", arrivals)), 5))

    def deliver(self, *arrivals: int, floor: int = 0) -> None:
        self.settle(*arrivals, floor=floor)
        self.produce(len(arrivals))

    def roll(self) -> None:
        self.segments.append(bytearray())

    def read_back(self) -> tuple[PendingRecords, int]:
        """The pending records, and the number of segments that were read."""
        replay, read = Replay(), 0
        bases = [read_header(segment).base_offset for segment in self.segments if segment]
        filled = [segment for segment in self.segments if segment]
        for base, segment in zip(reversed(bases), reversed(filled), strict=True):
            read += 1
            scan = SegmentScan()
            for position, header in iterate_batches(segment):
                scan.feed(bytes(segment[position : position + header.size_bytes]))
            replay.add(scan)
            if replay.is_complete_at(base):
                break
        pending = PendingRecords()
        for _ in replay.fill(pending, 2):
            pass
        return pending, read


def drained(pending: PendingRecords) -> list[tuple[int, int]]:
    taken = []
    while pending.schedule.wake_ms() is not None:
        taken += pending.schedule.take(1 << 60, 100)
    return [tuple(due) for due in taken]


def test_delivered_records_are_pending_no_more() -> None:
    log = Log()
    first = log.hold(30, 10, 20)
    log.produce()
    second = log.hold(15)
    log.deliver(first + 1)
    pending, _ = log.read_back()
    assert drained(pending) == [(15, second), (20, first + 2), (30, first)]
    assert len(pending) == 3


@pytest.mark.parametrize("rolls", [False, True])
def test_a_settled_batch_whose_delivery_was_cut_off_counts_for_nothing(rolls: bool) -> None:
    log = Log()
    first = log.hold(10)
    log.settle(first)
    if rolls:
        log.roll()
    assert drained(log.read_back()[0]) == [(10, first)], "the log ends with it"
    log.epoch = 1
    log.produce()
    assert drained(log.read_back()[0]) == [(10, first)], "another leader went on"
    log.deliver(first)
    assert drained(log.read_back()[0]) == []


def test_a_delivery_in_the_next_segment_counts() -> None:
    log = Log()
    first = log.hold(10)
    log.settle(first)
    log.roll()
    log.produce()
    assert drained(log.read_back()[0]) == []


def test_segments_before_the_oldest_pending_record_are_not_read() -> None:
    log = Log()
    log.deliver(log.hold(5))
    log.roll()
    held = log.hold(90)
    log.roll()
    log.deliver(log.hold(6), floor=held)
    pending, count = log.read_back()
    assert (drained(pending), count) == ([(90, held)], 2)


def test_the_last_copy_of_a_carried_batch_counts() -> None:
    log = Log()
    first = log.hold(30, 10, 20)
    log.produce()
    log.carry(first, 30, AT_ONCE, 20)
    log.roll()
    place = log.carry(first, 30, AT_ONCE, AT_ONCE)
    pending, _ = log.read_back()
    assert [pending.place_of(first + each) for each in range(3)] == [place] * 3
    assert pending.floor(log.end) <= place < pending.floor(log.end) + 16
    assert drained(pending) == [(30, first)]


def test_other_control_batches_are_none_of_ours() -> None:
    marker = build_batch([Record(0, 0, b"\0\0\0\1", b"\0\0\0\0\0\0")], control=True, transactional=True, producer_id=3)
    newer = build_batch([Record(0, 0, b"\0\0\x12\x34", b"?")], control=True)
    keyless = build_batch([Record(0, 0, None, b"?")], control=True)
    for batch in (marker, newer, keyless):
        assert read_delayed(batch, read_header(batch)) is None
    ours = bytearray(build_settled(Settled(0, array("q", [1, 2])), 0))
    damaged = build_batch([Record(0, 0, b"\0\0\x62\x65", bytes(ours[-20:-1])[:10])], control=True)
    with pytest.raises(CorruptBatch):
        read_delayed(damaged, read_header(damaged))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(0, 40)), max_size=40), st.data())
def test_a_leader_finds_what_its_predecessor_knew(steps: list[tuple[int, int, int]], data: st.DataObject) -> None:
    """Any order of holding, delivering, carrying, rolling and changes of the leader."""
    log, alive = Log(), dict[int, int]()
    pending = PendingRecords()
    batches: dict[int, list[int]] = {}
    for kind, number, time_ms in steps:
        if kind == 0:
            times = [time_ms + each for each in range(number % 4 + 1)]
            first = log.hold(*times)
            batches[first] = times
            for place, each in enumerate(times):
                alive[first + place] = each
                pending.found(each, first + place)
        elif kind == 1 and alive:
            chosen = pending.schedule.take(1 << 50, number + 1)
            if number == 9:
                log.settle(*(due.arrival_offset for due in chosen))
                pending.schedule.give_back(chosen)
                log.epoch += 1
            else:
                log.deliver(*(due.arrival_offset for due in chosen), floor=pending.floor(log.end))
                pending.delivered(chosen)
                for due in chosen:
                    del alive[due.arrival_offset]
        elif kind == 2 and alive:
            carry_all(log, pending, batches, data.draw(st.sampled_from(log.bases)))
        else:
            log.produce()
            log.roll()
    found, _ = log.read_back()
    for records in (pending, found):
        assert len(records) == len(alive)
        assert records.floor(log.end) <= min((records.place_of(each) for each in alive), default=log.end)
    assert [pending.place_of(each) for each in alive] == [found.place_of(each) for each in alive]
    assert sorted(drained(found)) == sorted((time_ms, each) for each, time_ms in alive.items())


def carry_all(log: Log, pending: PendingRecords, batches: dict[int, list[int]], up_to: int) -> None:
    """Carry what is before `up_to`, as the shell does."""
    wanted = to_carry(pending.schedule.snapshot(), pending.carried, up_to)
    carrying = Carrying(up_to)
    carrying.begin(arrival for arrivals in wanted.values() for arrival in arrivals)
    firsts = {max(first for first in batches if first <= arrival) for group in wanted.values() for arrival in group}
    batch = build_batch([Record(0, 0, b"k", b"v")])
    held = [Pending(first, array("q", batches[first]), batch) for first in sorted(firsts)]
    for buffer, copy, alive in carrying.copies(held, pending, 5):
        place = log.add(bytes(buffer))
        pending.carry(place, copy.arrival_offset, len(copy.times), alive)
    assert not any(pending.place_of(each) < up_to for group in wanted.values() for each in group)
