"""The SASL of channels: proves who is calling, on each new connection and when the session is about to end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest
from barnabas.protocol.sasl.mechanism import ClientMechanism, ClientMechanismFactory, SaslRefused
from barnabas.runtime.sasl.prepared import NotPrepared, PreparedMechanism

if TYPE_CHECKING:
    # Blocking clients authenticate by this, too, and load no event loop.
    from barnabas.runtime.security import ChannelSecurity, Peer
    from barnabas.runtime.world import Connection

HANDSHAKE_VERSION = 1
"""Tokens follow in SaslAuthenticate."""


class SaslAuthenticator:
    """A `runtime.security.Authenticator` by one mechanism."""

    def __init__(self, begin: ClientMechanismFactory) -> None:
        self._begin = begin

    async def authenticate(self, peer: Peer) -> int | None:
        try:
            mechanism = self._begin(peer.host)
            if isinstance(mechanism, PreparedMechanism):
                await mechanism.prepare()
            await _shake_hands(peer, mechanism.name)
            return await _exchange(peer, mechanism)
        except (SaslRefused, NotPrepared) as refused:
            raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, str(refused)) from None


class SaslChannelSecurity:
    """The security of SASL_PLAINTEXT channels; with `inner`, which does TLS, that of SASL_SSL channels."""

    def __init__(self, begin: ClientMechanismFactory, inner: ChannelSecurity | None = None) -> None:
        self.authenticator = SaslAuthenticator(begin)
        self._inner = inner

    async def secure(self, connection: Connection, host: str) -> Connection:
        """See `ChannelSecurity.secure`."""
        return connection if self._inner is None else await self._inner.secure(connection, host)


async def _shake_hands(peer: Peer, mechanism: str) -> None:
    answer = await peer.call(SaslHandshakeRequest(mechanism=mechanism), version=HANDSHAKE_VERSION)
    if answer.error_code == ErrorCode.NONE:
        return
    enabled = ", ".join(answer.mechanisms)
    if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            f"the SASL mechanism {mechanism} is not enabled at the server; enabled: {enabled}",
        )
    if answer.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        raise KafkaError(ErrorCode.ILLEGAL_SASL_STATE, "the server does not expect SASL on that listener, or not now")
    raise KafkaError(ErrorCode(answer.error_code), "SaslHandshake was refused")


async def _exchange(peer: Peer, mechanism: ClientMechanism) -> int | None:
    """The lifetime of the session in ms. Raises KafkaError, SaslRefused."""
    token: bytes | None = mechanism.first()
    lifetime_ms = 0
    while token is not None:
        answer = await peer.call(SaslAuthenticateRequest(auth_bytes=token))
        if answer.error_code != ErrorCode.NONE:
            raise KafkaError(ErrorCode(answer.error_code), answer.error_message or "the server refused the credentials")
        lifetime_ms = answer.session_lifetime_ms
        token = None if mechanism.complete else mechanism.receive(bytes(answer.auth_bytes))
    if not mechanism.complete:
        raise SaslRefused(f"the exchange of {mechanism.name} ended before the server proved itself")
    return lifetime_ms if lifetime_ms > 0 else None
