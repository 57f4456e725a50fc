"""The page's server over real sockets: the feed, and refused requests."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from barnabas.cluster.errors import ClusterError, WrongArgument
from barnabas.https import Https
from barnabas.page.control import NotNow
from barnabas.page.feed import MOST_READERS, Feed
from barnabas.page.server import MOST_BODY_BYTES, Page, PageAddress, open_port
from barnabas.page.watch import Watch
from barnabas.runtime.http_token import HttpToken
from barnabas.runtime.real import real_world
from tests.runtime.tls.stage import authority, certificate, values

TOKEN = "the-token"


class Served:
    """A page over no nodes at all, and what was done by its buttons."""

    def __init__(
        self, *, buttons: bool = True, http_token: HttpToken | None = None, https: Https | None = None
    ) -> None:
        self.feed = Feed()
        self.done: list[tuple[str, str, Mapping[str, Any]]] = []
        self.failure: Exception | None = None
        listener, place = open_port("127.0.0.1", 0, "http" if https is None else "https")
        self.port = place.port
        self.trust: ssl.SSLContext | None = None
        """For a page over HTTPS."""
        watch = Watch(real_world(), self.feed, [])
        control = {"kill": self._kill} if buttons else None

        def hello(topic: str) -> Mapping[str, Any]:
            return {"topic": topic}

        self.page = Page(
            watch, self.feed, listener, place, TOKEN, hello, lambda: "demo", control, None, http_token, https=https
        )

    async def _kill(self, about: str, body: Mapping[str, Any]) -> None:
        if self.failure is not None:
            raise self.failure
        self.done.append(("kill", about, body))

    async def ask(self, request: bytes) -> tuple[int, dict[str, str], bytes]:
        """The answer to a whole request, which asks for the connection to be closed."""
        answer = b""
        with trio.fail_after(20):
            async with await self._connect() as stream:
                await stream.send_all(request)
                async for piece in stream:
                    answer += piece
        head, _, body = answer.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (it.partition(":") for it in lines)}
        return int(first.split(" ")[1]), headers, body

    async def _connect(self) -> trio.abc.Stream:
        stream = await trio.open_tcp_stream("127.0.0.1", self.port)
        if self.trust is None:
            return stream
        return trio.SSLStream(stream, self.trust, server_hostname="127.0.0.1", https_compatible=True)

    async def get(self, path: str, host: str = "") -> tuple[int, dict[str, str], bytes]:
        name = host or f"127.0.0.1:{self.port}"
        return await self.ask(f"GET {path} HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n".encode())

    async def post(self, path: str, body: bytes = b"", **headers: str) -> tuple[int, str]:
        """`X_Barnabas_Token` for a header of that name."""
        sent = {"Host": f"127.0.0.1:{self.port}", "X-Barnabas-Token": TOKEN, "Content-Length": str(len(body))}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        lines = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
        request = f"POST /control/{path} HTTP/1.1\r\n{lines}Connection: close\r\n\r\n".encode() + body
        status, _headers, answer = await self.ask(request)
        text = answer.decode()
        assert text.count("\n") <= 1
        return status, text


@asynccontextmanager
async def served(
    *, buttons: bool = True, http_token: HttpToken | None = None, https: Https | None = None
) -> AsyncIterator[Served]:
    it = Served(buttons=buttons, http_token=http_token, https=https)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(it.page.watch.run)
        await nursery.start(it.page.serve)
        yield it
        nursery.cancel_scope.cancel()


class Events:
    """Server-sent events of one connection."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._data = b""

    async def next(self) -> tuple[int, str, Any]:
        with trio.fail_after(20):
            while b"\n\n" not in self._data.partition(b"\r\n\r\n")[2]:
                piece = await self._stream.receive_some()
                assert piece, "the feed has ended"
                self._data += piece
        # Chunks begin with a line of their size and end with an empty one.
        head, blank, rest = self._data.partition(b"\r\n\r\n")
        event, _, rest = rest.partition(b"\n\n")
        self._data = head + blank + rest
        fields = dict(line.partition(b": ")[::2] for line in event.splitlines())
        if b"event" not in fields:
            return await self.next()
        return int(fields[b"id"]), fields[b"event"].decode(), json.loads(fields[b"data"])


@asynccontextmanager
async def feed_of(it: Served, query: str = "", **headers: str) -> AsyncIterator[Events]:
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    async with await trio.open_tcp_stream("127.0.0.1", it.port) as stream:
        await stream.send_all(f"GET /feed{query} HTTP/1.1\r\nHost: localhost:{it.port}\r\n{lines}\r\n".encode())
        yield Events(stream)


