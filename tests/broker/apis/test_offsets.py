"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords: where a log begins, ends, and what lies between."""

from __future__ import annotations

import pytest
import trio

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.broker.apis.rig import NOW_MS, Rig, batch_of, on_cluster, values_in

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = -1, -2, -3, -4, -5, -6


async def offset(  # noqa: PLR0913 - what a question can say
    rig: Rig,
    timestamp: int,
    *,
    node: int = 1,
    version: int = 11,
    topic: str = "t",
    index: int = 0,
    isolation: int = 0,
    leader_epoch: int = -1,
) -> ListOffsetsPartitionResponse:
    asked = ListOffsetsPartition(partition_index=index, timestamp=timestamp)
    if version >= 4:
        asked.current_leader_epoch = leader_epoch
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[asked])])
    if version >= 2:
        request.isolation_level = isolation
    response = await rig.ask(node, request, version)
    (answer,) = response.topics[0].partitions
    assert isinstance(answer, ListOffsetsPartitionResponse)
    return answer


def fields_of(answer: ListOffsetsPartitionResponse) -> tuple[int, int, int, int]:
    return answer.error_code, answer.timestamp, answer.offset, answer.leader_epoch


@pytest.mark.feature("AD-01", "PF-04")
@on_cluster()
async def test_every_meaning_of_a_timestamp(rig: Rig) -> None:
    await rig.create("t")
    assert fields_of(await offset(rig, EARLIEST)) == (0, -1, 0, 0)
    assert fields_of(await offset(rig, LATEST)) == (0, -1, 0, 0)
    assert fields_of(await offset(rig, MAX_TIMESTAMP)) == (0, -1, -1, -1)
    assert fields_of(await offset(rig, NOW_MS)) == (0, -1, -1, -1)
    for age in (0, 100, 50):
        await rig.produce("t", batch_of("a", "b", timestamp=NOW_MS + age))
    cases = {
        LATEST: (-1, 6, 0),
        EARLIEST: (-1, 0, 0),
        EARLIEST_LOCAL: (-1, 0, 0),
        MAX_TIMESTAMP: (NOW_MS + 100, 2, 0),
        LATEST_TIERED: (-1, -1, -1),
        EARLIEST_PENDING: (-1, -1, -1),
        0: (NOW_MS, 0, 0),
        NOW_MS: (NOW_MS, 0, 0),
        NOW_MS + 1: (NOW_MS + 100, 2, 0),
        NOW_MS + 100: (NOW_MS + 100, 2, 0),
        NOW_MS + 101: (-1, -1, -1),
    }
    since = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING: 11}
    for version in range(1, 12):
        for timestamp, expected in cases.items():
            answer = fields_of(await offset(rig, timestamp, version=version))
            if version < since.get(timestamp, 0):
                assert answer == (ErrorCode.UNSUPPORTED_VERSION, -1, -1, -1), (timestamp, version)
            else:
                wanted = expected if version >= 4 else (*expected[:2], -1)
                assert answer == (0, *wanted), (timestamp, version)
    assert (await offset(rig, -7)).error_code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.feature("RE-14", "RP-04")
@on_cluster(brokers=3)
async def test_the_replica_and_the_meaning_of_negative_timestamps(rig: Rig) -> None:
    await rig.create("t", replicas=[1, 2])
    for node in (2, 3):
        assert (await offset(rig, LATEST, node=node)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await offset(rig, LATEST, index=7)).error_code == unknown
    assert (await offset(rig, LATEST, topic="nowhere")).error_code == unknown
    assert (await offset(rig, LATEST, leader_epoch=1)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    rig.cluster.kill("broker-1")
    await rig.until(lambda: rig.partition(2, "t").is_leader)
    assert (await offset(rig, LATEST, node=2, leader_epoch=0)).error_code == ErrorCode.FENCED_LEADER_EPOCH
    twice = [ListOffsetsPartition(partition_index=0, timestamp=LATEST)] * 2
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=twice)])
    response = await rig.ask(2, request)
    assert {it.error_code for it in response.topics[0].partitions} == {ErrorCode.INVALID_REQUEST}


