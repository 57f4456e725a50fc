"""The small HTTP server: what is a request, what is not, and who is not waited for."""

from __future__ import annotations

import contextlib
import json
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable
from http import HTTPStatus

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from barnabas.runtime.http import (
    HEAD_SECONDS,
    MAX_CONNECTIONS,
    MAX_HEAD_BYTES,
    BadRequest,
    HttpRequest,
    HttpResponse,
    HttpServer,
    Reader,
)
from barnabas.runtime.observatory import Observatory
from barnabas.runtime.real import real_world
from barnabas.runtime.simulated import make_world, run_simulation
from barnabas.runtime.world import Connection, ConnectionLost, World

ASKED = b"GET /metrics?topic=a%20b&x= HTTP/1.1\r\nHost: here\r\nAccept:text/plain\r\n\r\n"


def test_a_request_is_read_however_it_is_cut() -> None:
    for cut in range(len(ASKED)):
        reader = Reader()
        reader.feed(ASKED[:cut])
        assert reader.next() is None
        reader.feed(ASKED[cut:] + b"HEAD / HTTP/1.0\r\n\r\n")
        first, second = reader.next(), reader.next()
        assert first == HttpRequest(
            "GET", "/metrics", {"topic": "a b"}, {"host": "here", "accept": "text/plain"}, keep_alive=True
        )
        assert second is not None and (second.method, second.path, second.keep_alive) == ("HEAD", "/", False)
        assert reader.next() is None


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"POST / HTTP/1.1\r\n\r\n", HTTPStatus.METHOD_NOT_ALLOWED),
        (b"GET / HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody", HTTPStatus.BAD_REQUEST),
        (b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (b"GET http://there/ HTTP/1.1\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (b"GET //[x HTTP/1.1\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (b"GET / HTTP/2\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (b"GET / HTTP/1.1\r\n: no name\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (b"\x16\x03\x01\x02\x00 hello\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (b"GET /" + b"x" * MAX_HEAD_BYTES, HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE),
    ],
)
def test_malformed_requests_are_refused(sent: bytes, status: HTTPStatus) -> None:
    reader = Reader()
    reader.feed(sent)
    with pytest.raises(BadRequest) as refused:
        reader.next()
    assert refused.value.status is status


@given(st.binary(max_size=300))
def test_any_bytes_are_a_request_or_are_refused(sent: bytes) -> None:
    reader = Reader()
    reader.feed(sent + b"\r\n\r\n")
    try:
        assert reader.next() is not None
    except BadRequest:
        pass


async def get(port: int, path: str) -> tuple[int, str]:
    """With a foreign client."""

    def ask() -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    return await trio.to_thread.run_sync(ask)


@pytest.mark.feature("OB-06")
async def test_health_and_readiness(nursery: trio.Nursery) -> None:
    missing = ["logs are being loaded"]
    observatory = Observatory(lambda: missing[0])

    async def numbers(request: HttpRequest) -> HttpResponse:
        return HttpResponse(json.dumps(request.query).encode(), "application/json")

    observatory.pages["/numbers"] = numbers
    world = real_world()
    listener = await world.network.listen("127.0.0.1", 0)
    nursery.start_soon(HttpServer(world, observatory.handle).serve, listener)
    port = listener.port
    assert await get(port, "/healthz") == (200, "ok\n")
    assert await get(port, "/readyz") == (503, "logs are being loaded\n")
    missing[0] = ""
    assert await get(port, "/readyz") == (200, "ready\n")
    assert await get(port, "/numbers?a=1") == (200, '{"a": "1"}')
    assert await get(port, "/") == (200, "/healthz\n/numbers\n/readyz\n")
    assert await get(port, "/nothing") == (404, "no page /nothing; the pages are\n/healthz\n/numbers\n/readyz\n")


async def test_a_head_without_a_body_and_many_requests_of_one_connection(nursery: trio.Nursery) -> None:
    world = real_world()
    listener = await world.network.listen("127.0.0.1", 0)
    nursery.start_soon(HttpServer(world, Observatory(lambda: "").handle).serve, listener)
    stream = await trio.open_tcp_stream("127.0.0.1", listener.port)
    await stream.send_all(b"HEAD /readyz HTTP/1.1\r\n\r\nGET /readyz HTTP/1.1\r\nConnection: close\r\n\r\n")
    received = b""
    async for piece in stream:
        received += piece
    assert received.count(b"HTTP/1.1 200 OK") == 2
    assert received.count(b"Content-Length: 6") == 2
    assert received.endswith(b"Connection: close\r\n\r\nready\n")


