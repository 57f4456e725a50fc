"""JoinGroup (11), Heartbeat (12), LeaveGroup (13) and SyncGroup (14): members of classic groups."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from barnabas.broker.apis.group_calls import GroupShards, client_of, may_read_group, run_on_group
from barnabas.broker.apis.request_pieces import copy_with
from barnabas.broker.apis.response_parts import ResponseParts
from barnabas.broker.coordinator.outcome import Now, Outcome, Reply
from barnabas.broker.groups.classic_groups import ClassicGroups
from barnabas.broker.groups.group import Client
from barnabas.broker.groups.limits import MOST_ASSIGNMENTS, MOST_METADATA_BYTES, MOST_PROTOCOLS
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.heartbeat import HeartbeatResponse
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from barnabas.protocol.messages.sync_group import SyncGroupResponse
from barnabas.runtime.dispatch import Call
from barnabas.runtime.server import Steps

FIRST_VERSION_WITH_NULL_PROTOCOL_NAME = 7
"""JoinGroup version."""

MEMBERS_AT_ONCE = 100
"""Members that leave a group by one command."""

Command = Callable[[Any, Client, int, Reply, Now], Outcome]
"""Takes a request, its client and its version."""


def join_group(groups: GroupShards, call: Call) -> None:
    request: JoinGroupRequest = call.message

    def answer(response: JoinGroupResponse) -> None:
        if response.protocol_name is None and call.version < FIRST_VERSION_WITH_NULL_PROTOCOL_NAME:
            response.protocol_name = ""
        call.answer(response)

    def refuse(code: ErrorCode) -> None:
        call.answer(JoinGroupResponse(member_id=request.member_id, error_code=code))

    if not may_read_group(call):
        answer(JoinGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED))
        return
    metadata_bytes = sum(len(protocol.metadata) for protocol in request.protocols)
    if len(request.protocols) > MOST_PROTOCOLS or metadata_bytes > MOST_METADATA_BYTES:
        refuse(ErrorCode.INVALID_REQUEST)
        return
    reply = Reply(answer, refuse)
    _run(groups, call, reply, lambda classic: classic.join)


def sync_group(groups: GroupShards, call: Call) -> None:
    def refuse(code: ErrorCode) -> None:
        call.answer(SyncGroupResponse(error_code=code))

    if not may_read_group(call):
        refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        return
    if len(call.message.assignments) > MOST_ASSIGNMENTS:
        refuse(ErrorCode.INVALID_REQUEST)
        return
    reply = Reply(call.answer, refuse)
    _run(groups, call, reply, lambda classic: classic.sync)


def heartbeat(groups: GroupShards, call: Call) -> None:
    def refuse(code: ErrorCode) -> None:
        # While the group is being loaded, the member is taken at its word.
        is_loading = code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        call.answer(HeartbeatResponse(error_code=ErrorCode.NONE if is_loading else code))

    if not may_read_group(call):
        refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        return
    reply = Reply(call.answer, refuse)
    _run(groups, call, reply, lambda classic: classic.heartbeat)


def leave_group(groups: GroupShards, call: Call) -> Steps:
    """Very many members leave in several commands, MEMBERS_AT_ONCE each."""
    request: LeaveGroupRequest = call.message
    members = request.members
    if not may_read_group(call):
        call.answer(LeaveGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED))
        return

    def finish(parts: list[LeaveGroupResponse]) -> None:
        refused = [part for part in parts if part.error_code != ErrorCode.NONE]
        if not refused:
            parts[0].members = [member for part in parts for member in part.members]
        call.answer(refused[0] if refused else parts[0])

    def error(code: ErrorCode) -> LeaveGroupResponse:
        return LeaveGroupResponse(error_code=code)

    pieces = [members[start : start + MEMBERS_AT_ONCE] for start in range(0, len(members), MEMBERS_AT_ONCE)] or [[]]
    response_parts = ResponseParts(len(pieces), finish)
    for place, piece in enumerate(pieces):
        if place > 0:
            yield None
        leaving = copy_with(request, members=piece)
        _run(groups, call, response_parts.reply(place, error), lambda classic: classic.leave, leaving)


def _run(
    groups: GroupShards,
    call: Call,
    reply: Reply,
    command: Callable[[ClassicGroups], Command],
    part: LeaveGroupRequest | None = None,
) -> None:
    """`part` is a part of the request, to be run instead of all of it."""
    request = part or call.message
    group_id: str = request.group_id
    if not group_id:
        reply.refuse(ErrorCode.INVALID_GROUP_ID)
        return
    client = client_of(call)
    run_on_group(
        groups,
        group_id,
        reply,
        lambda machine: partial(command(machine.classic), request, client, call.version, reply),
    )
