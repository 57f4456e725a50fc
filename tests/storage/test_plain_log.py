"""A log beside a plain one: a list of segments, each a list of batches, from which every answer is computed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.protocol.errors import KafkaError
from barnabas.protocol.records.batch import read_header
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.record import Record
from barnabas.settings.topic import TopicConfig
from barnabas.storage.fetched_batches import EpochsMissing
from barnabas.storage.folder import Folder
from barnabas.storage.log import PartitionLog
from barnabas.storage.log_retention import deletable_to
from barnabas.storage.recovery import LastRun
from barnabas.storage.segment import Segment
from tests.examples import examples
from tests.storage.rig import DIRECTORY, NOW_MS, PRODUCERS, Rig, append

SIZE = len(build_batch([Record(0, NOW_MS, b"key", b"value")]))


class Batch(NamedTuple):
    """A batch that the file must hold."""

    base_offset: int
    next_offset: int
    epoch: int
    times: tuple[int, ...]
    """Timestamps of its records, whose offsets follow each other."""
    data: bytes

    @property
    def max_timestamp(self) -> int:
        return max(self.times)


@dataclass
class PlainSegment:
    """Its batches, and what the indexes must have."""

    base_offset: int
    batches: list[Batch] = field(default_factory=list)
    since_index: int = 0
    indexed: list[tuple[int, int]] | None = field(default_factory=list)
    """(last offset, position) of each entry; None if recovery made them."""

    @property
    def size_bytes(self) -> int:
        return sum(len(batch.data) for batch in self.batches)

    @property
    def max_timestamp(self) -> int:
        return max((batch.max_timestamp for batch in self.batches), default=-1)

    def add(self, batch: Batch, interval: int) -> None:
        if self.since_index > interval:
            if self.indexed is not None:
                self.indexed.append((batch.next_offset - 1, self.size_bytes))
            self.since_index = 0
        self.since_index += len(batch.data)
        self.batches.append(batch)


class Pair:
    """Both logs."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self.draw = draw
        self.rig = Rig(seed=draw(st.integers(0, 99)))
        self.config = TopicConfig(
            segment_bytes=draw(st.sampled_from([4 * SIZE, 4 * SIZE + 1, 900, 100_000])),
            segment_ms=draw(st.sampled_from([300, 1 << 40])),
            index_interval_bytes=draw(st.sampled_from([1, SIZE, 2 * SIZE, 100_000])),
            segment_index_bytes=1 << 14,
            retention_bytes=draw(st.sampled_from([-1, 0, 4 * SIZE, 8 * SIZE])),
            retention_ms=draw(st.sampled_from([-1, 0, 200])),
            file_delete_delay_ms=draw(st.sampled_from([0, 1_000])),
            barnabas_delayed_delivery_enable=draw(st.sampled_from([False, False, True])),
        )
        self.noted = 0
        self.is_torn = False
        """The disk may have a part of a batch that was refused."""
        self.log = self.opened(clean=False)
        self.segments = [PlainSegment(0)]
        self.start = self.end = self.watermark = self.durable = 0
        self.epochs: list[tuple[int, int]] = []

    def opened(self, *, clean: bool) -> PartitionLog:
        start = self.start if hasattr(self, "start") else 0
        log = PartitionLog.open(
            Folder(self.rig.disk, DIRECTORY),
            key=("orders", 0),
            config=self.config,
            now_ms=NOW_MS,
            last_run=LastRun(self.noted, clean, lost_power=False, log_start_offset=start),
            producer_state=PRODUCERS,
        )
        log.on_recovery_point_lowered = self.lowered
        return log

    def lowered(self, log: PartitionLog) -> None:
        self.noted = min(self.noted, log.recovery_point)

    @property
    def batches(self) -> list[Batch]:
        return [batch for segment in self.segments for batch in segment.batches]

    @property
    def epoch(self) -> int:
        return self.epochs[-1][0] if self.epochs else -1

    # -- appends

    def a_batch(self, offset: int, epoch: int) -> Batch:
        offsets = st.integers(0, 400) | st.sampled_from([0, 200, 400])  # often equal
        times = tuple(NOW_MS + it for it in self.draw(st.lists(offsets, min_size=1, max_size=3)))
        value = self.draw(st.sampled_from([b"value", b"value", bytes(150)]))
        records = [Record(offset + place, at, b"key", value) for place, at in enumerate(times)]
        data = build_batch(records, base_offset=offset, leader_epoch=epoch)
        return Batch(offset, offset + len(times), epoch, times, data)

    def write(self, batches: list[Batch]) -> None:
        """One write into one segment."""
        active = self.segments[-1]
        size = sum(len(batch.data) for batch in batches)
        if active.batches:
            waited_ms = batches[-1].max_timestamp - active.batches[0].max_timestamp
            if active.size_bytes + size > self.config.segment_bytes or waited_ms > self.config.segment_ms:
                active = PlainSegment(self.end)
                self.segments.append(active)
        for batch in batches:
            active.add(batch, self.config.index_interval_bytes)
            if batch.epoch > self.epoch:
                before = [entry for entry in self.epochs if entry[1] < batch.base_offset]
                self.epochs = [*before, (batch.epoch, batch.base_offset)]
        self.end = batches[-1].next_offset

    def append(self) -> None:
        epoch = max(0, self.epoch + self.draw(st.sampled_from([0, 0, 0, 1, 2])))
        batches = [self.a_batch(self.end, epoch)]
        if self.draw(st.booleans()):
            batches.append(self.a_batch(batches[0].next_offset, epoch))
        if sum(len(batch.data) for batch in batches) > self.config.segment_bytes:
            batches = batches[:1]
        data = [batch.data for batch in batches]
        if len(data[0]) > self.config.segment_bytes:
            return
        if self.draw(st.booleans()):
            result = append(self.log, *data, leader_epoch=epoch)
            assert (result.first_offset, result.last_offset) == (self.end, batches[-1].next_offset - 1)
        else:
            assert self.log.append_as_follower(bytearray(b"".join(data)), NOW_MS) == batches[-1].next_offset
        self.write(batches)

    def append_behind_gap(self) -> None:
        """Appends as a follower of a compacted log, which has to know the epochs that may have begun in the gap."""
        epoch = max(0, self.epoch + self.draw(st.sampled_from([0, 1])))
        batch = self.a_batch(self.end + self.draw(st.integers(1, 4)), epoch)
        if len(batch.data) <= self.config.segment_bytes:
            if epoch > self.epoch:
                with pytest.raises(EpochsMissing):
                    self.log.append_as_follower(bytearray(batch.data), NOW_MS, leaders_epochs=None)
            assert self.log.append_as_follower(bytearray(batch.data), NOW_MS) == batch.next_offset
            self.write([batch])

    def append_without_room(self) -> None:
        """The disk takes a part of a batch. The log stays as it is, and so does the next segment's beginning."""
        epoch = max(0, self.epoch)
        batch = self.a_batch(self.end, epoch)
        active = self.segments[-1]
        waited_ms = batch.max_timestamp - active.batches[0].max_timestamp if active.batches else 0
        fits = active.size_bytes + len(batch.data) <= self.config.segment_bytes
        if not fits or waited_ms > self.config.segment_ms:
            return
        store = self.rig.store
        store.capacity_bytes = store.used_bytes + self.draw(st.integers(0, len(batch.data) - 1))
        before = store.refused
        try:
            append(self.log, batch.data, leader_epoch=epoch)
        except KafkaError:
            assert store.refused > before
            self.is_torn = True
        else:
            # It takes the place of what was left of another one.
            self.write([batch])
        store.capacity_bytes = 1 << 40
        if self.draw(st.booleans()):
            self.roll()

    def roll(self) -> None:
        self.log.roll(NOW_MS)
        if self.segments[-1].base_offset != self.end:
            self.segments.append(PlainSegment(self.end))

    # -- removal

    def truncate(self) -> None:
        offset = max(0, self.end - self.draw(st.integers(0, 8)))
        if offset < self.segments[0].base_offset:
            self.starts_at(offset)
            assert self.log.truncate_to(offset) == offset
            return
        if offset < self.end:
            cut = [batch for batch in self.batches if batch.next_offset > offset]
            self.end = min([offset, *(batch.base_offset for batch in cut)])
            while self.segments[-1].base_offset > offset:
                self.segments.pop()
            active = self.segments[-1]
            active.batches = [batch for batch in active.batches if batch.next_offset <= offset]
            active.since_index = 0
            if active.indexed is not None:
                active.indexed = [entry for entry in active.indexed if entry[0] < offset]
            self.start, self.watermark = min(self.start, self.end), min(self.watermark, self.end)
            self.durable = min(self.durable, self.end)
        self.epochs = [entry for entry in self.epochs if entry[1] < self.end]
        assert self.log.truncate_to(offset) == self.end

    def restart(self) -> None:
        offset = self.end + self.draw(st.integers(0, 5))
        self.log.truncate_fully_and_start_at(offset)
        self.starts_at(offset)

    def starts_at(self, offset: int) -> None:
        self.segments, self.epochs = [PlainSegment(offset)], []
        self.start = self.end = self.watermark = self.durable = offset

    def commit(self) -> None:
        self.watermark = max(self.start, self.end - self.draw(st.integers(0, 3)))
        self.log.set_high_watermark(self.watermark)

    def delete_records(self) -> None:
        offset = min(self.watermark, self.start + self.draw(st.integers(0, 4)))
        assert self.log.advance_log_start_offset(offset) == (offset > self.start)
        self.starts_from(offset)

    def starts_from(self, offset: int) -> None:
        if offset > self.start:
            self.start = offset
            covering = [entry for entry in self.epochs if entry[1] <= offset]
            later = [entry for entry in self.epochs if entry[1] > offset]
            self.epochs = [*((epoch, offset) for epoch, _ in covering[-1:]), *later]

    def retain(self) -> None:
        now_ms = NOW_MS + self.draw(st.integers(0, 700))
        upper = self.watermark
        if self.config.barnabas_delayed_delivery_enable:
            # What waits for its delivery is not deleted, however old it is; nothing is, where that is not known.
            self.log.pending_from = self.draw(st.none() | st.integers(0, self.end))
            upper = min(upper, self.log.pending_from or 0)
        bases = [*(segment.base_offset for segment in self.segments), self.end]
        assert deletable_to(self.log, now_ms) == bases[self.count_due(now_ms, self.watermark)]
        count = self.count_due(now_ms, upper)
        assert self.log.delete_old_segments(now_ms) == count
        if count == len(self.segments):
            self.segments.append(PlainSegment(self.end))
        if count:
            self.segments = self.segments[count:]
            self.starts_from(self.segments[0].base_offset)
            self.durable = max(self.durable, self.segments[0].base_offset)
        work = self.log.deletion_work(now_ms)
        if work is not None:
            work()

    def count_due(self, now_ms: int, upper: int) -> int:
        """Segments at the front that are below the start, or too many or too old up to `upper`."""
        ends = [*(segment.base_offset for segment in self.segments[1:]), self.end]
        sizes = [segment.size_bytes for segment in self.segments]
        count = 0
        while count < len(ends) - 1 and ends[count] <= min(self.start, self.watermark):
            count += 1
        for due in (self.is_too_much, self.is_too_old):
            while count < len(ends) and ends[count] <= upper and due(sizes, count, now_ms):
                if count == len(ends) - 1 and not sizes[count]:
                    break
                count += 1
        return count

    def is_too_much(self, sizes: list[int], place: int, now_ms: int) -> bool:
        limit = self.config.retention_bytes
        return limit >= 0 and sum(sizes[place + 1 :]) >= limit

    def is_too_old(self, sizes: list[int], place: int, now_ms: int) -> bool:
        limit = self.config.retention_ms
        return limit >= 0 and now_ms - self.segments[place].max_timestamp > limit

    # -- durability

    def flush(self) -> None:
        self.log.flush()
        self.noted = self.durable = self.log.recovery_point
        assert self.durable == self.end

    def reopen(self) -> None:
        """A clean stop, or a kill: everything is there."""
        clean = self.draw(st.booleans())
        if clean:
            self.log.close()
            self.noted = self.durable = self.end
        base = self.segments[0].base_offset
        self.rig.kill()
        self.log = self.opened(clean=clean)
        if clean or not self.is_torn:
            assert self.log.recovery_events == [], "there is nothing to repair"
        self.is_torn = False
        self.log.set_high_watermark(self.watermark)
        self.segments[-1].since_index = 0
        if not clean:
            first = max(place for place, each in enumerate(self.segments) if each.base_offset <= max(self.noted, base))
            for segment in self.segments[first:]:
                # It is scanned, and indexed as if it was appended.
                batches, segment.batches, segment.indexed, segment.since_index = segment.batches, [], [], 0
                for batch in batches:
                    segment.add(batch, self.config.index_interval_bytes)
        if not clean:
            # A kill loses the epochs without a batch, which nobody has flushed.
            self.epochs = self.log.epochs.entries()

    # -- answers

    def check(self) -> None:
        log = self.log
        assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (self.start, self.end, self.watermark)
        assert log.epochs.entries() == self.epochs
        assert [segment.base_offset for segment in log.segments] == [each.base_offset for each in self.segments]
        for segment, plain in zip(log.segments, self.segments, strict=True):
            self.check_segment(segment, plain)
        assert not any(segment._boundaries for segment in log.segments[:-2]), "readers at the tail have left them"
        self.check_read()
        self.check_times()
        epoch = self.draw(st.integers(0, self.epoch + 2))
        known = [entry for entry in self.epochs if entry[0] <= epoch]
        later = [start for found, start in self.epochs if found > epoch]
        expected = (known[-1][0] if known else epoch, later[0] if later else self.end)
        assert log.end_offset_for_epoch(epoch) == ((-1, -1) if epoch > self.epoch else expected)

    def check_segment(self, segment: Segment, plain: PlainSegment) -> None:
        assert segment.size_bytes == plain.size_bytes
        assert segment.first_timestamp() == (plain.batches[0].max_timestamp if plain.batches else -1)
        file = segment.log_file()
        assert file.pread(plain.size_bytes, 0) == b"".join(batch.data for batch in plain.batches)
        assert segment is self.log.segments[-1] or file.size() == plain.size_bytes, "a reader finds its end"
        assert segment.max_timestamp.timestamp == plain.max_timestamp
        entries = [segment.offset_index.entry(slot) for slot in range(segment.offset_index.entries)]
        positions = {}
        position = 0
        for batch in plain.batches:
            positions[batch.next_offset - 1] = position
            position += len(batch.data)
        assert entries == sorted(set(entries))
        assert all(positions[entry[0]] == entry[1] for entry in entries)
        if plain.indexed is not None:
            assert [tuple(entry) for entry in entries] == plain.indexed
        self.check_time_index(segment, plain, [entry[0] for entry in entries])
        self.check_memory(segment)

    def check_memory(self, segment: Segment) -> None:
        """A log of thousands of segments keeps little of the closed ones in memory."""
        from_end = len(self.log.segments) - self.log.segments.index(segment)
        assert len(segment._boundaries) <= 32 and len(segment._cursors) <= 16
        assert from_end == 1 or not any(index._tail for index in segment._indexes)
        assert from_end <= 2 or not segment._boundaries, "readers at the tail may still look for the end of the last"

    def check_time_index(self, segment: Segment, plain: PlainSegment, indexed: list[int]) -> None:
        """Each entry is the largest time so far and the first batch with it. There is one for each offset index entry,
        and one for all batches in a closed segment.
        """
        largest: dict[int, tuple[int, int]] = {}
        reached = (-1, plain.base_offset)
        for batch in plain.batches:
            if batch.max_timestamp > reached[0]:
                reached = (batch.max_timestamp, batch.next_offset - 1)
            largest[batch.next_offset - 1] = reached
        entries = [tuple(segment.time_index.entry(slot)) for slot in range(segment.time_index.entries)]
        assert entries == sorted(set(entries))
        assert {*entries} <= {*largest.values()}
        assert {largest[offset] for offset in indexed} <= {*entries}
        if segment is not self.log.segments[-1] and plain.batches:
            assert entries[-1] == reached
        assert tuple(segment.max_timestamp) == reached

    def check_read(self) -> None:
        offset = self.draw(st.integers(self.start, self.end))
        upper = self.draw(st.integers(self.start, self.end + 2))
        most = self.draw(st.sampled_from([0, 1, SIZE - 1, SIZE, 2 * SIZE, 1 << 20]))
        at_least_one = self.draw(st.booleans())
        found = self.log.read(offset, most, upper, at_least_one)
        wanted: list[Batch] = []
        if offset < min(upper, self.end):
            holder = next((each for each in self.segments if any(it.next_offset > offset for it in each.batches)), None)
            here = [] if holder is None else [it for it in holder.batches if it.next_offset > offset]
            wanted = [batch for batch in here if batch.next_offset <= upper]
            while wanted and sum(len(batch.data) for batch in wanted) > most and (len(wanted) > 1 or not at_least_one):
                wanted.pop()
        if found is None:
            assert not wanted
            return
        data = found.file.pread(found.size_bytes, found.position)
        assert data == b"".join(batch.data for batch in wanted)
        assert found.first_offset == offset
        assert wanted[-1].next_offset <= found.upper_offset <= max(upper, wanted[-1].next_offset)

    def check_times(self) -> None:
        time = NOW_MS + self.draw(st.integers(-1, 401))
        records = [
            (at, batch.base_offset + place, batch.epoch)
            for batch in self.batches
            for place, at in enumerate(batch.times)
        ]
        expected = next((each for each in records if each[0] >= time and each[1] >= self.start), None)
        found = self.log.offset_for_timestamp(time)
        assert (None if found is None else tuple(found)) == expected
        largest = max((at for at, _, _ in records), default=None)
        first = next((each for each in records if each[0] == largest), None)
        if first is None or first[1] >= self.start:
            found = self.log.offset_for_max_timestamp()
            assert (None if found is None else tuple(found)) == first


OFTEN = ["append", "append", "append", "commit"]
SOMETIMES = ["append_behind_gap", "append_without_room", "roll", "truncate", "restart", "delete_records", "retain"]
SOMETIMES += ["flush", "reopen"]
"""A life has some of them only, so that it comes to each often enough."""


@pytest.mark.feature("ST-01", "ST-10", "CR-01")
@settings(max_examples=examples(100), deadline=None)
@given(st.data())
def test_a_log_answers_as_the_plain_one(data: st.DataObject) -> None:
    pair = Pair(data.draw)
    steps = [*OFTEN, *data.draw(st.lists(st.sampled_from(SOMETIMES), min_size=1, max_size=4))]
    for _ in range(data.draw(st.integers(3, 25))):
        getattr(pair, data.draw(st.sampled_from(steps)))()
        pair.check()
    assert [read_header(found).base_offset for found in pair.log.batches(pair.start)] == [
        batch.base_offset for batch in pair.batches if batch.next_offset > pair.start
    ]