READY = b"GET /readyz HTTP/1.1\r\nConnection: close\r\n\r\n"


class Visitor:
    """A connection to the server on host `node`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def send(self, text: bytes) -> None:
        while text:
            text = text[self._connection.send_now([text]) :]
            if text:
                await self._connection.wait_writable()

    async def receive(self) -> bytes:
        """All that comes until the end."""
        received, buffer = b"", bytearray(4096)
        while True:
            try:
                count = await self._connection.receive_into(memoryview(buffer))
            except ConnectionLost:
                return received
            received += buffer[:count]


class Site:
    """A server whose only page reports readiness, under virtual time."""

    def __init__(self, universe: object) -> None:
        self._universe = universe
        self._worlds: dict[str, World] = {}

    async def start(self, nursery: trio.Nursery) -> None:
        world = make_world("node", self._universe)
        listener = await world.network.listen("", 8080)
        nursery.start_soon(HttpServer(world, Observatory(lambda: "").handle).serve, listener)

    async def visitor(self, host: str = "anywhere") -> Visitor:
        if host not in self._worlds:
            self._worlds[host] = make_world(host, self._universe)
        return Visitor(await self._worlds[host].network.dial("node", 8080))

    async def is_ready(self, host: str = "anywhere") -> bool:
        visitor = await self.visitor(host)
        await visitor.send(READY)
        return (await visitor.receive()).endswith(b"ready\n")


def play(act: Callable[[Site, trio.Nursery], Awaitable[None]]) -> None:
    async def story(universe: object) -> None:
        site = Site(universe)
        async with trio.open_nursery() as nursery:
            await site.start(nursery)
            await act(site, nursery)
            nursery.cancel_scope.cancel()

    run_simulation(1, story)


async def drip(visitor: Visitor) -> None:
    """A byte of a head every three seconds, until the server closes."""
    with contextlib.suppress(ConnectionLost):
        while True:
            await visitor.send(b"x")
            await trio.sleep(3)


@pytest.mark.feature("OB-06")
def test_slow_connections_never_shut_out_a_readiness_check() -> None:
    async def act(site: Site, nursery: trio.Nursery) -> None:
        for _ in range(2 * MAX_CONNECTIONS):
            nursery.start_soon(drip, await site.visitor("attacker"))
            assert await site.is_ready("attacker")
        assert await site.is_ready("kubelet")

    play(act)


def test_bytes_of_another_protocol_are_refused_at_once() -> None:
    async def act(site: Site, nursery: trio.Nursery) -> None:
        visitor = await site.visitor()
        await visitor.send(b"\x00\x00\x00\x20\x00\x12")
        with trio.fail_after(1):
            assert (await visitor.receive()).startswith(b"HTTP/1.1 400")

    play(act)


def test_a_head_that_does_not_come_to_its_end_is_not_waited_for() -> None:
    async def act(site: Site, nursery: trio.Nursery) -> None:
        visitor = await site.visitor()
        began = trio.current_time()
        nursery.start_soon(drip, visitor)
        assert await visitor.receive() == b""
        assert trio.current_time() - began <= HEAD_SECONDS + 1

    play(act)


def test_a_connection_may_be_quiet_between_requests() -> None:
    async def act(site: Site, nursery: trio.Nursery) -> None:
        visitor = await site.visitor()
        for _ in range(3):
            await visitor.send(b"GET /readyz HTTP/1.1\r\n\r\n")
            await trio.sleep(3 * HEAD_SECONDS)
        await visitor.send(READY)
        assert (await visitor.receive()).count(b"ready\n") == 4

    play(act)


def test_a_full_house_gives_the_place_of_the_host_that_has_most() -> None:
    async def act(site: Site, nursery: trio.Nursery) -> None:
        patient = await site.visitor("dashboard")
        await patient.send(b"GET /readyz HTTP/1.1\r\n\r\n")
        await trio.sleep(1)
        crowd = [await site.visitor("attacker") for _ in range(MAX_CONNECTIONS - 1)]
        assert await site.is_ready("kubelet")
        assert await crowd[0].receive() == b"", "the oldest of the crowd went"
        await patient.send(READY)
        assert (await patient.receive()).count(b"ready\n") == 2

    play(act)
