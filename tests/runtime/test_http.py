"""The small HTTP server: what is a request, what is not, and who is not waited for."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from http import HTTPStatus

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from runtime.http import MAX_CONNECTIONS, MAX_HEAD_BYTES, BadRequest, HttpRequest, HttpResponse, HttpServer, Reader
from runtime.observatory import Observatory
from runtime.real import real_world

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
def test_what_is_no_request_is_refused(sent: bytes, status: HTTPStatus) -> None:
    reader = Reader()
    reader.feed(sent)
    with pytest.raises(BadRequest) as refused:
        reader.next()
    assert refused.value.status is status


@given(st.binary(max_size=300))
def test_whatever_comes_is_a_request_or_is_refused(sent: bytes) -> None:
    reader = Reader()
    reader.feed(sent + b"\r\n\r\n")
    try:
        assert reader.next() is not None
    except BadRequest:
        pass


async def get(port: int, path: str) -> tuple[int, str]:
    """With somebody else's client."""

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
    assert await get(port, "/nothing") == (404, "/nothing is not here; there are\n/healthz\n/numbers\n/readyz\n")


async def test_a_head_without_a_body_and_many_requests_of_one_connection(nursery: trio.Nursery) -> None:
    world = real_world()
    listener = await world.network.listen("127.0.0.1", 0)
    nursery.start_soon(HttpServer(world, Observatory(lambda: "").handle).serve, listener)
    stream = await trio.open_tcp_stream("127.0.0.1", listener.port)
    await stream.send_all(b"HEAD /readyz HTTP/1.1\r\n\r\nGET /readyz HTTP/1.1\r\nConnection: close\r\n\r\n")
    told = b""
    async for piece in stream:
        told += piece
    assert told.count(b"HTTP/1.1 200 OK") == 2
    assert told.count(b"Content-Length: 6") == 2
    assert told.endswith(b"Connection: close\r\n\r\nready\n")


async def test_there_are_only_so_many_connections(nursery: trio.Nursery) -> None:
    world = real_world()
    listener = await world.network.listen("127.0.0.1", 0)
    nursery.start_soon(HttpServer(world, Observatory(lambda: "").handle).serve, listener)
    streams = []
    for _ in range(MAX_CONNECTIONS):
        stream = await trio.open_tcp_stream("127.0.0.1", listener.port)
        await stream.send_all(b"GET /healthz HTTP/1.1\r\n\r\n")
        assert (await stream.receive_some()).startswith(b"HTTP/1.1 200")
        streams.append(stream)
    one_more = await trio.open_tcp_stream("127.0.0.1", listener.port)
    with trio.fail_after(5):
        assert await one_more.receive_some() == b""
    await streams[0].aclose()
    with trio.fail_after(5):
        while True:
            again = await trio.open_tcp_stream("127.0.0.1", listener.port)
            try:
                await again.send_all(b"GET /healthz HTTP/1.1\r\n\r\n")
                if await again.receive_some():
                    break
            except trio.BrokenResourceError:
                pass  # the one that ended is still being counted
