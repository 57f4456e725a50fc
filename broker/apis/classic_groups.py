"""JoinGroup (11), Heartbeat (12), LeaveGroup (13) and SyncGroup (14): members of classic groups."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from broker.coordinator.outcome import Reply
from broker.groups.group import Client
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from runtime.dispatch import Call

if TYPE_CHECKING:
    from broker.coordinator.shard import Shard
    from broker.groups.machine import GroupMachine
    from broker.services import BrokerServices

FIRST_VERSION_WITH_NULL_PROTOCOL_NAME = 7
"""Of JoinGroup."""


def join_group(broker: BrokerServices, call: Call) -> None:
    request: JoinGroupRequest = call.message

    def answer(response: JoinGroupResponse) -> None:
        if response.protocol_name is None and call.version < FIRST_VERSION_WITH_NULL_PROTOCOL_NAME:
            response.protocol_name = ""
        call.answer(response)

    def refuse(code: ErrorCode) -> None:
        call.answer(JoinGroupResponse(member_id=request.member_id, error_code=code))

    reply = Reply(answer, refuse)
    shard = _find_shard(broker, request.group_id, reply)
    if shard is not None:
        shard.run(partial(shard.machine.classic.join, request, _client(call), call.version, reply), reply)


def sync_group(broker: BrokerServices, call: Call) -> None:
    request: SyncGroupRequest = call.message

    def refuse(code: ErrorCode) -> None:
        call.answer(SyncGroupResponse(error_code=code))

    reply = Reply(call.answer, refuse)
    shard = _find_shard(broker, request.group_id, reply)
    if shard is not None:
        shard.run(partial(shard.machine.classic.sync, request, _client(call), call.version, reply), reply)


def heartbeat(broker: BrokerServices, call: Call) -> None:
    request: HeartbeatRequest = call.message

    def refuse(code: ErrorCode) -> None:
        # While the group is loaded nobody knows better than the member itself that it is in it.
        is_loading = code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        call.answer(HeartbeatResponse(error_code=ErrorCode.NONE if is_loading else code))

    reply = Reply(call.answer, refuse)
    shard = _find_shard(broker, request.group_id, reply)
    if shard is not None:
        shard.run(partial(shard.machine.classic.heartbeat, request, _client(call), call.version, reply), reply)


def leave_group(broker: BrokerServices, call: Call) -> None:
    request: LeaveGroupRequest = call.message

    def refuse(code: ErrorCode) -> None:
        call.answer(LeaveGroupResponse(error_code=code))

    reply = Reply(call.answer, refuse)
    shard = _find_shard(broker, request.group_id, reply)
    if shard is not None:
        shard.run(partial(shard.machine.classic.leave, request, _client(call), call.version, reply), reply)


def _find_shard(broker: BrokerServices, group_id: str, reply: Reply) -> Shard[GroupMachine] | None:
    """Where the group is coordinated; None if it is not here, and the request is refused."""
    try:
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        return broker.groups.shard(group_id)
    except KafkaError as error:
        reply.refuse(error.code)
        return None


def _client(call: Call) -> Client:
    return Client(call.request.client_id or "", f"/{call.request.peer_host}")
