"""JoinGroup (11), Heartbeat (12), LeaveGroup (13) and SyncGroup (14): members of classic groups."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from broker.apis.gathered import Gathered
from broker.apis.group_calls import client_of, run_on_group
from broker.apis.pieces import copy_with
from broker.coordinator.outcome import Now, Outcome, Reply
from broker.groups.classic_groups import ClassicGroups
from broker.groups.group import Client
from broker.groups.limits import MOST_ASSIGNMENTS, MOST_PROTOCOLS
from protocol.errors import ErrorCode
from protocol.messages.heartbeat import HeartbeatResponse
from protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from protocol.messages.sync_group import SyncGroupResponse
from runtime.dispatch import Call
from runtime.server import Steps

if TYPE_CHECKING:
    from broker.services import BrokerServices

FIRST_VERSION_WITH_NULL_PROTOCOL_NAME = 7
"""Of JoinGroup."""

MEMBERS_AT_ONCE = 100
"""Members that leave a group by one command."""

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

    if len(request.protocols) > MOST_PROTOCOLS:
        refuse(ErrorCode.INVALID_REQUEST)
        return
    reply = Reply(answer, refuse)
    _run(broker, call, reply, lambda groups: groups.join)


def sync_group(broker: BrokerServices, call: Call) -> None:
    def refuse(code: ErrorCode) -> None:
        call.answer(SyncGroupResponse(error_code=code))

    if len(call.message.assignments) > MOST_ASSIGNMENTS:
        refuse(ErrorCode.INVALID_REQUEST)
        return
    reply = Reply(call.answer, refuse)
    _run(broker, call, reply, lambda groups: groups.sync)


def heartbeat(broker: BrokerServices, call: Call) -> None:
    def refuse(code: ErrorCode) -> None:
        # While the group is loaded nobody knows better than the member itself that it is in it.
        is_loading = code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        call.answer(HeartbeatResponse(error_code=ErrorCode.NONE if is_loading else code))

    reply = Reply(call.answer, refuse)
    _run(broker, call, reply, lambda groups: groups.heartbeat)


def leave_group(broker: BrokerServices, call: Call) -> Steps:
    """Who names very many members has them leave some at a time."""
    request: LeaveGroupRequest = call.message
    members = request.members

    def finish(parts: list[LeaveGroupResponse]) -> None:
        refused = [part for part in parts if part.error_code != ErrorCode.NONE]
        if not refused:
            parts[0].members = [member for part in parts for member in part.members]
        call.answer(refused[0] if refused else parts[0])

    def error(code: ErrorCode) -> LeaveGroupResponse:
        return LeaveGroupResponse(error_code=code)

    pieces = [members[start : start + MEMBERS_AT_ONCE] for start in range(0, len(members), MEMBERS_AT_ONCE)] or [[]]
    gathered = Gathered(len(pieces), finish)
    for place, piece in enumerate(pieces):
        if place > 0:
            yield None
        leaving = copy_with(request, members=piece)
        _run(broker, call, gathered.reply(place, error), lambda groups: groups.leave, leaving)


def _run(
    broker: BrokerServices,
    call: Call,
    reply: Reply,
    command: Callable[[ClassicGroups], Command],
    part: LeaveGroupRequest | None = None,
) -> None:
    """`part` is a part of the request to be run alone."""
    request = part or call.message
    group_id: str = request.group_id
    if not group_id:
        reply.refuse(ErrorCode.INVALID_GROUP_ID)
        return
    client = client_of(call)
    run_on_group(
        broker,
        group_id,
        reply,
        lambda machine: partial(command(machine.classic), request, client, call.version, reply),
    )
