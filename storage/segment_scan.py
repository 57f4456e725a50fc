"""A scan of a segment's file that checks every batch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from barnabas.protocol.records.batch import BATCH_HEADER_BYTES, BatchHeader, CorruptBatch, crc_is_valid, read_header
from barnabas.runtime.world import File
from barnabas.storage.segment import Segment, crc_of_file

SCAN_BYTES = 1 << 20
"""Size of one read during a scan."""


def last_damage(segments: Sequence[Segment], offset: int) -> tuple[int, str] | None:
    """Scan all segments that end at `offset` or before, which recovery does not do at the recovery point: (end of the
    last damaged one, damage); None if there is none.

    For logs that are not compacted. Changes nothing. Slow. Raises OSError.
    """
    for segment, following in reversed(list(pairwise(segments))):
        end_offset = following.base_offset
        problem = _damage(segment, end_offset) if end_offset <= offset else None
        if problem is not None:
            return end_offset, f"segment {segment.base_offset}: {problem}"
    return None


def _damage(segment: Segment, end_offset: int) -> str | None:
    file = segment.log_file()
    scan = SegmentScan(file, file.size(), segment.base_offset, segment.base_offset)
    while (header := scan.next_batch()) is not None:
        scan.advance(header)
    if scan.problem is None and scan.next_offset != end_offset:
        return f"ends at offset {scan.next_offset} instead of {end_offset}"
    return scan.problem


class SegmentScan:
    """Scans a segment's file batch by batch, reading it in large pieces."""

    __slots__ = (
        "_chunk",
        "_chunk_start",
        "_file",
        "_no_gaps_from",
        "_size",
        "gaps_to",
        "next_offset",
        "position",
        "problem",
    )

    def __init__(self, file: File, size: int, base_offset: int, no_gaps_from: int | None) -> None:
        """From `no_gaps_from` on each batch must begin where the previous one ends; None allows gaps everywhere."""
        self._file = file
        self._size = size
        self._no_gaps_from = no_gaps_from
        self.next_offset = base_offset
        self.gaps_to = base_offset
        """Base offset of the last batch with a gap before it."""
        self._chunk = b""
        self._chunk_start = 0
        self.position = 0
        self.problem: str | None = None

    def next_batch(self) -> BatchHeader | None:
        """The batch at `position` if it is good; None at the end, or if `problem` is set."""
        position = self.position
        if position >= self._size:
            return None
        at = position - self._chunk_start
        if at + BATCH_HEADER_BYTES > len(self._chunk):
            at = self._read_chunk()
        try:
            header = read_header(self._chunk, at)
        except CorruptBatch as error:
            return self._stop(str(error))
        size = header.size_bytes
        if position + size > self._size:
            return self._stop(f"a batch of {size} bytes where {self._size - position} are left")
        if header.base_offset < self.next_offset or header.last_offset_delta < 0:
            return self._stop(f"offsets {header.base_offset} to {header.last_offset} after {self.next_offset}")
        unflushed = self._no_gaps_from is not None and self.next_offset >= self._no_gaps_from
        if unflushed and header.base_offset > self.next_offset:
            return self._stop(f"offset {header.base_offset} where {self.next_offset} is next")
        if at + size > len(self._chunk):
            if header.magic >= 2 and size > SCAN_BYTES:
                crc = crc_of_file(self._file, position + 21, position + size, SCAN_BYTES)
                return header if crc == header.crc else self._stop("wrong CRC")
            at = self._read_chunk(size)
        if not crc_is_valid(self._chunk, at, header):
            return self._stop("wrong CRC")
        return header

    def _read_chunk(self, at_least: int = 0) -> int:
        self._chunk = self._file.pread(max(SCAN_BYTES, at_least), self.position)
        self._chunk_start = self.position
        return 0

    def _stop(self, problem: str) -> BatchHeader | None:
        self.problem = f"{problem} at byte {self.position} of {self._size}"
        return None

    def advance(self, header: BatchHeader) -> None:
        if header.base_offset > self.next_offset:
            self.gaps_to = header.base_offset
        self.position += header.size_bytes
        self.next_offset = header.next_offset
