"""GetTelemetrySubscriptions (71) and PushTelemetry (72): metrics of clients (KIP-714). Served only if
`metric.reporters` names a receiver.
"""

from __future__ import annotations

from barnabas.broker.telemetry import Asker, ClientTelemetry
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsResponse
from barnabas.protocol.messages.push_telemetry import PushTelemetryResponse
from barnabas.runtime.dispatch import Call
from barnabas.runtime.steps import Steps
from barnabas.runtime.world import Clock


def get_telemetry_subscriptions(telemetry: ClientTelemetry, monotonic: Clock, call: Call) -> Steps:
    asker = _asker(telemetry, call)
    try:
        response = yield from telemetry.get(call.message.client_instance_id, asker, monotonic.now_ms())
    except KafkaError as error:
        response = GetTelemetrySubscriptionsResponse(error_code=error.code)
    call.answer(response)


def push_telemetry(telemetry: ClientTelemetry, monotonic: Clock, call: Call) -> Steps:
    response = PushTelemetryResponse()
    try:
        yield from telemetry.push(call.message, _asker(telemetry, call), monotonic.now_ms())
    except KafkaError as error:
        response.error_code = error.code
    call.answer(response)


def _asker(telemetry: ClientTelemetry, call: Call) -> Asker:
    request = call.request
    return Asker(request.client_id or "", request.peer_host, telemetry.software(request.connection_id))
