"""TLS and SASL over blocking sockets, by the contexts and mechanisms of the trio client.

Loads no event loop, except to get the tokens of OAUTHBEARER.
"""

from __future__ import annotations

import os
import socket
import ssl
import time
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from barnabas.client.errors import ConfigException, SslAuthenticationException
from barnabas.client.security_options import PASSWORD_MECHANISMS, sasl_options, tls_options
from barnabas.pipeline.addresses import Address
from barnabas.pipeline.cluster_access import ClusterAccess
from barnabas.pipeline.errors import ConnectionFailed, TimedOut
from barnabas.protocol.sasl.mechanism import ClientMechanismFactory
from barnabas.protocol.schema import Message
from barnabas.runtime.sasl.authenticator import SaslAuthenticator
from barnabas.runtime.sasl.mechanisms import SaslPorts, client_mechanism
from barnabas.runtime.sasl.options import SaslOptionsError
from barnabas.runtime.tls.options import TlsConfigError
from barnabas.runtime.tls.reasons import reason_of

if TYPE_CHECKING:
    from barnabas.pipeline.blocking_connection import BlockingConnection
    from barnabas.runtime.tls.contexts import TlsContext

RENEW_AFTER = 0.85
"""Part of a session's lifetime after which its connection is replaced, as in Kafka's clients."""


def blocking_security(access: ClusterAccess) -> BlockingSecurity | None:
    """None for PLAINTEXT. Reads the files that the settings name. Raises ConfigException."""
    if not access.encrypts and not access.authenticates:
        return None
    authenticator = SaslAuthenticator(_mechanism(access.security)) if access.authenticates else None
    waits = access.security.get("sasl.mechanism") not in PASSWORD_MECHANISMS
    return BlockingSecurity(_context(access.security) if access.encrypts else None, authenticator, waits=waits)


class BlockingSecurity:
    """Secures the connections of one cluster client."""

    def __init__(self, context: TlsContext | None, authenticator: SaslAuthenticator | None, *, waits: bool) -> None:
        """`waits`: the mechanism gets its credentials by the network."""
        self._context = context
        self._authenticator = authenticator
        self._waits = waits

    def secure(self, connection: socket.socket, address: Address, deadline: float) -> socket.socket:
        """The connection after its TLS handshake, if there is one; by the deadline of the monotonic clock. Raises
        SslAuthenticationException, ConnectionFailed or TimedOut; the caller closes."""
        if self._context is None:
            return connection
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        try:
            secured = self._context.ssl.wrap_socket(connection, server_hostname=address.host)
        except TimeoutError:
            raise TimedOut(f"no TLS handshake with {address} in time") from None
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
            raise ConnectionFailed(_NO_TLS) from None
        except ssl.SSLError as error:
            raise SslAuthenticationException(f"TLS handshake with {address} failed: {reason_of(error)}") from None
        except OSError:
            raise ConnectionFailed(_NO_TLS) from None
        suite = secured.cipher()
        if suite is not None and not self._context.allows(secured.version(), suite[0]):
            secured.close()
            raise SslAuthenticationException(
                f"TLS handshake with {address} failed: ssl.cipher.suites does not list {suite[0]}"
            )
        return secured

    def authenticate(self, connection: BlockingConnection, deadline: float) -> float | None:
        """Prove who is calling. Returns the time of the monotonic clock at which the connection is to be replaced, if
        any. Raises KafkaError if the broker refuses."""
        if self._authenticator is None:
            return None
        peer = _BlockingPeer(connection, deadline)
        if self._waits:
            import trio

            lifetime_ms = trio.run(self._authenticator.authenticate, peer)
        else:
            lifetime_ms = _without_waiting(self._authenticator.authenticate(peer))
        return None if lifetime_ms is None else time.monotonic() + lifetime_ms / 1000 * RENEW_AFTER


_NO_TLS = "the connection was lost during the TLS handshake, as by a server that does not speak TLS on this port"


class _BlockingPeer:
    """The peer of an exchange; its calls block."""

    def __init__(self, connection: BlockingConnection, deadline: float) -> None:
        self.host, self.port = connection.address
        self._connection = connection
        self._deadline = deadline

    async def call(self, request: Message, *, version: int | None = None) -> Any:
        left_ms = max(1, int((self._deadline - time.monotonic()) * 1000))
        return self._connection.call(request, left_ms, version=version)


def _without_waiting(work: Coroutine[Any, Any, int | None]) -> int | None:
    """The result of a coroutine that never waits, because everything in it blocks."""
    try:
        work.send(None)
    except StopIteration as done:
        result: int | None = done.value
        return result
    work.close()
    raise AssertionError("an exchange over a blocking connection waits for an event loop")


def _mechanism(values: Mapping[str, str]) -> ClientMechanismFactory:
    if values.get("sasl.mechanism") not in PASSWORD_MECHANISMS:
        from barnabas.client.security import sasl_mechanism
        from barnabas.client.security_settings import SecuritySettings
        from barnabas.runtime.real import real_world

        settings = SecuritySettings.of({key.replace(".", "_"): value for key, value in values.items()})
        return sasl_mechanism(settings, real_world())
    try:
        return client_mechanism(sasl_options(values), SaslPorts(os.urandom))
    except SaslOptionsError as error:
        raise ConfigException(str(error)) from None


def _context(values: Mapping[str, str]) -> TlsContext:
    from barnabas.runtime.tls.contexts import make_contexts

    options, now_ms = tls_options(values), int(time.time() * 1000)
    try:
        contexts = make_contexts(options, lambda path: Path(path).read_bytes(), now_ms, server=False, client=True)
    except TlsConfigError as error:
        raise ConfigException(str(error)) from None
    assert contexts.client is not None
    return contexts.client
