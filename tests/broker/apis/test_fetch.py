"""Fetch: what consumers may read, when the answer comes, and how much is in it."""

from __future__ import annotations

from copy import copy
from typing import Any

import pytest
import trio

from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.partitions import Partitions
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from barnabas.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from tests.broker.apis.rig import Rig, batch_of, fetch_request, frame_of, on_cluster, produce_request, values_in


async def timed(rig: Rig, node: int, request: FetchRequest, version: int = 12) -> tuple[float, FetchResponse]:
    """(simulated milliseconds, answer), over a connection of its own."""
    began = trio.current_time()
    response = await rig.channel(node).call(request, timeout_ms=60_000, version=version)
    return (trio.current_time() - began) * 1000, response


def only(response: FetchResponse) -> PartitionData:
    (topic,) = response.responses
    (data,) = topic.partitions
    return data


@pytest.mark.feature("RP-04", "RE-14")
@on_cluster(brokers=3)
async def test_errors_of_fetch(rig: Rig) -> None:
    topic_id = await rig.create("t", replicas=[2, 3])
    await rig.produce("t")
    end = 1
    for offset, expected in ((0, 0), (end, 0), (end + 1, 1), (-1, 1), (10**18, 1)):
        assert (await rig.fetch("t", offset)).error_code == expected, offset
    assert (await rig.fetch("nowhere", node=2)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await rig.fetch("t", index=5, node=2)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    unknown = await rig.ask(2, fetch_request(bytes(15) + b"\x09"), 13)
    assert only(unknown).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    # Epochs: an older one than the leader's, a newer one, the right one.
    rig.cluster.kill("broker-2")
    await rig.until(lambda: rig.broker(3).metadata.image.topics.by_name["t"].partitions[0].leader == 3)
    await rig.until(lambda: rig.partition(3, "t").is_leader)
    epoch = rig.partition(3, "t").leader_epoch
    for asked, expected in ((epoch - 1, 74), (epoch + 1, 75), (epoch, 0), (-1, 0)):
        assert (await rig.fetch("t", node=3, current_leader_epoch=asked)).error_code == expected
    # A broker without any replica says who leads (KIP-951), from version 16 on also where.
    for version in (12, 15, 16, 18):
        response = await rig.ask(1, fetch_request("t" if version < 13 else topic_id), version)
        data = only(response)
        assert (data.error_code, data.high_watermark, data.log_start_offset) == (6, -1, -1)
        if version >= 16:
            assert (data.current_leader.leader_id, data.current_leader.leader_epoch) == (3, epoch)
            assert [(it.node_id, it.host, it.port) for it in response.node_endpoints] == [(3, "broker-3", 9092)]


@pytest.mark.feature("RE-14", "RP-04")
@on_cluster(brokers=3)
async def test_a_follower_serves_no_followers_and_no_old_consumers(rig: Rig) -> None:
    topic_id = await rig.create("t", replicas=[1, 2, 3])
    await rig.produce("t")
    own_epoch = rig.broker(3).lifecycle.broker_epoch
    asking = ReplicaState(replica_id=3, replica_epoch=own_epoch)
    refused = await rig.ask(2, fetch_request(topic_id, replica_state=asking), 17)
    assert only(refused).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert only(refused).current_leader.leader_id == 1
    assert [it.node_id for it in refused.node_endpoints] == [1]
    for version in range(4, 11):
        old = only(await rig.ask(2, fetch_request("t"), version))
        assert old.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER, version
    # Nor is somebody served who claims to be a replica, and is none.
    for stranger in (3, 9):
        request = fetch_request(topic_id, replica_state=ReplicaState(replica_id=stranger, replica_epoch=0))
        assert only(await rig.ask(1, request, 17)).error_code != 0


@pytest.mark.feature("RE-05")
@on_cluster(brokers=3, seed=3)
async def test_no_consumer_reads_above_the_high_watermark(rig: Rig) -> None:
    await rig.create("t", replicas=[1, 2, 3])
    await rig.produce("t", batch_of("committed"))
    for follower in ("broker-2", "broker-3"):
        rig.universe.wires.cut_between([follower], ["broker-1"])
    await trio.sleep(1)
    assert (await rig.produce("t", batch_of("not yet"), acks=1)).base_offset == 1
    for isolation in (0, 1):
        data = await rig.fetch("t", isolation_level=isolation)
        assert values_in(data) == ["committed"]
        assert (data.high_watermark, data.last_stable_offset) == (1, 1)
        # At the watermark there is nothing yet, between it and the log's end neither; that is no error.
        for offset in (1, 2):
            above = await rig.fetch("t", offset, isolation_level=isolation)
            assert (above.error_code, len(above.records or b"")) == (0, 0), offset
    rig.universe.wires.heal()
    with trio.fail_after(40):
        while values_in(await rig.fetch("t")) != ["committed", "not yet"]:
            await trio.sleep(0.1)


@pytest.mark.feature("RP-05", "RE-05")
@on_cluster(brokers=3)
async def test_a_long_poll_wakes_when_a_record_is_committed(rig: Rig) -> None:
    await rig.create("t", replicas=[1, 2, 3])
    took: list[float] = []

    async def waits() -> None:
        spent, response = await timed(rig, 1, fetch_request("t", max_wait_ms=20_000))
        took.append(spent)
        assert values_in(only(response)) == ["value"]

    async with trio.open_nursery() as nursery:
        nursery.start_soon(waits)
        await trio.sleep(5)
        assert not took
        await rig.produce("t", acks=1)
    assert 5000 <= took[0] < 5100


@pytest.mark.feature("RP-05")
@on_cluster()
async def test_min_bytes_and_max_wait(rig: Rig) -> None:
    await rig.create("t", partitions=2)
    await rig.create("empty")
    size = len(batch_of("value"))
    await rig.produce("t")
    spent, response = await timed(rig, 1, fetch_request("t", max_wait_ms=5000, min_bytes=size))
    assert spent < 100 and len(only(response).records or b"") == size
    # Too little: at the deadline there is what there is.
    spent, response = await timed(rig, 1, fetch_request("t", max_wait_ms=5000, min_bytes=size + 1))
    assert 4990 < spent < 5100 and values_in(only(response)) == ["value"]
    spent, response = await timed(rig, 1, fetch_request("empty", max_wait_ms=700))
    assert 690 < spent < 800 and only(response).error_code == 0
    # A fetch does not wait if it must not, if it wants nothing, or if it has an error to report.
    for quick in (
        fetch_request("empty", max_wait_ms=0),
        fetch_request("empty", max_wait_ms=-1),
        fetch_request("empty", max_wait_ms=9000, min_bytes=0),
        fetch_request("empty", 5, max_wait_ms=9000),
        fetch_request("nowhere", max_wait_ms=9000),
        FetchRequest(max_wait_ms=9000, min_bytes=1, max_bytes=100, session_epoch=-1),
    ):
        spent, _ = await timed(rig, 1, quick)
        assert spent < 100, quick


@pytest.mark.feature("RP-05")
@on_cluster()
async def test_how_much_an_answer_holds(rig: Rig) -> None:
    await rig.create("t", partitions=3)
    batch = batch_of("v" * 1000)
    for index in range(3):
        for _ in range(4):
            await rig.produce("t", batch, index=index)

    async def lengths(max_bytes: int, partition_max_bytes: int, version: int = 12) -> list[int]:
        request = fetch_request("t", max_bytes=max_bytes, partition_max_bytes=partition_max_bytes)
        for index in (1, 2):
            asked = FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=partition_max_bytes)
            request.topics[0].partitions.append(asked)
        response = await rig.ask(1, request, version)
        return [len(it.records or b"") // len(batch) for it in response.responses[0].partitions]

    size = len(batch)
    assert await lengths(100 * size, 100 * size) == [4, 4, 4]
    assert await lengths(100 * size, 2 * size) == [2, 2, 2]
    assert await lengths(100 * size, 2 * size + size // 2) == [2, 2, 2], "whole batches only"
    assert await lengths(5 * size, 100 * size) == [4, 1, 0]
    # The first batch comes whole, however large (KIP-74); the others only if they fit.
    assert await lengths(100 * size, 10) == [1, 0, 0]
    assert await lengths(10, 10) == [1, 0, 0]
    assert await lengths(1, 1, version=4) == [1, 0, 0]


@pytest.mark.feature("RP-05")
@on_cluster()
async def test_partitions_are_read_and_answered_in_the_order_of_the_request(rig: Rig) -> None:
    """A topic may be named more than once: partitions get room in the order in which they are named."""
    batch = batch_of("v" * 1000)
    for topic in ("a", "b"):
        await rig.create(topic, partitions=2)
        for index in (0, 1):
            await rig.produce(topic, batch, index=index)
    request = fetch_request("a", max_bytes=3 * len(batch))
    order = [("b", 1), ("a", 0), ("b", 0), ("a", 1)]
    request.topics = [
        FetchTopic(topic=topic, partitions=[FetchPartition(partition=index, partition_max_bytes=1 << 20)])
        for topic, index in order
    ]
    response = await rig.ask(1, request, 12)
    answered = [(topic.topic, it) for topic in response.responses for it in topic.partitions]
    assert [(topic, it.partition_index) for topic, it in answered] == order
    assert [bool(it.records) for _, it in answered] == [True, True, True, False]


@pytest.mark.feature("ST-05", "RP-04")
@on_cluster()
async def test_a_damaged_batch_is_answered_as_one_and_can_be_deleted(rig: Rig) -> None:
    """The other partitions of the answer come as ever, and so do the segments behind it."""
    topic_id = await rig.create("t", partitions=2, internal_segment_bytes="200")
    for index in (0, 1):
        for number in range(6):
            await rig.produce("t", batch_of(f"{number}"), index=index)
    segments = rig.partition(1, "t").log.segments
    segments[0].log_file().pwrite(bytes(12), 0)
    request = fetch_request(topic_id)
    request.topics[0].partitions.append(FetchPartition(partition=1, partition_max_bytes=1 << 20))
    response = await rig.ask(1, request, 17)
    damaged, sound = response.responses[0].partitions
    assert (damaged.error_code, damaged.records or b"") == (ErrorCode.CORRUPT_MESSAGE, b"")
    assert (sound.error_code, values_in(sound)[:1]) == (0, ["0"])
    first = segments[1].base_offset
    assert values_in(await rig.fetch("t", first))[:1] == [f"{first}"]
    deleted = DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=first)])
    assert (await rig.ask(1, DeleteRecordsRequest(topics=[deleted]))).topics[0].partitions[0].error_code == 0
    assert values_in(await rig.fetch("t", first))[:1] == [f"{first}"]
    assert (await rig.fetch("t", 0)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.feature("RP-05")
@on_cluster(fetch__max__bytes="1024")
async def test_the_broker_limits_an_answer_too(rig: Rig) -> None:
    await rig.create("t")
    for _ in range(10):
        await rig.produce("t", batch_of("v" * 300))
    data = await rig.fetch("t", max_bytes=1 << 30)
    assert len(values_in(data)) == 2


@pytest.mark.feature("RE-05")
@on_cluster()
async def test_read_committed_has_a_list_of_aborted_transactions(rig: Rig) -> None:
    await rig.create("t")
    await rig.produce("t")
    assert (await rig.fetch("t", isolation_level=1)).aborted_transactions == []
    assert (await rig.fetch("t", isolation_level=0)).aborted_transactions is None


def in_session(session_id: int, epoch: int, *topics: FetchTopic, **more: Any) -> FetchRequest:
    fields: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 24, **more}
    return FetchRequest(session_id=session_id, session_epoch=epoch, topics=list(topics), **fields)


