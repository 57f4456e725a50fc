"""Scenarios of coordinators that are cut off from all nodes, and not from their clients."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import trio

from barnabas.broker.coordinator.coordinator import partition_for
from barnabas.broker.internal_topics import GROUP_TOPIC, TRANSACTION_TOPIC
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from barnabas.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest
from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest
from barnabas.protocol.messages.describe_transactions import DescribeTransactionsRequest
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.protocol.messages.list_groups import ListGroupsRequest
from barnabas.protocol.messages.list_transactions import ListTransactionsRequest
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from barnabas.protocol.messages.sync_group import SyncGroupRequest
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from barnabas.protocol.schema import Message, Struct
from barnabas.runtime.channel import ChannelError
from scenarios.stage import Stage, Violation, came_about, holds

TOPIC = "t"
GROUP = "g"
"""The name of the transactional id, too."""
SESSION_SECONDS = 3.0
"""Session of brokers, on every stage."""
ASIDE = "aside"
"""The client that is left with the broker that is cut off."""
REFUSED = {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}


async def _coordinators(stage: Stage) -> None:
    """From now on there are coordinators of both kinds, whole."""
    await stage.create_topic(TOPIC)
    for kind, topic in ((0, GROUP_TOPIC), (1, TRANSACTION_TOPIC)):
        await stage.ask(stage.brokers[0], FindCoordinatorRequest(key=GROUP, key_type=kind), version=2)
        for index in range(3):
            await stage.until(partial(_all_in_sync, stage, topic, index), f"{topic}-{index} is in sync")


def _all_in_sync(stage: Stage, topic: str, index: int) -> bool:
    return len(stage.isr(topic, index)) == 3


def _index(stage: Stage) -> int:
    """The partition that is responsible for GROUP, of either topic."""
    index = stage.broker(stage.brokers[0]).groups.partition_of(GROUP)
    assert index is not None
    return index


def _commit(number: int, group_id: str = GROUP) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=number, committed_metadata="")
    topics = [OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])]
    return OffsetCommitRequest(group_id=group_id, generation_id_or_member_epoch=-1, topics=topics)


async def _commit_at(stage: Stage, node: str, number: int, host: str) -> None:
    """Until it is acknowledged."""
    with trio.fail_after(30):
        while True:
            answer = await stage.ask(node, _commit(number), host=host, version=7)
            if answer.topics[0].partitions[0].error_code == ErrorCode.NONE:
                return
            await trio.sleep(0.1)


def _fetch_offsets(*, stable: bool) -> OffsetFetchRequest:
    topics = [OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])]
    return OffsetFetchRequest(group_id=GROUP, topics=topics, require_stable=stable)


def _questions_of_groups() -> list[tuple[Message, int]]:
    """(request, version) of all that a group's coordinator is asked."""
    offset = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=9)
    protocol = JoinGroupRequestProtocol(name="range")
    return [
        (_fetch_offsets(stable=True), 7),
        (_fetch_offsets(stable=False), 7),
        (_commit(9), 7),
        (HeartbeatRequest(group_id=GROUP, generation_id=1, member_id="m"), 4),
        (
            JoinGroupRequest(group_id=GROUP, session_timeout_ms=6_000, protocol_type="consumer", protocols=[protocol]),
            7,
        ),
        (SyncGroupRequest(group_id=GROUP, generation_id=1, member_id="m"), 5),
        (LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id="m")]), 4),
        (DescribeGroupsRequest(groups=[GROUP]), 5),
        (ListGroupsRequest(), 4),
        (DeleteGroupsRequest(groups_names=[GROUP]), 2),
        (
            OffsetDeleteRequest(
                group_id=GROUP,
                topics=[
                    OffsetDeleteRequestTopic(name=TOPIC, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
                ],
            ),
            0,
        ),
        (ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id="m", member_epoch=1), 0),
        (ConsumerGroupDescribeRequest(group_ids=[GROUP]), 0),
        (
            TxnOffsetCommitRequest(
                transactional_id=GROUP,
                group_id=GROUP,
                producer_id=1,
                producer_epoch=0,
                topics=[TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[offset])],
            ),
            3,
        ),
    ]


