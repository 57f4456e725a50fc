"""Core: merges changes of a share partition's state into its stored batches.

Where batches overlap, the one that is further in its life wins: the higher delivery count, then the higher state. A
write that arrives late can therefore not undo a later one (as Kafka's PersisterStateBatchCombiner).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

from barnabas.broker.shares.state import UNINITIALIZED_OFFSET, StateBatch


def merged(current: Sequence[StateBatch], changes: Iterable[StateBatch], start_offset: int) -> tuple[StateBatch, ...]:
    """`current`, in order and without overlaps, with all `changes`, from `start_offset` on. Neighbours in the same
    state are one batch."""
    batches = list(current)
    for change in changes:
        _merge(batches, change)
    return tuple(batches) if start_offset == UNINITIALIZED_OFFSET else tuple(_from_offset(batches, start_offset))


def _merge(batches: list[StateBatch], change: StateBatch) -> None:
    """Replace the batches that `change` overlaps or touches."""
    first = bisect_left(batches, change.first_offset - 1, key=lambda batch: batch.last_offset)
    end = bisect_right(batches, change.last_offset + 1, key=lambda batch: batch.first_offset)
    pieces = _Pieces()
    cursor = change.first_offset
    """The part of `change` before it is placed."""
    for old in batches[first:end]:
        if old.first_offset > cursor:
            pieces.add(change, cursor, min(old.first_offset - 1, change.last_offset))
        pieces.add(old, old.first_offset, min(old.last_offset, change.first_offset - 1))
        overlap_first = max(old.first_offset, change.first_offset)
        overlap_last = min(old.last_offset, change.last_offset)
        pieces.add(change if _precedence(change) >= _precedence(old) else old, overlap_first, overlap_last)
        pieces.add(old, max(old.first_offset, change.last_offset + 1), old.last_offset)
        cursor = max(cursor, min(old.last_offset, change.last_offset) + 1)
    pieces.add(change, cursor, change.last_offset)
    batches[first:end] = pieces.batches


class _Pieces:
    """Batches in order; neighbours in the same state are joined."""

    __slots__ = ("batches",)

    def __init__(self) -> None:
        self.batches: list[StateBatch] = []

    def add(self, batch: StateBatch, first_offset: int, last_offset: int) -> None:
        """Add the part of `batch` from `first_offset` to `last_offset`, if there is one."""
        if first_offset > last_offset:
            return
        if self.batches:
            before = self.batches[-1]
            if before.last_offset + 1 == first_offset and _precedence(before) == _precedence(batch):
                self.batches[-1] = before._replace(last_offset=last_offset)
                return
        self.batches.append(batch._replace(first_offset=first_offset, last_offset=last_offset))


def _precedence(batch: StateBatch) -> tuple[int, int]:
    return batch.delivery_count, batch.state


def _from_offset(batches: list[StateBatch], start_offset: int) -> list[StateBatch]:
    first = bisect_left(batches, start_offset, key=lambda batch: batch.last_offset)
    kept = batches[first:]
    if kept and kept[0].first_offset < start_offset:
        kept[0] = kept[0]._replace(first_offset=start_offset)
    return kept