@pytest.mark.feature("FI-10")
async def test_the_feed_begins_with_hello_and_numbers_its_events() -> None:
    async with served() as it:
        it.feed.mark("fault", "broker 1", "broker-1 is killed", at_ms=5)
        async with feed_of(it, "?topic=flights") as events:
            assert await events.next() == (1, "hello", {"topic": "flights"})
            number, kind, mark = await events.next()
            assert (number, kind, mark["text"], mark["decision"]) == (2, "mark", "broker-1 is killed", None)
            seen = []
            while len(seen) < 4:
                number, kind, data = await events.next()
                seen.append((number, kind))
                if kind == "cluster":
                    assert data["away"] is True
            assert [number for number, _kind in seen] == [3, 4, 5, 6]
            assert {kind for _number, kind in seen} == {"cluster", "partitions"}
        async with feed_of(it, Last_Event_ID="41") as events:
            assert await events.next() == (42, "hello", {"topic": "demo"})
        with trio.fail_after(10):
            while it.feed.is_read:  # who closes the connection looks no more
                await trio.sleep(0.01)


async def test_two_pages_at_once_and_not_more_than_many() -> None:
    async with served() as it, feed_of(it) as one, feed_of(it, "?topic=flights") as other:
        assert (await one.next())[2] == {"topic": "demo"}
        assert (await other.next())[2] == {"topic": "flights"}
        for _ in range(MOST_READERS - 2):
            it.feed.join("demo", lambda: None, it.page.watch.now_ms())
        status, _headers, body = await it.get("/feed")
        assert (status, body) == (503, b"the limit of %d readers is reached\n" % MOST_READERS)


async def test_static_files_and_single_requests() -> None:
    async with served() as it:
        status, headers, body = await it.get("/")
        assert status == 200 and b"<!doctype html>" in body.lower()
        assert headers["content-security-policy"].startswith("default-src 'self'")
        assert headers["cache-control"] == "no-store"
        status, headers, body = await it.get("/snapshot?topic=flights")
        answer = json.loads(body)
        assert status == 200 and answer["cluster"]["away"] is True and answer["partitions"]["topic"] == "flights"
        assert set(answer) == {"hello", "cluster", "partitions", "load", "tour", "marks"}
        assert json.loads((await it.get("/why?subject=flights-0"))[2]) == {"subject": "flights-0", "decisions": []}
        assert (await it.get("/why"))[0] == 400
        status, _headers, body = await it.get("/static/../server.py")
        assert status == 404 and body.count(b"\n") == 1


@pytest.mark.parametrize("host", ["evil.example", "evil.example:9644", "127.0.0.1:1", "10.0.0.1:9644", "[::1", ""])
async def test_a_foreign_host_header_is_refused(host: str) -> None:
    async with served() as it:
        status, _headers, _body = await it.get("/snapshot", host=host or " ")
        assert status in (400, 403)


def test_host_headers_that_name_the_page() -> None:
    assert PageAddress("127.0.0.1", 9644).is_called("localhost:9644")
    assert PageAddress("127.0.0.1", 9644).is_called("[::1]:9644")
    assert not PageAddress("127.0.0.1", 9644).is_called("localhost")
    assert not PageAddress("127.0.0.1", 9644).is_called("192.168.1.1:9644")
    open_to_all = PageAddress("0.0.0.0", 9644)
    assert open_to_all.is_called("192.168.1.1:9644") and open_to_all.is_called("127.0.0.1:80")
    assert not open_to_all.is_called("evil.example:9644")
    assert not open_to_all.is_loopback and PageAddress("localhost", 1).is_loopback


@pytest.mark.feature("FI-10")
async def test_actions_need_the_token_and_no_foreign_origin() -> None:
    async with served() as it:
        own = f"http://127.0.0.1:{it.port}"
        for refused in (
            {"X_Barnabas_Token": "guessed"},
            {"X_Barnabas_Token": ""},
            {"X_Barnabas_Token": "tökén"},
            {"Origin": "http://evil.example"},
            {"Origin": "null"},
            {"Origin": f"http://127.0.0.1:{it.port + 1}"},
            {"Host": f"evil.example:{it.port}"},
        ):
            status, text = await it.post("kill/broker-1", **refused)
            assert status == 403 and text, refused
        assert it.done == []
        assert await it.post("kill/broker-1", Origin=own) == (200, '{"done": true}')
        assert await it.post("kill/broker-1", b'{"now": true}') == (200, '{"done": true}')
        assert it.done == [("kill", "broker-1", {}), ("kill", "broker-1", {"now": True})]
        assert (await it.get("/control/kill/broker-1"))[0] == 405
        assert (await it.post("explode/broker-1"))[0] == 404


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b"7", b"\xff\xfe", b"[" * 4000, b'{"a":' * 700, b"x" * (MOST_BODY_BYTES + 1), b"null"]
)
async def test_a_hostile_body_is_refused_in_one_line(body: bytes) -> None:
    async with served() as it:
        status, text = await it.post("kill/broker-1", body)
        assert status in (400, 413) and text
        assert it.done == []