def _questions_of_transactions() -> list[tuple[Message, int]]:
    stamp: dict[str, Any] = {"transactional_id": GROUP, "producer_id": 1, "producer_epoch": 0}
    return [
        (InitProducerIdRequest(transactional_id=GROUP, transaction_timeout_ms=6_000), 4),
        (
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=GROUP,
                v3_and_below_producer_id=1,
                v3_and_below_producer_epoch=0,
                v3_and_below_topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])],
            ),
            3,
        ),
        (AddOffsetsToTxnRequest(**stamp, group_id=GROUP), 3),
        (EndTxnRequest(**stamp, committed=True), 3),
        (DescribeTransactionsRequest(transactional_ids=[GROUP]), 0),
        (ListTransactionsRequest(), 0),
    ]


def _codes(answer: Any) -> Iterator[ErrorCode]:
    """All errors that an answer names."""
    if isinstance(answer, list):
        for each in answer:
            yield from _codes(each)
    elif isinstance(answer, Struct):
        for field in answer.FIELDS:
            value = getattr(answer, field.name)
            if field.name in ("error_code", "partition_error_code"):
                yield ErrorCode(value)
            else:
                yield from _codes(value)


async def _all_refuse(stage: Stage, node: str, questions: list[tuple[Message, int]]) -> None:
    for request, version in questions:
        name = type(request).__name__
        try:
            answer = await stage.ask(node, request, host=ASIDE, version=version)
        except ChannelError as error:
            raise Violation(f"{node} was deposed, and does not answer so: {name}: {error}") from None
        codes = set(_codes(answer)) - {ErrorCode.NONE}
        holds(codes and codes <= REFUSED, f"{node} was deposed, and answers {name} with {answer}")


async def cut_off_coordinator(stage: Stage) -> None:
    """The coordinator of a group loses controllers and brokers, but not a client. Another one takes commits: what the
    old one knows is old, and it answers nothing."""
    await _coordinators(stage)
    index = _index(stage)
    old = stage.leader(GROUP_TOPIC, index)
    await _commit_at(stage, old, 7, "fresh")
    stage.world_of(ASIDE)
    stage.isolate(old, but=[ASIDE])
    await stage.until(lambda: stage.leader(GROUP_TOPIC, index) not in ("", old), "another coordinates")
    new = stage.leader(GROUP_TOPIC, index)
    await _commit_at(stage, new, 8, "fresh")
    await trio.sleep(2 * SESSION_SECONDS)
    came_about(stage.replica_of(old, GROUP_TOPIC, index).is_leader, "the old one does not know it")
    await _all_refuse(stage, old, _questions_of_groups())
    found = await stage.ask(old, FindCoordinatorRequest(key=GROUP, key_type=0), host=ASIDE, version=2)
    holds(found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE, f"it names node {found.node_id}")
    stage.mend()
    await stage.whole(TOPIC)
    answer = await stage.ask(new, _fetch_offsets(stable=True), host="fresh", version=7)
    offset = answer.topics[0].partitions[0].committed_offset
    holds(offset == 8, f"the group has {offset}, and 8 was acknowledged")


async def cut_off_transactions(stage: Stage) -> None:
    """The same for the coordinator of a transactional id."""
    await _coordinators(stage)
    index = _index(stage)
    old = stage.leader(TRANSACTION_TOPIC, index)
    stage.world_of(ASIDE)
    stage.isolate(old, but=[ASIDE])
    await stage.until(lambda: stage.leader(TRANSACTION_TOPIC, index) not in ("", old), "another coordinates")
    await trio.sleep(2 * SESSION_SECONDS)
    came_about(stage.replica_of(old, TRANSACTION_TOPIC, index).is_leader, "the old one does not know it")
    await _all_refuse(stage, old, _questions_of_transactions())
    found = await stage.ask(old, FindCoordinatorRequest(key=GROUP, key_type=1), host=ASIDE, version=2)
    holds(found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE, f"it names node {found.node_id}")
    stage.mend()
    await stage.whole(TOPIC)


