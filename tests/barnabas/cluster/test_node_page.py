"""A node that is asked may be anything: what it answers is bounded, and JSON or nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio

from barnabas.cluster.node_page import NoAnswer, NodePage, Refused
from barnabas.runtime.real import real_world


@asynccontextmanager
async def answering(*answers: bytes, ends: bool = False) -> AsyncIterator[tuple[NodePage, list[int]]]:
    """A node that gives these answers, one for each question; `ends` its connections after each. Also the number of
    its connections."""
    connections = [0]
    left = list(answers)

    async def converse(stream: trio.SocketStream) -> None:
        connections[0] += 1
        async with stream:
            while left:
                if not await stream.receive_some():
                    return
                await stream.send_all(left.pop(0))
                if ends:
                    return
            await stream.receive_some()

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, converse, 0, host="127.0.0.1"))
        port = listeners[0].socket.getsockname()[1]
        page = NodePage(real_world().network, "127.0.0.1", port)
        with trio.fail_after(20):
            yield page, connections
        page.close()
        nursery.cancel_scope.cancel()


def answer(body: bytes, status: bytes = b"200 OK") -> bytes:
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)


async def test_one_connection_serves_many_questions() -> None:
    async with answering(answer(b'{"a": 1}'), answer(b"[2]")) as (page, connections):
        assert await page.get("/state") == {"a": 1}
        assert await page.get("/state") == [2]
        assert connections == [1]


async def test_a_connection_that_was_closed_meanwhile_is_dialled_again() -> None:
    async with answering(answer(b"1"), answer(b"2"), ends=True) as (page, connections):
        assert await page.get("/state") == 1
        await trio.sleep(0.05)
        assert await page.get("/state") == 2
        assert connections == [2]


@pytest.mark.parametrize(
    ("response", "why"),
    [
        (answer(b"{"), "no JSON"),
        (answer(b"[" * 100_000), "no JSON"),
        (answer(b"\xff"), "no JSON"),
        (answer(b"busy", b"503 Service Unavailable"), "answered with 503"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", "answers 99999999999 bytes"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "does not speak as nodes do"),
        (b"HTTP/1.1 200 OK\r\n\r\n", "does not speak as nodes do"),
        (b"\x00\x00\x00\x04\x00\x00\r\n\r\n", "does not speak as nodes do"),
        (b"x" * 20_000, "does not speak as nodes do"),
    ],
)
async def test_an_invalid_response_is_an_error_of_one_line(response: bytes, why: str) -> None:
    async with answering(response) as (page, _connections):
        with pytest.raises(NoAnswer, match=why) as caught:
            await page.get("/state?topic=a")
        assert "\n" not in str(caught.value)


async def test_a_connection_closed_within_a_response_is_an_error() -> None:
    async with answering(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n1", ends=True) as (page, _connections):
        with pytest.raises(NoAnswer, match="closed the connection"):
            await page.get("/state")


async def test_a_port_where_nobody_listens_refuses() -> None:
    listener = await real_world().network.listen("127.0.0.1", 0)
    listener.close()
    with pytest.raises(Refused):
        await NodePage(real_world().network, "127.0.0.1", listener.port).get("/state")
