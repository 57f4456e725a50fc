"""The heads of produced batches that a broker accepts, and the error codes of the others."""

import struct
import zlib

import pytest
from crc32c import crc32c

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.batch import set_log_append_time
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.record import Record
from barnabas.protocol.records.record_check import ProduceLimits
from barnabas.protocol.records.validation import validate_produce

NOW = 1_700_000_000_000
RECORDS = [Record(0, NOW, b"k", b"v"), Record(1, NOW + 5, b"l", b"w")]
LIMITS = ProduceLimits()


def code_of(data: bytes | bytearray, limits: ProduceLimits = LIMITS, version: int = 13) -> ErrorCode:
    try:
        validate_produce(memoryview(bytearray(data)), limits, NOW, version)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def patched(position: int, layout: str, value: int) -> bytes:
    """A good batch with one field changed and a CRC that fits."""
    batch = bytearray(build_batch(RECORDS))
    struct.pack_into(layout, batch, position, value)
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    return bytes(batch)


@pytest.mark.feature("PF-11")
@pytest.mark.parametrize("codec", range(5))
def test_a_good_batch_is_taken_as_it_is(codec: int) -> None:
    sent = build_batch(RECORDS, compression=codec, producer_id=1, producer_epoch=0, base_sequence=0)
    buffer = bytearray(sent)
    [(position, header)] = validate_produce(memoryview(buffer), LIMITS, NOW)
    assert (position, header.records_count) == (0, 2)
    assert bytes(buffer) == sent


def test_a_corrupt_batch_gets_corrupt_message() -> None:
    good = build_batch(RECORDS)
    assert code_of(good) is ErrorCode.NONE
    assert code_of(good[:-1] + b"x") is ErrorCode.CORRUPT_MESSAGE
    assert code_of(good + b"tail") is ErrorCode.CORRUPT_MESSAGE
    assert code_of(patched(16, ">b", 3)) is ErrorCode.CORRUPT_MESSAGE


def test_there_is_exactly_one_batch_of_the_new_format() -> None:
    good = build_batch(RECORDS)
    assert code_of(b"") is ErrorCode.INVALID_RECORD
    assert code_of(good[:-1]) is ErrorCode.INVALID_RECORD
    assert code_of(good + good) is ErrorCode.INVALID_RECORD
    body = struct.pack(">bbqii", 1, 0, NOW, -1, -1)
    old = struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body
    assert code_of(old) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(patched(0, ">q", 1), id="a base offset other than 0"),
        pytest.param(patched(57, ">i", 0), id="no records"),
        pytest.param(patched(57, ">i", -1), id="a negative count"),
        pytest.param(patched(57, ">i", 3), id="a count beyond the offsets"),
        pytest.param(patched(23, ">i", 5), id="offsets beyond the count"),
        pytest.param(patched(23, ">i", -1), id="a negative offset delta"),
        pytest.param(build_batch(RECORDS, control=True), id="a control batch"),
        pytest.param(build_batch(RECORDS, producer_id=4, producer_epoch=0), id="a producer without sequence"),
    ],
)
@pytest.mark.feature("PF-18")
def test_a_head_that_contradicts_itself_is_an_invalid_record(data: bytes) -> None:
    assert code_of(data) is ErrorCode.INVALID_RECORD


def test_a_batch_may_be_as_large_as_max_message_bytes_and_no_larger() -> None:
    good = build_batch(RECORDS)
    assert code_of(good, ProduceLimits(max_message_bytes=len(good))) is ErrorCode.NONE
    assert code_of(good, ProduceLimits(max_message_bytes=len(good) - 1)) is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.feature("PF-12")
def test_zstd_needs_produce_7_and_no_codec_beyond_it_exists() -> None:
    zstd = build_batch(RECORDS, compression=4)
    assert code_of(zstd, version=7) is ErrorCode.NONE
    assert code_of(zstd, version=6) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert code_of(patched(21, ">h", 5)) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def at(timestamp: int) -> bytes:
    return build_batch([Record(0, timestamp, b"k", b"v")])


@pytest.mark.feature("PF-13")
@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        (NOW + 3_600_000, ErrorCode.NONE),
        (NOW + 3_600_001, ErrorCode.INVALID_TIMESTAMP),
        (0, ErrorCode.NONE),
        (-1, ErrorCode.NONE),
    ],
)
def test_without_a_check_of_records_the_head_decides(timestamp: int, expected: ErrorCode) -> None:
    assert code_of(at(timestamp), ProduceLimits(head_only=True)) is expected
    assert code_of(at(timestamp), ProduceLimits(head_only=True, log_append_time=True)) is ErrorCode.NONE


@pytest.mark.feature("PF-13")
def test_timestamps_may_be_bounded_backwards_as_well() -> None:
    limits = ProduceLimits(head_only=True, timestamp_before_max_ms=1000)
    assert code_of(at(NOW - 1000), limits) is ErrorCode.NONE
    assert code_of(at(NOW - 1001), limits) is ErrorCode.INVALID_TIMESTAMP


@pytest.mark.feature("PF-13")
def test_producers_do_not_speak_for_the_brokers_clock() -> None:
    batch = bytearray(build_batch(RECORDS))
    set_log_append_time(batch, 0, NOW)
    assert code_of(batch) is ErrorCode.INVALID_TIMESTAMP
