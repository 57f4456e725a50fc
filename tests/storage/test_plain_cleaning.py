"""Cleanings of a log beside plain ones: which records stay, in which batches and segments, and what was counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.protocol.records.batch import BATCH_HEADER_BYTES, read_header
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.record import Record, decode_records
from barnabas.storage.cleaner import CleanerSettings, extent_of
from barnabas.storage.offset_map import ENTRY_BYTES
from barnabas.storage.segment import Segment
from tests.examples import examples
from tests.storage.cleaning_rig import clean, compacted
from tests.storage.rig import NOW_MS, Rig, append

RETENTION_MS, DELAY_MS = 100, 50
LOAD_FACTOR = 0.9
Key = str | None


@dataclass(frozen=True)
class Batch:
    base_offset: int
    last_offset: int
    max_timestamp: int
    records: tuple[tuple[int, Key, bytes | None], ...]
    """(offset, key, value); without a value it is a tombstone."""
    size_bytes: int
    horizon_ms: int | None = None

    @classmethod
    def of(cls, data: bytes) -> Batch:
        header = read_header(data)
        records = [(it.offset, None if it.key is None else it.key.decode(), it.value) for it in decode_records(data)]
        ends = (header.base_offset, header.last_offset, header.max_timestamp)
        return cls(*ends, tuple(records), len(data), header.delete_horizon_ms)


@dataclass
class Plain:
    """A segment."""

    base_offset: int
    batches: list[Batch] = field(default_factory=list)
    copied_from_ms: int = -1

    @property
    def size_bytes(self) -> int:
        return sum(batch.size_bytes for batch in self.batches)

    @property
    def largest_timestamp(self) -> int:
        return max((batch.max_timestamp for batch in self.batches), default=self.copied_from_ms)


@dataclass
class Counts:
    read: int = 0
    kept: int = 0
    before: int = 0
    after: int = 0


class Pair:
    """Both logs."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self.draw = draw
        self.rig = Rig(seed=draw(st.integers(0, 99)))
        self.config = replace(
            compacted(segment_bytes=draw(st.sampled_from([300, 500, 10_000]))),
            delete_retention_ms=RETENTION_MS,
            file_delete_delay_ms=DELAY_MS,
        )
        self.log = self.rig.open(self.config)
        self.now_ms = NOW_MS
        self.segments = [Plain(0)]
        self.end = self.durable = 0
        self.cleaned_to: int | None = None
        self.due: list[int] = []
        """When the files of replaced segments are to be removed."""

    def append(self) -> None:
        records = []
        for at in range(self.draw(st.integers(1, 3))):
            key = self.draw(st.sampled_from([None, "a", "b", "c", "d", "e"]))
            value = self.draw(st.sampled_from([None, b"v", b"v", b"x" * 60]))
            time = self.now_ms + self.draw(st.integers(0, 9))
            records.append(Record(self.end + at, time, None if key is None else key.encode(), value))
        data = build_batch(records)
        batch = Batch.of(build_batch(records, base_offset=self.end))
        if self.segments[-1].batches and self.segments[-1].size_bytes + len(data) > self.config.segment_bytes:
            self.segments.append(Plain(self.end))
        self.segments[-1].batches.append(batch)
        self.end = batch.last_offset + 1
        append(self.log, data, now_ms=self.now_ms)

    def close(self) -> None:
        """Everything so far may be cleaned."""
        self.log.set_high_watermark(self.end)
        self.log.roll(self.now_ms)
        self.log.flush()
        self.durable = self.end
        if self.segments[-1].base_offset != self.end:
            self.segments.append(Plain(self.end))

    def pass_time(self) -> None:
        self.now_ms += self.draw(st.sampled_from([1, RETENTION_MS - 1, RETENTION_MS]))

    # -- a cleaning

    def clean(self) -> None:
        room = self.draw(st.sampled_from([3, 5, 1_000]))
        slice_bytes = self.draw(st.sampled_from([1, 200, 1 << 18]))
        first = 0 if self.cleaned_to is None else self.cleaned_to
        bases = [segment.base_offset for segment in self.segments]
        upper = max(base for base in bases if base <= self.durable)
        extent = extent_of(self.log, self.now_ms)
        closed = self.segments[: bases.index(upper)]
        assert (extent.first_dirty_offset, extent.end_offset) == (first, upper)
        ends = dict(pairwise(bases))
        assert extent.dirty_bytes == sum(each.size_bytes for each in closed if ends[each.base_offset] > first)
        assert extent.clean_bytes == sum(each.size_bytes for each in closed if each.base_offset < first)

        slots = min(room, int(max(upper - first, 1) / LOAD_FACTOR) + 1)
        last, latest = self.map_keys(closed, first, upper, min(int(slots * LOAD_FACTOR), slots - 1))
        counts = self.copy_all(closed, last, latest, upper)
        self.cleaned_to = latest + 1
        done = clean(self.log, self.now_ms, CleanerSettings(room * ENTRY_BYTES, LOAD_FACTOR, slice_bytes))
        assert self.log.cleaned_to == self.cleaned_to
        assert (done.bytes_before, done.bytes_after) == (counts.before, counts.after)
        assert (done.records_read, done.records_kept) == (counts.read, counts.kept)
        assert done.map_utilization == len(last) / slots

    def map_keys(self, closed: list[Plain], first: int, upper: int, most: int) -> tuple[dict[str, int], int]:
        """(key to its last offset, the last offset that is in the map)"""
        last: dict[str, int] = {}
        latest = first - 1
        for segment, following in zip(closed, [*closed[1:], Plain(upper)], strict=False):
            for batch in segment.batches:
                for offset, key, _ in batch.records:
                    if key is not None and offset >= first:
                        if len(last) >= most:
                            return last, latest
                        last[key] = latest = offset
                latest = max(latest, batch.last_offset)
            latest = max(latest, following.base_offset - 1)
        return last, latest

    def copy_all(self, closed: list[Plain], last: dict[str, int], latest: int, upper: int) -> Counts:
        counts = Counts()
        rest = [segment for segment in closed if segment.base_offset <= latest]
        behind = self.segments[len(rest) :]
        cleaned: list[Plain] = []
        while rest:
            group = [rest.pop(0)]
            while rest and sum(each.size_bytes for each in (*group, rest[0])) <= self.config.segment_bytes:
                group.append(rest.pop(0))
            copy = Plain(group[0].base_offset, copied_from_ms=group[-1].largest_timestamp)
            is_changed = len(group) > 1
            for batch in (batch for segment in group for batch in segment.batches):
                kept = self.copied(batch, last, latest, upper)
                counts.read += len(batch.records)
                is_changed = is_changed or kept is not batch
                if kept is not None:
                    counts.kept += len(kept.records)
                    copy.batches.append(kept)
            if not is_changed:
                cleaned.append(group[0])
                continue
            counts.before += sum(segment.size_bytes for segment in group)
            counts.after += copy.size_bytes
            cleaned.append(copy)
            self.due.append(self.now_ms + DELAY_MS)
        self.segments = cleaned + behind
        return counts

    def copied(self, batch: Batch, last: dict[str, int], latest: int, upper: int) -> Batch | None:
        keeps_tombstones = batch.horizon_ms is None or batch.horizon_ms > self.now_ms
        kept = tuple(
            (offset, key, value)
            for offset, key, value in batch.records
            if offset > latest
            or (key is not None and offset >= last.get(key, -1) and (value is not None or keeps_tombstones))
        )
        if not kept:
            shell = replace(batch, records=(), size_bytes=BATCH_HEADER_BYTES, horizon_ms=None)
            return shell if batch.last_offset + 1 == upper else None
        horizon_ms = batch.horizon_ms
        if horizon_ms is None and any(value is None for _, _, value in kept):
            horizon_ms = self.now_ms + RETENTION_MS
        if kept == batch.records and horizon_ms == batch.horizon_ms:
            return batch
        return self.rebuilt(batch, kept, horizon_ms)

    def rebuilt(
        self, batch: Batch, kept: tuple[tuple[int, Key, bytes | None], ...], horizon_ms: int | None
    ) -> Batch:
        """The size follows from the records; their times are in the log."""
        times = {it.offset: it.timestamp for data in self.log.batches(0) for it in decode_records(data)}
        records = [Record(at, times[at], None if key is None else key.encode(), value) for at, key, value in kept]
        data = build_batch(
            records,
            base_offset=batch.base_offset,
            keep_offsets=True,
            last_offset=batch.last_offset,
            delete_horizon_ms=horizon_ms,
            leader_epoch=0,
        )
        return Batch.of(data)

    def sweep(self) -> None:
        """The files of replaced segments are removed when they are due."""
        work = self.log.deletion_work(self.now_ms)
        due = [at_ms for at_ms in self.due if at_ms <= self.now_ms]
        assert (work is not None) == bool(due)
        if work is not None:
            work()
        self.due = [at_ms for at_ms in self.due if at_ms > self.now_ms]

    def reopen(self) -> None:
        recovery_point = self.log.recovery_point
        self.rig.kill()
        self.log = self.rig.open(self.config, recovery_point=recovery_point)
        self.log.set_high_watermark(self.durable)
        self.log.cleaned_to = self.cleaned_to
        self.due = []
        for segment, plain in zip(self.log.segments, self.segments, strict=True):
            if not plain.batches:
                plain.copied_from_ms = segment.largest_timestamp()  # of the file

    # -- answers

    def check(self) -> None:
        assert [each.base_offset for each in self.log.segments] == [each.base_offset for each in self.segments]
        for segment, plain in zip(self.log.segments, self.segments, strict=True):
            found = [self.read(segment, position, header.size_bytes) for position, header in segment.headers()]
            assert found == plain.batches
            assert segment.size_bytes == plain.size_bytes
            assert segment.copied_from_ms in (None, plain.copied_from_ms), "the time of the youngest original"
            if plain.batches or segment.copied_from_ms is not None:
                assert segment.largest_timestamp() == plain.largest_timestamp
        bases = [segment.base_offset for segment in self.log.segments if segment.has_file]
        assert [name for name in self.rig.names() if name.endswith(".log")] == [f"{base:020}.log" for base in bases]

    @staticmethod
    def read(segment: Segment, position: int, size_bytes: int) -> Batch:
        return Batch.of(bytes(segment.log_file().pread(size_bytes, position)))


OFTEN = ["append", "append", "append", "close", "clean"]
SOMETIMES = ["pass_time", "sweep", "reopen"]


@pytest.mark.feature("CR-03", "CR-04", "CR-07", "CR-08", "CR-15")
@settings(max_examples=examples(80), deadline=None)
@given(st.data())
def test_a_cleaning_leaves_what_the_plain_one_leaves(data: st.DataObject) -> None:
    pair = Pair(data.draw)
    steps = [*OFTEN, *data.draw(st.lists(st.sampled_from(SOMETIMES), max_size=3))]
    for _ in range(data.draw(st.integers(4, 25))):
        getattr(pair, data.draw(st.sampled_from(steps)))()
        pair.check()