def wants(topic: str, *partitions: tuple[int, int]) -> FetchTopic:
    """(partition, offset)"""
    return FetchTopic(
        topic=topic,
        partitions=[
            FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
            for index, offset in partitions
        ],
    )


def records_by_partition(response: FetchResponse) -> dict[tuple[str, int], list[str]]:
    return {
        (topic.topic, it.partition_index): values_in(it)
        for topic in response.responses
        for it in topic.partitions
    }


@pytest.mark.feature("RP-09")
@on_cluster()
async def test_a_session_returns_only_what_is_new(rig: Rig) -> None:
    await rig.create("t", partitions=2)
    await rig.produce("t", batch_of("a"))
    first = await rig.ask(1, in_session(0, 0, wants("t", (0, 0), (1, 0))), 12)
    session = first.session_id
    assert session > 0 and records_by_partition(first) == {("t", 0): ["a"], ("t", 1): []}
    second = await rig.ask(1, in_session(session, 1, wants("t", (0, 1))), 12)
    assert (second.session_id, second.error_code, records_by_partition(second)) == (session, 0, {})
    await rig.produce("t", batch_of("b"), index=1)
    third = await rig.ask(1, in_session(session, 2), 12)
    assert records_by_partition(third) == {("t", 1): ["b"]}
    # Repeated, skipped, or of nobody: the client makes a new session.
    for epoch in (2, 5, 0x7FFFFFFF):
        wrong = await rig.ask(1, in_session(session, epoch), 12)
        assert (wrong.error_code, wrong.responses) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, [])
    wrong = await rig.ask(1, in_session(session + 1, 1), 12)
    assert wrong.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    # A forgotten partition is silent, and a topic that is made later is found.
    forgetful = in_session(session, 3, wants("later", (0, 0)))
    forgetful.forgotten_topics_data = [ForgottenTopic(topic="t", partitions=[1])]
    answer = await rig.ask(1, forgetful, 12)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await rig.create("later")
    await rig.produce("later", batch_of("c"))
    await rig.produce("t", batch_of("unseen"), index=1)
    assert records_by_partition(await rig.ask(1, in_session(session, 4), 12)) == {("later", 0): ["c"]}
    # The end: a full request that names it.
    closed = await rig.ask(1, in_session(session, -1, wants("t", (0, 0))), 12)
    assert (closed.session_id, records_by_partition(closed)) == (0, {("t", 0): ["a"]})
    gone = await rig.ask(1, in_session(session, 5), 12)
    assert gone.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.feature("RP-09", "RP-05")
