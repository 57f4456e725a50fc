"""Core: the offsets of what was read from a log for a share group: batches, and those of aborted transactions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from barnabas.broker.shares.in_flight import OffsetRange
from barnabas.protocol.records.batch import BatchHeader


class Aborted(Protocol):
    """An aborted transaction. `storage.transaction_index.AbortedTransaction` fits."""

    @property
    def producer_id(self) -> int: ...

    @property
    def first_offset(self) -> int: ...

    @property
    def last_offset(self) -> int:
        """Offset of the marker."""


class FetchedBatch(NamedTuple):
    """One batch of a log, and its place in its file."""

    offsets: OffsetRange
    header: BatchHeader
    position: int


def offsets_of(header: BatchHeader, next_offset: int) -> OffsetRange:
    """`next_offset`: the offset behind the batch before."""
    first = header.base_offset
    if header.magic < 2 and header.compression:
        # The head has the offset of its last message; that of the first one is compressed.
        first = min(next_offset, first)
    return OffsetRange(first, header.last_offset)


def aborted_in(batches: Iterable[FetchedBatch], aborted: Sequence[Aborted]) -> list[OffsetRange]:
    """The batches of aborted transactions, without their markers."""
    by_producer: dict[int, list[Aborted]] = {}
    for each in aborted:
        by_producer.setdefault(each.producer_id, []).append(each)
    return [
        batch.offsets
        for batch in batches
        if batch.header.is_transactional
        and not batch.header.is_control
        and any(
            each.first_offset <= batch.header.base_offset <= each.last_offset
            for each in by_producer.get(batch.header.producer_id, ())
        )
    ]
