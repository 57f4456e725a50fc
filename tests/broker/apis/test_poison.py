"""Batches with a right head whose records no reader could read, or that unfold to more than a broker can hold."""

from __future__ import annotations

from typing import Any

import pytest
from crc32c import crc32c

from barnabas.broker.admission import STEPS_AT_ONCE
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.record import Record
from tests.broker.apis.rig import NOW_MS, Rig, batch_of, frame_of, on_cluster, produce_request, values_in
from tests.broker.apis.test_transactional_partitions import Oracle, produce
from tests.protocol.records.poison import batch_around, bomb, poisons, record, zeros

MIB = 1 << 20
MAX_TIMESTAMP = -3


def many(count: int, **options: Any) -> bytes:
    """A batch that takes more than one turn to check."""
    return build_batch([Record(i, NOW_MS, None, b"%d" % i) for i in range(count)], **options)


@pytest.mark.feature("RP-03")
@on_cluster(brokers=3)
async def test_no_poison_gets_into_a_log(rig: Rig) -> None:
    await rig.create("t", replicas=[1, 2, 3])
    await rig.create("compacted", replicas=[1, 2, 3], cleanup_policy="compact")
    assert (await rig.produce("t", batch_of("before"))).error_code == 0
    for name, poison in poisons(NOW_MS).items():
        for topic in ("t", "compacted"):
            refused = await rig.produce(topic, poison)
            assert (refused.error_code, refused.base_offset) == (ErrorCode.INVALID_RECORD, -1), name
            assert refused.record_errors == [], name
            assert refused.error_message is not None and f"{topic}-0" in refused.error_message, name
    assert (await rig.produce("t", batch_of("after"))).base_offset == 1
    assert values_in(await rig.fetch("t")) == ["before", "after"]
    assert rig.partition(1, "compacted").log.log_end_offset == 0


@pytest.mark.feature("RP-03")
@on_cluster()
async def test_a_bomb_has_to_be_split_and_a_batch_that_is_only_large_is_taken(rig: Rig) -> None:
    await rig.create("t")
    assert (await rig.produce("t", zeros(40 * MIB, 4, NOW_MS))).error_code == ErrorCode.MESSAGE_TOO_LARGE
    lying = batch_around(b"", 3_000_000, 0, NOW_MS)
    assert (await rig.produce("t", lying)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert rig.partition(1, "t").log.log_end_offset == 0
    assert (await rig.produce("t", zeros(8 * MIB, 1, NOW_MS))).error_code == 0
    count = 3 * STEPS_AT_ONCE
    for codec in (0, 4):
        assert (await rig.produce("t", many(count, compression=codec))).error_code == 0
    assert (await rig.produce("t", bomb(count, NOW_MS))).error_code == 0
    assert rig.partition(1, "t").log.log_end_offset == 1 + 3 * count


@pytest.mark.feature("RP-03")
@on_cluster()
async def test_records_that_a_topic_does_not_take_are_named(rig: Rig) -> None:
    await rig.create("compacted", cleanup_policy="compact")
    await rig.create("punctual", message_timestamp_after_max_ms="1000", message_timestamp_before_max_ms="5000")
    now = rig.broker(1).world.wall_clock.now_ms()
    mixed = build_batch([Record(i, now, None if i in (1, 3) else b"k", b"v") for i in range(5)])
    words = "Compacted topic cannot accept message without key in topic partition compacted-0"
    for version in (7, 8, 12):
        refused = await rig.produce("compacted", mixed, version=version)
        assert refused.error_code == ErrorCode.INVALID_RECORD
        named = [(it.batch_index, it.batch_index_error_message) for it in refused.record_errors]
        assert named == ([(1, words), (3, words)] if version >= 8 else [])
    assert refused.error_message is not None
    assert refused.error_message.startswith("One or more records have been rejected due to 2 record errors in total")
    late = build_batch([Record(i, now + (3_600_000 if i == 2 else 0), b"k", b"v") for i in range(5)])
    refused = await rig.produce("punctual", late)
    assert (refused.error_code, refused.error_message) == (
        ErrorCode.INVALID_TIMESTAMP,
        "One or more records have been rejected due to invalid timestamp",
    )
    assert [it.batch_index for it in refused.record_errors] == [2]
    early = build_batch([Record(i, now - 5001 if i == 4 else now, b"k", b"v") for i in range(5)])
    assert [it.batch_index for it in (await rig.produce("punctual", early)).record_errors] == [4]
    assert rig.partition(1, "compacted").log.log_end_offset == rig.partition(1, "punctual").log.log_end_offset == 0


@pytest.mark.feature("RP-03")
@on_cluster()
async def test_one_answer_names_ten_thousand_records_at_the_most(rig: Rig) -> None:
    await rig.create("t", partitions=3, cleanup_policy="compact")
    keyless = many(6000, compression=4)
    pieces = [PartitionProduceData(index=index, records=keyless) for index in range(3)]
    request = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[TopicProduceData(name="t", partition_data=pieces)])
    answers = (await rig.ask(1, request, 12)).responses[0].partition_responses
    assert [len(answer.record_errors) for answer in answers] == [6000, 4000, 0]
    assert all("due to 6000 record errors" in answer.error_message for answer in answers)