@on_cluster()
async def test_a_session_waits_and_is_fair(rig: Rig) -> None:
    await rig.create("t", partitions=3)
    big = batch_of("v" * 5000)
    for index in range(3):
        for _ in range(3):
            await rig.produce("t", big, index=index)
    topic = wants("t", (0, 0), (1, 0), (2, 0))
    session, seen = 0, []
    for epoch in range(7):
        request = in_session(session, epoch, *([topic] if epoch == 0 else []), max_bytes=len(big))
        response = await rig.ask(1, request, 12)
        session = response.session_id
        seen += [it.partition_index for it in response.responses[0].partitions if it.records]
    assert seen == [0, 0, 1, 2, 0, 1, 2], "a partition that had data goes to the end"
    # Caught up, an incremental fetch waits for news.
    caught_up = in_session(session, 7, wants("t", (0, 3), (1, 3), (2, 3)), max_wait_ms=3000, min_bytes=1)
    spent, response = await timed(rig, 1, caught_up)
    assert spent > 2990 and all(not it.records for topic_ in response.responses for it in topic_.partitions)


@pytest.mark.feature("RP-04", "RP-09")
@on_cluster()
async def test_a_partition_asked_for_twice_is_read_once(rig: Rig) -> None:
    await rig.create("t")
    await rig.produce("t", batch_of("a"))
    await rig.produce("t", batch_of("b"))
    request = fetch_request("t", 0)
    request.topics[0].partitions *= 50
    request.topics[0].partitions.append(FetchPartition(partition=0, fetch_offset=1, partition_max_bytes=1000))
    response = await rig.ask(1, request, 12)
    assert values_in(only(response)) == ["b"]


