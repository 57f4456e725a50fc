"""Stories of an administrator and groups of all types, for any cluster."""

from __future__ import annotations

import pytest
import trio

from barnabas.client.admin import (
    AlterConfigOp,
    ConfigResource,
    ConsumerGroupDescription,
    GroupState,
    GroupType,
    MemberToRemove,
    ResourceType,
    ShareGroupDescription,
    StreamsGroupDescription,
)
from barnabas.client.errors import GroupIdNotFoundException, GroupNotEmptyException, UnknownMemberIdException
from barnabas.client.metadata import TopicPartition
from tests.barnabas.client.admin.stage import Stage


async def groups_of_all_types(stage: Stage) -> None:
    admin = stage.admin
    topic = await stage.topic("read")
    classic, modern, shared = map(stage.name, ("classic", "modern", "shared"))
    streams, nobody = map(stage.name, ("streams", "nobody"))
    at_once = [AlterConfigOp("streams.initial.rebalance.delay.ms", "0")]
    await admin.incremental_alter_configs({ConfigResource(ResourceType.GROUP, streams): at_once})
    members = {
        classic: await stage.join(classic, topic, "i-1"),
        modern: await stage.join_modern(modern, topic),
        shared: await stage.join_share(shared, topic),
        streams: await stage.join_streams(streams, topic),
    }
    described = await admin.describe_groups([*members, nobody])
    assert list(described.errors) == [nobody]
    assert isinstance(described.errors[nobody], GroupIdNotFoundException)
    kinds = {name: type(it) for name, it in described.succeeded.items()}
    assert kinds == {
        classic: ConsumerGroupDescription,
        modern: ConsumerGroupDescription,
        shared: ShareGroupDescription,
        streams: StreamsGroupDescription,
    }
    for name, member in members.items():
        assert [it.member_id for it in described[name].members] == [member.member_id]

    listed = {it.group_id: it.type for it in await admin.list_groups() if it.group_id in members}
    assert listed == {
        classic: GroupType.CLASSIC,
        modern: GroupType.CONSUMER,
        shared: GroupType.SHARE,
        streams: GroupType.STREAMS,
    }
    stable = {it.group_id for it in await admin.list_groups(states=[GroupState.STABLE])}
    assert members.keys() - {streams} <= stable, "tasks are assigned with the next heartbeat"

    for name in (modern, shared, streams):
        refused = await admin.remove_members(name, ["not-a-member"], raise_errors=False)
        assert [type(it) for it in refused.errors.values()] == [UnknownMemberIdException]
    assert list(await admin.remove_members(classic, "i-1")) == [MemberToRemove("i-1", members[classic].member_id)]
    assert list(await admin.remove_members(modern, members[modern].member_id)) == [
        MemberToRemove(None, members[modern].member_id)
    ]
    for name in (shared, streams):
        assert list(await admin.remove_members(name)) == [MemberToRemove(member_id=members[name].member_id)]
    for name in members:
        assert (await admin.describe_groups(name))[name].members == ()
    await admin.delete_groups(list(members))
    assert set((await admin.describe_groups(list(members))).errors) == set(members)


async def lags(stage: Stage, *, in_time: bool) -> None:
    """`in_time`: brokers of this cluster report timestamps of records."""
    admin = stage.admin
    topic = await stage.topic("behind", 2)
    full, empty = TopicPartition(topic, 0), TopicPartition(topic, 1)
    for second in range(3):
        # One batch each: within a batch the time is interpolated.
        await stage.produce(full, [b"x"], at_ms=stage.now_ms + second * 1000)
    with trio.fail_after(10):
        while (await admin.list_partition_lags({full: 0}))[full].records < 3:
            await trio.sleep(0.05)
    found = await admin.list_partition_lags({full: 1, empty: 0})
    lag = found[full]
    assert (lag.end_offset, lag.records) == (3, 2)
    assert lag.oldest_ms == (stage.now_ms + 1000 if in_time else None)
    assert lag.seconds(stage.now_ms + 5000) == (4.0 if in_time else None)
    assert (found[empty].records, found[empty].seconds(stage.now_ms)) == (0, 0.0)
    at_the_end = (await admin.list_partition_lags({full: 3}))[full]
    assert (at_the_end.records, at_the_end.seconds(stage.now_ms)) == (0, 0.0)
    missing = TopicPartition(stage.name("missing"), 0)
    with pytest.raises(LookupError):
        (await admin.list_partition_lags({full: 1}))[missing]


async def offsets_of_streams_groups(stage: Stage) -> None:
    """Committed, listed and deleted as those of consumers."""
    admin = stage.admin
    topic, group = await stage.topic("read"), stage.name("streams")
    partition = TopicPartition(topic, 0)
    at_once = [AlterConfigOp("streams.initial.rebalance.delay.ms", "0")]
    await admin.incremental_alter_configs({ConfigResource(ResourceType.GROUP, group): at_once})
    await stage.join_streams(group, topic)
    with pytest.raises(UnknownMemberIdException):
        await admin.alter_streams_group_offsets(group, {partition: 3})
    with pytest.raises(GroupNotEmptyException):
        await admin.delete_groups(group)
    await admin.remove_members(group)
    await admin.alter_streams_group_offsets(group, {partition: 3})
    found = (await admin.list_streams_group_offsets(group))[group][partition]
    assert found is not None
    assert found.offset == 3
    await admin.delete_streams_group_offsets(group, partition)
    assert (await admin.list_streams_group_offsets({group: [partition]}))[group] == {partition: None}
    await admin.delete_groups(group)
    assert (await admin.describe_groups(group)).errors.keys() == {group}
