"""Each step of a ShareFetch or a ShareAcknowledge is short, whatever it names."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from barnabas.broker.apis.share_state import MOST_BATCHES
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import alter_share_group_offsets as alter
from barnabas.protocol.messages import delete_share_group_offsets as delete
from barnabas.protocol.messages import describe_share_group_offsets as describe
from barnabas.protocol.messages import write_share_group_state as write
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.schema import Message
from simulation.invariants.work import MOST_CALLS
from tests.broker.apis.rig import Rig, batch_of, on_cluster
from tests.broker.shares.share_rig import ALONE, GROUP_RESOURCE, Member, begin, start_offset

pytestmark = pytest.mark.feature("CG-19", "RP-02")

ACCEPT, RELEASE = 1, 2
MANY = 6_000
GROUPS_ALONE = {"offsets__topic__replication__factor": "1", "offsets__topic__num__partitions": "1"}


def largest_step(rig: Rig, api: str) -> int:
    return max(rig.steps[api])


@on_cluster(counts_work=True, **ALONE)
async def test_a_share_fetch_of_many_partitions_waits_for_records(rig: Rig) -> None:
    topic_id = await rig.create("t", 300)
    await begin(rig, topic_id, partitions=300)
    one = Member(rig, "one", topic_id)
    await one.ask(partitions=range(300), max_wait_ms=2_000)
    answers: list[Any] = []

    async def ask() -> None:
        answers.append(await one.ask(partitions=(), max_wait_ms=30_000))

    rig.nursery.start_soon(ask)
    await rig.until(lambda: rig.broker(1).shares.partitions.fetches.delayed)
    before = trio.current_time()
    await rig.produce("t", index=200)
    await rig.until(lambda: answers)
    assert trio.current_time() - before < 5, "the record ends the wait"
    (topic,) = answers[0].responses
    assert [it.partition_index for it in topic.partitions] == [200]
    assert largest_step(rig, "ShareFetch") < MOST_CALLS


@on_cluster(counts_work=True, **ALONE)
async def test_a_batch_of_many_records_is_acknowledged_one_by_one(rig: Rig) -> None:
    count = 4_000
    topic_id = await rig.create("t")
    await begin(rig, topic_id)
    await rig.configure(GROUP_RESOURCE, "work", share_delivery_count_limit="10")
    await rig.produce("t", batch_of(*[b""] * count))
    one = Member(rig, "one", topic_id)
    assert await one.until_taken(max_records=1) == [(0, count - 1, 1)]
    assert await one.acknowledged((0, count - 1, [ACCEPT, RELEASE] * (count // 2))) == 0
    assert start_offset(rig.broker(1), topic_id) == 1
    again: list[tuple[int, int, int]] = []
    while more := await one.take(max_records=count):
        again += more
    assert again == [(each, each, 2) for each in range(1, count, 2)]
    assert largest_step(rig, "ShareAcknowledge") < MOST_CALLS
    assert largest_step(rig, "ShareFetch") < MOST_CALLS


@on_cluster(counts_work=True, **ALONE)
async def test_a_fetch_of_one_record_looks_at_one_of_many_partitions(rig: Rig) -> None:
    partitions = 40
    topic_id = await rig.create("t", partitions)
    await begin(rig, topic_id, partitions=partitions)
    for index in range(partitions):
        await rig.produce("t", index=index)
    one = Member(rig, "one", topic_id)
    await one.ask(partitions=range(partitions), max_records=0)
    await one.ask(partitions=(), max_records=1, share_acquire_mode=1, max_wait_ms=5_000)
    seen: list[int] = []
    rig.steps["ShareFetch"].clear()
    for _ in range(20):
        response = await one.ask(partitions=(), max_records=1, share_acquire_mode=1, max_wait_ms=5_000)
        seen += [data.partition_index for topic in response.responses for data in topic.partitions if data.records]
    assert len(set(seen)) == 20, "each has its turn"
    assert sum(rig.steps["ShareFetch"]) / 20 < 1_500


def asked_about(topics: dict[str, list[int]]) -> describe.DescribeShareGroupOffsetsRequestGroup:
    wanted = [
        describe.DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=indexes)
        for name, indexes in topics.items()
    ]
    return describe.DescribeShareGroupOffsetsRequestGroup(group_id="work", topics=wanted)


async def in_steps(rig: Rig, api: str, request: Message, version: int) -> Any:
    """The answer, which takes many short steps."""
    rig.steps.pop(api, None)
    answer = await rig.ask(1, request, version)
    assert len(rig.steps[api]) > 5
    assert largest_step(rig, api) < MOST_CALLS
    return answer


async def coordinated(rig: Rig) -> None:
    await rig.ask(1, FindCoordinatorRequest(key_type=0, coordinator_keys=["work"]), 4)
    await rig.until(lambda: rig.broker(1).groups.shards)
    for shard in rig.broker(1).groups.shards:
        await rig.until(lambda shard=shard: shard.loaded_in_ms is not None)


@on_cluster(counts_work=True, **ALONE, **GROUPS_ALONE)
async def test_offsets_of_very_many_partitions_are_described(rig: Rig) -> None:
    topic_id = await rig.create("t", 2)
    await begin(rig, topic_id, partitions=2)
    await coordinated(rig)
    api, many = "DescribeShareGroupOffsets", list(range(MANY))
    for name in ("t", "nothing"):
        request = describe.DescribeShareGroupOffsetsRequest(groups=[asked_about({name: [*many, *many]})])
        answer = await in_steps(rig, api, request, 1)
        partitions = answer.groups[0].topics[0].partitions
        assert [it.partition_index for it in partitions] == many, "each is answered once"
        assert [it.start_offset for it in partitions] == [0 if name == "t" and it < 2 else -1 for it in many]
    groups = [asked_about({}) for _ in many]
    for number, group in enumerate(groups):
        group.group_id = f"g{number}"
    answer = await in_steps(rig, api, describe.DescribeShareGroupOffsetsRequest(groups=groups), 1)
    assert [(it.group_id, it.error_code) for it in answer.groups] == [(f"g{number}", 0) for number in many]


@on_cluster(counts_work=True, **ALONE, **GROUPS_ALONE)
async def test_offsets_of_very_many_topics_are_altered_and_deleted(rig: Rig) -> None:
    await coordinated(rig)
    names = [f"t{number}" for number in range(MANY)]
    partition = alter.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=0)
    altering = alter.AlterShareGroupOffsetsRequest(
        group_id="work",
        topics=[alter.AlterShareGroupOffsetsRequestTopic(topic_name=it, partitions=[partition]) for it in names],
    )
    altered = await in_steps(rig, "AlterShareGroupOffsets", altering, 0)
    assert [it.topic_name for it in altered.responses] == names
    codes = {it.error_code for topic in altered.responses for it in topic.partitions}
    assert codes == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    deleting = delete.DeleteShareGroupOffsetsRequest(
        group_id="work", topics=[delete.DeleteShareGroupOffsetsRequestTopic(topic_name=it) for it in names]
    )
    deleted = await in_steps(rig, "DeleteShareGroupOffsets", deleting, 0)
    assert [it.topic_name for it in deleted.responses] == names
    assert {it.error_code for it in deleted.responses} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def writing(topic_id: bytes, batches: int, place: int) -> write.WriteShareGroupStateRequest:
    """Batches that touch none of another place, the last ones first."""
    some = [
        write.StateBatch(first_offset=20 * it + place, last_offset=20 * it + place, delivery_state=2, delivery_count=1)
        for it in reversed(range(batches))
    ]
    data = write.PartitionData(partition=0, state_epoch=1, leader_epoch=0, state_batches=some)
    topics = [write.WriteStateData(topic_id=topic_id, partitions=[data])]
    return write.WriteShareGroupStateRequest(group_id="work", topics=topics)


@on_cluster(counts_work=True, **ALONE)
async def test_a_state_has_a_bounded_number_of_batches(rig: Rig) -> None:
    topic_id = await rig.create("t")
    await begin(rig, topic_id)
    codes = []
    for place, batches in enumerate((5_000, 5_000, MOST_BATCHES + 1, 5_000, 4_000, 5_000)):
        answer = await rig.ask(1, writing(topic_id, batches, 2 * place), 1)
        codes.append(answer.results[0].partitions[0].error_code)
    refused = ErrorCode.INVALID_REQUEST
    assert codes == [0, 0, refused, 0, 0, refused]
    assert largest_step(rig, "WriteShareGroupState") < MOST_CALLS
