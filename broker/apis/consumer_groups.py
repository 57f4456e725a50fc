"""ConsumerGroupHeartbeat (68): members of consumer groups (KIP-848)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from broker.apis.group_calls import client_of, consumer_protocol_is_enabled, run_on_group
from broker.coordinator.outcome import Reply
from protocol.errors import ErrorCode
from protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from runtime.dispatch import Call

if TYPE_CHECKING:
    from broker.services import BrokerServices


def consumer_group_heartbeat(broker: BrokerServices, call: Call) -> None:
    request: ConsumerGroupHeartbeatRequest = call.message

    def refuse(code: ErrorCode) -> None:
        call.answer(ConsumerGroupHeartbeatResponse(error_code=code))

    if not consumer_protocol_is_enabled(broker):
        refuse(ErrorCode.UNSUPPORTED_VERSION)
        return
    client = client_of(call)
    reply = Reply(call.answer, refuse)
    run_on_group(
        broker,
        request.group_id,
        reply,
        lambda machine: partial(machine.consumer.heartbeat, request, client, call.version, reply),
    )
