"""The SASL of listeners: authenticates each incoming connection before its first request."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import trio

from barnabas.protocol.sasl.mechanism import Authenticated, ServerMechanisms
from barnabas.protocol.sasl.session import Action, Now, Reaction, SaslSession, SaslState, SessionRules
from barnabas.runtime.families import Family
from barnabas.runtime.identity import ANONYMOUS, Principal
from barnabas.runtime.request import AnswerSlot
from barnabas.runtime.sasl.options import SaslOptions
from barnabas.runtime.security import ListenerSecurity, Secured
from barnabas.runtime.world import Clock, Connection, World

log = logging.getLogger(__name__)

MAX_DELAYED = 1000
"""Connections of a listener that failed and wait for their end. Further ones do not wait."""


@dataclass(slots=True)
class AuthenticationCounts:
    """Authentications of one listener since its start."""

    successful: int = 0
    failed: int = 0
    successful_reauthentication: int = 0
    failed_reauthentication: int = 0
    successful_no_reauth: int = 0
    """By clients that do not know sessions with an end (KIP-368)."""
    expired_connections_killed: int = 0


def authentication_families(by_listener: Mapping[str, AuthenticationCounts]) -> Iterator[Family]:
    """The counts as metrics, with Kafka's names."""

    def family(name: str, text: str, field: str) -> Family:
        samples = [([listener], getattr(counts, field)) for listener, counts in by_listener.items()]
        return Family("counter", f"kafka_server_socketservermetrics_{name}", text, ["listener"], samples)

    yield family("successful_authentication", "Connections that authenticated.", "successful")
    yield family("failed_authentication", "Connections that failed to authenticate.", "failed")
    yield family("successful_reauthentication", "Sessions that were renewed.", "successful_reauthentication")
    yield family("failed_reauthentication", "Sessions whose renewal failed.", "failed_reauthentication")
    text = "Connections of clients that do not renew sessions."
    yield family("successful_authentication_no_reauth", text, "successful_no_reauth")
    text = "Connections that were closed because their session had expired."
    yield family("expired_connections_killed_count", text, "expired_connections_killed")


class SaslListener:
    """The security of a SASL_PLAINTEXT listener; with `inner`, which does TLS, that of a SASL_SSL listener."""

    def __init__(
        self,
        rules: SessionRules,
        wall_clock: Clock,
        monotonic: Clock,
        *,
        failed_delay_ms: int = 100,
        inner: ListenerSecurity | None = None,
    ) -> None:
        self.rules = rules
        """May be replaced; they hold for connections and re-authentications that begin later."""
        self.failed_delay_ms = failed_delay_ms
        self.counts = AuthenticationCounts()
        self.delayed = 0
        """Connections that failed and wait for their end."""
        self._wall_clock = wall_clock
        self._monotonic = monotonic
        self.inner = inner

    @classmethod
    def of(
        cls, world: World, options: SaslOptions, mechanisms: ServerMechanisms, inner: ListenerSecurity | None = None
    ) -> SaslListener:
        """The security of a listener with these settings; `mechanisms` are those of `server_mechanisms`."""
        rules = SessionRules(mechanisms, options.max_reauth_ms, options.max_receive_bytes)
        delay_ms = options.failed_delay_ms
        return cls(rules, world.wall_clock, world.monotonic, failed_delay_ms=delay_ms, inner=inner)

    async def secure(self, connection: Connection) -> Secured:
        """See `ListenerSecurity.secure`."""
        secured = Secured(connection) if self.inner is None else await self.inner.secure(connection)
        authentication = SaslAuthentication(self, connection.peer_host)
        return replace(secured, principal=ANONYMOUS, authentication=authentication)

    def now(self) -> Now:
        return Now(self._wall_clock.now_ms(), self._monotonic.now_ms())


class SaslAuthentication:
    """The sessions of one connection."""

    def __init__(self, listener: SaslListener, peer_host: str) -> None:
        self._listener = listener
        self._peer_host = peer_host
        self._session = SaslSession(listener.rules)
        self.max_frame_bytes = listener.rules.max_receive_bytes
        self.principal = ANONYMOUS

    @property
    def goes_on(self) -> bool:
        return self._session.may_expire

    def receive(self, frame: bytearray) -> Reaction:
        if self._session.state is SaslState.COMPLETE:
            self._session.rules = self._listener.rules
        reaction = self._session.receive(frame, self._listener.now())
        if reaction.authenticated is not None:
            self._succeeded(reaction.authenticated)
        elif reaction.action is Action.FAIL:
            self._failed(reaction.reason)
        elif reaction.action is Action.CLOSE:
            self._closes(reaction)
        return reaction

    async def refuse(self, slot: AnswerSlot, reaction: Reaction) -> None:
        """See `Authentication.refuse`."""
        listener = self._listener
        if listener.delayed < MAX_DELAYED:
            listener.delayed += 1
            try:
                await trio.sleep(listener.failed_delay_ms / 1000)
            finally:
                listener.delayed -= 1
        if reaction.answer is None:
            slot.drop()
        else:
            slot.fill(reaction.answer)

    def _succeeded(self, authenticated: Authenticated) -> None:
        self.principal = Principal(authenticated.name, token_authenticated=authenticated.token_authenticated)
        counts, session = self._listener.counts, self._session
        if session.is_renewal:
            counts.successful_reauthentication += 1
        else:
            counts.successful += 1
            counts.successful_no_reauth += not session.knows_renewal
        log.debug("%s authenticated as %s", self._peer_host, self.principal)

    def _failed(self, reason: str) -> None:
        counts = self._listener.counts
        if self._session.is_renewal:
            counts.failed_reauthentication += 1
        else:
            counts.failed += 1
        log.info("failed authentication of %s: %s", self._peer_host, reason)

    def _closes(self, reaction: Reaction) -> None:
        counts = self._listener.counts
        if reaction.has_expired:
            counts.expired_connections_killed += 1
        elif self._session.is_renewal:
            counts.failed_reauthentication += 1
        else:
            counts.failed += 1
