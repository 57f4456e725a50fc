"""The rest that compaction leaves of some remote segments, on its way to the segment that replaces them: a scratch
segment with its indexes.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.protocol.records.batch import BatchHeader, CorruptBatch, crc_is_valid, read_header
from barnabas.protocol.records.builder import build_empty_batch
from barnabas.runtime.world import FileRegion
from barnabas.storage.compaction import Compaction
from barnabas.storage.segment import AppendedBatch, Segment

_NEVER = 0x7FFF_FFFF

Batches = list[tuple[BatchHeader, bytes]]


class RestOfGroup:
    """Call its methods in any thread, one after the other."""

    def __init__(self, segment: Segment, compaction: Compaction) -> None:
        self.segment = segment
        self._compaction = compaction
        self.is_changed = False
        self._last: BatchHeader | None = None
        self._interval_bytes = 0

    def add(self, batches: Batches, interval_bytes: int) -> None:
        """Raises OSError, CorruptBatch."""
        self._interval_bytes = interval_bytes
        kept: list[tuple[BatchHeader, bytes]] = []
        for header, batch in batches:
            check_batch(header, batch)
            self._last = header
            whole = memoryview(batch)
            left = self._compaction.compact(header, whole)
            if left is whole:
                kept.append((header, batch))
                continue
            self.is_changed = True
            if left is not None:
                kept.append((read_header(left), bytes(left)))
        self._append(kept)

    def _append(self, kept: Sequence[tuple[BatchHeader, bytes]]) -> None:
        if not kept:
            return
        segment, appended, position = self.segment, list[AppendedBatch](), 0
        for header, batch in kept:
            appended.append(AppendedBatch(position, len(batch), header.last_offset, header.max_timestamp))
            position += len(batch)
        # A full index remains as it is; it may be sparse.
        is_full = segment.offset_index.is_full or segment.time_index.is_full
        segment.append(b"".join(batch for _, batch in kept), appended, _NEVER if is_full else self._interval_bytes)

    def seal(self) -> tuple[bytes, bytes, bytes | None]:
        """The offset index, the time index and the transaction index, which may be missing. Raises OSError."""
        segment = self.segment
        if not segment.size_bytes and self._last is not None:
            # No segment is empty: the last batch is left without records.
            empty = build_empty_batch(self._last)
            self._append([(read_header(empty), empty)])
        segment.seal()
        indexes = (segment.offset_index, segment.time_index)
        offset_index, time_index = (_read(index.region()) for index in indexes)
        return offset_index, time_index, _read(segment.aborted.region()) if segment.aborted.entries else None


def _read(region: FileRegion) -> bytes:
    data = bytes(region.file.pread(region.count, region.offset))
    if len(data) != region.count:
        raise OSError(f"an index ends after {len(data)} of {region.count} bytes")
    return data


def check_batch(header: BatchHeader, batch: bytes) -> None:
    """Raises CorruptBatch."""
    if not crc_is_valid(batch, 0, header):
        raise CorruptBatch(f"the remote batch at offset {header.base_offset} is damaged: its CRC is wrong")