@pytest.mark.feature("RE-05", "RE-03")
@on_cluster(brokers=3)
async def test_consumers_get_the_high_watermark_others_the_log_end(rig: Rig) -> None:
    await rig.create("t", replicas=[1, 2, 3])
    await rig.produce("t")
    for follower in ("broker-2", "broker-3"):
        rig.universe.wires.cut_between([follower], ["broker-1"])
    await trio.sleep(1)
    await rig.produce("t", acks=1)
    assert (await offset(rig, LATEST)).offset == 1
    assert (await offset(rig, LATEST, isolation=1)).offset == 1
    asked = ListOffsetsPartition(partition_index=0, timestamp=LATEST)
    request = ListOffsetsRequest(replica_id=2, topics=[ListOffsetsTopic(name="t", partitions=[asked])])
    assert (await rig.ask(1, request)).topics[0].partitions[0].offset == 2
    # A debugging client reads from any replica, also from a follower.
    request.replica_id = -2
    for node, end in ((1, 2), (2, 1), (3, 1)):
        (answer,) = (await rig.ask(node, request)).topics[0].partitions
        assert (answer.error_code, answer.offset) == (0, end)
    # A record above it is not found by its time either.
    assert (await offset(rig, NOW_MS)).offset == 0
    assert (await offset(rig, NOW_MS + 1)).offset == -1


@pytest.mark.feature("RE-15", "RE-03")
@on_cluster(brokers=3, replica__lag__time__max__ms="20000")
async def test_a_new_leader_that_is_not_sure_yet(rig: Rig) -> None:
    """Until its high watermark has reached the start of its epoch, it may be lower than the old leader's (KIP-207)."""
    await rig.create("t", replicas=[1, 2, 3])
    await rig.produce("t", batch_of("old", timestamp=NOW_MS - 1000))
    await trio.sleep(2)
    await rig.produce("t", acks=1)
    # Broker 2 has the record but does not know that it is committed, and is cut off from broker 3.
    await rig.until(lambda: rig.partition(2, "t").log.log_end_offset == 2)
    rig.universe.wires.cut_between(["broker-2"], ["broker-3"])
    rig.cluster.kill("broker-1")
    await rig.until(lambda: rig.partition(2, "t").is_leader)
    partition = rig.partition(2, "t")
    if partition.replica.high_watermark_is_current:
        pytest.fail("the story needs a leader whose high watermark is behind")
    for version in range(1, 12):
        expected = ErrorCode.OFFSET_NOT_AVAILABLE if version >= 5 else ErrorCode.LEADER_NOT_AVAILABLE
        assert (await offset(rig, LATEST, node=2, version=version)).error_code == expected, version
    assert (await offset(rig, EARLIEST, node=2)).offset == 0, "the beginning is sure"
    assert (await offset(rig, 0, node=2)).offset == 0, "and what lies below the watermark"
    rig.universe.wires.heal()
    await rig.until(lambda: partition.replica.high_watermark_is_current)
    assert (await offset(rig, LATEST, node=2)).offset == 2


@pytest.mark.feature("RE-12", "RE-14")
@on_cluster(brokers=3)
async def test_where_epochs_end(rig: Rig) -> None:
    await rig.create("t", replicas=[1, 2])
    await rig.produce("t")
    rig.cluster.kill("broker-1")
    await rig.until(lambda: rig.partition(2, "t").is_leader)
    epoch = rig.partition(2, "t").leader_epoch
    await rig.produce("t", node=2)
    await rig.produce("t", node=2)

    async def end(asked_epoch: int, current: int = -1, node: int = 2, index: int = 0) -> tuple[int, int, int]:
        asked = OffsetForLeaderPartition(
            partition=index, leader_epoch=asked_epoch, current_leader_epoch=current
        )
        topic = OffsetForLeaderTopic(topic="t", partitions=[asked])
        answers = set()
        for version in (2, 3, 4):
            response = await rig.ask(node, OffsetForLeaderEpochRequest(topics=[topic]), version)
            (answer,) = response.topics[0].partitions
            answers.add((answer.error_code, answer.leader_epoch, answer.end_offset))
        assert len(answers) == 1
        return answers.pop()

    assert await end(0) == (0, 0, 1)
    assert await end(epoch) == (0, epoch, 3)
    assert await end(epoch + 5) == (0, -1, -1), "nothing is known of what is to come"
    assert (await end(0, current=0))[0] == ErrorCode.FENCED_LEADER_EPOCH
    assert (await end(0, current=epoch + 1))[0] == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert (await end(0, node=3))[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (await end(0, index=9))[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def delete(
    rig: Rig, before: int, *, node: int = 1, topic: str = "t", timeout_ms: int = 5000, version: int = 2
) -> DeleteRecordsPartitionResult:
    asked = DeleteRecordsPartition(partition_index=0, offset=before)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic, partitions=[asked])], timeout_ms=timeout_ms
    )
    response = await rig.ask(node, request, version)
    (answer,) = response.topics[0].partitions
    assert isinstance(answer, DeleteRecordsPartitionResult)
    return answer


