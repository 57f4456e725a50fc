"""ShareGroupHeartbeat (76): members of share groups (KIP-932)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from barnabas.broker.apis.group_calls import GroupShards, client_of, may_read_group, run_on_group
from barnabas.broker.apis.rights import may_on_topics, parted
from barnabas.broker.coordinator.outcome import Reply
from barnabas.protocol.acls import AclOperation
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from barnabas.runtime.dispatch import Call
from barnabas.runtime.meter import Meter
from barnabas.runtime.server import Steps

LONGEST_MEMBER_ID = 36
"""Length of a UUID as text."""


def share_group_heartbeat(groups: GroupShards, is_enabled: Callable[[], bool], call: Call) -> Steps | None:
    """`is_enabled`: whether share groups are."""
    request: ShareGroupHeartbeatRequest = call.message

    def refuse(code: ErrorCode, message: str | None = None) -> None:
        call.answer(ShareGroupHeartbeatResponse(error_code=code, error_message=message))

    if not is_enabled():
        refuse(ErrorCode.UNSUPPORTED_VERSION)
    elif not may_read_group(call):
        refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    elif not 0 < len(request.member_id) <= LONGEST_MEMBER_ID:
        refuse(ErrorCode.INVALID_REQUEST, "Invalid member id in the request.")
    elif call.has_authorizer and request.subscribed_topic_names:
        return _heartbeat_of_subscriber(groups, call, Reply(call.answer, refuse))
    else:
        _heartbeat(groups, call, Reply(call.answer, refuse))
    return None


def _heartbeat_of_subscriber(groups: GroupShards, call: Call, reply: Reply) -> Steps:
    """A member may subscribe only to topics that it may describe."""
    may_describe = may_on_topics(call, AclOperation.DESCRIBE)
    _, refused = yield from parted(call.message.subscribed_topic_names, may_describe, Meter())
    if refused:
        reply.refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    else:
        _heartbeat(groups, call, reply)


def _heartbeat(groups: GroupShards, call: Call, reply: Reply) -> None:
    request: ShareGroupHeartbeatRequest = call.message
    client = client_of(call)
    run_on_group(
        groups, request.group_id, reply, lambda machine: partial(machine.shares.heartbeat, request, client, reply)
    )
