"""Outgoing calls to one node: dialled on first use, pipelined over one connection, matched by correlation id.

A channel never retries. Its errors tell the caller what it must know to do so: whether the request can have
been processed. After an error the next call dials again; waiting in between is the caller's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import trio

from protocol.api_keys import API_SPECS, ApiKey, ApiSpec
from protocol.errors import ErrorCode, KafkaError, MalformedMessage
from protocol.framing import request_prefix
from protocol.headers import ResponseHeader
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.schema import Message, decode, decode_prefix, encode_chunks
from runtime.frames import FrameError, FrameReader
from runtime.outgoing import Outgoing
from runtime.world import Chunk, Connection, ConnectionLost, DialFailed, DialRefused, World

log = logging.getLogger(__name__)

MAX_RESPONSE_BYTES = 2**31 - 1
"""The protocol's own bound; memory is taken only as the bytes come."""

MAX_HANDSHAKE_BYTES = 1024 * 1024
"""Of an answer before the peer has shown that it speaks the protocol: what a server of something else sends would pass
for the size of a huge frame, and be waited for."""

SCRATCH_BYTES = 32 * 1024
CLIENT_SOFTWARE_NAME = "barnabas"
CLIENT_SOFTWARE_VERSION = "0.1.0"


class ChannelError(Exception):
    """A call got no answer."""


class NotSent(ChannelError):
    """The request certainly did not reach the peer. `refused`: the peer's host answered that nobody
    listens."""

    def __init__(self, reason: str, *, refused: bool = False) -> None:
        super().__init__(reason)
        self.refused = refused


class UnsupportedVersion(NotSent):
    """The peer does not serve the API in a version that we speak."""


class AuthenticationFailed(NotSent):
    """The peer does not believe who is calling; `error` is what it says."""

    def __init__(self, reason: str, error: KafkaError) -> None:
        super().__init__(reason)
        self.error = error


class ConnectionFailed(ChannelError):
    """The connection ended before the answer came: the request may have been processed."""


class CallTimedOut(ChannelError):
    """No answer in time: the request may have been processed, or may yet be."""


class Features(NamedTuple):
    """What a cluster has finalized, as one of its nodes tells it (KIP-584)."""

    epoch: int
    levels: Mapping[str, int]


NO_FEATURES = Features(-1, {})


class Peer(Protocol):
    """The other end of a connection that is being opened."""

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...

    async def call(self, request: Message, *, version: int | None = None) -> Any:
        """Ask, in the highest version both sides speak or in `version`. Raises as `Channel.call`; whoever opens the
        connection bounds the time."""


class Authenticator(Protocol):
    """Proves who is calling, on each new connection: after its versions are known, before anything else is asked."""

    async def authenticate(self, peer: Peer) -> None:
        """KafkaError (SASL_AUTHENTICATION_FAILED, UNSUPPORTED_SASL_MECHANISM, …) if the peer does not believe it."""


class _Waiter:
    """One call under way; it is woken with a frame or with an error."""

    __slots__ = ("error", "frame", "woken")

    def __init__(self) -> None:
        self.woken = trio.Event()
        self.frame: bytearray | None = None
        self.error: Exception | None = None

    def take(self, frame: bytearray) -> None:
        self.frame = frame
        self.woken.set()

    def fail(self, error: Exception) -> None:
        self.error = error
        self.woken.set()


class _Talk(_Waiter):
    """A request and its answer, the next request, and so on, all in the turns in which the answers come."""

    __slots__ = ("_abandoned", "_next", "_send", "asked_at")

    def __init__(self, send: Callable[[Any, _Talk], object], answer: Callable[[bytearray], Any]) -> None:
        """`send` sends a request; `answer` gives the next one for a frame, or None."""
        super().__init__()
        self._send = send
        self._next = answer
        self._abandoned = False
        self.asked_at = 0.0

    def ask(self, request: Any) -> None:
        self.asked_at = trio.current_time()
        self._send(request, self)

    def take(self, frame: bytearray) -> None:
        if self._abandoned:
            return
        try:
            request = self._next(frame)
            if request is None:
                self.woken.set()
            else:
                self.ask(request)
        except Exception as error:
            self.fail(error)

    def abandon(self) -> None:
        """Nobody wants the next answer any more."""
        self._abandoned = True


