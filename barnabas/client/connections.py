"""The connections of one client: reconnect backoff, throttling, and the choice of the next node.

A node whose dial failed, or whose connection was lost, is not dialled for a while that grows, as does the time that its
next dial may take. A node that throttles gets no request before its throttle time is over. Knows nothing of topics.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NoReturn

import trio

from barnabas.client.cluster_settings import ClusterSettings
from barnabas.client.errors import SslAuthenticationException, UnsupportedVersionException
from barnabas.client.metadata import Node
from barnabas.client.telemetry.meters import ClientMeters
from barnabas.protocol.api_keys import API_SPECS, ApiKey
from barnabas.protocol.errors import ErrorCode, KafkaError, UnsupportedFieldError
from barnabas.protocol.schema import Message
from barnabas.runtime.backoff import Backoff
from barnabas.runtime.channel import (
    AuthenticationFailed,
    CallTimedOut,
    Channel,
    ChannelError,
    ConnectionFailed,
    NotSent,
    TlsFailed,
    UnsupportedVersion,
)
from barnabas.runtime.security import ChannelSecurity
from barnabas.runtime.world import World

log = logging.getLogger(__name__)

IDLE_LOOKS = 4
"""Idle checks of each connection within connections.max.idle.ms."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Parameters that all connections of a client share."""

    world: World
    nursery: trio.Nursery
    """Runs the receiving tasks; cancelling it ends the connections."""
    client_id: str
    settings: ClusterSettings
    security: ChannelSecurity | None = None
    silent: set[int] = field(default_factory=set)
    """Ids of the nodes that did not answer their last call in time, on whichever connection."""
    meters: ClientMeters = field(default_factory=ClientMeters)
    connected_once: trio.Event = field(default_factory=trio.Event)
    """Set when the first connection is established."""


