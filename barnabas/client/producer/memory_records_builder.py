"""Core: the records of one batch while it is filled, its estimated size, and its bytes once it is closed.

The compression ratio is estimated from earlier batches of the topic and codec. The estimate rises quickly and falls
slowly, so that batches seldom come out too large.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.client.transaction_requests import NO_PRODUCER, ProducerId
from barnabas.protocol.records.batch import BATCH_HEADER_BYTES
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.compression import Compression
from barnabas.protocol.records.layout import Fields, record_bytes

__all__ = ["NO_PRODUCER", "BatchFormat", "CompressionRatioEstimator", "MemoryRecordsBuilder", "ProducerId"]

ESTIMATION_FACTOR = 1.05
"""Safety factor on the estimated size of a compressed batch."""
IMPROVING_STEP = 0.005
DETERIORATING_STEP = 0.05
NO_TIMESTAMP = -1


class CompressionRatioEstimator:
    """Expected size after compression, as a fraction, by topic and codec."""

    def __init__(self) -> None:
        self._ratios: dict[tuple[str, Compression], float] = {}

    def estimation(self, topic: str, codec: Compression) -> float:
        return self._ratios.get((topic, codec), 1.0)

    def update(self, topic: str, codec: Compression, observed: float) -> None:
        """Take over the ratio of one batch."""
        current = self.estimation(topic, codec)
        if observed > current:
            current = max(current + DETERIORATING_STEP, observed)
        elif observed < current:
            current = max(current - IMPROVING_STEP, observed)
        self._ratios[topic, codec] = current

    def set(self, topic: str, codec: Compression, ratio: float) -> None:
        """Replace the estimate, after a batch was refused for its size."""
        self._ratios[topic, codec] = ratio


@dataclass(frozen=True, slots=True)
class BatchFormat:
    """Settings that all batches of one producer share."""

    write_limit_bytes: int
    """batch.size."""
    codec: Compression = Compression.NONE
    level: int | None = None
    transactional: bool = False


class MemoryRecordsBuilder:
    """Fills one batch of format v2."""

    __slots__ = (
        "_base_timestamp",
        "_closed",
        "_factor",
        "_format",
        "estimated_bytes",
        "is_full",
        "records",
        "uncompressed_bytes",
    )

    def __init__(self, batch_format: BatchFormat, estimated_ratio: float) -> None:
        self._format = batch_format
        self._factor = 1.0 if batch_format.codec is Compression.NONE else estimated_ratio * ESTIMATION_FACTOR
        self._base_timestamp = 0
        self._closed = False
        self.records: list[Fields] = []
        """Offsets are counted from 0 when the batch is built, whatever they are here."""
        self.uncompressed_bytes = 0
        self.estimated_bytes = BATCH_HEADER_BYTES
        """Estimated size of the whole batch as it is sent."""
        self.is_full = False
        """No further record fits, or may be added."""

    def try_append(self, record: Fields) -> int:
        """Append a record; returns the bytes by which the batch grew, as far as is known before compression; 0 if there
        is no room. The first record always has room. ValueError for a timestamp before 1970, other than -1 for none."""
        _, timestamp, key, value, headers = record
        records = self.records
        if timestamp < 0 and timestamp != NO_TIMESTAMP:
            raise ValueError(f"timestamp must be at least 0, or -1 for none; got {timestamp}")
        if not records:
            if self._closed:
                return 0
            self._base_timestamp = timestamp
        limit_bytes = self._format.write_limit_bytes
        size_bytes = record_bytes(len(records), timestamp - self._base_timestamp, key, value, headers)
        if records and (self._closed or limit_bytes < self.estimated_bytes + size_bytes):
            return 0
        records.append(record)
        self.uncompressed_bytes += size_bytes
        factor = self._factor
        if factor == 1.0:
            self.estimated_bytes += size_bytes
        else:
            self.estimated_bytes = BATCH_HEADER_BYTES + int(self.uncompressed_bytes * factor)
            size_bytes = max(1, int(size_bytes * factor))
        if limit_bytes <= self.estimated_bytes:
            self.is_full = True
        return size_bytes

    def close_for_record_appends(self) -> None:
        """Accept no more records."""
        self._closed = self.is_full = True

    def build(self, producer: ProducerId, base_sequence: int) -> bytes:
        """The bytes of the batch. It may be built again with another producer id and sequence."""
        self.close_for_record_appends()
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
        """Compression ratio of a batch that has `built_bytes`."""
        return (built_bytes - BATCH_HEADER_BYTES) / max(1, self.uncompressed_bytes)
