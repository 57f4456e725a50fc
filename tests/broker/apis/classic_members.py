"""Consumers with the classic protocol that live in a simulated cluster: they join, sync, send heartbeats and commit."""

from __future__ import annotations

import trio

from barnabas.protocol.embedded_consumer import read_assignment, write_assignment, write_subscription
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from barnabas.protocol.schema import Message
from barnabas.runtime.channel import Channel, ChannelError
from tests.broker.apis.rig import Rig

HEARTBEAT_SECONDS = 1.0
RETRY_SECONDS = 0.1
SESSION_MS = 10_000
IS_UNKNOWN = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID)


async def coordinator(rig: Rig, group: str) -> int:
    """The coordinator of the group, as soon as there is one."""
    while True:
        up = [node.node.id for node in rig.cluster.brokers if node.broker is not None]
        try:
            response = await rig.ask(up[0], FindCoordinatorRequest(coordinator_keys=[group]))
        except ChannelError:
            await trio.sleep(RETRY_SECONDS)
            continue
        (found,) = response.coordinators
        if found.error_code == ErrorCode.NONE and found.node_id in up:
            return int(found.node_id)
        await trio.sleep(RETRY_SECONDS)


class ClassicConsumer:
    """One member. With each heartbeat it commits the next offset of each partition that it has."""

    def __init__(self, rig: Rig, group: str, topic: str, partitions: int, committed: dict[int, int]) -> None:
        """`committed` has the highest offset of each partition whose commit was acknowledged, to any member."""
        self._rig = rig
        self._group = group
        self._topic = topic
        self._partitions = partitions
        self._committed = committed
        self._channels: dict[int, Channel] = {}
        self.member_id = ""
        self.generation = -1
        self.owned: list[int] = []
        self.refused: list[ErrorCode] = []
        """Errors that a stock client does not expect, or that end it."""
        self.restarts = 0
        """How many times it was unknown and began again as a new member."""

    async def live(self) -> None:
        while True:
            try:
                await (self._join() if self.generation < 0 else self._work())
            except ChannelError:
                await trio.sleep(RETRY_SECONDS)

    async def _ask(self, request: Message, version: int) -> object:
        node = await coordinator(self._rig, self._group)
        channel = self._channels.get(node)
        if channel is None or not channel.connected:
            channel = self._channels[node] = self._rig.channel(node)
        return await channel.call(request, timeout_ms=120_000, version=version)

    async def _join(self) -> None:
        metadata = write_subscription(ConsumerProtocolSubscription(topics=[self._topic]))
        request = JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=SESSION_MS,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
        )
        joined = await self._ask(request, 7)
        code = ErrorCode(joined.error_code)  # type: ignore[attr-defined]
        if code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self.member_id = joined.member_id  # type: ignore[attr-defined]
        elif code in IS_UNKNOWN:
            self._forget_membership()
        else:
            await trio.sleep(RETRY_SECONDS)
        if code is ErrorCode.NONE:
            self.generation = joined.generation_id  # type: ignore[attr-defined]
            await self._sync(joined)

    async def _sync(self, joined: object) -> None:
        ids = [member.member_id for member in joined.members]  # type: ignore[attr-defined]
        request = SyncGroupRequest(
            group_id=self._group,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[
                SyncGroupRequestAssignment(
                    member_id=member_id,
                    assignment=write_assignment({self._topic: list(range(self._partitions))[place :: len(ids)]}, 1),
                )
                for place, member_id in enumerate(ids)
            ],
        )
        answer = await self._ask(request, 5)
        if self._goes_on(ErrorCode(answer.error_code)):  # type: ignore[attr-defined]
            assigned = read_assignment(answer.assignment).assigned_partitions  # type: ignore[attr-defined]
            self.owned = [number for topic in assigned for number in topic.partitions]

    async def _work(self) -> None:
        await trio.sleep(HEARTBEAT_SECONDS)
        for number in self.owned:
            await self._commit(number, self._committed.get(number, 0) + 1)
        if self.generation < 0:
            return
        request = HeartbeatRequest(group_id=self._group, generation_id=self.generation, member_id=self.member_id)
        answer = await self._ask(request, 4)
        self._goes_on(ErrorCode(answer.error_code))  # type: ignore[attr-defined]

    async def _commit(self, number: int, offset: int) -> None:
        partition = OffsetCommitRequestPartition(partition_index=number, committed_offset=offset)
        request = OffsetCommitRequest(
            group_id=self._group,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            topics=[OffsetCommitRequestTopic(name=self._topic, partitions=[partition])],
        )
        answer = await self._ask(request, 8)
        code = ErrorCode(answer.topics[0].partitions[0].error_code)  # type: ignore[attr-defined]
        if code is ErrorCode.NONE:
            self._committed[number] = max(offset, self._committed.get(number, 0))

    def _goes_on(self, code: ErrorCode) -> bool:
        """True if the member is in its group and has nothing else to do than before."""
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            self.generation = -1
        elif code in IS_UNKNOWN:
            self._forget_membership()
        elif code not in (ErrorCode.NONE, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
            self.refused.append(code)
        return code is ErrorCode.NONE

    def _forget_membership(self) -> None:
        self.member_id, self.generation, self.owned = "", -1, []
        self.restarts += 1
