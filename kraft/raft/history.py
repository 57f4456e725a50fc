"""Raft's view of a log: its start, its end, and the offset at which each epoch began.

A `LogHistory` is a value; the records live in storage and move when the shell moves them. The divergence of two logs
is found by comparing histories (KIP-595: the follower names the epoch of its last record, the leader the end
of that epoch in its own log).
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class OffsetAndEpoch:
    """The end of a log or of a snapshot: the next offset, and the epoch of the record before it.

    Ordered by epoch first: of two logs the greater is the more complete one.
    """

    epoch: int
    offset: int

    def __str__(self) -> str:
        return f"{self.offset}@{self.epoch}"


LOG_ORIGIN = OffsetAndEpoch(epoch=0, offset=0)


@dataclass(frozen=True, slots=True)
class LogHistory:
    """Invariants: epochs and their start offsets both rise; every start offset is in [start.offset,
    end_offset); a log that begins after offset 0 begins at the end of a snapshot, whose id is `start`."""

    start: OffsetAndEpoch = LOG_ORIGIN
    epochs: tuple[tuple[int, int], ...] = ()
    """(epoch, offset of its first record)"""
    end_offset: int = 0

    @property
    def last_epoch(self) -> int:
        return self.epochs[-1][0] if self.epochs else self.start.epoch

    @property
    def end(self) -> OffsetAndEpoch:
        return OffsetAndEpoch(epoch=self.last_epoch, offset=self.end_offset)

    def epoch_of(self, offset: int) -> int:
        """The epoch of the record at `offset`, which must be in the log."""
        assert self.start.offset <= offset < self.end_offset, (offset, self)
        index = bisect_right(self.epochs, offset, key=lambda entry: entry[1])
        return self.epochs[index - 1][0]

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch:
        """The end of the largest epoch not above `epoch`; the log's start if all its records are of later
        epochs."""
        index = bisect_right(self.epochs, epoch, key=lambda entry: entry[0])
        if index == 0:
            offset = self.epochs[0][1] if self.epochs else self.end_offset
            return OffsetAndEpoch(epoch=self.start.epoch, offset=offset)
        offset = self.epochs[index][1] if index < len(self.epochs) else self.end_offset
        return OffsetAndEpoch(epoch=self.epochs[index - 1][0], offset=offset)

    def needs_snapshot(self, fetch_offset: int, last_fetched_epoch: int) -> bool:
        """True if a follower whose log ends like this needs a snapshot: it diverges before the start of this
        log."""
        if self.start == LOG_ORIGIN:
            return False
        return (
            fetch_offset < self.start.offset
            or last_fetched_epoch < self.start.epoch
            or (fetch_offset == self.start.offset and last_fetched_epoch != self.start.epoch)
        )

    def divergence(self, fetch_offset: int, last_fetched_epoch: int) -> OffsetAndEpoch | None:
        """The offset and epoch that a follower whose log ends like this has to truncate to, in terms of this log;
        None if its log is a prefix of this one."""
        end = self.end_offset_for_epoch(last_fetched_epoch)
        if end.epoch != last_fetched_epoch or end.offset < fetch_offset:
            return end
        return None

    def truncation_offset(self, divergence: OffsetAndEpoch) -> int:
        """The offset to truncate this follower's log to when the leader named `divergence`."""
        own = self.end_offset_for_epoch(divergence.epoch)
        if own.epoch == divergence.epoch:
            return min(own.offset, divergence.offset)
        return min(own.offset, self.end_offset)

    def appended(self, epoch: int, next_offset: int) -> LogHistory:
        assert next_offset > self.end_offset and epoch >= self.last_epoch, (epoch, next_offset, self)
        epochs = self.epochs
        if not epochs or epochs[-1][0] != epoch:
            epochs = (*epochs, (epoch, self.end_offset))
        return replace(self, epochs=epochs, end_offset=next_offset)

    def truncated_to(self, offset: int) -> LogHistory:
        assert self.start.offset <= offset <= self.end_offset, (offset, self)
        return replace(self, epochs=tuple(entry for entry in self.epochs if entry[1] < offset), end_offset=offset)

    def started_at(self, start: OffsetAndEpoch) -> LogHistory:
        """The prefix before a snapshot was deleted."""
        assert self.start.offset <= start.offset <= self.end_offset, (start, self)
        kept = [(epoch, max(first, start.offset)) for epoch, first in self.epochs]
        epochs = tuple(
            entry
            for index, entry in enumerate(kept)
            if entry[1] < self.end_offset and (index + 1 == len(kept) or kept[index + 1][1] > start.offset)
        )
        return LogHistory(start, epochs, self.end_offset)

    @classmethod
    def of_snapshot(cls, snapshot: OffsetAndEpoch) -> LogHistory:
        """An empty log that goes on where a snapshot ends."""
        return cls(snapshot, (), snapshot.offset)

    def __str__(self) -> str:
        return f"[{self.start}..{self.end}]"