@pytest.mark.feature("CR-14", "RE-17", "AD-01")
@on_cluster(brokers=3)
async def test_records_are_deleted_on_every_replica(rig: Rig) -> None:
    await rig.create("t", replicas=[1, 2, 3])
    for number in range(10):
        await rig.produce("t", batch_of(f"{number}"))
    done = await delete(rig, 4)
    assert (done.error_code, done.low_watermark) == (0, 4)
    for node in (1, 2, 3):
        assert rig.partition(node, "t").log.log_start_offset == 4, "answered when all have done so"
    assert values_in(await rig.fetch("t", 4))[0] == "4"
    assert (await rig.fetch("t", 3)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (await offset(rig, EARLIEST)).offset == 4
    # Nothing comes back; -1 means all that is committed; beyond that there is nothing to delete.
    assert (await delete(rig, 2)).low_watermark == 4
    assert (await delete(rig, 11)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (await delete(rig, -2)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (await delete(rig, -1)).low_watermark == 10
    assert fields_of(await offset(rig, EARLIEST))[2] == 10 == (await offset(rig, LATEST)).offset
    assert (await rig.produce("t")).base_offset == 10
    # It is remembered over a restart.
    await rig.cluster.stop("broker-1")
    rig.cluster.start("broker-1")
    await rig.cluster.wait_ready()
    assert rig.partition(1, "t").log.log_start_offset == 10


@pytest.mark.feature("CR-14", "AD-01")
@on_cluster(brokers=3, replica__lag__time__max__ms="30000")
async def test_a_replica_that_is_slow_is_waited_for(rig: Rig) -> None:
    await rig.create("t", replicas=[1, 2, 3])
    await rig.produce("t")
    rig.universe.wires.cut_between(["broker-3"], ["broker-1"])
    await trio.sleep(1)
    late = await delete(rig, 1, timeout_ms=2000)
    assert (late.error_code, late.low_watermark) == (ErrorCode.REQUEST_TIMED_OUT, -1)
    # One that is known to be gone is not.
    rig.universe.wires.heal()
    await trio.sleep(3)
    await rig.produce("t")
    rig.cluster.kill("broker-3")
    await rig.until(lambda: list(rig.broker(1).metadata.alive_nodes("PLAINTEXT")) == [1, 2])
    assert (await delete(rig, 2)).low_watermark == 2


@pytest.mark.feature("CR-14", "AD-01")
@on_cluster(brokers=3)
async def test_topics_whose_records_cannot_be_deleted(rig: Rig) -> None:
    await rig.create("t", replicas=[1, 2])
    await rig.create("compacted", replicas=[1], cleanup_policy="compact")
    await rig.create("both", replicas=[1], cleanup_policy="compact,delete")
    await rig.create("__consumer_offsets", replicas=[1])
    for version in range(3):
        assert (await delete(rig, 0, version=version)).error_code == 0
        assert (await delete(rig, 0, topic="compacted", version=version)).error_code == ErrorCode.POLICY_VIOLATION
        assert (await delete(rig, 0, topic="both", version=version)).error_code == 0
        internal = await delete(rig, 0, topic="__consumer_offsets", version=version)
        assert internal.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert (await delete(rig, 0, node=2)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        missing = await delete(rig, 0, topic="nowhere")
        assert (missing.error_code, missing.low_watermark) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
