"""Outgoing calls to one node: dialled on first use, pipelined over one connection, matched by correlation id.

A channel never retries. Its errors distinguish what a caller needs for a retry: whether the request may have been
processed. After an error the next call dials again; the backoff is the caller's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeVar

import trio

from barnabas.protocol.api_keys import API_SPECS, ApiKey, ApiSpec
from barnabas.protocol.client_exchange import (
    CLIENT_SOFTWARE_VERSION,
    Handshake,
    NoCommonVersion,
    RequestEncoder,
    Versions,
    choose_version,
    decode_response,
    response_body,
)
from barnabas.protocol.errors import KafkaError, MalformedMessage
from barnabas.protocol.schema import Message
from barnabas.runtime.link import CallTimedOut, ChannelError, ConnectionFailed, Link, NotSent, PendingCall, Talk, Waiter
from barnabas.runtime.renewal import MIN_INTERVAL_SECONDS, RENEWAL_SECONDS, Renewal
from barnabas.runtime.security import Authenticator, ChannelSecurity, HandshakeFailed, Peer
from barnabas.runtime.world import Connection, ConnectionLost, DialFailed, DialRefused, World

__all__ = [
    "CLIENT_SOFTWARE_NAME",
    "CLIENT_SOFTWARE_VERSION",
    "AuthenticationFailed",
    "Authenticator",
    "CallTimedOut",
    "Channel",
    "ChannelError",
    "ConnectionFailed",
    "Features",
    "NotSent",
    "Peer",
    "TlsFailed",
    "UnsupportedVersion",
]

log = logging.getLogger(__name__)

P = TypeVar("P", bound=PendingCall)

CLIENT_SOFTWARE_NAME = "barnabas"


class UnsupportedVersion(NotSent):
    """No version of the API is spoken by both sides."""


class AuthenticationFailed(NotSent):
    """The peer refused the credentials; `error` is its answer."""

    def __init__(self, reason: str, error: KafkaError) -> None:
        super().__init__(reason)
        self.error = error


class TlsFailed(NotSent):
    """The TLS handshake failed for a reason that a retry does not change, such as a certificate that is not trusted."""


class Features(NamedTuple):
    """The finalized features of a cluster, as one of its nodes reports them (KIP-584)."""

    epoch: int
    levels: Mapping[str, int]


NO_FEATURES = Features(-1, {})


class _CallbackCall:
    """A request of `Channel.send_now`."""

    __slots__ = ("_channel", "_on_result", "_spec", "_timeout_ms", "_version", "deadline")

    def __init__(
        self, channel: Channel, spec: ApiSpec, version: int, timeout_ms: float, on_result: Callable[[Any], object]
    ) -> None:
        self._channel = channel
        self._spec = spec
        self._version = version
        self._timeout_ms = timeout_ms
        self._on_result = on_result
        self.deadline = trio.current_time() + timeout_ms / 1000

    def take(self, frame: bytearray) -> None:
        spec, version = self._spec, self._version
        try:
            answer = decode_response(frame, spec, version)
        except MalformedMessage as error:
            self._on_result(self._channel.malformed(spec, error))
        else:
            self._on_result(answer)

    def fail(self, error: Exception) -> None:
        self._on_result(error)

    def overdue(self) -> CallTimedOut:
        return self._channel.timed_out(self._spec, self._timeout_ms)


class Channel:
    """Calls to one host and port. Many tasks may use every method at once."""

    def __init__(
        self,
        world: World,
        nursery: trio.Nursery,
        host: str,
        port: int,
        *,
        client_id: str,
        security: ChannelSecurity | None = None,
    ) -> None:
        """`nursery` runs the receiving; when it is cancelled the connection closes."""
        self.host = host
        self.port = port
        self.on_closed: Callable[[bool], None] | None = None
        """Called with False when the peer ended an established connection, with True when a dial was refused:
        both are early signs that its process may be gone."""
        self.authenticator: Authenticator | None = None if security is None else security.authenticator
        """Used on each new connection."""
        self.features = NO_FEATURES
        """Read when a connection was last opened."""
        self._security = security
        self._world = world
        self._nursery = nursery
        self._requests = RequestEncoder(client_id)
        self._link: Link | None = None
        self._opening = trio.Lock()
        self._closed = False

    @property
    def connected(self) -> bool:
        return self._link is not None and not self._link.closed

    @property
    def ready(self) -> bool:
        """Connected, and past the handshake: a call is sent in the turn in which it is made."""
        return self._link is not None and not self._link.closed and bool(self._link.versions)

    @property
    def versions(self) -> Mapping[int, tuple[int, int]]:
        """API key to the lowest and highest version that the peer serves; empty unless `ready`."""
        return {} if self._link is None or self._link.closed else self._link.versions

    @property
    def in_flight(self) -> int:
        """Number of calls that wait for their answers."""
        return 0 if self._link is None else self._link.in_flight

    @property
    def requests_sent(self) -> int:
        """Number of requests sent since the start, including those of handshakes."""
        return self._requests.last_correlation_id

    async def call(
        self, request: Message, *, timeout_ms: float, version: int | None = None, at_most: int | None = None
    ) -> Any:
        """Send `request`, in the highest version both sides speak or in `version`, and return the response.

        `at_most` is the highest version to choose, for a caller to whom a later one means something else.
        Records of the response are views into its frame, which belongs to the caller.
        Raises NotSent, UnsupportedVersion, ConnectionFailed or CallTimedOut.
        """
        spec = API_SPECS[ApiKey(request.API_KEY)]
        chosen, frame = await self._exchange(spec, request, version, timeout_ms, at_most)
        try:
            return decode_response(frame, spec, chosen)
        except MalformedMessage as error:
            raise self.malformed(spec, error) from error

    def send_now(
        self, request: Message, on_result: Callable[[Any], object], *, timeout_ms: float, at_most: int | None = None
    ) -> None:
        """Send `request` now, over the connection, which must be `ready`. `on_result` is called once, with the response
        or the ChannelError that `call` would raise, in the turn in which that arrives: it must not raise or wait. A
        broken connection may call those of earlier requests before this returns.

        Raises NotSent or UnsupportedVersion; then `on_result` is not called.
        """
        link = self._link
        if link is None or link.closed or not link.versions:
            raise NotSent(f"there is no connection to {self.host}:{self.port}")
        spec = API_SPECS[ApiKey(request.API_KEY)]
        version = self._choose(link.versions, spec, None, at_most)
        pending = _CallbackCall(self, spec, version, timeout_ms, on_result)
        self._post(link, spec, version, request, pending)
        link.look_at(pending.deadline)

    async def send_unanswered(self, request: Message, *, timeout_ms: float) -> None:
        """Send a request that the peer does not answer (Produce with acks=0), and wait until it is sent. Raises as
        `call`.
        """
        spec = API_SPECS[ApiKey(request.API_KEY)]
        link: Link | None = None
        with trio.move_on_after(timeout_ms / 1000):
            link = await self._ready_link()
            version = self._choose(link.versions, spec, None, None)
            await link.post_unanswered(*self._requests.encode(spec, version, request))
            return
        if link is None:
            raise NotSent(f"connecting to {self.host}:{self.port} took longer than {timeout_ms} ms")
        raise self._late(link, spec, timeout_ms)

    async def converse(self, request: Message, answered: Callable[[Any], Message | None], *, timeout_ms: float) -> None:
        """Send `request`, and for each answer the request that `answered` returns for it, until that is None.

        `answered` runs in the turn in which an answer arrives, so that the next request leaves without delay. All
        requests are of one API. Each has `timeout_ms`. Raises as `call`, and what `answered` raises.
        """
        spec = API_SPECS[ApiKey(request.API_KEY)]
        link: Link | None = None
        with trio.move_on_after(timeout_ms / 1000):
            link = await self._ready_link()
        if link is None:
            raise NotSent(f"connecting to {self.host}:{self.port} took longer than {timeout_ms} ms")
        version = self._choose(link.versions, spec, None, None)

        def answer(frame: bytearray) -> Message | None:
            try:
                response = decode_response(frame, spec, version)
            except MalformedMessage as error:
                raise self.malformed(spec, error) from error
            return answered(response)

        talk = Talk(partial(self._post, link, spec, version), answer)
        try:
            talk.ask(request)
            while not talk.woken.is_set():
                deadline = talk.asked_at + timeout_ms / 1000
                with trio.move_on_at(deadline):
                    await talk.woken.wait()
                if not talk.woken.is_set() and talk.asked_at + timeout_ms / 1000 <= deadline:
                    raise self._late(link, spec, timeout_ms)
        finally:
            talk.abandon()
        if talk.error is not None:
            raise talk.error

    async def connect(self, *, timeout_ms: float) -> None:
        """Connect unless there is a connection. Raises NotSent."""
        with trio.move_on_after(timeout_ms / 1000):
            await self._open()
            return
        raise NotSent(f"connecting to {self.host}:{self.port} took longer than {timeout_ms} ms")

    def disconnect(self, reason: str) -> None:
        """Close the connection: calls under way raise ConnectionFailed, and the next call dials again."""
        if self._link is not None:
            self._link.close(reason)

    def close(self) -> None:
        """Close for good: calls under way raise ConnectionFailed, later calls NotSent."""
        self._closed = True
        self.disconnect("the channel was closed")

    async def _exchange(
        self,
        spec: ApiSpec,
        request: Message,
        version: int | None,
        timeout_ms: float,
        at_most: int | None,
    ) -> tuple[int, bytearray]:
        """(version, frame of the response)"""
        link: Link | None = None
        waiter: Waiter | None = None
        with trio.move_on_after(timeout_ms / 1000):
            link = await self._ready_link()
            version = self._choose(link.versions, spec, version, at_most)
            waiter = self._post(link, spec, version, request, Waiter())
            return version, await self._wait(waiter)
        if link is None or waiter is None:
            raise NotSent(f"connecting to {self.host}:{self.port} took longer than {timeout_ms} ms")
        raise self._late(link, spec, timeout_ms)

    def _late(self, link: Link, spec: ApiSpec, timeout_ms: float) -> CallTimedOut:
        # The connection may be half dead, and answers keep their order: no other call can use it.
        link.close(f"{spec.name} to {self.host}:{self.port} timed out")
        return self.timed_out(spec, timeout_ms)

    def timed_out(self, spec: ApiSpec, timeout_ms: float) -> CallTimedOut:
        """The error of a call that took too long. The connection stays."""
        return CallTimedOut(f"{spec.name} to {self.host}:{self.port}: no answer within {timeout_ms} ms")

    def malformed(self, spec: ApiSpec, error: MalformedMessage) -> ConnectionFailed:
        """The error of an answer that does not decode. Disconnects: nothing that follows can be trusted."""
        reason = f"malformed {spec.name} response from {self.host}:{self.port}: {error}"
        self.disconnect(reason)
        return ConnectionFailed(reason)

    def _post(self, link: Link, spec: ApiSpec, version: int, request: Message, waiter: P) -> P:
        correlation_id, chunks = self._requests.encode(spec, version, request)
        link.post(correlation_id, chunks, waiter)
        return waiter

    async def _wait(self, waiter: Waiter) -> bytearray:
        await waiter.woken.wait()
        if waiter.error is not None:
            raise waiter.error
        assert waiter.frame is not None
        return waiter.frame

    async def _ready_link(self) -> Link:
        link = self._link
        if link is None or link.closed or not link.versions:
            # Without versions, another call is still opening it.
            link = await self._open()
        return link

    async def _open(self) -> Link:
        async with self._opening:
            link = self._link
            if link is not None and not link.closed:
                return link
            if self._closed:
                raise NotSent("the channel was closed")
            link = self._link = Link(await self._dial(), self._nursery, self._lost)
            try:
                self._nursery.start_soon(link.run)
                versions = await self._learn_versions(link)
                if self.authenticator is not None:
                    peer = _HandshakePeer(self, link, versions)
                    self._renew_after(await self.authenticator.authenticate(peer), peer, link, 0.0)
                link.settle(versions)
            except KafkaError as error:
                link.close(str(error))
                raise AuthenticationFailed(f"{self.host}:{self.port}: {error}", error) from error
            except (ConnectionFailed, MalformedMessage) as error:
                link.close(str(error))
                kind = TlsFailed if link.refused_by_tls else NotSent
                raise kind(f"handshake with {self.host}:{self.port} failed: {error}") from error
            except BaseException:
                link.close("the handshake was cancelled")
                raise
            if self._closed:
                link.close("the channel was closed")
                raise NotSent("the channel was closed")
            return link

    async def handshake_call(
        self, link: Link, versions: Mapping[int, tuple[int, int]], request: Message, version: int | None
    ) -> Any:
        """A call during the handshake, before other calls are allowed."""
        spec = API_SPECS[ApiKey(request.API_KEY)]
        chosen = self._choose(versions, spec, version, None)
        waiter = Waiter()
        link.post_now(*self._requests.encode(spec, chosen, request), waiter)
        frame = await self._wait(waiter)
        return decode_response(frame, spec, chosen)

    def _renew_after(self, lifetime_ms: int | None, peer: _HandshakePeer, link: Link, not_before: float) -> None:
        """Renew the session of the link before its lifetime is over, but not before a time by trio's clock."""
        if lifetime_ms is None:
            link.renew_by(None)
            return

        def begin(renewal: Renewal) -> None:
            self._nursery.start_soon(self._renew, peer, link, renewal)

        link.renew_by(Renewal(begin, lifetime_ms, not_before, self._world.chance))

    async def _renew(self, peer: _HandshakePeer, link: Link, renewal: Renewal) -> None:
        """Authenticate again over the same connection. If that fails, the connection closes, and the next call opens
        another, which reports why."""
        assert self.authenticator is not None
        try:
            await trio.sleep_until(renewal.not_before)
            not_before = trio.current_time() + MIN_INTERVAL_SECONDS
            with trio.move_on_after(RENEWAL_SECONDS):
                lifetime_ms = await self.authenticator.authenticate(peer)
                if not link.closed:
                    self._renew_after(lifetime_ms, peer, link, not_before)
                return
            link.close(f"the re-authentication at {self.host}:{self.port} took longer than {RENEWAL_SECONDS} s")
        except (KafkaError, ChannelError, MalformedMessage) as error:
            log.info("the re-authentication at %s:%d failed: %s", self.host, self.port, error)
            link.close(f"the re-authentication at {self.host}:{self.port} failed: {error}")
        except Exception:
            # A mistake of ours. The next call opens another connection.
            log.exception("the re-authentication at %s:%d failed", self.host, self.port)
            link.close(f"the re-authentication at {self.host}:{self.port} failed")

    async def _dial(self) -> Connection:
        try:
            connection = await self._world.network.dial(self.host, self.port)
        except DialRefused as error:
            if self.on_closed is not None:
                self.on_closed(True)
            raise NotSent(str(error), refused=True) from error
        except DialFailed as error:
            raise NotSent(str(error)) from error
        return connection if self._security is None else await self._secured(self._security, connection)

    async def _secured(self, security: ChannelSecurity, connection: Connection) -> Connection:
        try:
            return await security.secure(connection, self.host)
        except (HandshakeFailed, ConnectionLost) as error:
            connection.close()
            kind = TlsFailed if isinstance(error, HandshakeFailed) else NotSent
            raise kind(f"TLS handshake with {self.host}:{self.port} failed: {error}") from error
        except BaseException:
            connection.close()
            raise

    async def _learn_versions(self, link: Link) -> dict[int, tuple[int, int]]:
        handshake = Handshake(CLIENT_SOFTWARE_NAME)
        while not handshake.done:
            spec, version = handshake.spec, handshake.version
            frame = await self._wait(self._post(link, spec, version, handshake.request, Waiter()))
            handshake.receive(response_body(frame, spec, version))
        self.features = Features(handshake.features_epoch, handshake.features)
        return handshake.versions

    def _choose(self, versions: Versions, spec: ApiSpec, version: int | None, at_most: int | None) -> int:
        try:
            return choose_version(versions, spec, version, at_most)
        except NoCommonVersion as error:
            raise UnsupportedVersion(f"{self.host}:{self.port} {error}") from None

    def _lost(self) -> None:
        log.debug("connection to %s:%d lost", self.host, self.port)
        if self.on_closed is not None:
            self.on_closed(False)


class _HandshakePeer:
    """The peer of a handshake, as an `Authenticator` sees it."""

    def __init__(self, channel: Channel, link: Link, versions: Mapping[int, tuple[int, int]]) -> None:
        self.host = channel.host
        self.port = channel.port
        self._channel = channel
        self._link = link
        self._versions = versions

    async def call(self, request: Message, *, version: int | None = None) -> Any:
        return await self._channel.handshake_call(self._link, self._versions, request, version)
