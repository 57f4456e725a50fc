"""The head of a record batch: the 61 bytes that a broker looks at, and the few of them it writes.

Message format v2 (KIP-98). Heads of the older message sets (magic 0 and 1) are read into the same shape, so
that a log that holds all three can be walked. Nothing here looks at a record, and nothing here decompresses.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.crc import crc32c

BATCH_HEADER_BYTES = 61
OFFSET_AND_SIZE_BYTES = 12
"""The base offset and the batch length, which `batch_length` does not count."""

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1

COMPRESSION_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40
MARKER_BITS = CONTROL_BIT | TRANSACTIONAL_BIT
"""Both are set in a control batch that ends a transaction."""

MAX_INT32 = 0x7FFF_FFFF
HEADER_STRUCT = struct.Struct(">qiibIhiqqqhii")
CRC_POSITION = 17
ATTRIBUTES_POSITION = 21
"""The CRC covers from here to the end: a broker writes base offset and leader epoch without a new CRC."""

_MAGIC_POSITION = 16
_MAX_TIMESTAMP_POSITION = 35
_MIN_BATCH_LENGTH = BATCH_HEADER_BYTES - OFFSET_AND_SIZE_BYTES

_LEGACY_STRUCT = struct.Struct(">qiIbb")
LEGACY_HEADER_BYTES = _LEGACY_STRUCT.size
_LEGACY_MIN_LENGTH = (14, 22)
"""Magic 0 and 1: CRC, magic, attributes, (timestamp,) and the lengths of an empty key and value."""

_BASE_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_TIMESTAMP = struct.Struct(">q")


class CorruptBatch(KafkaError):
    """The bytes are not a valid record batch: the only error for all problems with them."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, message)


class BatchHeader(NamedTuple):
    """The head of one batch, field by field as on the wire (a tuple, because that is the cheapest to make)."""

    base_offset: int
    """For a compressed message set of magic 0 or 1, the offset of its last record; that of the first is inside."""
    batch_length: int
    """Bytes after this field."""
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    """Milliseconds. With `has_delete_horizon` it is that horizon; deltas count from it all the same."""
    max_timestamp: int
    """Milliseconds; -1 if no record has one."""
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int
    """0 after compaction took every record; -1 in a compressed message set of magic 0 or 1 (unknown)."""

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole batch with its head."""
        return self.batch_length + OFFSET_AND_SIZE_BYTES

    @property
    def compression(self) -> int:
        """0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd; 5 to 7 mean nothing."""
        return self.attributes & COMPRESSION_MASK

    @property
    def is_log_append_time(self) -> bool:
        return self.attributes & LOG_APPEND_TIME_BIT != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_BIT != 0

    @property
    def is_marker(self) -> bool:
        """True for a control batch that ends a transaction. Those of delayed delivery have no transaction."""
        return self.attributes & MARKER_BITS == MARKER_BITS

    @property
    def has_delete_horizon(self) -> bool:
        """KIP-534: the cleaner has set the time after which the tombstones or the marker in this batch may be
        removed."""
        return self.attributes & DELETE_HORIZON_BIT != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
        """-1 without sequences; they wrap from 2147483647 to 0."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return add_to_sequence(self.base_sequence, self.last_offset_delta)


def add_to_sequence(sequence: int, increment: int) -> int:
    """Sequences of a producer are 31 bits wide and wrap to 0."""
    return (sequence + increment) & MAX_INT32


_unpack_header = HEADER_STRUCT.unpack_from
_new_header: Any = tuple.__new__  # skips the Python-level constructor of the named tuple


def read_header(buffer: bytes | bytearray | memoryview, position: int = 0) -> BatchHeader:
    """The head of the batch at `position`; the rest of the batch need not be in `buffer`.

    `CorruptBatch` if it is none: too few bytes, an unknown magic, or a length that cannot be.
    """
    try:
        header: BatchHeader = _new_header(BatchHeader, _unpack_header(buffer, position))
    except struct.error:
        return _read_legacy_header(buffer, position)
    if header[3] == 2 and header[1] >= _MIN_BATCH_LENGTH:
        return header
    return _read_legacy_header(buffer, position)


