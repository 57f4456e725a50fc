"""Interfaces of TLS and SASL, which secure a connection before its first request.

The shapes only: `runtime/tls/` makes connections private, `runtime/sasl/` authenticates, and `kraft/node_security.py`
chooses for the listeners and channels of a node by its settings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from barnabas.protocol.sasl.session import Reaction
from barnabas.protocol.schema import Message
from barnabas.runtime.identity import ANONYMOUS, Principal
from barnabas.runtime.request import AnswerSlot
from barnabas.runtime.world import Connection, ConnectionLost

HANDSHAKE_SECONDS = 10
"""Longest TLS handshake, on both ends."""


class HandshakeFailed(Exception):
    """The TLS handshake failed. The text names the reason in one line, and contains no secret."""


class Authentication(Protocol):
    """The authentication of one incoming connection by its requests: SASL."""

    @property
    def max_frame_bytes(self) -> int:
        """Limit of a frame before the peer is authenticated."""

    @property
    def principal(self) -> Principal:
        """The peer, once it is authenticated."""

    @property
    def goes_on(self) -> bool:
        """Later frames must be shown, too: the session may expire."""

    def receive(self, frame: bytearray) -> Reaction:
        """React to a frame, before any handler sees it."""

    async def refuse(self, slot: AnswerSlot, reaction: Reaction) -> None:
        """Answer a peer that failed, or drop the slot, after a delay. The connection closes when that is done."""


class EndedByAlert(ConnectionLost):
    """TLS ended with an alert, or with bytes that are not TLS. After a handshake of TLS 1.3 a server says so that it
    wants, or does not trust, the client's certificate."""


class Payer(Protocol):
    """The share of the event loop that pays for work of a connection outside its requests: decrypting."""

    @property
    def stopwatch(self) -> Callable[[], float]: ...

    def pay(self, began: float, ended: float) -> None:
        """Charge the time between these moments on the stopwatch."""

    async def wait(self) -> None:
        """Let others run, and return when the connection may go on."""


@dataclass(frozen=True, slots=True)
class Secured:
    """A connection after its TLS handshake, if there is one."""

    connection: Connection
    """The one to read and write from now on."""
    principal: Principal = ANONYMOUS
    """By the peer's certificate; SASL replaces it."""
    authentication: Authentication | None = None
    """Sees each frame before its handler does."""
    charge_to: Callable[[Payer], None] | None = None
    """Takes the payer of the connection's own work, if it has any."""


class ListenerSecurity(Protocol):
    """The security of one listener. A PLAINTEXT listener has none."""

    async def secure(self, connection: Connection) -> Secured:
        """Secure a connection that was just accepted. Raises HandshakeFailed or ConnectionLost. The caller bounds the
        time and closes the connection."""


class Peer(Protocol):
    """The other end of a connection that is being opened."""

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...

    async def call(self, request: Message, *, version: int | None = None) -> Any:
        """Send a request in the highest version both sides speak, or in `version`, and return the response. Raises as
        `Channel.call`; the opener of the connection bounds the time."""


class Authenticator(Protocol):
    """Proves who is calling, on each new connection: after its versions are known and before any other request."""

    async def authenticate(self, peer: Peer) -> int | None:
        """Return the lifetime of the session in ms, after which the peer wants a new proof; None if it has no end.

        Raises KafkaError (SASL_AUTHENTICATION_FAILED, UNSUPPORTED_SASL_MECHANISM, …) if the peer refuses."""


class ChannelSecurity(Protocol):
    """The security of outgoing connections. A PLAINTEXT channel has none."""

    @property
    def authenticator(self) -> Authenticator | None:
        """Authenticates each new connection by SASL."""

    async def secure(self, connection: Connection, host: str) -> Connection:
        """Secure a connection that was just dialled; `host` is the name that was dialled. Raises HandshakeFailed or
        ConnectionLost. The caller bounds the time and closes the connection."""
