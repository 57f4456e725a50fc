"""Core: merges changes of a share partition's state into its stored batches.

Where batches overlap, the one that is further in its life wins: the higher delivery count, then the higher state. A
write that arrives late can therefore not undo a later one (as Kafka's PersisterStateBatchCombiner). The order of
changes has no meaning, and one pass over all batches is enough.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush

from barnabas.broker.shares.state import UNINITIALIZED_OFFSET, StateBatch

_Open = list[tuple[int, int, int, StateBatch]]
"""A heap of batches, the one that wins first: delivery count and state, both negative, and last offset."""


def merged(current: Sequence[StateBatch], changes: Iterable[StateBatch], start_offset: int) -> tuple[StateBatch, ...]:
    """`current`, in order and without overlaps, with all `changes`, from `start_offset` on. Neighbours in the same
    state are one batch."""
    waiting = sorted([*current, *changes])
    batches: list[StateBatch] = []
    place, count = 0, len(waiting)
    while place < count:
        first, place = place, place + 1
        last_offset = waiting[first][1]
        while place < count and waiting[place][0] <= last_offset:
            last_offset = max(last_offset, waiting[place][1])
            place += 1
        pieces = _without_overlaps(waiting[first:place]) if place > first + 1 else (waiting[first],)
        for piece in pieces:
            if batches:
                before = batches[-1]
                if before[1] + 1 == piece[0] and before[2:] == piece[2:]:
                    batches[-1] = StateBatch(before[0], *piece[1:])
                    continue
            batches.append(piece)
    return tuple(batches) if start_offset == UNINITIALIZED_OFFSET else tuple(_from_offset(batches, start_offset))


def _without_overlaps(batches: Sequence[StateBatch]) -> Iterator[StateBatch]:
    """The same offsets in order, each once. `batches` are sorted, and each of them reaches another."""
    reaching: _Open = []
    cursor = 0
    for batch in batches:
        yield from _up_to(reaching, cursor, batch.first_offset)
        heappush(reaching, (-batch.delivery_count, -batch.state, batch.last_offset, batch))
        cursor = batch.first_offset
    yield from _up_to(reaching, cursor, max(last_offset for _, _, last_offset, _ in reaching) + 1)


def _up_to(reaching: _Open, cursor: int, end: int) -> Iterator[StateBatch]:
    """The offsets from `cursor` on that are before `end`. Batches that end before `end` are removed."""
    while reaching:
        _, _, last_offset, batch = reaching[0]
        if last_offset >= cursor < end:
            yield batch._replace(first_offset=cursor, last_offset=min(last_offset, end - 1))
            cursor = min(last_offset + 1, end)
        if last_offset >= end:
            return
        heappop(reaching)


def _from_offset(batches: list[StateBatch], start_offset: int) -> list[StateBatch]:
    first = bisect_left(batches, start_offset, key=lambda batch: batch.last_offset)
    kept = batches[first:]
    if kept and kept[0].first_offset < start_offset:
        kept[0] = kept[0]._replace(first_offset=start_offset)
    return kept
