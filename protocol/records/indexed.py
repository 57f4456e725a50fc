"""Records of one batch (format v2) by their places: each is made when it is asked for.

A batch is kept as its bytes and four more for each record: a fifth of what its records take as objects. It is opened in
a seventh of the time that it takes to make them.
"""

from __future__ import annotations

from array import array

from barnabas.protocol.records import layout
from barnabas.protocol.records.batch import CorruptBatch, read_header
from barnabas.protocol.records.layout import Fields, read_varint
from barnabas.protocol.records.record import DECODED_LIMIT_BYTES, payload_of

OBJECT_BYTES = 400
"""Memory of an empty one, about."""


class IndexedRecords:
    __slots__ = ("_data", "_starts", "header", "size_bytes")

    def __init__(self, batch: bytes, limit_bytes: int = DECODED_LIMIT_BYTES) -> None:
        """`batch`: a complete one that a leader has checked. Raises `CorruptBatch` if its records are not what its head
        announces, or unfold to more than `limit_bytes`."""
        self.header = header = read_header(batch)
        self._data = payload_of(memoryview(batch), header, 0, limit_bytes)
        try:
            self._starts = _starts(self._data, header.records_count)
        except IndexError:
            raise CorruptBatch(f"the records of the batch at offset {header.base_offset} end too soon") from None
        self.size_bytes = OBJECT_BYTES + len(self._data) + self._starts.itemsize * len(self._starts)

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, place: int) -> Fields:
        """Raises IndexError, and `CorruptBatch`."""
        header = self.header
        start = self._starts[place]
        try:
            (record,), _ = layout.walk(self._data, start, 1, header.base_offset, header.base_timestamp)
        except IndexError:
            raise CorruptBatch(f"record {place} of the batch at offset {header.base_offset} is cut short") from None
        if header.is_log_append_time:
            return record[0], header.max_timestamp, *record[2:]
        return record


def _starts(data: bytes, count: int) -> array[int]:
    """Raises IndexError if the records reach beyond the end of `data`, `CorruptBatch` if they end before it."""
    starts = array("I")
    append = starts.append
    position = 0
    for _ in range(count):
        append(position)
        byte = data[position]
        if not byte & 0x81:
            position += 1 + (byte >> 1)
            continue
        second = data[position + 1]
        if second < 0x80 and not byte & 1:
            position += 2 + (second << 6) + (byte >> 1) - 0x40
            continue
        length, position = read_varint(data, position)
        if length < 0:
            raise CorruptBatch(f"a record of {length} bytes")
        position += length
    if position > len(data):
        raise IndexError(position)
    if position < len(data):
        raise CorruptBatch(f"{len(data) - position} bytes after {count} records")
    return starts