async def test_refusals_of_the_cluster_are_one_line() -> None:
    async with served() as it:
        for failure, expected in (
            (WrongArgument("there is no node\nbroker-9"), 400),
            (NotNow("the tour is running"), 409),
            (ClusterError("broker-1 does not run"), 503),
        ):
            it.failure = failure
            assert await it.post("kill/broker-1") == (expected, " ".join(str(failure).split()) + "\n")


async def test_a_read_only_page_refuses_actions() -> None:
    async with served(buttons=False) as it:
        status, text = await it.post("kill/broker-1")
        assert status == 405 and "--allow-faults" in text


def test_a_port_in_use_is_reported_in_one_line() -> None:
    listener, place = open_port("127.0.0.1", 0)
    with (
        listener,
        pytest.raises(ClusterError, match=f"127.0.0.1:{place.port}: Address already in use; choose another --port"),
    ):
        open_port("127.0.0.1", place.port)
    with pytest.raises(ClusterError, match="cannot listen on no-such-host"):
        open_port("no-such-host.invalid", 0)


async def test_an_idle_feed_sends_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.page.server.HEARTBEAT_SECONDS", 0.01)
    it = Served()  # nobody runs its watch: there is no news
    events = it.page.events("flights", last_id=0)
    assert b"event: hello" in await anext(events)
    assert await anext(events) == b": still here\n\n"
    assert it.feed.topics == ["flights"]
    await events.aclose()  # type: ignore[attr-defined]
    assert not it.feed.is_read
    it.page.listener.close()


async def test_a_stalled_reader_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.web.TAKES_NOTHING_SECONDS", 0.5)
    with trio.fail_after(30):
        async with served() as it:
            stalled = await trio.open_tcp_stream("127.0.0.1", it.port)
            await stalled.send_all(f"GET /feed HTTP/1.1\r\nHost: localhost:{it.port}\r\n\r\n".encode())
            while not it.feed.is_read:
                await trio.sleep(0.01)
            # Bigger than what the machine holds back for a connection.
            for _ in range(40):
                it.feed.tour({"step": 1, "finished": False, "text": "x" * 500_000})
                await trio.sleep(0.001)
            async with feed_of(it) as events:
                assert (await events.next())[1] == "hello"
        await stalled.aclose()


async def test_a_page_with_a_token_asks_for_it_before_anything_else() -> None:
    token = HttpToken("correct-horse-battery")
    async with served(http_token=token) as it:
        for path in ("/", "/static/page.js", "/snapshot", "/feed", "/access/acls", "/why?subject=quorum", "/nothing"):
            status, headers, body = await it.get(path)
            assert (status, headers["www-authenticate"][:22]) == (401, 'Basic realm="barnabas"')
            assert body == b"this page needs a password: the token in its --http-token-file\n"
        assert (await it.post("kill/broker-1"))[0] == 401
        status, _ = await it.post("kill/broker-1", Authorization=token.authorization)
        assert (status, it.done) == (200, [("kill", "broker-1", {})])
        async with feed_of(it, Authorization=token.authorization) as events:
            assert (await events.next())[1] == "hello"


async def test_a_page_over_https_refuses_pages_over_http() -> None:
    https = Https(values(certificate()), "the page")
    async with served(https=https) as it:
        it.trust = ssl.create_default_context(cadata=authority().certificate_pem.decode())
        assert it.page.address.url == f"https://127.0.0.1:{it.port}"
        status, _, body = await it.get("/")
        assert status == 200 and b"<title>Barnabas</title>" in body
        place = f"127.0.0.1:{it.port}"
        for scheme, expected in (("http", 403), ("https", 200)):
            assert (await it.post("kill/broker-1", Origin=f"{scheme}://{place}"))[0] == expected


async def test_a_page_without_the_view_access_names_the_tables() -> None:
    async with served() as it:
        status, _, body = await it.get("/access/acls")
        assert (status, body) == (404, b"tables are acls, users, tokens, quotas, denials, and check\n")
