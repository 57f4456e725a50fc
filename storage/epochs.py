"""Which leader epoch wrote which part of a log, and so: where do two logs part? A core: no disk, no time.

Each entry says at which offset an epoch began. Both strictly increase, which every method keeps true. A
replica that asks "where does your epoch E end?" (KIP-101, KIP-279) learns the first offset at which the two
logs can differ. Partition replication and the metadata quorum share this.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class LeaderEpochs:
    """The epochs of one log, oldest first. `dirty` says that they changed since the owner last cleared it."""

    __slots__ = ("_epochs", "_starts", "dirty", "latest_epoch")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self.latest_epoch = UNDEFINED_EPOCH
        """-1 if the log knows no epoch."""
        self.dirty = False
        for epoch, start_offset in entries:
            self.assign(epoch, start_offset)
        self.dirty = False

    def __len__(self) -> int:
        return len(self._epochs)

    def entries(self) -> list[tuple[int, int]]:
        """(epoch, start offset), oldest first."""
        return list(zip(self._epochs, self._starts, strict=True))

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Epoch `epoch` begins at `start_offset`; gives whether that was news.

        Entries it contradicts (a later epoch, or one that began at or after it) are forgotten: they were
        never followed by data that survived.
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
        """A batch of `epoch` at `offset` comes behind a log that ends at `end_offset`.

        If there is a gap between, and `known` (epoch, start offset) entries, oldest first, begin in it, they are as old
        as that batch or older: compaction has left nothing else of them.
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
        """The log now ends at `end_offset`: epochs that began there or later are gone."""
        keep = bisect_left(self._starts, end_offset)
        if keep < len(self._starts):
            self._cut(keep)

    def truncate_from_start(self, start_offset: int) -> None:
        """The log now starts at `start_offset`: the epoch that covers it starts there, older ones go."""
        covering = bisect_right(self._starts, start_offset) - 1
        if covering < 0 or (covering == 0 and self._starts[0] == start_offset):
            return
        del self._epochs[:covering]
        del self._starts[:covering]
        self._starts[0] = start_offset
        self.dirty = True

    def clear(self) -> None:
        if self._epochs:
            self._cut(0)

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(the largest epoch here that is at most `epoch`, the offset after its last record).

        The latest epoch ends at `log_end_offset`. For an epoch older than all known ones: that epoch, and the
        start of the oldest known one. (-1, -1) for an epoch that is not known yet.
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
        """The epoch whose leader wrote `offset`; -1 if it is older than all entries."""
        covering = bisect_right(self._starts, offset) - 1
        return self._epochs[covering] if covering >= 0 else UNDEFINED_EPOCH

    def start_offset_of(self, epoch: int) -> int:
        """-1 if `epoch` wrote nothing here."""
        place = bisect_left(self._epochs, epoch)
        if place < len(self._epochs) and self._epochs[place] == epoch:
            return self._starts[place]
        return UNDEFINED_OFFSET

    def previous_epoch(self, epoch: int) -> int:
        """The largest known epoch below `epoch`; -1 if there is none."""
        place = bisect_left(self._epochs, epoch)
        return self._epochs[place - 1] if place else UNDEFINED_EPOCH

    def __repr__(self) -> str:
        return f"LeaderEpochs({self.entries()})"
