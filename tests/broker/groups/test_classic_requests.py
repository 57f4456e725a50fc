"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup over the wire: to a single broker, and to three of which one is
killed.
"""

from __future__ import annotations

from typing import Any

import pytest
import trio

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from barnabas.protocol.schema import Message
from barnabas.runtime.channel import Channel, ChannelError
from tests.broker.apis.rig import Rig, on_cluster
from tests.broker.groups.classic_shell import subscription

GROUP = "readers"
RETRIED = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.REBALANCE_IN_PROGRESS,
}


async def coordinator(rig: Rig, asked: int = 1) -> int:
    """The coordinator's node according to that broker; waits until there is one."""
    while True:
        answer = await rig.ask(asked, FindCoordinatorRequest(coordinator_keys=[GROUP]))
        (found,) = answer.coordinators
        if found.error_code == ErrorCode.NONE:
            return int(found.node_id)
        await trio.sleep(0.1)


def join_request(member_id: str = "", instance_id: str | None = None, **changes: Any) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=changes.pop("group_id", GROUP),
        session_timeout_ms=changes.pop("session_timeout_ms", 10_000),
        rebalance_timeout_ms=20_000,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription("news"))],
    )


async def patiently(rig: Rig, node: int, request: Message, version: int | None = None) -> Any:
    """The answer of a coordinator that may be loading."""
    while True:
        answer = await rig.ask(node, request, version)
        if answer.error_code not in RETRIED:
            return answer
        await trio.sleep(0.1)


@pytest.mark.feature("CG-06", "CG-07", "CG-09")
@pytest.mark.parametrize("age", ["oldest", "old", "newest"])
@on_cluster(offsets__topic__num__partitions="2", offsets__topic__replication__factor="1")
async def test_a_member_joins_syncs_sends_heartbeats_and_leaves(rig: Rig, age: str) -> None:
    join, sync, heartbeat, leave = {"oldest": (0, 0, 0, 0), "old": (4, 2, 2, 2), "newest": (9, 5, 4, 5)}[age]
    node = await coordinator(rig)
    answer = await patiently(rig, node, join_request(), join)
    if join >= 4:
        assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
        answer = await rig.ask(node, join_request(answer.member_id), join)
    member_id = answer.member_id
    assert answer.error_code == ErrorCode.NONE and answer.leader == member_id
    assert member_id.startswith("story-") and answer.generation_id == 1
    part = SyncGroupRequestAssignment(member_id=member_id, assignment=b"all")
    request = SyncGroupRequest(group_id=GROUP, generation_id=1, member_id=member_id, assignments=[part])
    answer = await rig.ask(node, request, sync)
    assert (answer.error_code, answer.assignment) == (ErrorCode.NONE, b"all")
    alive = HeartbeatRequest(group_id=GROUP, generation_id=1, member_id=member_id)
    for _ in range(4):
        await trio.sleep(6)
        assert (await rig.ask(node, alive, heartbeat)).error_code == ErrorCode.NONE
    going = LeaveGroupRequest(group_id=GROUP, member_id=member_id)
    if leave >= 3:
        going = LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id=member_id)])
    assert (await rig.ask(node, going, leave)).error_code == ErrorCode.NONE
    assert (await rig.ask(node, alive, heartbeat)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    again = await rig.ask(node, going, leave)
    assert (again.members[0] if leave >= 3 else again).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    group = rig.broker(node).groups.shard(GROUP).machine.classic.find(GROUP)
    assert group is not None and group.state_name() == "Empty"


@pytest.mark.feature("CG-06")
@on_cluster(brokers=3, offsets__topic__num__partitions="2")
async def test_requests_that_fail_validation(rig: Rig) -> None:
    node = await coordinator(rig)
    refused = await patiently(rig, node, join_request(session_timeout_ms=1))
    assert refused.error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    other = node % 3 + 1
    requests: list[Message] = [
        join_request("m"),
        SyncGroupRequest(group_id=GROUP),
        HeartbeatRequest(group_id=GROUP),
        LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id="m")]),
    ]
    for request in requests:
        answer = await rig.ask(other, request)
        assert answer.error_code == ErrorCode.NOT_COORDINATOR
        request.group_id = ""  # type: ignore[attr-defined]
        answer = await rig.ask(node, request)
        assert answer.error_code == ErrorCode.INVALID_GROUP_ID
    answer = await rig.ask(other, join_request("m"))
    assert answer.member_id == "m", "also an error says whom it is for"


@pytest.mark.feature("CG-12", "CG-10")
@on_cluster(brokers=3, offsets__topic__num__partitions="2", group__initial__rebalance__delay__ms="100")
async def test_the_coordinator_is_killed_while_members_join(rig: Rig) -> None:
    """One of two static members waits for the other when the coordinator is killed; the next coordinator has their
    generation.
    """
    node = await coordinator(rig)
    joined: dict[str, Any] = {}

    async with trio.open_nursery() as nursery:
        nursery.start_soon(join_of_its_own, rig, node, "a", joined)
        nursery.start_soon(join_of_its_own, rig, node, "b", joined)
    leader = next(answer for answer in joined.values() if answer.leader == answer.member_id)
    parts = [
        SyncGroupRequestAssignment(member_id=member.member_id, assignment=(member.group_instance_id or "").encode())
        for member in leader.members
    ]
    assert len(parts) == 2
    request = SyncGroupRequest(
        group_id=GROUP, generation_id=leader.generation_id, member_id=leader.member_id, assignments=parts
    )
    assert (await rig.ask(node, request)).error_code == ErrorCode.NONE

    hung_up = trio.Event()

    async def wait_in_vain() -> None:
        with pytest.raises(ChannelError):
            await rig.channel(node).call(join_request(leader.member_id), timeout_ms=60_000)
        hung_up.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait_in_vain)
        group = rig.broker(node).groups.shard(GROUP).machine.classic.find(GROUP)
        assert group is not None
        await rig.until(lambda: group.state_name() == "PreparingRebalance")
        rig.cluster.kill(rig.name(node))
        await hung_up.wait()

    survivor = node % 3 + 1
    next_node = await other_coordinator(rig, survivor, node)
    for instance_id, answer in joined.items():
        alive = HeartbeatRequest(
            group_id=GROUP,
            generation_id=answer.generation_id,
            member_id=answer.member_id,
            group_instance_id=instance_id,
        )
        assert (await patiently(rig, next_node, alive)).error_code == ErrorCode.NONE, "nobody has to join again"
        request = SyncGroupRequest(group_id=GROUP, generation_id=answer.generation_id, member_id=answer.member_id)
        assert (await rig.ask(next_node, request)).assignment == instance_id.encode()


async def other_coordinator(rig: Rig, asked: int, before: int) -> int:
    """The coordinator after `before`, according to another broker."""
    with trio.fail_after(60):
        while (found := await coordinator(rig, asked)) == before:
            await trio.sleep(0.1)
    return found


async def join_of_its_own(rig: Rig, node: int, instance_id: str, joined: dict[str, Any]) -> None:
    """A JoinGroup over a separate connection, until it succeeds."""
    channel: Channel = rig.channel(node)
    while True:
        answer = await channel.call(join_request(instance_id=instance_id), timeout_ms=60_000)
        if answer.error_code not in RETRIED:
            break
        await trio.sleep(0.1)
    joined[instance_id] = answer
    channel.close()
