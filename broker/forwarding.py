"""Administrative requests go on to the active controller inside an Envelope (KIP-590).

The controller sees the client's own request, header and all, with the client's principal and address; its answer
comes back as the bytes that the client gets.
"""

from __future__ import annotations

import ipaddress
import logging
from typing import TYPE_CHECKING

from kraft.controller.refusals import has_refusal, refusal_of
from protocol.api_keys import API_SPECS, ApiKey
from protocol.errors import ErrorCode, KafkaError
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


def forward(broker: BrokerServices, call: Call) -> None:
    """Handler of every forwardable API."""
    broker.nursery.start_soon(_forward, broker, call)


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
        _refuse(call, error.code, f"{spec.name} could not be forwarded: {error}")
        return
    if response.error_code or response.response_data is None:
        call.abort(f"the controller refused the envelope of {spec.name} with error {response.error_code}")
        return
    call.answer_bytes(bytes(response.response_data))


def _refuse(call: Call, code: ErrorCode, reason: str) -> None:
    """Answer with an error where the API has a place for it."""
    if has_refusal(call.message):
        log.info("%s", reason)
        call.answer(refusal_of(call.message, call.version, code, reason))
    else:
        call.abort(reason)


def address_bytes(host: str) -> bytes:
    """The 4 or 16 bytes of an address; a name (as simulated hosts have) counts as loopback."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).packed
    except ValueError:
        return bytes((127, 0, 0, 1))