class _Link:
    """One open connection of a channel, with the calls that wait on it."""

    def __init__(self, connection: Connection, nursery: trio.Nursery, on_lost: Callable[[], None]) -> None:
        self._connection = connection
        self._outgoing = Outgoing(connection)
        self._nursery = nursery
        self._on_lost = on_lost
        self._waiters: dict[int, _Waiter] = {}
        self._emptied = trio.Event()
        """Set once nothing is queued any more."""
        self._reader = FrameReader(connection, MAX_HANDSHAKE_BYTES, bytearray(SCRATCH_BYTES + 4))
        self.versions: dict[int, tuple[int, int]] = {}
        """Empty until the handshake is over."""
        self.closed = False

    @property
    def in_flight(self) -> int:
        return len(self._waiters)

    def settle(self, versions: dict[int, tuple[int, int]]) -> None:
        """The handshake is over: anybody may call."""
        self._reader.max_frame_bytes = MAX_RESPONSE_BYTES
        self.versions = versions

    async def run(self) -> None:
        """Receive answers until the connection ends."""
        read = self._reader.read
        try:
            while not self.closed:
                for frame in await read():
                    self._answered(frame)
        except FrameError as error:
            hint = "" if self.versions else ": whoever listens there does not speak this protocol, or not in the clear"
            self._lose(FrameError(f"{error}{hint}"))
        except (ConnectionLost, MalformedMessage) as error:
            self._lose(error)
        finally:
            self.close("the channel is closing")

    def post(self, correlation_id: int, chunks: list[Chunk], waiter: _Waiter) -> None:
        """Send one request, of which `waiter` hears; raises NotSent if it certainly did not go."""
        if self.closed:
            raise NotSent("the connection just closed")
        size_bytes = sum(map(len, chunks))
        self._waiters[correlation_id] = waiter
        try:
            self._outgoing.send([size_bytes.to_bytes(4, "big"), *chunks], size_bytes + 4)
        except ConnectionLost as lost:
            # The peer's end of this frame is missing for ever, so it cannot act on it.
            del self._waiters[correlation_id]
            self._lose(lost)
            raise NotSent(str(lost)) from lost
        if self._outgoing.unsent_bytes and not self._outgoing.draining:
            self._outgoing.draining = True
            self._emptied = trio.Event()
            self._nursery.start_soon(self._drain)

    async def post_unanswered(self, correlation_id: int, chunks: list[Chunk]) -> None:
        """Send one request that gets no answer, and wait until the system has all of it. Raises NotSent, or
        ConnectionFailed if the connection ends meanwhile.
        """
        self.post(correlation_id, chunks, _Waiter())
        del self._waiters[correlation_id]
        if self._outgoing.draining:
            await self._emptied.wait()
            if self.closed:
                raise ConnectionFailed("the connection ended while a request was being sent")

    def close(self, reason: str) -> None:
        """Close; every call that still waits fails."""
        if not self.closed:
            self.closed = True
            self._connection.close()
            self._outgoing.clear()
            waiters, self._waiters = self._waiters, {}
            for waiter in waiters.values():
                waiter.fail(ConnectionFailed(reason))

    def _answered(self, frame: bytearray) -> None:
        waiter = self._waiters.pop(int.from_bytes(frame[:4], "big", signed=True), None)
        if waiter is None or len(frame) < 4:
            raise MalformedMessage("an answer to no request")
        waiter.take(frame)

    async def _drain(self) -> None:
        try:
            await self._outgoing.drain()
        except ConnectionLost as lost:
            self._lose(lost)
        finally:
            self._emptied.set()

    def _lose(self, error: Exception) -> None:
        if not self.closed:
            self.close(str(error))
            self._on_lost()


