"""Share coordinators on a simulated cluster, asked as leaders of partitions and group coordinators ask them."""

from __future__ import annotations

import pytest

from barnabas.broker.shares.state import (
    UNINITIALIZED_OFFSET,
    SharePartitionKey,
    ShareState,
    ShareStateChange,
    ShareStateSummary,
    StateBatch,
)
from barnabas.broker.shares.state_client import ShareStateClient
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import share_log
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.share_log import ShareSnapshotKey
from barnabas.protocol.messages.write_share_group_state import WriteShareGroupStateRequest
from barnabas.protocol.records.coordinator import decode_key, record_types
from barnabas.protocol.records.record import decode_records
from tests.broker.apis.rig import Rig, on_cluster

pytestmark = pytest.mark.feature("CG-17")

TOPIC = "__share_group_state"
TYPES = dict(record_types(share_log))
FEW = {"share__coordinator__state__topic__num__partitions": "3"}
ALONE = {
    "share__coordinator__state__topic__num__partitions": "1",
    "share__coordinator__state__topic__replication__factor": "1",
    "share__coordinator__state__topic__min__isr": "1",
}


def store(rig: Rig, node: int) -> ShareStateClient:
    return rig.broker(node).coordination.share_states


def change(leader_epoch: int, start_offset: int, *batches: tuple[int, int, int, int]) -> ShareStateChange:
    return ShareStateChange(1, leader_epoch, start_offset, 0, tuple(StateBatch(*batch) for batch in batches))


async def refused(code: ErrorCode, awaited: object) -> None:
    with pytest.raises(KafkaError) as caught:
        await awaited  # type: ignore[misc]
    assert caught.value.code is code


@on_cluster(brokers=3, **FEW)
async def test_a_state_survives_the_loss_of_its_coordinator(rig: Rig) -> None:
    topic_id = await rig.create("orders", partitions=4)
    keys = [SharePartitionKey("work", topic_id, index) for index in range(4)]
    for key in keys:
        await store(rig, 1).initialize(key, 1, UNINITIALIZED_OFFSET)
        assert await store(rig, 2).read(key, 5) == ShareState(1, UNINITIALIZED_OFFSET)
        await store(rig, 2).write(key, change(5, 10, (10, 19, 2, 1), (20, 24, 0, 1)))
        await store(rig, 2).write(key, change(5, 15, (20, 22, 2, 2)))
    expected = ShareState(1, 15, (StateBatch(15, 19, 2, 1), StateBatch(20, 22, 2, 2), StateBatch(23, 24, 0, 1)))
    assert [await store(rig, 3).read(key, 5) for key in keys] == [expected] * 4

    lost = rig.leader(TOPIC)
    rig.cluster.kill(rig.name(lost))
    other = 1 + lost % 3
    assert [await store(rig, other).read(key, 5) for key in keys] == [expected] * 4
    await store(rig, other).write(keys[0], change(5, 25))
    assert await store(rig, other).summary(keys[0], 5) == ShareStateSummary(1, 5, 25, 0)


@on_cluster(**ALONE)
async def test_epochs_fence_earlier_leaders_and_earlier_states(rig: Rig) -> None:
    topic_id = await rig.create("orders")
    key = SharePartitionKey("work", topic_id, 0)
    states = store(rig, 1)
    await refused(ErrorCode.INVALID_REQUEST, states.read(key, 0))
    await refused(ErrorCode.INVALID_REQUEST, states.write(key, change(0, 0)))
    assert await states.summary(key, 0) == ShareStateSummary(0, 0, UNINITIALIZED_OFFSET)
    await states.initialize(key, 1, 7)
    await states.read(key, 3)
    await refused(ErrorCode.FENCED_LEADER_EPOCH, states.read(key, 2))
    await refused(ErrorCode.FENCED_LEADER_EPOCH, states.write(key, change(2, 8)))
    await states.write(key, change(3, 8, (8, 9, 2, 1)))
    await states.initialize(key, 2, 5)
    await refused(ErrorCode.FENCED_STATE_EPOCH, states.write(key, change(3, 9)))
    await refused(ErrorCode.FENCED_STATE_EPOCH, states.initialize(key, 1, 0))
    assert await states.read(key, 3) == ShareState(2, 5), "nothing of the earlier state is left"
    await states.delete(key)
    await states.delete(key)
    await refused(ErrorCode.INVALID_REQUEST, states.read(key, 3))
    unknown = SharePartitionKey("work", bytes(15) + b"x", 0)
    await refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, states.initialize(unknown, 1, 0))
    await refused(ErrorCode.INVALID_REQUEST, states.initialize(key._replace(partition=-1), 1, 0))
    await states.initialize(key, 1, 0)
    await refused(ErrorCode.INVALID_REQUEST, states.write(key, change(0, 0, (9, 3, 2, 1))))


