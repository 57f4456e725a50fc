"""Core: the leader epochs of a log with their start offsets, from which the divergence of two logs follows.

Both columns strictly increase. A replica that asks for the end of epoch E (KIP-101, KIP-279) gets the first offset at
which the two logs may differ. Used by partition replication and by the metadata quorum.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class LeaderEpochs:
    """The epochs of one log, oldest first. `dirty` is set when they change and cleared by the owner."""

    __slots__ = ("_epochs", "_starts", "dirty", "latest_epoch")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self.latest_epoch = UNDEFINED_EPOCH
        """-1 if the log has no epoch."""
        self.dirty = False
        for epoch, start_offset in entries:
            self.assign(epoch, start_offset)
        self.dirty = False

    def __len__(self) -> int:
        return len(self._epochs)

    def entries(self) -> list[tuple[int, int]]:
        """(epoch, start offset), oldest first."""
        return list(zip(self._epochs, self._starts, strict=True))

    def entries_in(self, start_offset: int, end_offset: int) -> list[tuple[int, int]]:
        """(epoch, start offset) of the epochs in [start_offset, end_offset), the first of them from `start_offset` on.
        """
        first = max(bisect_right(self._starts, start_offset) - 1, 0)
        places = range(first, bisect_left(self._starts, end_offset))
        return [(self._epochs[place], max(self._starts[place], start_offset)) for place in places]

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Epoch `epoch` begins at `start_offset`. Returns whether that changed anything.

        Contradicting entries (a later epoch, or one that began at or after it) are removed: no data of theirs has
        survived.
        """
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"epoch {epoch} at offset {start_offset}")
        if epoch == self.latest_epoch and start_offset >= self._starts[-1]:
            return False
        keep = min(bisect_left(self._epochs, epoch), bisect_left(self._starts, start_offset))
        self._cut(keep)
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self.latest_epoch = epoch
        self.dirty = True
        return True

    def assign_batch(self, epoch: int, offset: int, end_offset: int, known: Iterable[tuple[int, int]]) -> None:
        """Append a batch of `epoch` at `offset` to a log that ends at `end_offset`.

        `known` (epoch, start offset) entries, oldest first, that begin in a gap before the batch are not newer than the
        batch: compaction has removed all their records.
        """
        if epoch <= self.latest_epoch:
            return
        for known_epoch, start_offset in known:
            if self.latest_epoch < known_epoch <= epoch and end_offset <= start_offset <= offset:
                self.assign(known_epoch, start_offset)
        if epoch > self.latest_epoch:
            self.assign(epoch, offset)

    def _cut(self, keep: int) -> None:
        del self._epochs[keep:]
        del self._starts[keep:]
        self.latest_epoch = self._epochs[-1] if keep else UNDEFINED_EPOCH
        self.dirty = True

    def truncate_from_end(self, end_offset: int) -> None:
        """The log now ends at `end_offset`: remove epochs that began there or later."""
        keep = bisect_left(self._starts, end_offset)
        if keep < len(self._starts):
            self._cut(keep)

    def truncate_from_start(self, start_offset: int) -> None:
        """The log now starts at `start_offset`: the epoch that contains it starts there, older ones are removed."""
        covering = bisect_right(self._starts, start_offset) - 1
        if covering < 0 or (covering == 0 and self._starts[0] == start_offset):
            return
        del self._epochs[:covering]
        del self._starts[:covering]
        self._starts[0] = start_offset
        self.dirty = True

    def begin_at(self, start_offset: int) -> None:
        """The log starts at `start_offset`. No epoch is older than 0, so everything before the first batch of epoch 0
        is of that epoch, too, although compaction has removed all of it.
        """
        if self._epochs and self._epochs[0] == 0 and self._starts[0] > start_offset:
            self._starts[0] = start_offset
            self.dirty = True

    def clear(self) -> None:
        if self._epochs:
            self._cut(0)

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(the largest epoch here that is at most `epoch`, its end offset).

        The latest epoch ends at `log_end_offset`. For an epoch older than all known ones: that epoch, and the start of
        the oldest known one. (-1, -1) for an epoch newer than all known ones.
        """
        if epoch == self.latest_epoch and epoch != UNDEFINED_EPOCH:
            return epoch, log_end_offset
        higher = bisect_right(self._epochs, epoch)
        if epoch < 0 or higher == len(self._epochs):
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if higher == 0:
            return epoch, self._starts[0]
        return self._epochs[higher - 1], self._starts[higher]

    def epoch_for_offset(self, offset: int) -> int:
        """Epoch of the leader that wrote `offset`; -1 if it precedes all entries."""
        covering = bisect_right(self._starts, offset) - 1
        return self._epochs[covering] if covering >= 0 else UNDEFINED_EPOCH

    def __repr__(self) -> str:
        return f"LeaderEpochs({self.entries()})"
