"""The TLS of a listener: the handshake of each new connection, and its principal by the peer's certificate."""

from __future__ import annotations

from collections.abc import Mapping

import trio

from barnabas.runtime.identity import ANONYMOUS, Principal
from barnabas.runtime.security import HandshakeFailed, Secured
from barnabas.runtime.tls.connection import SCRATCH_BYTES, TlsConnection
from barnabas.runtime.tls.handshakes import MOST_UNDER_WAY, Handshakes
from barnabas.runtime.tls.options import TlsConfigError, TlsOptions
from barnabas.runtime.tls.principals import NoMatchingRule, PrincipalRules, distinguished_name, subject_of
from barnabas.runtime.tls.reload import TlsHolder
from barnabas.runtime.world import Connection, ConnectionLost
from barnabas.settings.listener_values import PREFIX, values_of_listener

_HANDSHAKE_RECORD = 0x16
_HEAD_BYTES = 5
_MOST_RECORD_BYTES = 16 * 1024 + _HEAD_BYTES
_HTTP = (b"GET ", b"POST", b"HEAD", b"PUT ", b"PRI ", b"OPTI")

WRONG_VERSION = bytes((0x15, 3, 3, 0, 2, 2, 70))
"""A record with the fatal alert `protocol_version`: a client that speaks plaintext can recognize it."""


def options_of_listener(raw: Mapping[str, str], listener_name: str, security_protocol: str) -> TlsOptions:
    """The options of a listener by the values of its node. As in Kafka, `ssl.client.auth` of the node holds for
    listeners of the protocol SSL; one of SASL_SSL asks for a certificate only by a value of its own. Raises
    TlsConfigError."""
    values = values_of_listener(raw, listener_name)
    if security_protocol == "SASL_SSL" and f"{PREFIX}{listener_name.lower()}.ssl.client.auth" not in raw:
        values.pop("ssl.client.auth", None)
    return TlsOptions.of(values)


class TlsListenerSecurity:
    """Secures the connections of one listener."""

    def __init__(self, holder: TlsHolder, *, most_under_way: int = MOST_UNDER_WAY) -> None:
        """Raises TlsConfigError."""
        self._holder = holder
        try:
            self._rules = PrincipalRules(holder.options.ssl_principal_mapping_rules)
        except ValueError as error:
            raise TlsConfigError(str(error)) from error
        self._handshakes = Handshakes(most_under_way)
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.successful_authentications = 0
        """Handshakes that succeeded."""
        self.failed_authentications = 0
        """Handshakes that failed, or took too long."""

    @property
    def handshakes_under_way(self) -> int:
        return self._handshakes.under_way

    async def secure(self, connection: Connection) -> Secured:
        """Shake hands. Raises HandshakeFailed or ConnectionLost. The caller bounds the time."""
        try:
            secured = await self._secure(connection)
        except (HandshakeFailed, trio.Cancelled):
            self.failed_authentications += 1
            raise
        self.successful_authentications += 1
        return secured

    async def _secure(self, connection: Connection) -> Secured:
        hello = await self._client_hello(connection)
        with self._handshakes.counted() as scope:
            tls = await self._shake_hands(connection, hello)
            return Secured(tls, self._principal(tls), charge_to=tls.charge_to)
        assert scope.cancelled_caught
        raise HandshakeFailed("too many handshakes are under way, and this one waited longest for its peer")

    async def _client_hello(self, connection: Connection) -> bytes:
        """The first record of the peer, whole: until it is there a connection costs next to nothing."""
        received = bytearray()
        while True:
            received += self._scratch[: await connection.receive_into(self._scratch)]
            if received[0] != _HANDSHAKE_RECORD:
                _refuse_plaintext(connection, received)
            if len(received) >= _HEAD_BYTES:
                size = _HEAD_BYTES + int.from_bytes(received[3:5], "big")
                if len(received) >= min(size, _MOST_RECORD_BYTES):
                    return bytes(received)

    async def _shake_hands(self, connection: Connection, hello: bytes) -> TlsConnection:
        context = self._holder.server_context()
        handshakes = self._handshakes
        await handshakes.enter(is_new=True)
        try:
            tls = TlsConnection(connection, context.ssl, self._scratch, server_side=True)
            tls.feed(hello)
            over = tls.step()
        finally:
            handshakes.leave()
        while not over:
            await tls.flush()
            received = bytes(await tls.receive())
            await handshakes.enter(is_new=False)
            try:
                tls.feed(received)
                over = tls.step()
            finally:
                handshakes.leave()
        await tls.flush()
        if not context.allows(tls.version, tls.cipher_suite):
            raise HandshakeFailed(f"ssl.cipher.suites does not list {tls.cipher_suite}, on which both ends agreed")
        return tls

    def _principal(self, tls: TlsConnection) -> Principal:
        der = tls.peer_certificate
        if der is None:
            return ANONYMOUS
        try:
            return Principal(self._rules.name_of(distinguished_name(subject_of(der))))
        except NoMatchingRule as error:
            raise HandshakeFailed(str(error)) from error
        except ValueError as error:
            raise HandshakeFailed("the subject of the peer's certificate is malformed") from error


def _refuse_plaintext(connection: Connection, received: bytearray) -> None:
    """Raises HandshakeFailed."""
    try:
        connection.send_now([WRONG_VERSION])
    except ConnectionLost:
        pass  # it does not wait for an answer
    if received.startswith(_HTTP):
        raise HandshakeFailed("the peer speaks plain HTTP; this is a TLS port of the Kafka protocol")
    raise HandshakeFailed("the peer does not speak TLS, and this is a TLS port; set security.protocol at the peer")
