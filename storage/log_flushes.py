"""Flushes of one log: when they are due, the slow work, and what is durable."""

from __future__ import annotations

from typing import Protocol

from barnabas.settings.topic import TopicConfig
from barnabas.storage.flushing import FlushWork
from barnabas.storage.log_files import LogFiles
from barnabas.storage.log_health import LogHealth

NEVER_MS = (1 << 63) - 1
"""The default of `flush.ms`."""


class _Log(Protocol):
    """Properties of a log that its flushes depend on."""

    config: TopicConfig
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    health: LogHealth

    def high_watermark_moved(self) -> None: ...


class LogFlushes:
    """Call `work`, run its result outside the event loop, then call `done`; one work of a log at a time."""

    __slots__ = ("_files", "_flusher", "_log")

    def __init__(self, log: _Log, files: LogFiles) -> None:
        self._log = log
        self._files = files
        self._flusher = files.flusher

    @property
    def recovery_point(self) -> int:
        """All records below it are on stable storage."""
        return self._flusher.recovery_point

    @property
    def high_watermark_after_a_crash(self) -> int:
        """Safe high watermark for a start after a crash: below it, no power cut restores truncated, uncommitted
        records.
        """
        cut = self._flusher.lowest_unsynced_cut
        return self._log.high_watermark if cut is None else min(self._log.high_watermark, cut)

    @property
    def has_unflushed_gaps(self) -> bool:
        """True if recovery after a power loss would truncate the log at a gap that the leader's compaction had left:
        until it is flushed, and the recovery point is written.
        """
        return self._flusher.has_unflushed_gaps

    @property
    def are_wanted(self) -> bool:
        """True if a flush should run soon, after a roll or a truncation."""
        return self._files.wants_flush

    @property
    def are_out_of_question(self) -> bool:
        """True if no flush is due or wanted, whatever the time, until the log or its config changes."""
        flusher, log = self._flusher, self._log
        durable = flusher.recovery_point
        return not (
            flusher.rolled
            or flusher.unsynced_cuts
            or flusher.gaps_to > durable
            or log.log_start_offset > durable
            or (log.log_end_offset > durable and log.config.flush_ms < NEVER_MS)
        )

    def are_due(self, now_ms: int) -> bool:
        """True if `flush.ms`, a truncation, a fetched gap or deleted records require a flush. To be called
        periodically.
        """
        is_due = self._files.flush_is_due(now_ms, self._log.log_end_offset, self._log.config.flush_ms)
        return is_due or self._log.log_start_offset > self.recovery_point

    def work(self, *, rolled_only: bool = False) -> FlushWork | None:
        """The slow part of a flush; None if everything is durable. `rolled_only` leaves the active segment out, for use
        after a roll.
        """
        try:
            return self._files.flush_work(self._log.log_end_offset, rolled_only=rolled_only)
        except OSError as error:
            raise self._log.health.failed(error) from error

    def done(self, offset: int) -> None:
        """The work for `offset` has run: advance the recovery point, unless the log was truncated meanwhile."""
        cut = self._flusher.lowest_unsynced_cut
        self._flusher.done(offset)
        if self._flusher.lowest_unsynced_cut != cut:
            self._log.high_watermark_moved()

    def closing_work(self) -> FlushWork | None:
        """`work` for a clean stop, with everything that is only in memory until then. Raises OSError."""
        return self._files.closing_work(self._log.log_end_offset)

    def run(self) -> None:
        """Make all records durable, synchronously."""
        work = self.work()
        if work is None:
            return
        try:
            work()
        except OSError as error:
            raise self._log.health.failed(error, passes=work.passes(error)) from error
        self.done(work.offset)
