"""What a topic's configuration asks of a produced batch before it is appended.

As a rule nothing but its head is looked at. The records are walked only where a topic is compacted (each needs a
key) or asks for a compression of its own; then, and only then, the bytes on disk are not those the producer sent.
"""

from __future__ import annotations

from broker.traffic import Conversions
from protocol.errors import ErrorCode, KafkaError
from protocol.records.batch import BatchHeader, read_header
from protocol.records.builder import build_batch
from protocol.records.compression import Compression
from protocol.records.record import decode_records
from protocol.records.validation import ProduceLimits, validate_produce
from settings.topic import TopicConfig

Batches = list[tuple[int, BatchHeader]]

_CODECS = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}


def admit(
    records: memoryview | bytes | None,
    config: TopicConfig,
    limits: ProduceLimits,
    produce_version: int,
    now_ms: int,
    conversions: Conversions,
) -> tuple[memoryview, Batches]:
    """The batch as it is to be appended, and its heads; KafkaError with Kafka's code if it may not be.

    `limits` are `limits_of(config)`, kept by the caller. Records that get another compression are counted.
    """
    if records is None or not len(records):
        raise KafkaError(ErrorCode.INVALID_RECORD, "no records for this partition")
    buffer = records if isinstance(records, memoryview) else memoryview(bytearray(records))
    batches = validate_produce(buffer, limits, now_ms, produce_version)
    if config.compression_type != "producer":
        wanted = _CODECS[config.compression_type]
        if batches[0][1].compression != wanted:
            began = conversions.stopwatch()
            buffer = _recompressed(buffer, batches[0][1], wanted, config)
            batches = [(0, read_header(buffer))]
            conversions.records += batches[0][1].records_count
            conversions.spread.took(conversions.stopwatch() - began)
    return buffer, batches


def limits_of(config: TopicConfig) -> ProduceLimits:
    """What the topic's configuration says, in the words of `validate_produce`."""
    return ProduceLimits(
        max_message_bytes=config.max_message_bytes,
        log_append_time=config.log_append_time,
        timestamp_before_max_ms=config.message_timestamp_before_max_ms,
        timestamp_after_max_ms=config.message_timestamp_after_max_ms,
        keys_required=config.compacts,
    )


def _recompressed(
    buffer: memoryview, header: BatchHeader, codec: Compression, config: TopicConfig
) -> memoryview:
    levels = {
        Compression.GZIP: config.compression_gzip_level,
        Compression.LZ4: config.compression_lz4_level,
        Compression.ZSTD: config.compression_zstd_level,
    }
    rebuilt = build_batch(
        decode_records(buffer),
        compression=codec,
        compression_level=levels.get(codec),
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
    )
    if len(rebuilt) > config.max_message_bytes:
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"{len(rebuilt)} bytes when compressed as the topic asks")
    return memoryview(bytearray(rebuilt))
