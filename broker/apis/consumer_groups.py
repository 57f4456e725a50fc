"""ConsumerGroupHeartbeat (68): members of consumer groups (KIP-848)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from barnabas.broker.apis.group_calls import GroupShards, client_of, run_on_group
from barnabas.broker.coordinator.outcome import Reply
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from barnabas.runtime.dispatch import Call


def consumer_group_heartbeat(groups: GroupShards, is_enabled: Callable[[], bool], call: Call) -> None:
    """`is_enabled`: whether the consumer protocol is."""
    request: ConsumerGroupHeartbeatRequest = call.message

    def refuse(code: ErrorCode) -> None:
        call.answer(ConsumerGroupHeartbeatResponse(error_code=code))

    if not is_enabled():
        refuse(ErrorCode.UNSUPPORTED_VERSION)
        return
    client = client_of(call)
    reply = Reply(call.answer, refuse)
    run_on_group(
        groups,
        request.group_id,
        reply,
        lambda machine: partial(machine.consumer.heartbeat, request, client, call.version, reply),
    )