@pytest.mark.feature("RP-03")
@on_cluster()
async def test_a_batch_that_takes_long_holds_up_its_own_connection_alone(rig: Rig) -> None:
    await rig.create("t", partitions=2)
    broker = rig.broker(1)
    log = rig.partition(1, "t").log
    raw = await rig.raw(1)
    large = many(2 * STEPS_AT_ONCE)
    async with broker.worker.reserved():
        await raw.send_frame(frame_of(produce_request("t", large), 9, 1))
        await raw.send_frame(frame_of(produce_request("t", batch_of("second")), 9, 2))
        await rig.until(lambda: len(broker.slow_admissions) == 1)
        assert (await rig.produce("t", batch_of("another's"))).base_offset == 0
        assert log.log_end_offset == 1
    for correlation_id in (1, 2):
        answer = await raw.receive_frame()
        assert answer is not None and int.from_bytes(answer[:4], "big") == correlation_id
    assert log.log_end_offset == 2 * STEPS_AT_ONCE + 2
    assert values_in(await rig.fetch("t", 2 * STEPS_AT_ONCE + 1)) == ["second"]
    assert len(broker.slow_admissions) == 0


@pytest.mark.feature("RP-03")
@on_cluster()
async def test_partitions_of_a_request_are_appended_in_order(rig: Rig) -> None:
    await rig.create("t")
    pieces = [PartitionProduceData(index=0, records=batch) for batch in (many(2 * STEPS_AT_ONCE), batch_of("second"))]
    request = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[TopicProduceData(name="t", partition_data=pieces)])
    answers = (await rig.ask(1, request, 12)).responses[0].partition_responses
    assert [(answer.error_code, answer.base_offset) for answer in answers] == [(0, 0), (0, 2 * STEPS_AT_ONCE)]


@pytest.mark.feature("RP-03", "TX-05")
@on_cluster()
async def test_transactional_batches_that_take_long_begin_their_transaction_when_all_are_checked(rig: Rig) -> None:
    await rig.create("t", partitions=3)
    oracle = Oracle(rig)
    options = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    large, small = many(2 * STEPS_AT_ONCE, **options), batch_of("small", **options)
    poison = bytearray(large)
    poison[-1] = 2
    poison[17:21] = crc32c(bytes(poison[21:])).to_bytes(4, "big")
    codes = await produce(rig, ("t", 0, large), ("t", 1, bytes(poison)), ("t", 2, small))
    assert codes == [ErrorCode.NONE, ErrorCode.INVALID_RECORD, ErrorCode.NONE]
    assert oracle.asked == [("tx", 7, 0, [("t", 0), ("t", 2)], False)]
    ends = [rig.partition(1, "t", index).log.log_end_offset for index in range(3)]
    assert ends == [2 * STEPS_AT_ONCE, 0, 1]


