"""The TLS of outgoing connections: the handshake with the server, and the check of its name."""

from __future__ import annotations

from barnabas.runtime.security import Authenticator, HandshakeFailed
from barnabas.runtime.tls.connection import SCRATCH_BYTES, TlsConnection
from barnabas.runtime.tls.reload import TlsHolder
from barnabas.runtime.world import Connection, ConnectionLost

_TLS_RECORDS = (0x15, 0x16)
"""The first byte of an alert, or of a message of a handshake."""


class TlsChannelSecurity:
    """Secures outgoing connections."""

    def __init__(self, holder: TlsHolder, authenticator: Authenticator | None = None) -> None:
        """`authenticator` goes on by SASL, after the handshake."""
        self._holder = holder
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.authenticator = authenticator
        self.failed_authentications = 0

    async def secure(self, connection: Connection, host: str) -> Connection:
        """Shake hands. Raises HandshakeFailed or ConnectionLost. The caller bounds the time and closes."""
        try:
            return await self._shake_hands(connection, host)
        except HandshakeFailed:
            self.failed_authentications += 1
            raise

    async def _shake_hands(self, connection: Connection, host: str) -> Connection:
        context = self._holder.client_context()
        tls = TlsConnection(connection, context.ssl, self._scratch, host=host.removesuffix("."))
        is_first = True
        while not tls.step():
            await tls.flush()
            try:
                received = await tls.receive()
            except ConnectionLost as lost:
                hint = ", as a server does that does not speak TLS on this port" if is_first else ""
                raise ConnectionLost(f"{lost} during the handshake{hint}") from lost
            if is_first and received[0] not in _TLS_RECORDS:
                raise HandshakeFailed("the server does not speak TLS on this port")
            is_first = False
            tls.feed(received)
        await tls.flush()
        if not context.allows(tls.version, tls.cipher_suite):
            raise HandshakeFailed(f"ssl.cipher.suites does not list {tls.cipher_suite}, on which both ends agreed")
        return tls
