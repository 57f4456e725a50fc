"""Answers requests of SASL that no authentication took: on a listener without SASL, or in a session without an end.

They are advertised on every listener, as Kafka does, so that clients learn the versions before they authenticate.
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeResponse
from barnabas.runtime.call import Call
from barnabas.runtime.dispatch import Handler


def refuse_handshake(call: Call) -> None:
    call.answer(SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE))


def refuse_authenticate(call: Call) -> None:
    message = "SaslAuthenticate request received after successful authentication"
    call.answer(SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=message))


SASL_HANDLERS: Mapping[ApiKey, Handler] = {
    ApiKey.SASL_HANDSHAKE: refuse_handshake,
    ApiKey.SASL_AUTHENTICATE: refuse_authenticate,
}