async def member_of_a_cut_off_coordinator(stage: Stage) -> None:
    """Requests that wait there, for the group or for the replicas, are answered before their own timeout."""
    await _coordinators(stage)
    index = _index(stage)
    old = stage.leader(GROUP_TOPIC, index)
    joining = JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=60_000,
        rebalance_timeout_ms=120_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range")],
    )
    first = await stage.ask(old, joining, host=ASIDE, version=3)
    came_about(first.error_code == ErrorCode.NONE, f"somebody is a member: {first}")
    stage.world_of("beside")
    answered: dict[str, tuple[ErrorCode, float]] = {}

    async def ask(name: str, host: str, request: Message, version: int) -> None:
        answer = await stage.ask(old, request, host=host, version=version, timeout_ms=100_000)
        answered[name] = (next(code for code in _codes(answer)), trio.current_time())

    async with trio.open_nursery() as nursery:
        # A second member joins, and waits for the first to come again.
        nursery.start_soon(ask, "the member", "beside", joining, 3)
        await trio.sleep(0.5)
        came_about(not answered, "it waits for the rebalance")
        began = trio.current_time()
        stage.isolate(old, but=[ASIDE, "beside"])
        # No follower replicates this.
        beside = next(name for name in map(str, range(1000)) if partition_for(name, 3) == index)
        nursery.start_soon(ask, "the commit", ASIDE, _commit(7, beside), 7)
        await stage.until(lambda: len(answered) == 2, "both are answered", 100)
    for name, (code, at) in answered.items():
        holds(code is ErrorCode.NOT_COORDINATOR, f"{name} gets {code.name}")
        holds(at - began < 2 * SESSION_SECONDS, f"{name} waited {at - began:.1f} s")
    stage.mend()
    await stage.whole(TOPIC)


async def groups_without_controllers(stage: Stage) -> None:
    """The near misses: while followers fetch, a coordinator goes on without any controller; and one that reached no
    node for a while, and was not replaced, coordinates again with all that it had."""
    await _coordinators(stage)
    index = _index(stage)
    leader = stage.leader(GROUP_TOPIC, index)
    await _commit_at(stage, leader, 1, "fresh")
    stage.kill(*stage.controllers)
    await trio.sleep(5 * SESSION_SECONDS)
    for number in (2, 3):
        answer = await stage.ask(leader, _commit(number), host="fresh", version=7)
        code = ErrorCode(answer.topics[0].partitions[0].error_code)
        holds(code is ErrorCode.NONE, f"without controllers nobody commits: {code.name}")
    found = await stage.ask(leader, FindCoordinatorRequest(key=GROUP, key_type=0), host="fresh", version=2)
    holds(found.node_id == stage.id_of(leader), f"without controllers nobody is the coordinator: {found}")
    stage.world_of(ASIDE)
    stage.isolate(leader, but=[ASIDE])
    await trio.sleep(2 * SESSION_SECONDS)
    await _all_refuse(stage, leader, [(_fetch_offsets(stable=True), 7)])
    stage.mend()

    async def offset() -> int:
        with suppress(ChannelError, IndexError):
            answer = await stage.ask(leader, _fetch_offsets(stable=True), host=ASIDE, version=7)
            return int(answer.topics[0].partitions[0].committed_offset)
        return -1

    with trio.move_on_after(3 * SESSION_SECONDS):
        while await offset() < 0:
            await trio.sleep(0.1)
    holds(await offset() == 3, f"the coordinator that reaches its followers again has {await offset()}, and not 3")
    stage.start(*stage.controllers)
    await stage.whole(TOPIC)
