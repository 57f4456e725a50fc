"""Forwards administrative requests to the active controller inside an Envelope (KIP-590).

The controller sees the client's own request, header included, with the client's principal and address; its response
contains the bytes that the client gets. Requests of one connection are forwarded one at a time: the next one leaves
when the response to the one before has arrived, so they take effect in order.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass

from barnabas.broker.controller_channel import ControllerCalls
from barnabas.broker.current_settings import CurrentSettings
from barnabas.kraft.principals import written_host, written_principal
from barnabas.protocol.api_keys import API_SPECS, ApiKey
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.headers import RequestHeader
from barnabas.protocol.messages.envelope import EnvelopeRequest
from barnabas.protocol.schema import encode
from barnabas.runtime.background import Background
from barnabas.runtime.dispatch import Call

log = logging.getLogger(__name__)

FORWARD_TIMEOUT_MS = 60_000

ENVELOPE_BYTES = 1024
"""More than an envelope adds to the request in it. The controller would refuse a larger one by closing the connection,
which looks like an error worth a retry."""


@dataclass(frozen=True, slots=True)
class ForwardingPorts:
    controller: ControllerCalls
    background: Background
    settings: CurrentSettings


class Forwarding:
    """Requests to be forwarded, by connection and in order. The first of each queue is under way."""

    def __init__(self, ports: ForwardingPorts) -> None:
        self._ports = ports
        self._queues: dict[int, deque[Call]] = {}

    def forward(self, call: Call) -> None:
        """Handler of every forwarded API."""
        connection_id = call.request.connection_id
        queue = self._queues.get(connection_id)
        if queue is not None:
            queue.append(call)
            return
        self._queues[connection_id] = deque([call])
        self._ports.background.spawn(self._run, connection_id)

    async def _run(self, connection_id: int) -> None:
        queue = self._queues[connection_id]
        try:
            while queue:
                call = queue[0]
                if not call.slot.connection_closed:
                    try:
                        await forward_one(self._ports, call)
                    except Exception as error:  # fails this request, and none behind it
                        call.failed(error)
                queue.popleft()
        finally:
            del self._queues[connection_id]


async def forward_one(ports: ForwardingPorts, call: Call) -> None:
    """Send one request in an envelope, and answer it."""
    request = call.request
    spec = API_SPECS[ApiKey(request.api_key)]
    header = RequestHeader(
        request_api_key=request.api_key,
        request_api_version=request.api_version,
        correlation_id=request.correlation_id,
        client_id=request.client_id,
    )
    header_bytes = encode(header, spec.request_header_version(request.api_version))
    if len(header_bytes) + len(request.body) > ports.settings().socket_request_max_bytes - ENVELOPE_BYTES:
        call.abort(f"{spec.name} is too large to be forwarded: {len(request.body)} bytes")
        return
    envelope = EnvelopeRequest(
        request_data=header_bytes + bytes(request.body),
        request_principal=written_principal(request.principal),
        client_host_address=written_host(request.peer_host),
    )
    try:
        response = await ports.controller.call(envelope, timeout_ms=FORWARD_TIMEOUT_MS)
    except KafkaError as error:
        reason = f"{spec.name} could not be forwarded: {error}"
        log.info("%s", reason)
        call.refuse(error.code, reason)
        return
    if response.error_code or response.response_data is None:
        call.abort(f"the controller refused the envelope of {spec.name} with error {response.error_code}")
        return
    call.answer_bytes(bytes(response.response_data))
