"""Stories of an administrator and groups of all types, for any cluster."""

from __future__ import annotations

import pytest
import trio

from barnabas.client.admin import (
    ConsumerGroupDescription,
    GroupState,
    GroupType,
    MemberToRemove,
    ShareGroupDescription,
)
from barnabas.client.errors import GroupIdNotFoundException, UnknownMemberIdException
from barnabas.client.metadata import TopicPartition
from tests.barnabas.client.admin.stage import Stage


async def groups_of_all_types(stage: Stage) -> None:
    admin = stage.admin
    topic = await stage.topic("read")
    classic, modern, shared, nobody = map(stage.name, ("classic", "modern", "shared", "nobody"))
    members = {
        classic: await stage.join(classic, topic, "i-1"),
        modern: await stage.join_modern(modern, topic),
        shared: await stage.join_share(shared, topic),
    }
    described = await admin.describe_groups([classic, modern, shared, nobody])
    assert list(described.errors) == [nobody]
    assert isinstance(described.errors[nobody], GroupIdNotFoundException)
    kinds = {name: type(it) for name, it in described.succeeded.items()}
    assert kinds == {
        classic: ConsumerGroupDescription,
        modern: ConsumerGroupDescription,
        shared: ShareGroupDescription,
    }
    for name, member in members.items():
        assert [it.member_id for it in described[name].members] == [member.member_id]

    listed = {it.group_id: it.type for it in await admin.list_groups() if it.group_id in members}
    assert listed == {classic: GroupType.CLASSIC, modern: GroupType.CONSUMER, shared: GroupType.SHARE}
    stable = {it.group_id for it in await admin.list_groups(states=[GroupState.STABLE])}
    assert members.keys() <= stable

    for name in (modern, shared):
        refused = await admin.remove_members(name, ["not-a-member"], raise_errors=False)
        assert [type(it) for it in refused.errors.values()] == [UnknownMemberIdException]
    assert list(await admin.remove_members(classic, "i-1")) == [MemberToRemove("i-1", members[classic].member_id)]
    assert list(await admin.remove_members(modern, members[modern].member_id)) == [
        MemberToRemove(None, members[modern].member_id)
    ]
    assert list(await admin.remove_members(shared)) == [MemberToRemove(member_id=members[shared].member_id)]
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
