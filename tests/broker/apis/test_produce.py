"""Produce: what is taken, what is refused and how, and when the answer comes."""

from __future__ import annotations

import pytest
import trio

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from barnabas.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from barnabas.protocol.records.batch import BATCH_HEADER_BYTES, read_header
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.record import Record
from tests.broker.apis.rig import NOW_MS, Rig, batch_of, frame_of, on_cluster, produce_request, values_in

TOPIC_CONFIG = 2
HOUR_MS = 3_600_000


@pytest.mark.feature("RE-09", "RP-03")
@on_cluster(brokers=3)
async def test_each_acks_waits_for_what_it_asks_for(rig: Rig) -> None:
    await rig.create("t", replicas=[1, 2, 3], min_insync_replicas="2")
    assert (await rig.produce("t", acks=-1)).base_offset == 0
    assert rig.partition(1, "t").log.high_watermark == 1
    assert (await rig.produce("t", acks=1)).base_offset == 1
    # Nobody answers a request that wants none: the next answer on the connection is the next request's.
    raw = await rig.raw(1)
    await raw.send_frame(frame_of(produce_request("t", batch_of("silent"), acks=0), 9, 1))
    await raw.send_frame(frame_of(produce_request("t", batch_of("answered"), acks=1), 9, 2))
    answer = await raw.receive_frame()
    assert answer is not None and int.from_bytes(answer[:4], "big") == 2
    await rig.until(lambda: rig.partition(1, "t").log.high_watermark == 4)
    assert values_in(await rig.fetch("t")) == ["value", "value", "silent", "answered"]
    for acks in (2, -2, 32767):
        refused = await rig.produce("t", acks=acks)
        assert (refused.error_code, refused.base_offset) == (ErrorCode.INVALID_REQUIRED_ACKS, -1)
    assert rig.partition(1, "t").log.log_end_offset == 4


@pytest.mark.feature("RE-09")
@on_cluster()
async def test_acks_0_closes_the_connection_when_it_fails(rig: Rig) -> None:
    await rig.create("t")
    raw = await rig.raw(1)
    await raw.send_frame(frame_of(produce_request("nowhere", batch_of("v"), acks=0), 9))
    assert await raw.was_closed()
    assert (await rig.produce("t")).error_code == 0, "others go on"


@pytest.mark.feature("RE-09")
@on_cluster(brokers=3, replica__lag__time__max__ms="3000")
async def test_too_few_in_sync_replicas(rig: Rig) -> None:
    await rig.create("t", replicas=[1, 2, 3], min_insync_replicas="3")
    assert (await rig.produce("t")).error_code == 0
    # The third replica is silent, but still counts: the record is appended and its acknowledgement never comes.
    rig.universe.wires.isolate("broker-3")
    slow = await rig.produce("t", timeout_ms=1000)
    assert (slow.error_code, slow.base_offset) == (ErrorCode.REQUEST_TIMED_OUT, -1)
    waiting = rig.partition(1, "t").log.log_end_offset
    assert waiting == 2
    await rig.until(lambda: len(rig.broker(1).metadata.image.topics.by_name["t"].partitions[0].isr) == 2)
    # Now it is refused before the append; and who does not ask for it is still served.
    refused = await rig.produce("t")
    assert (refused.error_code, refused.base_offset) == (ErrorCode.NOT_ENOUGH_REPLICAS, -1)
    assert rig.partition(1, "t").log.log_end_offset == waiting
    assert (await rig.produce("t", acks=1)).error_code == 0
    rig.universe.wires.heal()