class Channel:
    """Calls to one host and port. Every method may be used by many tasks at once."""

    def __init__(self, world: World, nursery: trio.Nursery, host: str, port: int, *, client_id: str) -> None:
        """`nursery` runs the receiving; when it is cancelled the connection closes."""
        self.host = host
        self.port = port
        self.on_closed: Callable[[bool], None] | None = None
        """Called with False when the peer ended an established connection, with True when a dial was refused:
        both are early news that its process may be gone."""
        self.authenticator: Authenticator | None = None
        """Asked on each new connection."""
        self.features = NO_FEATURES
        """As of the last time that a connection was opened."""
        self._world = world
        self._nursery = nursery
        self._client_id = client_id
        self._link: _Link | None = None
        self._opening = trio.Lock()
        self._last_correlation_id = 0
        self._closed = False

    @property
    def connected(self) -> bool:
        return self._link is not None and not self._link.closed

    @property
    def ready(self) -> bool:
        """Connected, and past the handshake: a call leaves in the turn in which it is made."""
        return self._link is not None and not self._link.closed and bool(self._link.versions)

    @property
    def in_flight(self) -> int:
        """Calls that wait for their answers."""
        return 0 if self._link is None else self._link.in_flight

    @property
    def requests_sent(self) -> int:
        """How many requests were ever sent, those of handshakes, too."""
        return self._last_correlation_id

    async def call(
        self, request: Message, *, timeout_ms: float, version: int | None = None, at_most: int | None = None
    ) -> Any:
        """Send `request`, in the highest version both sides speak or in `version`, and give the response.

        `at_most` is the highest version to choose, for a caller to whom a later one would mean something else.
        Byte fields of the response that are records are views into its frame, which nobody else uses.
        Raises NotSent, UnsupportedVersion, ConnectionFailed or CallTimedOut.
        """
        spec = API_SPECS[ApiKey(request.API_KEY)]
        chosen, frame = await self._exchange(spec, request, version, timeout_ms, at_most)
        try:
            return decode(spec.response_type(), _body(frame, spec, chosen), chosen)
        except MalformedMessage as error:
            raise self._malformed(spec, error) from error

    async def tell(self, request: Message, *, timeout_ms: float) -> None:
        """Send a request that the peer does not answer (Produce with acks=0), and wait until it has left. Raises as
        `call`.
        """
        spec = API_SPECS[ApiKey(request.API_KEY)]
        link: _Link | None = None
        with trio.move_on_after(timeout_ms / 1000):
            link = await self._ready_link()
            version = self._choose(link.versions, spec, None, None)
            self._last_correlation_id = (self._last_correlation_id + 1) & 0x7FFFFFFF
            prefix = request_prefix(spec.key, version, self._last_correlation_id, self._client_id)
            await link.post_unanswered(self._last_correlation_id, encode_chunks(request, version, prefix))
            return
        if link is None:
            raise NotSent(f"connecting to {self.host}:{self.port} took longer than {timeout_ms} ms")
        raise self._timed_out(link, spec, timeout_ms)

    async def call_raw(self, api_key: ApiKey, version: int, body: Sequence[Chunk], *, timeout_ms: float) -> memoryview:
        """Send an encoded request body and give the encoded response body, writable and the caller's own."""
        spec = API_SPECS[api_key]
        chosen, frame = await self._exchange(spec, body, version, timeout_ms)
        try:
            return _body(frame, spec, chosen)
        except MalformedMessage as error:
            raise self._malformed(spec, error) from error

    async def converse(
        self, request: Message, answered: Callable[[Any], Message | None], *, timeout_ms: float
    ) -> None:
        """Send `request`, and whatever `answered` makes of each answer, until that is None.

        `answered` runs in the very turn in which an answer comes, so nothing lies between it and the next request.
        All requests are of one kind. Each has `timeout_ms`. Raises as `call`, and what `answered` raises.
        """
        spec = API_SPECS[ApiKey(request.API_KEY)]
        link: _Link | None = None
        with trio.move_on_after(timeout_ms / 1000):
            link = await self._ready_link()
        if link is None:
            raise NotSent(f"connecting to {self.host}:{self.port} took longer than {timeout_ms} ms")
        version = self._choose(link.versions, spec, None, None)

        def answer(frame: bytearray) -> Message | None:
            try:
                response = decode(spec.response_type(), _body(frame, spec, version), version)
            except MalformedMessage as error:
                raise self._malformed(spec, error) from error
            return answered(response)

        talk = _Talk(lambda message, talk: self._post(link, spec, version, message, talk), answer)
        try:
            talk.ask(request)
            while not talk.woken.is_set():
                deadline = talk.asked_at + timeout_ms / 1000
                with trio.move_on_at(deadline):
                    await talk.woken.wait()
                if not talk.woken.is_set() and talk.asked_at + timeout_ms / 1000 <= deadline:
                    raise self._timed_out(link, spec, timeout_ms)
        finally:
            talk.abandon()
        if talk.error is not None:
            raise talk.error

    async def connect(self, *, timeout_ms: float) -> None:
        """Make sure that there is a connection. Raises NotSent."""
        with trio.move_on_after(timeout_ms / 1000):
            await self._open()
            return
        raise NotSent(f"connecting to {self.host}:{self.port} took longer than {timeout_ms} ms")

    def disconnect(self, reason: str) -> None:
        """Close the connection: calls under way raise ConnectionFailed, the next one dials again."""
        if self._link is not None:
            self._link.close(reason)

    def close(self) -> None:
        """Close for good: calls under way raise ConnectionFailed, later ones NotSent."""
        self._closed = True
        self.disconnect("the channel was closed")

    async def _exchange(
        self,
        spec: ApiSpec,
        request: Message | Sequence[Chunk],
        version: int | None,
        timeout_ms: float,
        at_most: int | None = None,
    ) -> tuple[int, bytearray]:
        """(version, frame of the response)"""
        link: _Link | None = None
        waiter: _Waiter | None = None
        with trio.move_on_after(timeout_ms / 1000):
            link = await self._ready_link()
            version = self._choose(link.versions, spec, version, at_most)
            waiter = self._post(link, spec, version, request, _Waiter())
            return version, await self._wait(waiter)
        if link is None or waiter is None:
            raise NotSent(f"connecting to {self.host}:{self.port} took longer than {timeout_ms} ms")
        raise self._timed_out(link, spec, timeout_ms)

    def _timed_out(self, link: _Link, spec: ApiSpec, timeout_ms: float) -> CallTimedOut:
        # The connection may be half dead, and answers keep their order: it is of no more use to anybody.
        link.close(f"{spec.name} to {self.host}:{self.port} timed out")
        return CallTimedOut(f"{spec.name} to {self.host}:{self.port}: no answer in {timeout_ms} ms")

    def _post(
        self, link: _Link, spec: ApiSpec, version: int, request: Message | Sequence[Chunk], waiter: _Waiter
    ) -> _Waiter:
        self._last_correlation_id = (self._last_correlation_id + 1) & 0x7FFFFFFF
        prefix = request_prefix(spec.key, version, self._last_correlation_id, self._client_id)
        chunks = encode_chunks(request, version, prefix) if isinstance(request, Message) else [prefix, *request]
        link.post(self._last_correlation_id, chunks, waiter)
        return waiter

    async def _wait(self, waiter: _Waiter) -> bytearray:
        await waiter.woken.wait()
        if waiter.error is not None:
            raise waiter.error
        assert waiter.frame is not None
        return waiter.frame

    async def _ready_link(self) -> _Link:
        link = self._link
        if link is None or link.closed or not link.versions:
            # Without versions another call is still opening it.
            link = await self._open()
        return link

    async def _open(self) -> _Link:
        async with self._opening:
            link = self._link
            if link is not None and not link.closed:
                return link
            if self._closed:
                raise NotSent("the channel was closed")
            link = self._link = _Link(await self._dial(), self._nursery, self._lost)
            try:
                self._nursery.start_soon(link.run)
                versions = await self._learn_versions(link)
                if self.authenticator is not None:
                    await self.authenticator.authenticate(_Stranger(self, link, versions))
                link.settle(versions)
            except KafkaError as error:
                link.close(str(error))
                raise AuthenticationFailed(f"{self.host}:{self.port}: {error}", error) from error
            except (ConnectionFailed, MalformedMessage) as error:
                link.close(str(error))
                raise NotSent(f"handshake with {self.host}:{self.port} failed: {error}") from error
            except BaseException:
                link.close("the handshake was given up")
                raise
            if self._closed:
                link.close("the channel was closed")
                raise NotSent("the channel was closed")
            return link

    async def ask_stranger(
        self, link: _Link, versions: Mapping[int, tuple[int, int]], request: Message, version: int | None
    ) -> Any:
        """A call during the handshake, when nobody else may call yet."""
        spec = API_SPECS[ApiKey(request.API_KEY)]
        chosen = self._choose(versions, spec, version, None)
        frame = await self._wait(self._post(link, spec, chosen, request, _Waiter()))
        return decode(spec.response_type(), _body(frame, spec, chosen), chosen)

    async def _dial(self) -> Connection:
        try:
            return await self._world.network.dial(self.host, self.port)
        except DialRefused as error:
            if self.on_closed is not None:
                self.on_closed(True)
            raise NotSent(str(error), refused=True) from error
        except DialFailed as error:
            raise NotSent(str(error)) from error

    async def _learn_versions(self, link: _Link) -> dict[int, tuple[int, int]]:
        """Ask which versions the peer serves; one that does not know ours answers in version 0 (KIP-511)."""
        spec = API_SPECS[ApiKey.API_VERSIONS]
        ask = ApiVersionsRequest(
            client_software_name=CLIENT_SOFTWARE_NAME, client_software_version=CLIENT_SOFTWARE_VERSION
        )
        version = spec.max_version
        body = _body(await self._wait(self._post(link, spec, version, ask, _Waiter())), spec, version)
        if int.from_bytes(body[:2], "big") == ErrorCode.UNSUPPORTED_VERSION:
            version = 0
            body = _body(await self._wait(self._post(link, spec, version, ask, _Waiter())), spec, version)
        response = decode(ApiVersionsResponse, body, version)
        if response.error_code != ErrorCode.NONE:
            raise MalformedMessage(f"ApiVersions answered error {response.error_code}")
        levels = {feature.name: feature.max_version_level for feature in response.finalized_features}
        self.features = Features(response.finalized_features_epoch, levels)
        return {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}

    def _choose(
        self, versions: Mapping[int, tuple[int, int]], spec: ApiSpec, version: int | None, at_most: int | None
    ) -> int:
        lowest, highest = versions.get(spec.key, (0, -1))
        if version is None:
            wanted_from, wanted_to = spec.min_version, spec.max_version
            if at_most is not None:
                wanted_to = min(wanted_to, at_most)
        else:
            wanted_from = wanted_to = version
        chosen = min(highest, wanted_to)
        if chosen < max(lowest, wanted_from):
            raise UnsupportedVersion(
                f"{self.host}:{self.port} serves {spec.name} {lowest}-{highest}, wanted {wanted_from}-{wanted_to}"
            )
        return chosen

    def _malformed(self, spec: ApiSpec, error: MalformedMessage) -> ConnectionFailed:
        reason = f"malformed {spec.name} response from {self.host}:{self.port}: {error}"
        self.disconnect(reason)
        return ConnectionFailed(reason)

    def _lost(self) -> None:
        log.debug("connection to %s:%d lost", self.host, self.port)
        if self.on_closed is not None:
            self.on_closed(False)


class _Stranger:
    """The peer of a handshake, as an `Authenticator` sees it."""

    def __init__(self, channel: Channel, link: _Link, versions: Mapping[int, tuple[int, int]]) -> None:
        self.host = channel.host
        self.port = channel.port
        self._channel = channel
        self._link = link
        self._versions = versions

    async def call(self, request: Message, *, version: int | None = None) -> Any:
        return await self._channel.ask_stranger(self._link, self._versions, request, version)


def _body(frame: bytearray, spec: ApiSpec, version: int) -> memoryview:
    """What follows the response header."""
    view = memoryview(frame)
    position = 4
    if spec.response_header_version(version) == 1:
        _, position = decode_prefix(ResponseHeader, view, 0, 1)
    return view[position:]