@on_cluster(
    **ALONE,
    share__coordinator__snapshot__update__records__per__snapshot="3",
    share__coordinator__state__topic__prune__interval__ms="20000",
    share__coordinator__cold__partition__snapshot__interval__ms="30000",
)
async def test_old_records_are_deleted_although_one_state_does_not_change(rig: Rig) -> None:
    topic_id = await rig.create("orders", partitions=2)
    busy, cold = (SharePartitionKey("work", topic_id, index) for index in range(2))
    states = store(rig, 1)
    await states.initialize(cold, 1, 0)
    await states.initialize(busy, 1, 0)
    await states.write(cold, change(0, 0, (5, 6, 2, 1)))
    for offset in range(1, 40):
        await states.write(busy, change(0, offset))
    log = rig.partition(1, TOPIC).log
    kinds = [
        type(decode_key(TYPES, record.key))
        for batch in log.batches(0)
        for record in decode_records(batch)
        if record.key is not None
    ]
    assert kinds.count(ShareSnapshotKey) == 2 + 9, "every fourth write of the busy one is a snapshot"
    await rig.until(lambda: log.log_start_offset > 0, seconds=100)
    assert log.log_start_offset > 30
    await rig.cluster.stop("broker-1")
    rig.cluster.start("broker-1")
    await rig.cluster.wait_ready()
    assert await store(rig, 1).read(cold, 0) == ShareState(1, 0, (StateBatch(5, 6, 2, 1),))
    assert await store(rig, 1).read(busy, 0) == ShareState(1, 39)


@on_cluster(**ALONE)
async def test_the_states_of_a_deleted_topic_are_deleted(rig: Rig) -> None:
    topic_id = await rig.create("orders", partitions=3)
    keys = [SharePartitionKey("work", topic_id, index) for index in range(3)]
    for key in keys:
        await store(rig, 1).initialize(key, 1, 0)
    before = rig.partition(1, TOPIC).log.log_end_offset
    await rig.ask(1, DeleteTopicsRequest(topics=[DeleteTopicState(name="orders")], timeout_ms=30_000))
    await rig.until(lambda: rig.partition(1, TOPIC).log.log_end_offset == before + 3)
    await refused(ErrorCode.INVALID_REQUEST, store(rig, 1).read(keys[0], 0))


@on_cluster(**ALONE)
async def test_find_coordinator_checks_the_key(rig: Rig) -> None:
    topic_id = await rig.create("orders")
    key = SharePartitionKey("a:b", topic_id, 0)
    await store(rig, 1).initialize(key, 1, 0)

    async def find(text: str, version: int = 6) -> tuple[int, int]:
        request = FindCoordinatorRequest(key_type=2, coordinator_keys=[text])
        (found,) = (await rig.ask(1, request, version)).coordinators
        return found.error_code, found.node_id

    assert SharePartitionKey.parse(key.coordinator_key) == key
    assert await find(key.coordinator_key) == (0, 1)
    assert await find(key.coordinator_key, 5) == (ErrorCode.INVALID_REQUEST, -1)
    for text in ("", "work", "work:x:0", " :" + key.coordinator_key.split(":", 2)[2], f"{key.coordinator_key}x"):
        assert await find(text) == (ErrorCode.INVALID_REQUEST, -1), text


@on_cluster(**ALONE)
async def test_a_request_without_a_group_or_partitions_gets_an_empty_answer(rig: Rig) -> None:
    assert (await rig.ask(1, WriteShareGroupStateRequest(group_id="work"))).results == []
    assert (await rig.ask(1, WriteShareGroupStateRequest())).results == []
