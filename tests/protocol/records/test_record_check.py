"""The records that a leader accepts from a producer, and the errors of those that it refuses."""

from __future__ import annotations

import pytest

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.batch import read_header
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.compression import UnfoldsTooFar, compress
from barnabas.protocol.records.record import SERVED_LIMIT_RECORDS, Record
from barnabas.protocol.records.record_check import ProduceLimits, RecordCheck, RecordsRefused
from tests.protocol.records.poison import NOW, batch_around, bomb, poisons, record, zeros

LIMITS = ProduceLimits()
MIB = 1 << 20


def check(batch: bytes, limits: ProduceLimits = LIMITS, steps: int = SERVED_LIMIT_RECORDS) -> None:
    one = RecordCheck(memoryview(batch), read_header(batch), limits, NOW, "t-0")
    one.unfold(limits.unfolded_limit_bytes)
    while not one.go_on(steps):
        pass


def refusal(batch: bytes, limits: ProduceLimits = LIMITS, steps: int = SERVED_LIMIT_RECORDS) -> KafkaError:
    with pytest.raises(KafkaError) as caught:
        check(batch, limits, steps)
    return caught.value


@pytest.mark.feature("PF-10", "RP-03")
@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("count", [1, 3, 200])
def test_right_records_are_taken(codec: int, count: int) -> None:
    headers = (("a", b"1"), ("", None), ("\udcff", b""))
    records = [
        Record(i, NOW + i, None if i % 2 else b"k" * i, b"v" * (i % 70), headers if i % 3 else ()) for i in range(count)
    ]
    for steps in (1, 7, SERVED_LIMIT_RECORDS):
        check(build_batch(records, compression=codec), steps=steps)


@pytest.mark.feature("RP-03")
@pytest.mark.parametrize("wrong", list(poisons()))
def test_unreadable_records_are_invalid(wrong: str) -> None:
    for steps in (1, SERVED_LIMIT_RECORDS):
        refused = refusal(poisons()[wrong], steps=steps)
        assert refused.code is ErrorCode.INVALID_RECORD
        assert not isinstance(refused, RecordsRefused), "no single record is to blame"


@pytest.mark.feature("RP-03")
def test_a_compacted_topic_names_the_records_without_a_key_as_kafka_does() -> None:
    limits = ProduceLimits(keys_required=True)
    keyless = [Record(i, NOW, None if i in (1, 3, 4, 6) else b"k", b"v") for i in range(8)]
    check(build_batch(keyless))
    for codec in (0, 1):
        refused = refusal(build_batch(keyless, compression=codec), limits, steps=2)
        assert isinstance(refused, RecordsRefused)
        words = "Compacted topic cannot accept message without key in topic partition t-0"
        assert refused.errors == [(1, words), (3, words), (4, words), (6, words)]
        assert refused.code is ErrorCode.INVALID_RECORD
        assert refused.message == (
            "One or more records have been rejected due to 4 record errors in total, and only showing the first three "
            f"errors at most: [RecordError(batchIndex=1, message='{words}'), RecordError(batchIndex=3, "
            f"message='{words}'), RecordError(batchIndex=4, message='{words}')]"
        )


@pytest.mark.feature("PF-13")
def test_records_too_early_or_too_late_are_named_and_one_without_a_time_is_taken() -> None:
    limits = ProduceLimits(timestamp_before_max_ms=1000, timestamp_after_max_ms=50)
    times = [NOW, NOW - 1001, NOW + 50, NOW + 51, -1, NOW - 1000]
    refused = refusal(build_batch([Record(i, time, b"k", b"v") for i, time in enumerate(times)]), limits)
    assert isinstance(refused, RecordsRefused)
    allowed = f"is out of range. The timestamp should be within [{NOW - 1000}, {NOW + 50}]"
    assert refused.errors == [
        (1, f"Timestamp {NOW - 1001} of message with offset 1 {allowed}"),
        (3, f"Timestamp {NOW + 51} of message with offset 3 {allowed}"),
    ]
    assert (refused.code, refused.message) == (
        ErrorCode.INVALID_TIMESTAMP,
        "One or more records have been rejected due to invalid timestamp",
    )
    check(
        build_batch([Record(i, time, b"k", b"v") for i, time in enumerate(times)]), ProduceLimits(log_append_time=True)
    )


@pytest.mark.feature("PF-13")
def test_a_wrong_time_outweighs_a_missing_key() -> None:
    limits = ProduceLimits(keys_required=True, timestamp_after_max_ms=0)
    refused = refusal(
        build_batch([Record(0, NOW, None, b"v"), Record(1, NOW + 1, b"k", b"v"), Record(2, NOW + 1, None)]), limits
    )
    assert isinstance(refused, RecordsRefused)
    assert refused.code is ErrorCode.INVALID_TIMESTAMP
    assert [place for place, _ in refused.errors] == [0, 1, 2]


@pytest.mark.feature("PF-13")
def test_the_head_cannot_claim_a_time_that_no_record_may_have() -> None:
    """The retention of the whole segment goes by it."""
    lying = batch_around(record(), 1, max_timestamp=NOW + 3_600_001)
    assert refusal(lying).code is ErrorCode.INVALID_TIMESTAMP
    check(lying, ProduceLimits(log_append_time=True))


def test_a_timestamp_wider_than_64_bits_is_malformed_with_both_timestamp_types() -> None:
    wide = batch_around(record(time=1 << 62) + record(1, time=-5), 2, now_ms=(1 << 63) - 1)
    assert refusal(wide, ProduceLimits(log_append_time=True)).code is ErrorCode.INVALID_RECORD
    assert refusal(wide).code is ErrorCode.INVALID_TIMESTAMP


@pytest.mark.feature("PF-12", "RP-03")
@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_batch_unfolds_to_sixteen_mebibytes_or_max_message_bytes_and_no_further(codec: int) -> None:
    check(zeros(15 * MIB, codec))
    large = zeros(17 * MIB, codec)
    assert refusal(large).code is ErrorCode.MESSAGE_TOO_LARGE
    check(large, ProduceLimits(max_message_bytes=18 * MIB))


@pytest.mark.feature("PF-12")
def test_a_stream_that_does_not_say_its_size_is_bounded_as_well() -> None:
    import zstandard

    stream = zstandard.ZstdCompressor().compressobj()
    endless = stream.compress(bytes(20 * MIB)) + stream.flush()
    assert refusal(batch_around(endless, 1, 4)).code is ErrorCode.MESSAGE_TOO_LARGE
    assert (
        refusal(batch_around(endless[:-4], 1, 4), ProduceLimits(max_message_bytes=64 * MIB)).code
        is ErrorCode.INVALID_RECORD
    )


def test_a_batch_may_be_unfolded_in_part() -> None:
    batch = zeros(2 * MIB, 4)
    one = RecordCheck(memoryview(batch), read_header(batch), LIMITS, NOW, "t-0")
    with pytest.raises(UnfoldsTooFar):
        one.unfold(MIB)
    assert one.unfold(16 * MIB) > 2 * MIB
    assert one.go_on(1)


@pytest.mark.feature("RP-03")
def test_a_batch_of_very_many_records_has_to_be_split() -> None:
    few = bomb(1000)
    check(few, steps=100)
    lying = batch_around(compress(4, record()), SERVED_LIMIT_RECORDS + 1, 4)
    assert refusal(lying).code is ErrorCode.MESSAGE_TOO_LARGE