@pytest.mark.feature("MB-08", "RP-05")
@on_cluster()
async def test_a_topic_deleted_under_a_long_poll(rig: Rig) -> None:
    from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

    await rig.create("t")
    answers: list[tuple[float, int]] = []

    async def waits() -> None:
        spent, response = await timed(rig, 1, fetch_request("t", max_wait_ms=30_000))
        answers.append((spent, only(response).error_code))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(waits)
        await trio.sleep(1)
        await rig.ask(1, DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]))
    ((spent, code),) = answers
    assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and spent < 1500


@pytest.mark.feature("RP-02")
@on_cluster()
async def test_requests_of_one_connection_are_answered_in_their_order(rig: Rig) -> None:
    """A long poll in front holds back what comes after it, though that was done long before."""
    await rig.create("t")
    raw = await rig.raw(1)
    began = trio.current_time()
    await raw.send_frame(frame_of(fetch_request("t", max_wait_ms=2000), 12, correlation_id=1))
    await raw.send_frame(frame_of(produce_request("nowhere", batch_of("v")), 12, correlation_id=2))
    for expected in (1, 2):
        answer = await raw.receive_frame()
        assert answer is not None and int.from_bytes(answer[:4], "big") == expected
    assert trio.current_time() - began >= 1.99


@pytest.mark.feature("RP-06", "RP-09")
@pytest.mark.parametrize("with_session", [False, True])
@on_cluster(brokers=3)
async def test_a_change_of_one_partition_is_no_reason_to_look_at_all(
    rig: Rig, with_session: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that comes back changes thousands of partitions one by one, and each fetch waits for all of them."""
    count = 60
    topic_id = await rig.create("t", partitions=count, replicas=[1])
    channel = rig.channel(1)
    request = fetch_request(topic_id, max_wait_ms=30_000, min_bytes=1)
    request.topics[0].partitions = [
        FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20) for index in range(count)
    ]
    request.session_epoch = -1
    if with_session:
        # The first request makes the session, the next one still reads everything.
        request.max_wait_ms = 0
        request.session_epoch = 0
        request.session_id = (await channel.call(copy(request), timeout_ms=60_000, version=17)).session_id
        request.topics = []
        request.session_epoch = 1
        await channel.call(copy(request), timeout_ms=60_000, version=17)
        request.max_wait_ms, request.session_epoch = 30_000, 2
    broker, answers = rig.broker(1), []

    async def ask() -> None:
        answers.append(await channel.call(request, timeout_ms=60_000, version=17))

    looks = 0
    find = Partitions.find

    def counting(self: Partitions, topic: bytes | str, index: int) -> Partition | None:
        nonlocal looks
        looks += 1
        return find(self, topic, index)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await rig.until(lambda: broker.fetches.delayed)
        partitions = [rig.partition(1, "t", index) for index in range(count)]
        monkeypatch.setattr(Partitions, "find", counting)
        for partition in partitions:
            partition._host.changed(partition)
        monkeypatch.undo()
        assert count <= looks <= 2 * count
        assert answers == []
        # And still nothing is missed.
        assert (await rig.produce("t", batch_of("news"), index=count - 1)).error_code == 0
        with trio.fail_after(5):
            await rig.until(lambda: answers)
    assert values_in(only(answers[0]) if with_session else answers[0].responses[0].partitions[-1]) == ["news"]
