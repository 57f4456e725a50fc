"""The records of one batch while it is filled, how large it will be, and its bytes when it is closed. A core.

What compression will save is estimated from what it saved before, for each topic and codec: quickly believed when it
saves less, slowly when it saves more, so that batches seldom come out too large.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.records.batch import BATCH_HEADER_BYTES
from protocol.records.builder import build_batch
from protocol.records.compression import Compression
from protocol.records.record import Headers, Record
from protocol.records.varint import varint_size

ESTIMATION_FACTOR = 1.05
"""A compressed batch is taken to come out so much larger than estimated."""
IMPROVING_STEP = 0.005
DETERIORATING_STEP = 0.05
NO_TIMESTAMP = -1

_SIZE_LIMIT = 8192
_SIZES = bytes(varint_size(number) for number in range(_SIZE_LIMIT))
"""Bytes of the varints that lengths and deltas mostly are."""


class CompressionRatioEstimator:
    """What part of their size the batches of each topic have after compression."""

    def __init__(self) -> None:
        self._ratios: dict[tuple[str, Compression], float] = {}

    def estimation(self, topic: str, codec: Compression) -> float:
        return self._ratios.get((topic, codec), 1.0)

    def update(self, topic: str, codec: Compression, observed: float) -> None:
        """One batch came out so."""
        current = self.estimation(topic, codec)
        if observed > current:
            current = max(current + DETERIORATING_STEP, observed)
        elif observed < current:
            current = max(current - IMPROVING_STEP, observed)
        self._ratios[topic, codec] = current

    def set(self, topic: str, codec: Compression, ratio: float) -> None:
        """Forget what was believed: a batch was refused for its size."""
        self._ratios[topic, codec] = ratio


@dataclass(frozen=True, slots=True)
class BatchFormat:
    """What the batches of one producer have in common."""

    write_limit_bytes: int
    """batch.size."""
    codec: Compression = Compression.NONE
    level: int | None = None
    transactional: bool = False


@dataclass(frozen=True, slots=True)
class ProducerId:
    """Who a broker takes a producer for (KIP-98)."""

    producer_id: int
    epoch: int


NO_PRODUCER = ProducerId(-1, -1)


class MemoryRecordsBuilder:
    """Fills one batch of format v2."""

    __slots__ = ("_base_timestamp", "_factor", "_format", "_full", "records", "uncompressed_bytes")

    def __init__(self, batch_format: BatchFormat, estimated_ratio: float) -> None:
        self._format = batch_format
        self._factor = 1.0 if batch_format.codec is Compression.NONE else estimated_ratio * ESTIMATION_FACTOR
        self._base_timestamp = 0
        self._full = False
        self.records: list[Record] = []
        """Their offsets count up one by one, whatever stands there."""
        self.uncompressed_bytes = 0

    @property
    def estimated_bytes(self) -> int:
        """Of the whole batch as it will be sent."""
        return BATCH_HEADER_BYTES + int(self.uncompressed_bytes * self._factor)

    @property
    def is_full(self) -> bool:
        """No further record will fit, or may be put in."""
        return self._full or (bool(self.records) and self._format.write_limit_bytes <= self.estimated_bytes)

    def try_append(self, record: Record) -> int:
        """Bytes that the batch grew by, as far as is known before compression; 0 if there is no room. The first record
        always has room. ValueError for a timestamp before 1970, other than -1 for none.
        """
        records = self.records
        timestamp = record.timestamp
        if timestamp < 0 and timestamp != NO_TIMESTAMP:
            raise ValueError(f"timestamp {timestamp}")
        if not records:
            if self._full:
                return 0
            self._base_timestamp = timestamp
        size_bytes = record_bytes(
            len(records), timestamp - self._base_timestamp, record.key, record.value, record.headers
        )
        if records and (
            self._full
            or self._format.write_limit_bytes
            < BATCH_HEADER_BYTES + int(self.uncompressed_bytes * self._factor) + size_bytes
        ):
            return 0
        records.append(record)
        self.uncompressed_bytes += size_bytes
        return max(1, int(size_bytes * self._factor))

    def close_for_record_appends(self) -> None:
        """It goes as it is."""
        self._full = True

    def build(self, producer: ProducerId, base_sequence: int) -> bytes:
        """The batch. It may be built again under another producer id and sequence."""
        self._full = True
        return build_batch(
            self.records,
            compression=self._format.codec,
            compression_level=self._format.level,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=base_sequence,
            transactional=self._format.transactional,
        )

    def compression_ratio(self, built_bytes: int) -> float:
        """Of a batch that came out as `built_bytes`."""
        return (built_bytes - BATCH_HEADER_BYTES) / max(1, self.uncompressed_bytes)


def record_bytes(
    offset_delta: int, timestamp_delta: int, key: bytes | None, value: bytes | None, headers: Headers
) -> int:
    """Exactly what a record adds to a batch before compression. UnicodeEncodeError: a header that cannot be written."""
    sizes = _SIZES
    size = 1
    size += sizes[timestamp_delta] if 0 <= timestamp_delta < _SIZE_LIMIT else varint_size(timestamp_delta)
    size += sizes[offset_delta] if offset_delta < _SIZE_LIMIT else varint_size(offset_delta)
    if key is None:
        size += 1
    else:
        length = len(key)
        size += length + (sizes[length] if length < _SIZE_LIMIT else varint_size(length))
    if value is None:
        size += 1
    else:
        length = len(value)
        size += length + (sizes[length] if length < _SIZE_LIMIT else varint_size(length))
    size += _headers_bytes(headers) if headers else 1
    return size + (sizes[size] if size < _SIZE_LIMIT else varint_size(size))


def _headers_bytes(headers: Headers) -> int:
    size = varint_size(len(headers))
    for name, content in headers:
        length = len(name.encode("utf-8", "surrogateescape"))
        size += varint_size(length) + length
        size += 1 if content is None else varint_size(len(content)) + len(content)
    return size