class NodeConnection:
    """One connection to one node. Every method may be used by many tasks at once."""

    def __init__(self, caller: Caller, node: Node) -> None:
        settings, chance = caller.settings, caller.world.chance
        self.node = node
        self._silent = caller.silent
        self._meters = caller.meters
        self._connected_once = caller.connected_once
        self.channel = Channel(
            caller.world, caller.nursery, node.host, node.port, client_id=caller.client_id, security=caller.security
        )
        self.channel.on_closed = self._closed
        self.tried_ms = 0
        """Time of the last dial or loss."""
        self._clock = caller.world.monotonic
        self._reconnect = Backoff(settings.reconnect_backoff_ms, settings.reconnect_backoff_max_ms, chance)
        self._setup = Backoff(
            settings.socket_connection_setup_timeout_ms, settings.socket_connection_setup_timeout_max_ms, chance
        )
        self._setup_ms = self._setup.next_ms()
        self._free_ms = 0
        """No dial before this time."""
        self._throttled_until_ms = 0
        self._established = False
        self._answered = False
        """True once the connection has had a response."""
        self._authenticates = caller.security is not None and caller.security.authenticator is not None
        self._opening = trio.Lock()
        self._failures = 0
        self._reason = ""
        self._refusal: KafkaError | None = None
        """Set if the last dial failed for good: by the credentials or the certificates."""
        self._looks: list[int] = []
        """Number of requests sent before each of the last idle checks."""

    # Availability

    @property
    def silent(self) -> bool:
        """True if the node did not answer the last call in time, on this connection or on another."""
        return self.node.node_id in self._silent

    @property
    def connected(self) -> bool:
        return self.channel.connected

    @property
    def free_from_ms(self) -> int | None:
        """Earliest time at which a request leaves without waiting; None while there is no ready connection."""
        return self._throttled_until_ms if self.channel.ready else None

    @property
    def throttled(self) -> bool:
        return self._throttled_until_ms > self._clock.now_ms()

    def wait_ms(self) -> int:
        """Remaining reconnect backoff; 0 if it may be dialled now, or is connected."""
        return 0 if self.connected else max(0, self._free_ms - self._clock.now_ms())

    # Calls

    async def connect(self, timeout_ms: int) -> None:
        """Open the connection, when it may be dialled. Concurrent callers share one attempt, and its failure.

        They wait for the handshake, too: a caller let in earlier would lose the connection and retry at once, without
        end. NotSent if there is no connection in time. AuthenticationException if the node rejects the client's
        identity.
        """
        failures = self._failures
        reason = "another call is still connecting"
        with trio.move_on_after(timeout_ms / 1000):
            async with self._opening:
                if self.channel.ready:
                    return
                if self._failures > failures:
                    raise self._refusal or NotSent(self._reason)
                reason = "the connection was lost just now"
                if wait_ms := self.wait_ms():
                    await trio.sleep(wait_ms / 1000)
                reason = "no answer"
                await self._dial()
                return
        raise NotSent(f"no connection to {self.node} within {timeout_ms} ms: {reason}")

    async def call(self, request: Message, timeout_ms: int, at_most: int | None = None) -> Any:
        """Send a request and return the response. Raises as `Channel.call`, but UnsupportedVersionException and
        AuthenticationException, which a retry cannot change.

        NotSent at once while the node is backing off, so that a caller that may use another node does not wait.
        """
        if self._throttled_until_ms:
            await self._unthrottled(timeout_ms)
        if not self.channel.connected:
            if wait_ms := self.wait_ms():
                raise NotSent(f"{self.node} is not dialled for another {wait_ms} ms: {self._reason}")
            await self.connect(timeout_ms)
        sent_ms = self._clock.now_ms() if self._meters.is_measuring else None
        try:
            response = await self.channel.call(request, timeout_ms=timeout_ms, at_most=at_most)
        except (AuthenticationFailed, TlsFailed) as failed:
            raise self._refusal_of(failed) from failed
        except (UnsupportedVersion, UnsupportedFieldError) as unsupported:
            self._raise_unsupported(request, unsupported)
        except (CallTimedOut, ConnectionFailed) as failed:
            self._learn_from(failed)
            raise self._with_hint(failed) from failed
        self._learn_from(response)
        if sent_ms is not None:
            self._measure(sent_ms)
        return response

    def ask(
        self, request: Message, on_response: Callable[[Any], object], timeout_ms: int, at_most: int | None = None
    ) -> None:
        """Like `Channel.send_now`, without yielding; only for a node that does not throttle (`free_from_ms`). Raises
        UnsupportedVersionException as `call`.
        """

        sent_ms = self._clock.now_ms() if self._meters.is_measuring else None

        def answered(answer: Any) -> None:
            self._learn_from(answer)
            if sent_ms is not None and not isinstance(answer, ChannelError):
                self._measure(sent_ms)
            on_response(answer)

        try:
            self.channel.send_now(request, answered, timeout_ms=timeout_ms, at_most=at_most)
        except (UnsupportedVersion, UnsupportedFieldError) as unsupported:
            self._raise_unsupported(request, unsupported)

    async def send_one_way(self, request: Message, timeout_ms: int) -> None:
        """Send a request that has no response. Raises as `call`."""
        if not self.channel.connected:
            if wait_ms := self.wait_ms():
                raise NotSent(f"{self.node} is not dialled for another {wait_ms} ms: {self._reason}")
            await self.connect(timeout_ms)
        try:
            await self.channel.send_unanswered(request, timeout_ms=timeout_ms)
        except (AuthenticationFailed, TlsFailed) as failed:
            raise self._refusal_of(failed) from failed
        except (UnsupportedVersion, UnsupportedFieldError) as unsupported:
            self._raise_unsupported(request, unsupported)

    def close(self) -> None:
        """Close it for good."""
        self.channel.close()

    def looks_idle(self) -> bool:
        """Whether nothing was sent since `IDLE_LOOKS` calls of this ago, and nobody waits for a response or a dial."""
        channel = self.channel
        self._looks.append(channel.requests_sent)
        if len(self._looks) <= IDLE_LOOKS:
            return False
        first = self._looks.pop(0)
        return first == channel.requests_sent and not channel.in_flight and not self._opening.locked()

    def rest(self) -> None:
        """Close it until the next call."""
        if self.connected:
            log.debug("closed the idle connection to %s", self.node)
            self._established = False
            self.channel.disconnect("closed as idle")

    # Inside

    async def _dial(self) -> None:
        self.tried_ms = self._clock.now_ms()
        try:
            await self.channel.connect(timeout_ms=self._setup_ms)
        except (AuthenticationFailed, TlsFailed) as failed:
            self._failed(str(failed))
            self._refusal = self._refusal_of(failed)
            raise self._refusal from failed
        except NotSent as error:
            self._setup_ms = self._setup.next_ms()
            self._failed(str(error))
            raise
        self._established = True
        self._answered = False
        self._meters.connected(self._clock.now_ms())
        self._connected_once.set()
        self._reconnect.reset()
        self._setup.reset()
        self._setup_ms = self._setup.next_ms()
        self._looks.clear()

    def _failed(self, reason: str) -> None:
        self._failures += 1
        self._reason = reason
        self._refusal = None
        self._established = False
        self.tried_ms = self._clock.now_ms()
        self._free_ms = self.tried_ms + self._reconnect.next_ms()

    def _closed(self, refused: bool) -> None:
        # A failure while it is being opened is counted in `_dial`.
        if self._established and not refused:
            self._failed(f"{self.node} closed the connection")

    def _learn_from(self, answer: Any) -> None:
        """Learn from a response, or from the ChannelError in place of one."""
        if isinstance(answer, ChannelError):
            if isinstance(answer, CallTimedOut):
                self._silent.add(self.node.node_id)
            # Unless the loss is known already: one loss fails all calls under way.
            if self._established and not self.channel.connected:
                self._failed(str(answer))
            return
        self._answered = True
        if self._silent:
            self._silent.discard(self.node.node_id)
        throttle_ms = getattr(answer, "throttle_time_ms", 0)
        if throttle_ms > 0:
            self._throttled_until_ms = max(self._throttled_until_ms, self._clock.now_ms() + throttle_ms)

    def _measure(self, sent_ms: int) -> None:
        now_ms = self._clock.now_ms()
        self._meters.answered(self.node.node_id, now_ms - sent_ms, now_ms)

    def offers(self, api: ApiKey) -> bool:
        """Whether the node, as far as it is connected, serves this API in a version of ours."""
        spec, (lowest, highest) = API_SPECS[api], self.channel.versions.get(api, (0, -1))
        return max(lowest, spec.min_version) <= min(highest, spec.max_version)

    async def _unthrottled(self, timeout_ms: int) -> None:
        wait_ms = self._throttled_until_ms - self._clock.now_ms()
        if wait_ms > timeout_ms:
            await trio.sleep(timeout_ms / 1000)
            raise NotSent(f"{self.node} throttles this client for another {wait_ms - timeout_ms} ms")
        if wait_ms > 0:
            await trio.sleep(wait_ms / 1000)
        self._throttled_until_ms = 0

    def _with_hint(self, failed: ChannelError) -> ChannelError:
        """The error with its probable reason, if it is the first request that ended a connection without SASL."""
        if self._answered or self._authenticates or self.channel.connected or not isinstance(failed, ConnectionFailed):
            return failed
        return ConnectionFailed(
            f"{failed}, at the first request to {self.node}; "
            "if that listener uses SASL, set security.protocol to SASL_PLAINTEXT or SASL_SSL"
        )

    def _refusal_of(self, failed: AuthenticationFailed | TlsFailed) -> KafkaError:
        if isinstance(failed, TlsFailed):
            return SslAuthenticationException(str(failed))
        return KafkaError(failed.error.code, f"{self.node}: {failed.error.message}")

    def _raise_unsupported(self, request: Message, reason: Exception) -> NoReturn:
        api = API_SPECS[ApiKey(request.API_KEY)].name
        raise UnsupportedVersionException(ErrorCode.UNSUPPORTED_VERSION, f"{api} at {self.node}: {reason}") from reason


def in_turn(connections: Iterable[NodeConnection], start: int) -> list[NodeConnection]:
    """Connections in the order of preference: connected ones with the fewest requests in flight, throttled ones last;
    then those that may be dialled, the one not tried for longest first; then the others, by their backoff.

    `start` is a random number that spreads clients over the nodes.
    """
    every = list(connections)
    if every:
        start %= len(every)
        every = every[start:] + every[:start]
    ready = sorted(
        (each for each in every if each.connected), key=lambda each: (each.throttled, each.channel.in_flight)
    )
    waits = [(each.wait_ms(), each.tried_ms, index) for index, each in enumerate(every) if not each.connected]
    return ready + [every[index] for _, _, index in sorted(waits)]
