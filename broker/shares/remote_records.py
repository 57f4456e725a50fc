"""Shell: records of share partitions that only remote segments have (KIP-405): one piece of each is held in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from barnabas.broker.remote.wanted import RemoteRecords, Wanted
from barnabas.broker.shares.led_partitions import LedSharePartition
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.records.batch import iterate_batches
from barnabas.runtime.world import Bytes
from barnabas.storage.segment_list import LogSlice
from barnabas.storage.transaction_index import AbortedTransaction

if TYPE_CHECKING:
    from barnabas.broker.remote.reads import RemoteReads

PIECE_BYTES = 256 << 10
"""Bytes that are read at once, unless one batch has more."""
MOST_PIECES = 64


class HeldBytes:
    """Bytes in memory as a file that is only read."""

    path = "records of a remote segment"

    def __init__(self, data: bytes) -> None:
        self.data = data

    def size(self) -> int:
        return len(self.data)

    def pread(self, count: int, offset: int) -> bytes:
        return self.data[offset : offset + count]

    def pwrite(self, data: Bytes, offset: int) -> None:
        raise OSError(f"{self.path} cannot be written")

    def truncate(self, size: int) -> None:
        raise OSError(f"{self.path} cannot be cut")

    def sync(self) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class _Piece:
    """Whole batches."""

    file: HeldBytes
    batches: Sequence[tuple[int, int, int]]
    """(position, offset after the last record, size) of each."""
    first_offset: int
    aborted: Sequence[AbortedTransaction]

    def part(self, offset: int, max_bytes: int, *, at_least_one_batch: bool) -> LogSlice | None:
        """The batches from the one with `offset` on, which is here; None if there is no room for the first one."""
        rest = [each for each in self.batches if each[1] > offset]
        size, upper = 0, offset
        for place, (_, next_offset, batch_bytes) in enumerate(rest):
            if size + batch_bytes > max_bytes and not (place == 0 and at_least_one_batch):
                break
            size, upper = size + batch_bytes, next_offset
        return LogSlice(offset, self.file, rest[0][0], size, upper) if size else None

    @property
    def upper_offset(self) -> int:
        return self.batches[-1][1] if self.batches else self.first_offset


class SharedRemoteRecords:
    """The pieces of all share partitions of a broker."""

    def __init__(self, reads: RemoteReads, wake: Callable[[LedSharePartition], None]) -> None:
        """`wake` looks at the fetches that wait for a share partition."""
        self._reads = reads
        self._wake = wake
        self._pieces: dict[LedSharePartition, _Piece] = {}
        """The one that was read last is the last."""
        self._reading: dict[LedSharePartition, None] = {}

    def find(
        self, led: LedSharePartition, offset: int, max_bytes: int, *, at_least_one_batch: bool
    ) -> tuple[LogSlice, Sequence[AbortedTransaction]] | None:
        """The records from `offset` on. If they are not in memory, they are read, and `wake` is called then."""
        piece = self._pieces.get(led)
        if piece is not None and piece.first_offset <= offset < piece.upper_offset:
            part = piece.part(offset, max_bytes, at_least_one_batch=at_least_one_batch)
            return None if part is None else (part, piece.aborted)
        if led not in self._reading and not self._reads.is_throttled:
            self._reading[led] = None
            read = partial(self._answered, led, offset)
            self._reads.fetch(led.partition, Wanted(offset, PIECE_BYTES, True, True), read)
        return None

    def _answered(
        self, led: LedSharePartition, offset: int, records: RemoteRecords | None, error: ErrorCode
    ) -> None:
        del self._reading[led]
        if records is None or not records.data or led.error is not None:
            return
        self._pieces.pop(led, None)
        self._pieces[led] = _piece(offset, records)
        while len(self._pieces) > MOST_PIECES:
            del self._pieces[next(iter(self._pieces))]
        self._wake(led)


def _piece(offset: int, records: RemoteRecords) -> _Piece:
    batches = [(at, header.next_offset, header.size_bytes) for at, header in iterate_batches(records.data)]
    return _Piece(HeldBytes(records.data), batches, offset, records.aborted)
