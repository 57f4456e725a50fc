"""The disk under a coordinator fails in the middle of a command: the append takes the partition with it."""

from __future__ import annotations

from functools import partial

import pytest

from barnabas.broker.coordinator.outcome import Now, Outcome
from barnabas.broker.coordinator.shard import Shard, ShardState
from barnabas.broker.groups.group import Client
from barnabas.broker.groups.machine import GroupMachine
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.broker.apis.rig import Rig, on_cluster
from tests.broker.coordinator.test_coordinator import TOPIC, Answers, Counter, coordinate

GROUP = "readers"
WHO = Client("c", "/127.0.0.1")
on_a_cluster = on_cluster(brokers=3, offsets__topic__num__partitions="1", group__initial__rebalance__delay__ms="0")


def joining(group: str, member_id: str = "") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def break_disk(rig: Rig, node: int) -> None:
    """The broker's only one, so it is about to stop."""
    rig.cluster.on_failure = lambda name, error: None
    rig.universe.disk(rig.name(node)).fail("write")


async def group_shard(rig: Rig) -> tuple[int, Shard[GroupMachine]]:
    """Node and shard of the groups."""
    await rig.create("__consumer_offsets", partitions=1, replicas=3)
    await rig.until(lambda: rig.leader("__consumer_offsets") > 0)
    node = rig.leader("__consumer_offsets")
    shards = rig.broker(node).groups
    await rig.until(lambda: shards.shards and shards.shards[0].state is ShardState.ACTIVE)
    return node, shards.shard(GROUP)


@pytest.mark.feature("CG-12", "RE-18")
@on_cluster(brokers=3)
async def test_a_dropped_machine_undoes_nothing(rig: Rig) -> None:
    coordinators = {node: coordinate(rig, node) for node in (1, 2, 3)}
    await rig.create(TOPIC, partitions=1, replicas=3)
    await rig.until(lambda: rig.leader(TOPIC) > 0 and coordinators[rig.leader(TOPIC)].shards)
    shard = coordinators[rig.leader(TOPIC)].shards[0]
    await rig.until(lambda: shard.state is ShardState.ACTIVE)
    answers = Answers()
    undone: list[KafkaError] = []
    counted, waits = answers.reply("counted"), answers.reply("waits")
    shard.run(partial(shard.machine.wait, waits), waits)

    def undo(error: KafkaError) -> Outcome:
        undone.append(error)
        return Outcome()

    def count(machine: Counter, now: Now) -> Outcome:
        outcome = machine.count("a", counted, None, now)
        outcome.failed = undo
        return outcome

    node = rig.leader(TOPIC)
    break_disk(rig, node)
    shard.run(partial(count, shard.machine), counted)
    assert shard.state is ShardState.GONE
    assert answers.got == {"counted": ErrorCode.NOT_COORDINATOR, "waits": ErrorCode.NOT_COORDINATOR}
    assert not undone
    await rig.cluster.node_of(node).ended.wait()


@pytest.mark.feature("CG-07", "CG-12", "RE-18")
@on_a_cluster
async def test_the_disk_fails_during_an_assignment(rig: Rig) -> None:
    node, shard = await group_shard(rig)
    answers, classic = Answers(), shard.machine.classic
    # In version 3 a member joins without MEMBER_ID_REQUIRED.
    for name in ("anna", "ben"):
        joined = answers.reply(name)
        shard.run(partial(classic.join, joining(GROUP), WHO, 3, joined), joined)
        if name == "anna":
            await rig.until(partial(answers.has, name))
    first = answers.got["anna"].member_id
    again = answers.reply("anna again")
    shard.run(partial(classic.join, joining(GROUP, first), WHO, 3, again), again)
    await rig.until(lambda: answers.has("ben") and answers.has("anna again"))
    generation = answers.got["ben"].generation_id
    assert generation == answers.got["anna again"].generation_id

    follower = answers.reply("ben syncs")
    asked = SyncGroupRequest(group_id=GROUP, generation_id=generation, member_id=answers.got["ben"].member_id)
    shard.run(partial(classic.sync, asked, WHO, 5, follower), follower)
    leader = answers.reply("anna syncs")
    part = SyncGroupRequestAssignment(member_id=first, assignment=b"all")
    asked = SyncGroupRequest(group_id=GROUP, generation_id=generation, member_id=first, assignments=[part])
    break_disk(rig, node)
    shard.run(partial(classic.sync, asked, WHO, 5, leader), leader)
    assert shard.state is ShardState.GONE
    assert answers.got["ben syncs"] == answers.got["anna syncs"] == ErrorCode.NOT_COORDINATOR
    await rig.cluster.node_of(node).ended.wait()


@pytest.mark.feature("CG-06", "CG-12", "RE-18")
@on_a_cluster
async def test_the_disk_fails_while_a_group_is_created(rig: Rig) -> None:
    node, shard = await group_shard(rig)
    answers = Answers()
    break_disk(rig, node)
    joined = answers.reply("joined")
    # `Answers` fails on a second answer: once as a waiting member, once as the creator of the group.
    shard.run(partial(shard.machine.classic.join, joining(GROUP), WHO, 3, joined), joined)
    assert shard.state is ShardState.GONE
    assert answers.got == {"joined": ErrorCode.NOT_COORDINATOR}
    await rig.cluster.node_of(node).ended.wait()
