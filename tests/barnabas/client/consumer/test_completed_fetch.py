"""Walking what was fetched: some records now, the others later, always the same ones."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.client.consumer.completed_fetch import CompletedFetch, FetchPosition, Unpacking, survey
from barnabas.client.consumer.record import ConsumerRecord, TimestampType
from barnabas.client.errors import CorruptRecordException, RecordDeserializationException, UnreadableBatchException
from barnabas.client.metadata import TopicPartition
from barnabas.client.serialization import deserializer_of
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.fetch import AbortedTransaction
from barnabas.protocol.records.batch import set_log_append_time
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.control import EndTxn, build_end_txn_batch
from barnabas.protocol.records.record import Record
from tests.protocol.records.poison import batch_around, poisons, zeros

T0 = TopicPartition("t", 0)
EVERYTHING = 10**9


def batch(base_offset: int, *values: bytes | None, **options: Any) -> bytes:
    records = [Record(base_offset + index, 7, b"k", value) for index, value in enumerate(values)]
    return build_batch(records, base_offset=base_offset, **options)


def give_all(fetched: CompletedFetch, unpacking: Unpacking | None = None) -> list[ConsumerRecord]:
    return fetched.give(EVERYTHING, unpacking or Unpacking())


def test_records_have_topic_partition_and_offset() -> None:
    data = bytearray(batch(5, b"a", None, leader_epoch=3))
    set_log_append_time(data, 0, 99)
    [first, second] = give_all(survey(T0, data, FetchPosition(5)))
    assert first == ConsumerRecord("t", 0, 5, 99, TimestampType.LOG_APPEND_TIME, b"k", b"a", (), 3)
    assert second.value is None
    [third] = give_all(survey(T0, batch(0, b"x"), FetchPosition(0)))
    assert (third.timestamp_type, third.timestamp_ms, third.leader_epoch) == (TimestampType.CREATE_TIME, 7, None)


def test_a_fetch_from_within_a_batch_gives_what_is_from_there_on() -> None:
    fetched = survey(T0, batch(0, b"0", b"1", b"2", b"3") + batch(4, b"4"), FetchPosition(2))
    assert [record.offset for record in give_all(fetched)] == [2, 3, 4]
    assert fetched.position == fetched.end == FetchPosition(5, -1)


def test_a_compacted_batch_is_read_to_its_last_offset() -> None:
    records = [Record(3, 0, b"k", b"v")]
    data = build_batch(records, base_offset=0, keep_offsets=True, last_offset=9)
    fetched = survey(T0, data, FetchPosition(0))
    assert [record.offset for record in give_all(fetched)] == [3]
    assert fetched.position.offset == 10


@given(st.lists(st.integers(1, 5), min_size=1, max_size=8), st.lists(st.integers(1, 7), min_size=40, max_size=40))
def test_it_does_not_matter_how_many_are_taken_at_once(sizes: list[int], limits: list[int]) -> None:
    data, offset = b"", 0
    for size in sizes:
        data += batch(offset, *[b"%d" % (offset + index) for index in range(size)])
        offset += size
    fetched = survey(T0, data, FetchPosition(0))
    given_values: list[bytes] = []
    for limit in limits:
        records = fetched.give(limit, Unpacking())
        assert len(records) <= limit
        given_values += [record.value for record in records]
        assert fetched.position.offset == len(given_values)
    assert given_values == [b"%d" % index for index in range(offset)]
    assert fetched.is_empty
    assert fetched.size_bytes == 0


@pytest.mark.feature("PF-18")
def test_nothing_of_an_aborted_transaction_is_wanted_until_its_marker() -> None:
    def in_transaction(offset: int, producer_id: int, value: bytes) -> bytes:
        return batch(offset, value, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)

    def marker(offset: int, producer_id: int, *, committed: bool) -> bytes:
        data = build_end_txn_batch(EndTxn(committed, 0), producer_id, 0, 0)
        return offset.to_bytes(8, "big") + data[8:]

    data = b"".join(
        [
            in_transaction(0, 1, b"aborted"),
            in_transaction(1, 2, b"kept"),
            in_transaction(2, 1, b"aborted"),
            marker(3, 1, committed=False),
            in_transaction(4, 1, b"kept"),
            marker(5, 1, committed=True),
            in_transaction(6, 2, b"aborted later"),
            marker(7, 2, committed=False),
        ]
    )
    aborted = [AbortedTransaction(producer_id=2, first_offset=6), AbortedTransaction(producer_id=1, first_offset=0)]
    fetched = survey(T0, data, FetchPosition(0), aborted)
    assert [record.value for record in give_all(fetched)] == [b"kept", b"kept"]
    assert fetched.position.offset == 8, "markers are stepped over"
    assert len(give_all(survey(T0, data, FetchPosition(0)))) == 5, "who reads everything is given everything"


@pytest.mark.feature("CG-22")
def test_a_wrong_crc_is_reported_after_the_records_before_it() -> None:
    data = bytearray(batch(0, b"good") + batch(1, b"evil"))
    data[-3:-1] = b"xx"
    fetched = survey(T0, data, FetchPosition(0))
    assert [record.value for record in give_all(fetched)] == [b"good"]
    with pytest.raises(CorruptRecordException, match="t-0: the batch at offset 1 has a wrong CRC"):
        give_all(fetched)
    assert fetched.position.offset == 1


def at_offset(poison: bytes, offset: int) -> bytes:
    return offset.to_bytes(8, "big") + poison[8:]


@pytest.mark.feature("CG-22")
@pytest.mark.parametrize("wrong", [wrong for wrong in poisons() if "offset" not in wrong])
def test_a_batch_that_nobody_could_read_is_named_and_stays_the_next_one(wrong: str) -> None:
    data = batch(0, b"before") + at_offset(poisons()[wrong], 1)
    fetched = survey(T0, data, FetchPosition(0))
    assert [record.value for record in give_all(fetched)] == [b"before"]
    for _ in range(2):
        with pytest.raises(UnreadableBatchException, match="the batch at offsets 1 to") as caught:
            give_all(fetched)
        assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("t", 0, 1)
        assert caught.value.next_offset == fetched.end.offset
    assert fetched.position.offset == 1


@pytest.mark.feature("CG-22")
def test_unreadable_batches_are_skipped_on_request(caplog: pytest.LogCaptureFixture) -> None:
    garbage = poisons()["garbage"]
    data = at_offset(garbage, 0) + batch(2, b"between") + at_offset(garbage, 3) + at_offset(garbage, 5)
    fetched = survey(T0, data, FetchPosition(0))
    assert [record.value for record in give_all(fetched, Unpacking(skips_unreadable=True))] == [b"between"]
    assert fetched.position.offset == 7 and fetched.is_empty
    assert [record.message.partition(" of t-0 cannot be read: ")[0] for record in caplog.records] == [
        "skipped an unreadable batch: the batch at offsets 0 to 1",
        "skipped an unreadable batch: the batch at offsets 3 to 4",
        "skipped an unreadable batch: the batch at offsets 5 to 6",
    ]


@pytest.mark.feature("CG-22")
def test_a_bomb_is_not_unfolded() -> None:
    with pytest.raises(UnreadableBatchException, match="unfolds to more than 1048576 bytes"):
        give_all(survey(T0, zeros(1 << 20, 4), FetchPosition(0)), Unpacking(most_batch_bytes=1 << 20))
    with pytest.raises(UnreadableBatchException, match="got 3000000"):
        give_all(survey(T0, batch_around(b"", 3_000_000), FetchPosition(0)))
    whole = batch(0, b"v" * 3000)
    [read] = give_all(survey(T0, whole, FetchPosition(0)), Unpacking(most_batch_bytes=1))
    assert read.value == b"v" * 3000, "it is not compressed"


def test_without_crc_checks_the_records_are_read() -> None:
    data = batch(0, b"evil").replace(b"evil", b"live")
    assert [record.value for record in give_all(survey(T0, data, FetchPosition(0)), Unpacking(check_crcs=False))] == [
        b"live"
    ]


def test_bytes_that_are_no_batch_are_reported_after_the_batches() -> None:
    fetched = survey(
        T0, batch(0, b"a") + bytes(7) + b"\x09" + bytes(3) + b"\x30" + bytes(4) + b"\x09" * 60, FetchPosition(0)
    )
    assert [record.value for record in give_all(fetched)] == [b"a"]
    assert fetched.is_empty
    assert isinstance(fetched.error, CorruptRecordException)


@pytest.mark.feature("CL-02")
def test_the_position_stays_at_a_record_that_cannot_be_deserialized() -> None:
    unpacking = Unpacking(key_deserializer=deserializer_of("str"), value_deserializer=deserializer_of("json"))
    fetched = survey(T0, batch(0, b'{"a": 1}', b"[2]", b"{", b"3"), FetchPosition(0))
    records = give_all(fetched, unpacking)
    assert [(record.key, record.value) for record in records] == [("k", {"a": 1}), ("k", [2])]
    for _ in range(2):
        with pytest.raises(RecordDeserializationException, match="of the record at offset 2 of t-0") as caught:
            give_all(fetched, unpacking)
        assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("t", 0, 2)
    assert fetched.position.offset == 2


@given(st.binary(max_size=300), st.integers(0, 200), st.booleans())
def test_whatever_comes_is_records_or_one_kind_of_error(noise: bytes, place: int, checked: bool) -> None:
    data = bytearray(batch(0, b"a" * 20, b"b") + batch(2, b"c", compression=1) + batch(3, b"d", transactional=True))
    data[place : place + len(noise)] = noise
    fetched = survey(T0, data, FetchPosition(0), [AbortedTransaction(producer_id=-1, first_offset=0)])
    for _ in range(100):
        if fetched.is_empty:
            break
        before = fetched.position
        try:
            fetched.give(1, Unpacking(check_crcs=checked))
        except KafkaError as error:
            assert error.code is ErrorCode.CORRUPT_MESSAGE
            break
        assert fetched.position.offset >= before.offset
