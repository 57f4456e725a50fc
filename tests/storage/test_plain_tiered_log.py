"""A tiered log beside a plain one: what is remote, what is on the disk, and what may leave it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.protocol.records.batch import read_header
from barnabas.settings.topic import TopicConfig
from barnabas.storage.log import PartitionLog
from barnabas.storage.log_checkpoints import start_to_note
from barnabas.storage.log_results import OffsetOutOfRange
from barnabas.storage.producer_snapshot_format import encode_snapshot
from tests.examples import examples
from tests.storage.rig import NOW_MS, Rig, append, batch

SIZE = len(batch(1))
Epochs = list[tuple[int, int]]


@dataclass
class PlainSegment:
    base_offset: int
    batches: list[tuple[int, int, int]] = field(default_factory=list)
    """(base offset, offset after it, largest timestamp)"""

    @property
    def size_bytes(self) -> int:
        return SIZE * len(self.batches)


def cut_start(epochs: Epochs, offset: int) -> Epochs:
    """The epochs of a log that starts at `offset`."""
    covering = [epoch for epoch, start in epochs if start <= offset]
    return [*((epoch, offset) for epoch in covering[-1:]), *(entry for entry in epochs if entry[1] > offset)]


class Pair:
    """Both logs."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self.draw = draw
        self.rig = Rig(seed=draw(st.integers(0, 99)))
        self.config = TopicConfig(
            segment_bytes=3 * SIZE,
            index_interval_bytes=1,
            segment_index_bytes=1 << 14,
            retention_bytes=draw(st.sampled_from([-1, 0, 6 * SIZE])),
            retention_ms=draw(st.sampled_from([-1, 200])),
            local_retention_bytes=draw(st.sampled_from([-2, -1, 0, 3 * SIZE, 5 * SIZE])),
            local_retention_ms=draw(st.sampled_from([-2, -1, 0, 300])),
            file_delete_delay_ms=0,
            remote_storage_enable=True,
            remote_log_storage_system_enable=True,
        )
        self.log = self.rig.open(self.config)
        self.segments = [PlainSegment(0)]
        self.start = self.local_start = self.end = self.watermark = 0
        self.copied = -1
        self.epochs: Epochs = []
        self.cut_files = False
        """Files of truncated segments wait to be removed."""
        self.keeps_all_epochs = True
        """False if a kill may have lost some: the log start that was noted is an older one."""

    # -- records

    def append(self) -> None:
        epoch = (self.epochs[-1][0] if self.epochs else 0) + self.draw(st.sampled_from([0, 0, 0, 1, 2]))
        time = NOW_MS + self.draw(st.integers(0, 400))
        active = self.segments[-1]
        if active.size_bytes + SIZE > self.config.segment_bytes:
            active = PlainSegment(self.end)
            self.segments.append(active)
        active.batches.append((self.end, self.end + 1, time))
        if not self.epochs or epoch > self.epochs[-1][0]:
            self.epochs = [entry for entry in self.epochs if entry[1] < self.end] + [(epoch, self.end)]
        append(self.log, batch(1, time), leader_epoch=epoch)
        self.end += 1

    def commit(self) -> None:
        self.watermark = max(self.local_start, self.end - self.draw(st.integers(0, 3)))
        self.log.set_high_watermark(self.watermark)

    def copy(self) -> None:
        """More closed segments are known to be remote."""
        ends = [each.base_offset for each in self.segments[1:] if each.base_offset <= self.watermark]
        if ends:
            self.copied = max(self.copied, self.draw(st.sampled_from(ends)) - 1)
            self.log.highest_copied_offset = self.copied

    def flush(self) -> None:
        self.log.flush()
        assert self.log.recovery_point == self.end

    # -- removal

    def delete_records(self) -> None:
        offset = min(self.watermark, self.start + self.draw(st.integers(0, 5)))
        assert self.log.advance_log_start_offset(offset) == (offset > self.start)
        self.starts_at(offset)

    def starts_at(self, offset: int) -> None:
        if offset > self.start:
            self.start, self.local_start = offset, max(self.local_start, offset)
            self.epochs = cut_start(self.epochs, offset)

    def retain(self) -> None:
        now_ms = NOW_MS + self.draw(st.integers(0, 900))
        durable = min(self.copied + 1, self.log.recovery_point)
        count = self.count_due(min(self.watermark, max(durable, self.start)), now_ms)
        rolls = self.count_due(self.watermark, now_ms) == len(self.segments)
        count = min(count, len(self.segments) - 1)
        assert self.log.delete_old_segments(now_ms) == count
        if count:
            self.segments = self.segments[count:]
            self.local_start = max(self.local_start, self.segments[0].base_offset)
        if rolls and self.segments[-1].batches:
            self.segments.append(PlainSegment(self.end))
        work = self.log.deletion_work(now_ms)
        assert (work is not None) == (count > 0 or self.cut_files)
        self.cut_files = False
        if work is not None:
            work()

    def count_due(self, upper_offset: int, now_ms: int) -> int:
        """Segments at the front that are below the start, too many or too old, up to that offset."""
        config = self.config
        most = config.retention_bytes if config.local_retention_bytes == -2 else config.local_retention_bytes
        longest_ms = config.retention_ms if config.local_retention_ms == -2 else config.local_retention_ms
        ends = [*(each.base_offset for each in self.segments[1:]), self.end]
        count = 0
        while count < len(ends) - 1 and ends[count] <= min(upper_offset, max(self.start, self.local_start)):
            count += 1
        for by_size in (True, False):
            while count < len(ends) and ends[count] <= upper_offset:
                segment = self.segments[count]
                if count == len(ends) - 1 and not segment.batches:
                    break
                rest = sum(each.size_bytes for each in self.segments[count + 1 :])
                age_ms = now_ms - max((time for _, _, time in segment.batches), default=now_ms)
                if not (0 <= most <= rest if by_size else 0 <= longest_ms < age_ms):
                    break
                count += 1
        return count

    def truncate(self) -> None:
        offset = max(0, self.end - self.draw(st.integers(0, 9)))
        assert self.log.truncate_to(offset) == offset
        if offset >= self.end:
            self.epochs = [entry for entry in self.epochs if entry[1] < self.end]
            return
        if offset < self.segments[0].base_offset:
            # Nothing is left on the disk, and the log begins again: a follower that wants to keep what is remote
            # begins behind it instead.
            self.start, self.epochs = offset, []
            self.segments, self.cut_files = [PlainSegment(offset)], True
            self.watermark = offset
        else:
            while self.segments[-1].base_offset > offset:
                self.segments.pop()
                self.cut_files = True
            self.segments[-1].batches = [each for each in self.segments[-1].batches if each[1] <= offset]
            self.start = min(self.start, offset)
        self.end = offset
        self.watermark = min(self.watermark, offset)
        self.local_start = max(self.start, self.segments[0].base_offset)
        self.copied = min(self.copied, offset - 1)
        self.epochs = [entry for entry in self.epochs if entry[1] < offset]

    def start_behind_remote(self) -> None:
        """A follower begins behind the remote segments of its leader."""
        start = self.end + self.draw(st.integers(0, 3))
        offset = start + self.draw(st.integers(1, 5))
        known = [(2, start - 1), (3, start + 1), (9, offset - 1), (10, offset), (11, offset + 1)]
        known = [entry for entry in known if entry[1] >= 0][self.draw(st.integers(0, 2)) :]
        self.log.start_behind_remote(offset, start, known, encode_snapshot(()), NOW_MS)
        self.segments, self.cut_files = [PlainSegment(offset)], True
        self.start, self.local_start = start, offset
        self.end = self.watermark = offset
        self.copied = offset - 1
        ascending = {start_offset: epoch for epoch, start_offset in known if start_offset < offset}
        self.epochs = cut_start([(epoch, at) for at, epoch in ascending.items()], start)

    def end_tiering(self) -> None:
        if self.watermark >= self.local_start:
            self.log.end_tiering()
            self.starts_at(self.local_start)
            self.copied = -1

    # -- restarts

    def reopen(self) -> None:
        """A clean stop, or a kill after which the checkpoints are those of this moment."""
        clean = self.draw(st.booleans())
        recovery_point = self.log.recovery_point
        noted = start_to_note(self.log)
        assert (noted or 0) == min(self.start, recovery_point)
        if clean:
            self.log.close()
            noted = start_to_note(self.log)
            assert (noted or 0) == self.start and self.log.recovery_point == self.end
        self.rig.kill()
        again = self.rig.open(
            self.config, recovery_point=recovery_point, clean_shutdown=clean, log_start_offset=noted or 0
        )
        again.set_high_watermark(self.watermark)
        self.log = again
        self.cut_files = False
        self.copied = -1
        self.start = noted or 0
        self.local_start = max(self.start, self.segments[0].base_offset)
        self.watermark = max(self.watermark, self.local_start)
        if not clean:
            # Epochs without a batch are lost, and those before a start that was not noted.
            local = {entry for entry in again.epochs.entries() if entry[1] >= self.segments[0].base_offset}
            assert local <= {*self.epochs, *again.epochs.entries()[:1]}
            self.epochs = again.epochs.entries()

    # -- answers

    def check(self) -> None:
        log = self.log
        offsets = (log.log_start_offset, log.local_log_start_offset, log.high_watermark, log.log_end_offset)
        assert offsets == (self.start, self.local_start, self.watermark, self.end)
        assert log.highest_copied_offset == self.copied
        assert log.epochs.entries() == self.epochs
        assert [each.base_offset for each in log.segments] == [each.base_offset for each in self.segments]
        assert [each.size_bytes for each in log.segments] == [each.size_bytes for each in self.segments]
        assert (f"local start {self.local_start}" in repr(log)) == (self.local_start != self.start)
        expected = [base for each in self.segments for base, end, _ in each.batches if end > self.local_start]
        assert [read_header(found).base_offset for found in log.batches(self.local_start)] == expected
        if self.local_start > self.start:
            with pytest.raises(OffsetOutOfRange):
                log.read(self.draw(st.integers(self.start, self.local_start - 1)), 1_000, self.end)


OFTEN = ["append", "append", "append", "commit", "copy", "retain"]
SOMETIMES = ["flush", "delete_records", "truncate", "start_behind_remote", "end_tiering", "reopen"]


@pytest.mark.feature("TS-01", "TS-02")
@settings(max_examples=examples(80), deadline=None)
@given(st.data())
def test_a_tiered_log_answers_as_the_plain_one(data: st.DataObject) -> None:
    pair = Pair(data.draw)
    steps = [*OFTEN, *data.draw(st.lists(st.sampled_from(SOMETIMES), min_size=1, max_size=4))]
    for _ in range(data.draw(st.integers(5, 35))):
        getattr(pair, data.draw(st.sampled_from(steps)))()
        pair.check()


@pytest.mark.feature("TS-01")
def test_a_tier_that_never_was_is_ended_without_effect() -> None:
    log: PartitionLog = Rig().open(TopicConfig())
    append(log)
    log.end_tiering()
    assert (log.log_start_offset, log.local_log_start_offset, log.highest_copied_offset) == (0, 0, -1)
