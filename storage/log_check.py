"""Shell: finds damaged or unreadable batches in segments, for `barnabas log check`.

Checks headers, CRCs, records and the order of offsets, in files of Kafka and of Barnabas, and changes nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from barnabas.protocol.records.batch import BatchHeader, CorruptBatch, crc_is_valid
from barnabas.protocol.records.record import CLIENT_LIMIT_BYTES, SERVED_LIMIT_RECORDS, decode_in_slices
from barnabas.runtime.disk import RealDisk
from barnabas.runtime.world import Disk
from barnabas.storage.dump import NotDumpable, batch_at
from barnabas.storage.names import LOG_SUFFIX, parse_offset_file_name


class Fault(NamedTuple):
    """A damaged batch, or a file that is damaged from some position on."""

    offset: int | None
    """Its base offset; None if the header is unreadable."""
    position: int
    reason: str


class SegmentCheck:
    """Check of one file. Iterate over `faults`."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self.batches = 0

    def faults(self) -> Iterator[Fault]:
        """Raises OSError."""
        parsed = parse_offset_file_name(self._path.rpartition("/")[2])
        next_offset = parsed[0] if parsed is not None else 0
        file = self._disk.open(self._path)
        try:
            position, size = 0, file.size()
            while position < size:
                try:
                    header, data = batch_at(file, position, size)
                except NotDumpable as error:
                    # The position of the next batch is unknown.
                    yield Fault(None, position, str(error))
                    return
                self.batches += 1
                reason = _fault_of(header, data, next_offset)
                if reason is not None:
                    yield Fault(header.base_offset, position, reason)
                next_offset = max(next_offset, header.next_offset)
                position += header.size_bytes
        finally:
            file.close()


def _fault_of(header: BatchHeader, data: bytes, next_offset: int) -> str | None:
    """Damage of a batch that follows offset `next_offset` - 1; None if it is sound."""
    if not crc_is_valid(data, 0, header):
        return "wrong CRC"
    first, last = header.base_offset, header.last_offset
    if header.magic < 2:
        first = next_offset  # the header of a compressed message set has the offset of its last message
    elif first < next_offset:
        return f"its offset is not above {next_offset - 1}"
    try:
        for records in decode_in_slices(memoryview(data), CLIENT_LIMIT_BYTES, SERVED_LIMIT_RECORDS):
            for record in records:
                if not first <= record.offset <= last:
                    return f"a record in it has offset {record.offset}, which is not in {first} to {last}"
                first = record.offset + 1
    except CorruptBatch as error:
        return error.message
    return None


def segments_in(disk: Disk, place: str) -> Iterator[str]:
    """Segments in a directory and below it, or `place` itself if it is a file. Raises OSError."""
    if not disk.is_directory(place):
        yield place
        return
    for name in disk.list(place):
        path = f"{place.rstrip('/')}/{name}"
        if disk.is_directory(path):
            yield from segments_in(disk, path)
        elif name.endswith(LOG_SUFFIX) and parse_offset_file_name(name) is not None:
            yield path


def main(places: Sequence[str]) -> int:
    """The exit status: 1 if any file is damaged or unreadable."""
    disk = RealDisk()
    files = batches = faults = unread = 0
    for place in places:
        try:
            for path in segments_in(disk, place):
                files += 1
                check = SegmentCheck(disk, path)
                for fault in check.faults():
                    faults += 1
                    where = f"byte {fault.position}" if fault.offset is None else f"offset {fault.offset}"
                    print(f"{path}: {where}: {fault.reason}")
                batches += check.batches
        except OSError as error:
            print(f"{place}: {error.strerror}", file=sys.stderr)
            unread += 1
    verdict = f"{faults} damaged" if faults else "all valid"
    print(f"{batches} batches in {files} segments, {verdict}")
    return 1 if faults or unread else 0
