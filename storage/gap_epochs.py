"""Leader epochs that no batch of this log has: compaction at the leader has removed all of their records, or the first
ones, and left a gap between two batches.

A follower that copies such a log knows them from its leader alone. Recovery believes the checkpoint of epochs only
below the recovery point: a truncation may have removed what it has beyond. Until then a file keeps these epochs. It is
written before the batch behind the gap, and not synced. A process that is killed finds them again. After a power loss
recovery cuts the log at a gap that was not flushed, and they are not needed. An entry counts for exactly the gap and
the batch for which it was written, and what a truncation leaves in the file does no harm. The next start that does not
need the file removes it.

`gap-epochs` is a checkpoint file with lines of `gap-start batch-offset batch-epoch epoch start-offset`. It is not in
Kafka, where followers know the epochs of batches only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from barnabas.protocol.records.batch import BatchHeader
from barnabas.storage.checkpoints import format_numbers, parse_numbers, replace_file
from barnabas.storage.folder import Folder

GAP_EPOCHS_FILE = "gap-epochs"


class Gap(NamedTuple):
    """A gap between two batches."""

    start: int
    batch_offset: int
    """Base offset of the batch behind it."""
    batch_epoch: int


class GapEpoch(NamedTuple):
    """An epoch that began in a gap."""

    gap: Gap
    epoch: int
    start_offset: int


def hidden_epochs(
    batches: Iterable[tuple[int, BatchHeader]], end_offset: int, known: Sequence[tuple[int, int]]
) -> list[GapEpoch]:
    """The `known` (epoch, start offset) entries, oldest first, that begin in gaps before these batches. The batches
    continue a log that ends at `end_offset`."""
    found = []
    for _, header in batches:
        gap = Gap(end_offset, header.base_offset, header.partition_leader_epoch)
        if gap.batch_offset > gap.start:
            found += [
                GapEpoch(gap, epoch, start)
                for epoch, start in known
                if epoch <= gap.batch_epoch and gap.start <= start <= gap.batch_offset
            ]
        end_offset = header.next_offset
    return found


class GapEpochs:
    """The file of one log."""

    __slots__ = ("_entries", "_folder")

    def __init__(self, folder: Folder, entries: Iterable[GapEpoch] = ()) -> None:
        self._folder = folder
        self._entries = list(entries)

    def add(self, entries: Sequence[GapEpoch]) -> None:
        """To be called before the batches behind the gaps are written. Raises OSError."""
        all_entries = [*self._entries, *(it for it in entries if it not in self._entries)]
        rows = [(*it.gap, it.epoch, it.start_offset) for it in all_entries]
        replace_file(self._folder.disk, self._path, format_numbers(rows))
        self._entries = all_entries

    def before(self, gap: Gap) -> list[tuple[int, int]]:
        """(epoch, start offset) of those that began in this gap, oldest first."""
        return [(it.epoch, it.start_offset) for it in self._entries if it.gap == gap]

    def are_below(self, recovery_point: float) -> bool:
        """True if the checkpoint of epochs has all of them."""
        return all(it.gap.batch_offset < recovery_point for it in self._entries)

    @property
    def _path(self) -> str:
        return f"{self._folder.path}/{GAP_EPOCHS_FILE}"

    @classmethod
    def read(cls, folder: Folder) -> GapEpochs:
        """Raises OSError; MalformedCheckpoint."""
        path = f"{folder.path}/{GAP_EPOCHS_FILE}"
        entries = []
        for row in parse_numbers(folder.disk.read_bytes(path), path, 5):
            entries.append(GapEpoch(Gap(*row[:3]), row[3], row[4]))
        return cls(folder, entries)
