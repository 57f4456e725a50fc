"""JoinGroup (11), Heartbeat (12), LeaveGroup (13) and SyncGroup (14): members of classic groups."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from broker.apis.group_calls import client_of, run_on_group
from broker.coordinator.outcome import Now, Outcome, Reply
from broker.groups.classic import ClassicGroups
from broker.groups.group import Client
from protocol.errors import ErrorCode
from protocol.messages.heartbeat import HeartbeatResponse
from protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from protocol.messages.leave_group import LeaveGroupResponse
from protocol.messages.sync_group import SyncGroupResponse
from runtime.dispatch import Call

if TYPE_CHECKING:
    from broker.services import BrokerServices

FIRST_VERSION_WITH_NULL_PROTOCOL_NAME = 7
"""Of JoinGroup."""

Command = Callable[[Any, Client, int, Reply, Now], Outcome]
"""Takes a request, who sent it and in which version."""


def join_group(broker: BrokerServices, call: Call) -> None:
    request: JoinGroupRequest = call.message

    def answer(response: JoinGroupResponse) -> None:
        if response.protocol_name is None and call.version < FIRST_VERSION_WITH_NULL_PROTOCOL_NAME:
            response.protocol_name = ""
        call.answer(response)

    def refuse(code: ErrorCode) -> None:
        call.answer(JoinGroupResponse(member_id=request.member_id, error_code=code))

    reply = Reply(answer, refuse)
    _run(broker, call, reply, lambda groups: groups.join)


def sync_group(broker: BrokerServices, call: Call) -> None:
    def refuse(code: ErrorCode) -> None:
        call.answer(SyncGroupResponse(error_code=code))

    reply = Reply(call.answer, refuse)
    _run(broker, call, reply, lambda groups: groups.sync)


def heartbeat(broker: BrokerServices, call: Call) -> None:
    def refuse(code: ErrorCode) -> None:
        # While the group is loaded nobody knows better than the member itself that it is in it.
        is_loading = code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        call.answer(HeartbeatResponse(error_code=ErrorCode.NONE if is_loading else code))

    reply = Reply(call.answer, refuse)
    _run(broker, call, reply, lambda groups: groups.heartbeat)


def leave_group(broker: BrokerServices, call: Call) -> None:
    def refuse(code: ErrorCode) -> None:
        call.answer(LeaveGroupResponse(error_code=code))

    reply = Reply(call.answer, refuse)
    _run(broker, call, reply, lambda groups: groups.leave)


def _run(broker: BrokerServices, call: Call, reply: Reply, command: Callable[[ClassicGroups], Command]) -> None:
    group_id: str = call.message.group_id
    if not group_id:
        reply.refuse(ErrorCode.INVALID_GROUP_ID)
        return
    client = client_of(call)
    run_on_group(
        broker,
        group_id,
        reply,
        lambda machine: partial(command(machine.classic), call.message, client, call.version, reply),
    )