@pytest.mark.feature("RE-09", "MB-15")
@pytest.mark.parametrize("elr", [True, False])
@on_cluster(brokers=3, replica__lag__time__max__ms="3000")
async def test_an_isr_that_shrinks_under_a_waiting_request(rig: Rig, elr: bool) -> None:
    """Appended, but fewer have it than the topic wants: error 20, not success. With eligible leader replicas it does
    not count as committed at all (KIP-966)."""
    if not elr:
        change = FeatureUpdateKey(feature="eligible.leader.replicas.version", max_version_level=0, upgrade_type=2)
        assert (await rig.ask(1, UpdateFeaturesRequest(feature_updates=[change]))).error_code == 0
    await rig.create("t", replicas=[1, 2, 3], min_insync_replicas="2")
    assert (await rig.produce("t")).error_code == 0
    for name in ("broker-2", "broker-3"):
        rig.universe.wires.cut_between([name], ["broker-1", "controller-101"])
    answer = await rig.produce("t", timeout_ms=30_000)
    expected = ErrorCode.REQUEST_TIMED_OUT if elr else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert answer.error_code == expected
    assert answer.base_offset == -1
    assert rig.partition(1, "t").log.log_end_offset == 2
    rig.universe.wires.heal()


@pytest.mark.feature("RE-14", "RP-03")
@on_cluster(brokers=3)
async def test_a_broker_that_does_not_lead_names_the_leader(rig: Rig) -> None:
    """Also a broker that has no replica at all knows it from the metadata (KIP-951)."""
    topic_id = await rig.create("t", replicas=[2, 3])
    for node in (3, 1):
        for version in (9, 10, 12, 13):
            request = produce_request("t", batch_of("v"))
            request.topic_data[0].topic_id = topic_id
            response: ProduceResponse = await rig.ask(node, request, version)
            (answer,) = response.responses[0].partition_responses
            assert (answer.error_code, answer.base_offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
            leader = (answer.current_leader.leader_id, answer.current_leader.leader_epoch)
            endpoints = [(it.node_id, it.host, it.port, it.rack) for it in response.node_endpoints]
            if version >= 10:
                assert leader == (2, 0)
                assert endpoints == [(2, "broker-2", 9092, "rack-2")]
            else:
                assert leader == (-1, -1) and endpoints == []


@pytest.mark.feature("RP-03", "PF-04")
@on_cluster()
async def test_each_partition_fails_by_itself(rig: Rig) -> None:
    topic_id = await rig.create("t", partitions=2)
    request = produce_request("t", batch_of("v"))
    request.topic_data[0].partition_data += [
        PartitionProduceData(index=7, records=batch_of("v")),
        PartitionProduceData(index=1, records=None),
        PartitionProduceData(index=-1, records=batch_of("v")),
    ]
    request.topic_data.append(
        TopicProduceData(name="nowhere", partition_data=[PartitionProduceData(index=0, records=batch_of("v"))])
    )
    response = await rig.ask(1, request, 12)
    codes = [[it.error_code for it in topic.partition_responses] for topic in response.responses]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == [[0, unknown, ErrorCode.INVALID_RECORD, unknown], [unknown]]
    # By id: an unknown id is another error than a partition that the topic lacks.
    for known, index, expected in ((topic_id, 0, 0), (topic_id, 7, unknown), (bytes(15) + b"\x09", 0, 100)):
        assert (await rig.produce("t", index=index, version=13, topic_id=known, node=1)).error_code == expected
    nothing = await rig.ask(1, ProduceRequest(acks=-1, timeout_ms=10, topic_data=[], transactional_id=None), 9)
    assert nothing.responses == []


def with_bytes(batch: bytes, position: int, data: bytes) -> bytes:
    return batch[:position] + data + batch[position + len(data) :]


@pytest.mark.feature("RP-03", "PF-12", "PF-13")
@on_cluster()
async def test_batches_that_are_not_taken(rig: Rig) -> None:
    await rig.create("t", max_message_bytes="1000")
    await rig.create("stamped", message_timestamp_type="LogAppendTime")
    good = batch_of("value")
    now_ms = rig.universe.host("broker-1").wall_clock.now_ms()
    cases = {
        "a flipped bit": (with_bytes(good, len(good) - 1, b"\xff"), ErrorCode.CORRUPT_MESSAGE),
        "cut": (good[:-1], None),
        "bytes behind": (good + b"xx", None),
        "two batches": (good + good, ErrorCode.INVALID_RECORD),
        "magic 1": (with_bytes(good, 16, b"\x01"), ErrorCode.INVALID_RECORD),
        "magic 3": (with_bytes(good, 16, b"\x03"), None),
        "a base offset": (batch_of("v", base_offset=5), ErrorCode.INVALID_RECORD),
        "control": (batch_of("v", control=True), ErrorCode.INVALID_RECORD),
        "too large": (batch_of("v" * 1000), ErrorCode.MESSAGE_TOO_LARGE),
        "too late": (batch_of("v", timestamp=now_ms + HOUR_MS + 60_000), ErrorCode.INVALID_TIMESTAMP),
        "a transaction without an id": (
            batch_of("v", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True),
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ),
        "no sequence": (batch_of("v", producer_id=1, producer_epoch=0), ErrorCode.INVALID_RECORD),
        "nothing": (b"", ErrorCode.INVALID_RECORD),
        "less than a head": (good[: BATCH_HEADER_BYTES - 1], None),
    }
    for what, (batch, expected) in cases.items():
        answer = await rig.produce("t", batch)
        wanted = [expected] if expected is not None else [ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD]
        assert answer.error_code in wanted, f"{what}: {answer}"
        assert answer.base_offset == -1 and answer.error_message, what
    transactional = produce_request(
        "t", batch_of("v", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    )
    transactional.transactional_id = "tx"
    response = await rig.ask(1, transactional, 12)
    # Nobody coordinates transactions here yet; the producer is to try again.
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    stamp_bit = build_batch([Record(0, NOW_MS, None, b"v", ())], log_append_time=NOW_MS)
    assert (await rig.produce("t", stamp_bit)).error_code == ErrorCode.INVALID_TIMESTAMP
    assert rig.partition(1, "t").log.log_end_offset == 0, "nothing was appended"
    # zstd came with version 7.
    zstd = batch_of("v", compression=4)
    assert (await rig.produce("t", zstd, version=6)).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert (await rig.produce("t", zstd, version=7)).error_code == 0
    # Where the broker stamps, the producer's clock does not matter.
    late = await rig.produce("stamped", batch_of("v", timestamp=now_ms + 10 * HOUR_MS))
    assert late.error_code == 0
    assert abs(late.log_append_time_ms - rig.universe.host("broker-1").wall_clock.now_ms()) < 5000
    stored = read_header(bytes((await rig.fetch("stamped")).records or b""))
    assert stored.is_log_append_time and stored.max_timestamp == late.log_append_time_ms
    assert (await rig.produce("t")).log_append_time_ms == -1


@pytest.mark.feature("RP-03", "PF-11")
@on_cluster()
async def test_topics_with_wishes_of_their_own(rig: Rig) -> None:
    await rig.create("kept", cleanup_policy="compact")
    keyless = await rig.produce("kept", batch_of("v"))
    assert keyless.error_code == ErrorCode.INVALID_RECORD
    assert (await rig.produce("kept", batch_of("v", key=b"k"))).error_code == 0
    await rig.create("small", compression_type="gzip")
    await rig.create("plain", compression_type="uncompressed")
    for topic, sent, stored in (("small", 0, 1), ("small", 4, 1), ("small", 1, 1), ("plain", 3, 0)):
        batch = batch_of("one", "two", compression=sent, producer_id=5, producer_epoch=0, base_sequence=0)
        await rig.create(f"{topic}-{sent}", compression_type={"small": "gzip", "plain": "uncompressed"}[topic])
        assert (await rig.produce(f"{topic}-{sent}", batch)).error_code == 0
        data = await rig.fetch(f"{topic}-{sent}")
        header = read_header(bytes(data.records or b""))
        assert header.compression == stored
        assert (header.producer_id, header.base_sequence, header.records_count) == (5, 0, 2)
        assert values_in(data) == ["one", "two"]
    # Otherwise the bytes stay as they were sent, except offset and epoch.
    await rig.create("t")
    await rig.produce("t", batch_of("x"))
    sent_bytes = batch_of("one", "two", compression=3)
    await rig.produce("t", sent_bytes)
    kept = bytes((await rig.fetch("t", 1)).records or b"")
    assert kept[16:] == sent_bytes[16:] and kept[:8] == (1).to_bytes(8, "big")


@pytest.mark.feature("RP-03")
@on_cluster()
async def test_a_producer_that_repeats_itself(rig: Rig) -> None:
    await rig.create("t")

    async def send(sequence: int, epoch: int = 0) -> tuple[int, int]:
        batch = batch_of("a", "b", producer_id=7, producer_epoch=epoch, base_sequence=sequence)
        answer = await rig.produce("t", batch)
        return answer.error_code, answer.base_offset

    assert await send(0) == (0, 0)
    assert await send(2) == (0, 2)
    assert await send(0) == (0, 0), "a duplicate has the offset it had"
    assert await send(2) == (0, 2)
    assert await send(6) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert await send(0, epoch=1) == (0, 4), "a new epoch starts again at 0"
    assert (await send(4))[0] == ErrorCode.INVALID_PRODUCER_EPOCH
    assert await send(5, epoch=1) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert rig.partition(1, "t").log.log_end_offset == 6


@pytest.mark.feature("AD-02", "RP-03")
@on_cluster()
async def test_a_changed_config_holds_for_the_next_request(rig: Rig) -> None:
    await rig.create("t")
    big = batch_of("v" * 5000)
    assert (await rig.produce("t", big)).error_code == 0
    await rig.configure(TOPIC_CONFIG, "t", max_message_bytes="4000")
    assert (await rig.produce("t", big)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    await rig.configure(TOPIC_CONFIG, "t", message_timestamp_type="LogAppendTime")
    assert (await rig.produce("t")).log_append_time_ms > 0
    # All topics of all brokers, by a default that none of them overrides; the topic's own word is stronger.
    await rig.create("other")
    await rig.configure(4, "", message_max_bytes="3000")
    await rig.configure(TOPIC_CONFIG, "t", max_message_bytes="100000")
    assert (await rig.produce("other", big)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert (await rig.produce("t", big)).error_code == 0


@pytest.mark.feature("RE-09", "AD-02")
@on_cluster(brokers=3)
async def test_min_insync_replicas_changes_while_it_runs(rig: Rig) -> None:
    await rig.create("t", replicas=[1, 2])
    rig.cluster.kill("broker-2")
    await rig.until(lambda: rig.broker(1).metadata.image.topics.by_name["t"].partitions[0].isr == (1,))
    assert (await rig.produce("t")).error_code == 0
    await rig.configure(TOPIC_CONFIG, "t", min_insync_replicas="2")
    assert (await rig.produce("t")).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    # Never more than there are replicas.
    await rig.create("alone", min_insync_replicas="3", replicas=[1])
    assert (await rig.produce("alone")).error_code == 0


@pytest.mark.feature("RE-09", "MB-08")
@on_cluster(brokers=3)
async def test_a_topic_that_is_deleted_under_a_waiting_request(rig: Rig) -> None:
    from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

    await rig.create("t", replicas=[1, 2])
    rig.universe.wires.cut_between(["broker-2"], ["broker-1"])
    answers: list[int] = []

    async def waits() -> None:
        answers.append((await rig.produce("t", timeout_ms=60_000)).error_code)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(waits)
        await rig.until(lambda: rig.partition(1, "t").log.log_end_offset == 1)
        channel = rig.channel(1)
        await channel.call(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]), timeout_ms=5000)
        with trio.fail_after(5):
            while not answers:
                await trio.sleep(0.01)
    assert answers == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert (await rig.produce("t", node=1)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await rig.ask(1, MetadataRequest(topics=None))).topics == []


@pytest.mark.feature("CG-02", "TX-01")
@on_cluster(offsets__topic__replication__factor="1", offsets__topic__num__partitions="1")
async def test_only_coordinators_write_internal_topics(rig: Rig) -> None:
    await rig.ask(1, FindCoordinatorRequest(coordinator_keys=["g"]))
    await rig.until(lambda: "__consumer_offsets" in rig.broker(1).metadata.image.topics.by_name)
    await rig.until(lambda: rig.leader("__consumer_offsets") == 1)
    refused = await rig.produce("__consumer_offsets")
    assert refused.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert rig.partition(1, "__consumer_offsets").log.log_end_offset == 0
