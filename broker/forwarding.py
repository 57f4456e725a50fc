"""Administrative requests go on to the active controller inside an Envelope (KIP-590).

The controller sees the client's own request, header and all, with the client's principal and address; its answer
comes back as the bytes that the client gets. Requests of one connection are forwarded one after the other: the next one
leaves when the answer to the one before is there, so they take effect in their order.
"""

from __future__ import annotations

import ipaddress
import logging
from collections import deque
from typing import TYPE_CHECKING

from protocol.api_keys import API_SPECS, ApiKey
from protocol.errors import KafkaError
from protocol.headers import RequestHeader
from protocol.messages.envelope import EnvelopeRequest
from protocol.messages.principal_data import DefaultPrincipalData
from protocol.schema import encode
from runtime.dispatch import Call

if TYPE_CHECKING:
    from broker.services import BrokerServices

log = logging.getLogger(__name__)

FORWARD_TIMEOUT_MS = 60_000

ENVELOPE_BYTES = 1024
"""More than an envelope has besides the request in it. What does not fit would be refused by the controller by closing
the connection, which looks as if it were worth another try."""

ANONYMOUS = (0).to_bytes(2, "big") + encode(DefaultPrincipalData(type="User", name="ANONYMOUS"), 0)
"""The principal of a listener without authentication, with its int16 version in front."""


class ForwardingLines:
    """Forwarded requests by connection, in the order in which they came. The first of each line is under way."""

    def __init__(self) -> None:
        self._lines: dict[int, deque[Call]] = {}

    def enter(self, broker: BrokerServices, call: Call) -> None:
        connection_id = call.request.connection_id
        line = self._lines.get(connection_id)
        if line is not None:
            line.append(call)
            return
        self._lines[connection_id] = deque([call])
        broker.background.spawn(self._run, broker, connection_id)

    async def _run(self, broker: BrokerServices, connection_id: int) -> None:
        line = self._lines[connection_id]
        try:
            while line:
                call = line[0]
                if not call.slot.connection_closed:
                    try:
                        await _forward(broker, call)
                    except Exception as error:  # costs this request, and none behind it
                        call.failed(error)
                line.popleft()
        finally:
            del self._lines[connection_id]


def forward(broker: BrokerServices, call: Call) -> None:
    """Handler of every forwardable API."""
    broker.forwarding.enter(broker, call)


async def _forward(broker: BrokerServices, call: Call) -> None:
    request = call.request
    spec = API_SPECS[ApiKey(request.api_key)]
    header = RequestHeader(
        request_api_key=request.api_key,
        request_api_version=request.api_version,
        correlation_id=request.correlation_id,
        client_id=request.client_id,
    )
    header_bytes = encode(header, spec.request_header_version(request.api_version))
    if len(header_bytes) + len(request.body) > broker.settings.socket_request_max_bytes - ENVELOPE_BYTES:
        call.abort(f"{spec.name} is too large to be forwarded: {len(request.body)} bytes")
        return
    envelope = EnvelopeRequest(
        request_data=header_bytes + bytes(request.body),
        request_principal=ANONYMOUS,
        client_host_address=address_bytes(request.peer_host),
    )
    try:
        response = await broker.controller.call(envelope, timeout_ms=FORWARD_TIMEOUT_MS)
    except KafkaError as error:
        reason = f"{spec.name} could not be forwarded: {error}"
        log.info("%s", reason)
        call.refuse(error.code, reason)
        return
    if response.error_code or response.response_data is None:
        call.abort(f"the controller refused the envelope of {spec.name} with error {response.error_code}")
        return
    call.answer_bytes(bytes(response.response_data))


def address_bytes(host: str) -> bytes:
    """The 4 or 16 bytes of an address; a name (as simulated hosts have) counts as loopback."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).packed
    except ValueError:
        return bytes((127, 0, 0, 1))
