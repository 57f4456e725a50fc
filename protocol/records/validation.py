"""The check of the head of a produced batch, before that of its records (`record_check`). Codes are Kafka's.
"""

from __future__ import annotations

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.batch import (
    COMPRESSION_MASK,
    CONTROL_BIT,
    LOG_APPEND_TIME_BIT,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    OFFSET_AND_SIZE_BYTES,
    BatchHeader,
    CorruptBatch,
    crc_is_valid,
    iterate_batches,
)
from barnabas.protocol.records.compression import Compression
from barnabas.protocol.records.record_check import ProduceLimits

FIRST_PRODUCE_VERSION_WITH_ZSTD = 7
LATEST_PRODUCE_VERSION = 13


def validate_produce(
    buffer: memoryview, limits: ProduceLimits, now_ms: int, produce_version: int = LATEST_PRODUCE_VERSION
) -> list[tuple[int, BatchHeader]]:
    """(position, head) of the one batch in `buffer`; for Produce version 3 and later. Its records are not checked.

    `KafkaError` with the code to answer: CORRUPT_MESSAGE, INVALID_RECORD, MESSAGE_TOO_LARGE,
    INVALID_TIMESTAMP, UNSUPPORTED_COMPRESSION_TYPE.
    """
    batches = list(iterate_batches(buffer))
    if not batches:
        raise _invalid("a produce request must have one record batch per partition")
    position, header = batches[0]
    codec, size_bytes = header.attributes & COMPRESSION_MASK, header.batch_length + OFFSET_AND_SIZE_BYTES
    if header.magic != 2:
        raise _invalid(f"magic {header.magic} in a produce request; it must be 2")
    if codec == Compression.ZSTD and produce_version < FIRST_PRODUCE_VERSION_WITH_ZSTD:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs Produce version 7, not {produce_version}")
    if len(batches) > 1:
        raise _invalid(f"{len(batches)} record batches for one partition; there must be one")
    if size_bytes != len(buffer):
        raise CorruptBatch(f"{len(buffer) - size_bytes} bytes after the record batch")
    if header.base_offset != 0:
        raise _invalid(f"the base offset of a produced batch is {header.base_offset}; it must be 0")
    if size_bytes > limits.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a batch of {size_bytes} bytes; max.message.bytes is {limits.max_message_bytes}",
        )
    if not crc_is_valid(buffer, position, header):
        raise CorruptBatch("the CRC of the batch does not match")
    _validate_header(header)
    if header.attributes & LOG_APPEND_TIME_BIT:
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, "producers may not set the log append time bit")
    if limits.head_only and not limits.log_append_time:
        _validate_timestamps(header, limits, now_ms)
    return batches


def _validate_header(header: BatchHeader) -> None:
    codec = header.attributes & COMPRESSION_MASK
    if codec > Compression.ZSTD:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"unknown compression {codec}")
    if header.records_count <= 0 or header.records_count != header.last_offset_delta + 1:
        raise _invalid(f"{header.records_count} records, but last offset delta {header.last_offset_delta}")
    if header.attributes & CONTROL_BIT:
        raise _invalid("clients may not write control records")
    if header.producer_id > NO_PRODUCER_ID and header.base_sequence <= NO_SEQUENCE:
        raise _invalid(f"base sequence {header.base_sequence} with producer id {header.producer_id}")


def _validate_timestamps(header: BatchHeader, limits: ProduceLimits, now_ms: int) -> None:
    earliest, latest = limits.earliest(now_ms), limits.latest(now_ms)
    for timestamp in (header.base_timestamp, header.max_timestamp):
        if timestamp != NO_TIMESTAMP and not earliest <= timestamp <= latest:
            raise KafkaError(ErrorCode.INVALID_TIMESTAMP, f"timestamp {timestamp} is not within [{earliest}, {latest}]")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, message)
