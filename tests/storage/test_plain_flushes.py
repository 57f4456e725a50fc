"""The flushes of a log beside a plain count of what is not durable yet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.protocol.records.control import EndTxn, build_end_txn_batch
from barnabas.settings.topic import TopicConfig
from barnabas.storage.flushing import FlushWork
from barnabas.storage.log_flushes import NEVER_MS
from tests.examples import examples
from tests.storage.rig import NOW_MS, Rig, all_offsets, append, batch, numbered, producer_batch

FLUSH_MS = 100


@dataclass
class Work:
    """A flush that was begun, and what it covers."""

    real: FlushWork
    offset: int
    """-1 if the log was truncated since."""
    cuts: int
    rolled: set[int]


class Pair:
    """A log, and what must be true of it."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self.draw = draw
        self.rig = Rig(seed=draw(st.integers(0, 99)))
        self.flush_messages = draw(st.sampled_from([3, 5, 1 << 60]))
        self.flush_ms = draw(st.sampled_from([FLUSH_MS, NEVER_MS]))
        self.log = self.rig.open(TopicConfig(flush_messages=self.flush_messages, flush_ms=self.flush_ms))
        self.now_ms = NOW_MS
        self.bases = [0]
        """Base offsets of the segments; the last one is active."""
        self.batches: list[tuple[int, int]] = []
        """(base offset, offset after it)"""
        self.start = self.end = self.watermark = self.durable = self.gaps_to = 0
        self.rolled: set[int] = set()
        """Bases of closed segments that are not known to be durable."""
        self.cuts = 0
        self.lowest_cut: int | None = None
        self.work: Work | None = None
        self.due_since_ms: int | None = None
        self.has_file = False
        self.producers = 0

    # -- changes

    def append(self) -> None:
        count = self.draw(st.integers(1, 2))
        append(self.log, batch(count), now_ms=self.now_ms)
        self.appended(self.end, count)

    def append_behind_gap(self) -> None:
        """A follower of a compacted log appends."""
        base = self.end + self.draw(st.integers(1, 3))
        self.log.append_as_follower(bytearray(numbered(base)), self.now_ms)
        self.gaps_to = base
        self.appended(base, 1)

    def abort(self) -> None:
        """A transaction, which gets the segment a third index."""
        self.producers += 1
        append(self.log, producer_batch(self.producers, 0, 0, transactional=True), now_ms=self.now_ms)
        self.appended(self.end, 1)
        append(self.log, build_end_txn_batch(EndTxn(False, 0), self.producers, 0, NOW_MS), now_ms=self.now_ms)
        self.appended(self.end, 1)

    def appended(self, base: int, count: int) -> None:
        self.has_file = True
        self.end = base + count
        self.batches.append((base, self.end))
        if self.end - self.durable >= self.flush_messages:
            self.all_is_durable()

    def all_is_durable(self) -> None:
        self.durable = self.end
        self.rolled.clear()
        self.cuts, self.lowest_cut = 0, None
        self.work = self.due_since_ms = None

    def roll(self) -> None:
        self.log.roll(self.now_ms)
        if self.bases[-1] == self.end:
            return
        if self.cuts:
            # Otherwise a power cut could mix truncated and new records.
            self.all_is_durable()
        elif self.end <= self.durable:
            # No start would check the indexes of a segment below the recovery point.
            self.work = None
        self.rolled.add(self.bases[-1])
        self.bases.append(self.end)

    def truncate(self) -> None:
        """At a batch, inside one, or inside a gap."""
        offset = max(self.bases[0], self.end - self.draw(st.integers(-1, 5)))
        if offset < self.end:
            end = min([offset, *(base for base, end in self.batches if end > offset)])
            self.batches = [each for each in self.batches if each[1] <= offset]
            while self.bases[-1] > offset:
                self.bases.pop()
                self.rolled.discard(self.bases[-1])
            self.cuts += 1
            self.lowest_cut = end if self.lowest_cut is None else min(self.lowest_cut, end)
            self.gaps_to = min(self.gaps_to, end)
            self.end, self.durable = end, min(self.durable, end)
            self.start, self.watermark = min(self.start, end), min(self.watermark, end)
            if self.work is not None:
                self.work.offset = -1
        assert self.log.truncate_to(offset) == self.end

    def commit(self) -> None:
        self.watermark = self.draw(st.integers(self.watermark, self.end))
        self.log.set_high_watermark(self.watermark)
        self.start = max(self.start, self.draw(st.integers(0, self.watermark)))
        self.log.advance_log_start_offset(self.start)

    def retain(self) -> None:
        """Deleted segments need no flush, whether or not they ever were durable; the others do."""
        count = sum(base <= self.start for base in self.bases[1:])
        assert self.log.delete_old_segments(self.now_ms) == count
        self.rolled -= {*self.bases[:count]}
        del self.bases[:count]

    # -- flushes

    def begin_flush(self) -> None:
        rolled_only = self.draw(st.booleans())
        offset = self.bases[-1] if rolled_only else self.end
        work = self.log.flushes.work(rolled_only=rolled_only)
        if work is None:
            assert offset <= self.durable and not self.rolled
            if not rolled_only:
                # What was cut was no more than a part of a gap.
                self.cuts, self.lowest_cut = 0, None
            return
        assert work.offset == offset
        self.work = Work(work, offset, 0 if rolled_only else self.cuts, {*self.rolled})

    def end_flush(self) -> None:
        """It has run, in another thread."""
        work, self.work = self.work, None
        if work is None:
            return
        work.real()
        self.log.flushes.done(work.real.offset)
        self.due_since_ms = None
        self.durable = max(self.durable, work.offset)
        self.rolled -= work.rolled
        self.cuts -= work.cuts
        if not self.cuts:
            self.lowest_cut = None

    def flush(self) -> None:
        self.log.flush()
        self.all_is_durable()
        assert self.log.flushes.work() is None, "there is nothing to be done twice"

    def pass_time(self) -> None:
        self.now_ms += self.draw(st.sampled_from([1, FLUSH_MS - 1, FLUSH_MS]))

    # -- answers

    def check(self) -> None:
        flushes = self.log.flushes
        assert self.log.log_end_offset == self.end
        assert flushes.recovery_point == self.log.recovery_point == self.durable
        has_gaps = self.gaps_to > self.durable
        assert flushes.has_unflushed_gaps == has_gaps
        wanted = bool(self.rolled) or self.cuts > 0
        assert flushes.are_wanted == wanted
        assert flushes.are_out_of_question == (
            not wanted
            and not has_gaps
            and self.start <= self.durable
            and (self.end <= self.durable or self.flush_ms == NEVER_MS)
        )
        certain = self.end if self.lowest_cut is None else self.lowest_cut
        assert flushes.high_watermark_after_a_crash == min(self.watermark, certain)
        assert flushes.are_due(self.now_ms) == self.is_due(has_gaps)

    def is_due(self, has_gaps: bool) -> bool:
        """`flush.ms` counts from the first look at records that are not durable."""
        is_late = False
        if self.end <= self.durable:
            self.due_since_ms = None
        elif has_gaps:
            is_late = True
        else:
            self.due_since_ms = self.now_ms if self.due_since_ms is None else self.due_since_ms
            is_late = self.now_ms - self.due_since_ms >= self.flush_ms
        return is_late or self.cuts > 0 or self.start > self.durable


OFTEN = ["append", "append", "begin_flush", "end_flush"]
SOMETIMES = ["append_behind_gap", "abort", "roll", "roll", "truncate", "commit", "flush"]
SOMETIMES += ["pass_time", "retain"]


@pytest.mark.feature("ST-04", "ST-10")
@settings(max_examples=examples(120), deadline=None)
@given(st.data())
def test_flushes_are_due_and_done_as_counted(data: st.DataObject) -> None:
    pair = Pair(data.draw)
    steps = [*OFTEN, *data.draw(st.lists(st.sampled_from(SOMETIMES), min_size=2, max_size=5))]
    for _ in range(data.draw(st.integers(4, 30))):
        getattr(pair, data.draw(st.sampled_from(steps)))()
        pair.check()
    offsets = all_offsets(pair.log)
    pair.rig.power_cut()
    again = pair.rig.open(recovery_point=pair.durable)
    # A gap at the end leaves no trace.
    assert again.log_end_offset >= max((end for _, end in pair.batches if end <= pair.durable), default=0)
    kept = [offset for offset in offsets if pair.start <= offset < pair.durable]
    assert kept == [offset for offset in all_offsets(again) if pair.start <= offset < pair.durable]