@pytest.mark.feature("RP-03")
@on_cluster()
async def test_nothing_is_appended_for_a_connection_that_was_closed_meanwhile(rig: Rig) -> None:
    await rig.create("t")
    broker = rig.broker(1)
    raw = await rig.raw(1)
    async with broker.worker.reserved():
        await raw.send_frame(frame_of(produce_request("t", many(2 * STEPS_AT_ONCE)), 9, 1))
        await raw.send_frame(frame_of(produce_request("t", batch_of("behind it")), 9, 2))
        await rig.until(lambda: len(broker.slow_admissions) == 1)
        raw.close()
        assert (await rig.produce("t")).base_offset == 0
    await rig.until(lambda: len(broker.slow_admissions) == 0)
    assert rig.partition(1, "t").log.log_end_offset == 1


@pytest.mark.feature("RP-03")
@on_cluster()
async def test_a_leader_that_is_one_no_longer_appends_nothing_that_took_long(rig: Rig) -> None:
    await rig.create("t")
    broker = rig.broker(1)
    raw = await rig.raw(1)
    async with broker.worker.reserved():
        await raw.send_frame(frame_of(produce_request("t", many(2 * STEPS_AT_ONCE)), 9, 1))
        await rig.until(lambda: len(broker.slow_admissions) == 1)
        await rig.ask(1, DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=10_000), 6)
        await rig.until(lambda: broker.partitions.find("t", 0) is None)
    answer = await raw.receive_frame()
    assert answer is not None
    assert ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.to_bytes(2, "big") in answer


@pytest.mark.feature("RP-03", "AD-02")
@on_cluster()
async def test_a_topic_that_trusts_its_producers_is_served_as_it_was_written(rig: Rig) -> None:
    """Bytes in a log are served as they are, like in Kafka. Readers detect the poison, and no lookup costs more."""
    await rig.create("t", barnabas_validate_records="head")
    end = 0
    for name, poison in {**poisons(NOW_MS), "bomb": zeros(40 * MIB, 4, NOW_MS)}.items():
        assert (await rig.produce("t", poison)).error_code == 0, name
        served = bytes((await rig.fetch("t", end)).records or b"")
        assert served[16:] == poison[16:], name
        end = rig.partition(1, "t").log.log_end_offset
    late = batch_of("late", timestamp=rig.broker(1).world.wall_clock.now_ms() + 3_700_000)
    assert (await rig.produce("t", late)).error_code == ErrorCode.INVALID_TIMESTAMP
    # A compacted topic is checked all the same: its cleaner needs keys.
    await rig.create("compacted", barnabas_validate_records="head", cleanup_policy="compact")
    assert (await rig.produce("compacted", poisons(NOW_MS)["garbage"])).error_code == ErrorCode.INVALID_RECORD


@pytest.mark.feature("RP-03")
@on_cluster()
async def test_a_look_up_by_time_goes_past_a_bomb_within_bounds(rig: Rig) -> None:
    """One that is already in a log, as earlier versions took it."""
    await rig.create("t", barnabas_validate_records="head")
    await rig.produce("t", batch_of("before", timestamp=NOW_MS - 10))
    large = [Record(0, NOW_MS - 5, b"k", b"v"), Record(1, NOW_MS, b"k", bytes(17 * MIB))]
    assert (await rig.produce("t", build_batch(large, compression=4))).error_code == 0
    await rig.produce("t", batch_of("after", timestamp=NOW_MS + 10))

    async def looked_up(timestamp: int) -> tuple[int, int]:
        asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[asked])])
        answer = (await rig.ask(1, request, 7)).topics[0].partitions[0]
        assert answer.error_code == 0
        return answer.offset, answer.timestamp

    assert await looked_up(NOW_MS - 10) == (0, NOW_MS - 10)
    assert await looked_up(NOW_MS) == (1, NOW_MS), "where the batch begins, as nobody looks into it"
    assert await looked_up(NOW_MS + 10) == (3, NOW_MS + 10)
    assert await looked_up(MAX_TIMESTAMP) == (3, NOW_MS + 10)


def test_the_poisons_are_no_more_than_that() -> None:
    """The batch that they are made of is right."""
    assert batch_around(record(value=b"v"), 1)[61:] == build_batch([Record(0, 0, b"k", b"v")])[61:]