def _read_legacy_header(buffer: bytes | bytearray | memoryview, position: int) -> BatchHeader:
    """A message or a compressed message set of magic 0 or 1 as a batch; every other thing is corrupt."""
    try:
        offset, length, crc, magic, attributes = _LEGACY_STRUCT.unpack_from(buffer, position)
    except struct.error:
        raise CorruptBatch(f"no batch head in {len(buffer) - position} bytes") from None
    if magic not in (0, 1):
        if magic == 2 and len(buffer) - position < BATCH_HEADER_BYTES:
            raise CorruptBatch(f"a batch head of {len(buffer) - position} bytes, not {BATCH_HEADER_BYTES}")
        if magic == 2:
            raise CorruptBatch(f"batch length {length} at offset {offset} is less than {_MIN_BATCH_LENGTH}")
        raise CorruptBatch(f"unknown magic {magic} at offset {offset}")
    if length < _LEGACY_MIN_LENGTH[magic]:
        raise CorruptBatch(f"message size {length} at offset {offset} is less than {_LEGACY_MIN_LENGTH[magic]}")
    timestamp = NO_TIMESTAMP
    if magic == 1:
        try:
            (timestamp,) = _TIMESTAMP.unpack_from(buffer, position + LEGACY_HEADER_BYTES)
        except struct.error:
            raise CorruptBatch(f"the message at offset {offset} ends before its timestamp") from None
    else:
        attributes &= COMPRESSION_MASK
    attributes &= COMPRESSION_MASK | LOG_APPEND_TIME_BIT
    return BatchHeader(
        base_offset=offset,
        batch_length=length,
        partition_leader_epoch=NO_LEADER_EPOCH,
        magic=magic,
        crc=crc,
        attributes=attributes,
        last_offset_delta=0,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
        records_count=-1 if attributes & COMPRESSION_MASK else 1,
    )


LEAST_MESSAGE_BYTES = OFFSET_AND_SIZE_BYTES + _LEGACY_MIN_LENGTH[0]


def is_compressed_message(buffer: bytes | bytearray | memoryview) -> bool:
    """True if the first message in `buffer`, of magic 0 or 1, is a compressed wrapper; it need not be valid."""
    return len(buffer) >= LEGACY_HEADER_BYTES and bool(buffer[_MAGIC_POSITION + 1] & COMPRESSION_MASK)


def is_transactional_batch(buffer: bytes | bytearray | memoryview | None) -> bool:
    """True if the first batch in `buffer`, which need not be valid, has the transactional bit."""
    if buffer is None or len(buffer) < BATCH_HEADER_BYTES or buffer[_MAGIC_POSITION] != 2:
        return False
    return bool(buffer[ATTRIBUTES_POSITION + 1] & TRANSACTIONAL_BIT)


def iterate_batches(buffer: bytes | bytearray | memoryview, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """(position, head) of each batch from `position` on; a last batch that is cut short ends it silently.

    A fetch may end within a batch, so a cut is no corruption here. `CorruptBatch` as in `read_header`.
    """
    end = len(buffer)
    while end - position > _MAGIC_POSITION + 1:
        (length,) = _LEADER_EPOCH.unpack_from(buffer, position + 8)
        if length > end - position - OFFSET_AND_SIZE_BYTES:
            return
        header = read_header(buffer, position)
        yield position, header
        position += length + OFFSET_AND_SIZE_BYTES


def crc_is_valid(buffer: bytes | bytearray | memoryview, position: int, header: BatchHeader) -> bool:
    """True if the CRC of the batch at `position` matches; False also if bytes are missing."""
    end = position + header.batch_length + OFFSET_AND_SIZE_BYTES
    if end > len(buffer):
        return False
    if header.magic == 2:
        return crc32c(memoryview(buffer)[position + ATTRIBUTES_POSITION : end]) == header.crc
    return zlib.crc32(memoryview(buffer)[position + _MAGIC_POSITION : end]) == header.crc


def set_base_offset_and_epoch(
    buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int
) -> None:
    """Write the fields that a leader assigns when it appends; both are outside the CRC."""
    _BASE_OFFSET.pack_into(buffer, position, base_offset)
    _LEADER_EPOCH.pack_into(buffer, position + 12, leader_epoch)


def set_log_append_time(buffer: bytearray | memoryview, position: int, timestamp: int) -> None:
    """Stamp a v2 batch with the broker's time: attribute bit 3, the max timestamp, and a new CRC.

    The records keep their deltas; readers give all of them the max timestamp.
    """
    (attributes,) = _ATTRIBUTES.unpack_from(buffer, position + ATTRIBUTES_POSITION)
    _ATTRIBUTES.pack_into(buffer, position + ATTRIBUTES_POSITION, attributes | LOG_APPEND_TIME_BIT)
    _TIMESTAMP.pack_into(buffer, position + _MAX_TIMESTAMP_POSITION, timestamp)
    (length,) = _LEADER_EPOCH.unpack_from(buffer, position + 8)
    end = position + length + OFFSET_AND_SIZE_BYTES
    _CRC.pack_into(buffer, position + CRC_POSITION, crc32c(memoryview(buffer)[position + ATTRIBUTES_POSITION : end]))
