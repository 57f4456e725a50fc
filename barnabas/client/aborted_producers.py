"""Core: which batches of a fetch belong to aborted transactions (KIP-98)."""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.protocol.records.batch import BatchHeader
from barnabas.protocol.records.control import read_end_txn

Buffer = bytes | bytearray | memoryview


class AbortedProducers:
    """The producers whose transaction is aborted at the current position of a walk over batches, in offset order.

    Each aborted transaction counts from its first offset to its marker.
    """

    __slots__ = ("_aborted", "_to_come")

    def __init__(self, transactions: Iterable[tuple[int, int]]) -> None:
        """`transactions` are (producer id, first offset), as a fetch response lists them."""
        self._to_come = sorted(((first, producer) for producer, first in transactions), reverse=True)
        self._aborted: set[int] = set()

    def covers(self, buffer: Buffer, position: int, header: BatchHeader) -> bool:
        """Whether the batch at `position` is aborted data. CorruptBatch if a control batch cannot be read."""
        while self._to_come and self._to_come[-1][0] <= header.last_offset:
            self._aborted.add(self._to_come.pop()[1])
        if header.is_control:
            marker = read_end_txn(buffer, position)
            if marker is not None and not marker.committed:
                self._aborted.discard(header.producer_id)
            return False
        return header.is_transactional and header.producer_id in self._aborted
