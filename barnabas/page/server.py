"""The page's server: static files, the feed as server-sent events, stories, and actions.

Requests are hostile. Only those whose Host header names this machine are answered, against DNS rebinding; actions need
the token of the page's URL and must not have a foreign Origin. If the page has an HTTP token, every request needs it.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, cast

import trio
from hypercorn.typing import ASGIReceiveCallable, ASGISendCallable, ASGISendEvent, Framework
from quart import Blueprint, Response, request
from quart_trio import QuartTrio
from quart_trio.asgi import TrioASGIHTTPConnection
from werkzeug.exceptions import HTTPException

from barnabas.cluster.errors import ClusterError, WrongArgument
from barnabas.https import Https
from barnabas.page.access import TABLES, Access
from barnabas.page.access_tables import Filter
from barnabas.page.control import Do, Json, NotNow
from barnabas.page.feed import Feed, Reader, TooMany
from barnabas.page.groups import Groups
from barnabas.page.schemas import Schemas
from barnabas.page.topics import Topics
from barnabas.page.watch import Watch
from barnabas.runtime.http_token import CHALLENGE, HttpToken
from barnabas.web import listen, serve_app

STATIC = Path(__file__).resolve().parent / "static"
MOST_BODY_BYTES = 4096
MOST_BYTES_OF_ANY_BODY = 1 << 20
BODY_SECONDS = 5
HEARTBEAT_SECONDS = 10.0
FIRST_RETRY_MS = 1_000
MOST_TOPIC_LENGTH = 249
MOST_SUBJECT_LENGTH = 400
MOST_DIGITS = 9
TOKEN_HEADER = "X-Barnabas-Token"
_LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True, slots=True)
class PageAddress:
    """Host and port of the page."""

    host: str = "127.0.0.1"
    port: int = 9644
    scheme: str = "http"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def is_called(self, host: str) -> bool:
        """Whether the Host header `host` names this address, and not a foreign domain that resolves to it."""
        name, port = _split(host)
        if name in _LOOPBACK_NAMES or name.strip("[]") == self.host.lower():
            # The port may be published as another one, unless it is on loopback.
            return port == self.port or not self.is_loopback
        return not self.is_loopback and _is_address(name)


@dataclass
class Page:
    """The page's parts, for the server."""

    watch: Watch
    feed: Feed
    listener: socket.socket
    address: PageAddress
    token: str
    hello: Callable[[str], Json]
    """The event `hello` for a reader of a topic."""
    default_topic: Callable[[], str]
    control: Mapping[str, Do] | None = None
    """Actions by the first word of the path; they get the second word and the body. None for a read-only page."""
    access: Access | None = None
    """The view "Access"; None: the page has none."""
    http_token: HttpToken | None = None
    """Every request needs it; None: the page is for everybody who reaches it."""
    groups: Groups | None = None
    """The view "Groups"; None: the page has none."""
    topics: Topics | None = None
    """The view "Topics"; None: the page has none."""
    routes: Blueprint | None = None
    """Further paths: the REST interface."""
    https: Https | None = None
    schemas: Schemas | None = None
    """The view "Schemas"; None: the page has none."""
    app: QuartTrio = field(init=False)

    def __post_init__(self) -> None:
        self.app = _app(self)

    async def serve(self, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED) -> None:
        """Serves until cancelled; started with the page's URL when it accepts requests."""
        async with trio.open_nursery() as nursery:
            tls = None
            if self.https is not None:
                tls = self.https.server_context()
                nursery.start_soon(self.https.run)
            await nursery.start(serve_app, cast(Framework, self.app), self.listener, tls)
            task_status.started(self.address.url)

    # The feed

    def events(self, topic: str, last_id: int) -> AsyncIterator[bytes]:
        """Server-sent events for one reader; without a topic, of the default topic. Raises `TooMany`."""
        awake = _Awake()
        shown = topic or self.default_topic()
        # A reader that disconnects before the first event is dropped as stalled.
        reader = self.feed.join(shown, awake.wake, self.watch.now_ms(), chose=bool(topic))
        return self._events(reader, awake, last_id)

    async def _events(self, reader: Reader, awake: _Awake, last_id: int) -> AsyncIterator[bytes]:
        number = last_id + 1
        try:
            yield f"retry: {FIRST_RETRY_MS}\n".encode() + _event(number, "hello", json.dumps(self.hello(reader.topic)))
            while not reader.gone:
                if not reader.has_news:
                    with trio.move_on_after(HEARTBEAT_SECONDS) as patience:
                        await awake.next()
                    if patience.cancelled_caught:
                        yield b": still here\n\n"
                        continue
                data_sent = bytearray()
                for kind, data in reader.take(self.watch.now_ms()):
                    number += 1
                    data_sent += _event(number, kind, data)
                yield bytes(data_sent)
        finally:
            self.feed.leave(reader)


class _Awake:
    """Wakes a reader when it has news."""

    def __init__(self) -> None:
        self._event = trio.Event()

    def wake(self) -> None:
        self._event.set()

    async def next(self) -> None:
        """Waits for the next call of `wake`."""
        self._event = trio.Event()
        await self._event.wait()


def open_port(host: str, port: int, scheme: str = "http") -> tuple[socket.socket, PageAddress]:
    """Listens before anything else is started, so that a port in use is reported first. Raises `ClusterError`."""
    listener = listen(host, port, "the page")
    return listener, PageAddress(host, listener.getsockname()[1], scheme)


class _Exchange(TrioASGIHTTPConnection):
    """One request. When its answer is complete, the server may close the connection, and quart-trio cancels the task in
    the middle of sending: so the end of an answer is shielded."""

    async def __call__(self, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        async def send_shielded(event: ASGISendEvent) -> None:
            is_last = event["type"] == "http.response.body" and not event.get("more_body")
            with trio.CancelScope(shield=is_last):
                await send(event)

        await super().__call__(receive, send_shielded)


class _PageApp(QuartTrio):
    asgi_http_class = _Exchange


def _app(page: Page) -> QuartTrio:
    app = _PageApp("barnabas.page", static_folder=str(STATIC), static_url_path="/static")
    app.config["MAX_CONTENT_LENGTH"] = MOST_BYTES_OF_ANY_BODY if page.routes else MOST_BODY_BYTES
    app.config["BODY_TIMEOUT"] = BODY_SECONDS

    async def check_request() -> Response | None:
        if not page.address.is_called(request.host):
            return _line("the Host header does not name this page", HTTPStatus.FORBIDDEN)
        token = page.http_token
        if token is not None and not token.admits(request.headers.get("Authorization", "")):
            refusal = _line("this page needs a password: the token in its --http-token-file", HTTPStatus.UNAUTHORIZED)
            refusal.headers["WWW-Authenticate"] = CHALLENGE
            return refusal
        return None

    async def add_headers(response: Response) -> Response:
        for name, value in _HEADERS.items():
            response.headers[name] = value
        return response

    async def one_line(error: HTTPException) -> Response:
        return _line(str(error.description or error.name), HTTPStatus(error.code or 500))

    async def index() -> Response:
        return await app.send_static_file("index.html")

    async def feed() -> Response:
        topic = _topic()
        last = request.headers.get("Last-Event-ID", "")
        last_id = int(last) if last.isascii() and last.isdigit() and len(last) < 16 else 0
        try:
            events = page.events(topic, last_id)
        except TooMany as error:
            return _line(str(error), HTTPStatus.SERVICE_UNAVAILABLE)
        response = Response(events, content_type="text/event-stream; charset=utf-8")
        response.timeout = None
        return response

    async def snapshot() -> Response:
        topic = _topic() or page.default_topic()
        newest: dict[str, Any] = {"hello": page.hello(topic)}
        newest |= await page.watch.poll_once(topic)
        newest |= {name: page.feed.newest.get(name) for name in ("load", "tour")}
        newest |= {"marks": page.feed.marks()}
        return _json(newest)

    async def why() -> Response:
        subject = request.args.get("subject", "")
        if not subject or len(subject) > MOST_SUBJECT_LENGTH:
            return _line(
                "subject must be flights-3, group ID, transaction ID, broker N or quorum",
                HTTPStatus.BAD_REQUEST,
            )
        return _json({"subject": subject, "decisions": await page.watch.story_of(subject)})

    async def access(table: str) -> Response:
        return await _access(page, table)

    async def groups() -> Response:
        return await _groups(page)

    async def group() -> Response:
        name = request.args.get("group", "")
        if page.groups is None or not name or len(name) > MOST_SUBJECT_LENGTH:
            return _line("group must be the id of a group", HTTPStatus.BAD_REQUEST)
        return _json(await page.groups.describe(name))

    async def topics() -> Response:
        return await _topics(page)

    async def topic() -> Response:
        name = _topic()
        if page.topics is None or not name:
            return _line("topic must be the name of a topic", HTTPStatus.BAD_REQUEST)
        return _json(await page.topics.describe(name))

    async def schemas() -> Response:
        return await _schemas(page)

    async def schema() -> Response:
        name = request.args.get("schema", "")
        if page.schemas is None or not name or len(name) > MOST_SUBJECT_LENGTH:
            return _line("schema must be the name of a subject", HTTPStatus.BAD_REQUEST)
        return _json(await page.schemas.describe(name))

    async def control(action: str, about: str = "") -> Response:
        return await _control(page, action, about)

    app.before_request(check_request)
    app.after_request(add_headers)
    app.register_error_handler(HTTPException, one_line)
    app.add_url_rule("/", "index", index)
    app.add_url_rule("/feed", "feed", feed)
    app.add_url_rule("/snapshot", "snapshot", snapshot)
    app.add_url_rule("/why", "why", why)
    app.add_url_rule("/access/<table>", "access", access)
    app.add_url_rule("/topics", "topics", topics)
    app.add_url_rule("/topic", "topic", topic)
    app.add_url_rule("/groups", "groups", groups)
    app.add_url_rule("/group", "group", group)
    app.add_url_rule("/schemas", "schemas", schemas)
    app.add_url_rule("/schema", "schema", schema)
    app.add_url_rule("/control/<action>", "control", control, methods=["POST"])
    app.add_url_rule("/control/<action>/<about>", "control-about", control, methods=["POST"])
    if page.routes is not None:
        app.register_blueprint(page.routes)
    return app


async def _access(page: Page, table: str) -> Response:
    query = {name: value[:MOST_SUBJECT_LENGTH] for name, value in request.args.items()}
    if page.access is None or table not in (*TABLES, "check"):
        return _line(f"tables are {', '.join(TABLES)}, and check", HTTPStatus.NOT_FOUND)
    if table == "check":
        try:
            return _json(await page.access.check(query))
        except WrongArgument as error:
            return _line(str(error), HTTPStatus.BAD_REQUEST)
    start = _start(query)
    if start is None:
        return _line(f"start must be a whole number of at most {MOST_DIGITS} digits", HTTPStatus.BAD_REQUEST)
    wanted = Filter(query.get("principal", ""), query.get("resource", ""), start)
    return _json(await page.access.table(table, wanted))


async def _groups(page: Page) -> Response:
    query = {name: value[:MOST_SUBJECT_LENGTH] for name, value in request.args.items()}
    start = _start(query)
    if page.groups is None or start is None:
        return _line(f"start must be a whole number of at most {MOST_DIGITS} digits", HTTPStatus.BAD_REQUEST)
    return _json(await page.groups.listing(Filter(query.get("group", ""), query.get("type", ""), start)))


async def _topics(page: Page) -> Response:
    query = {name: value[:MOST_SUBJECT_LENGTH] for name, value in request.args.items()}
    start = _start(query)
    if page.topics is None or start is None:
        return _line(f"start must be a whole number of at most {MOST_DIGITS} digits", HTTPStatus.BAD_REQUEST)
    return _json(await page.topics.listing(Filter(query.get("topic", ""), query.get("state", ""), start)))


async def _schemas(page: Page) -> Response:
    query = {name: value[:MOST_SUBJECT_LENGTH] for name, value in request.args.items()}
    start = _start(query)
    if page.schemas is None or start is None:
        return _line(f"start must be a whole number of at most {MOST_DIGITS} digits", HTTPStatus.BAD_REQUEST)
    return _json(await page.schemas.listing(Filter(query.get("schema", ""), query.get("type", ""), start)))


def _start(query: Mapping[str, str]) -> int | None:
    """First row that is wanted; None if it is no number."""
    start = query.get("start", "0")
    return int(start) if start.isascii() and start.isdigit() and len(start) <= MOST_DIGITS else None


async def _control(page: Page, action: str, about: str) -> Response:
    if page.control is None:
        return _line("this page is read-only; start it with --allow-faults", HTTPStatus.METHOD_NOT_ALLOWED)
    origin = request.headers.get("Origin")
    if origin is not None and origin.lower() != f"{request.scheme}://{request.host}".lower():
        return _line("the Origin header names another page", HTTPStatus.FORBIDDEN)
    if not hmac.compare_digest(request.headers.get(TOKEN_HEADER, "").encode(), page.token.encode()):
        return _line("the token is not the one that `barnabas page` printed", HTTPStatus.FORBIDDEN)
    do = page.control.get(action)
    if do is None:
        return _line(f"actions are {', '.join(page.control)}", HTTPStatus.NOT_FOUND)
    try:
        await do(about, await _body())
    except WrongArgument as error:
        return _line(str(error), HTTPStatus.BAD_REQUEST)
    except NotNow as error:
        return _line(str(error), HTTPStatus.CONFLICT)
    except ClusterError as error:
        return _line(str(error), HTTPStatus.SERVICE_UNAVAILABLE)
    return _json({"done": True})


async def _body() -> Json:
    """The body as a JSON object; an empty body is an empty object. Raises `WrongArgument`."""
    data = cast(bytes, await request.get_data())
    if len(data) > MOST_BODY_BYTES:
        raise WrongArgument(f"the body may have at most {MOST_BODY_BYTES} bytes")
    if not data.strip():
        return {}
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise WrongArgument("the body must be JSON") from None
    if not isinstance(found, dict):
        raise WrongArgument("the body must be a JSON object")
    return found


def _topic() -> str:
    return request.args.get("topic", "")[:MOST_TOPIC_LENGTH]


def _event(number: int, kind: str, data: str) -> bytes:
    """`data` is JSON without line ends."""
    return f"id: {number}\nevent: {kind}\ndata: {data}\n\n".encode()


def _json(value: object) -> Response:
    return Response(json.dumps(value), content_type="application/json")


def _line(text: str, status: HTTPStatus) -> Response:
    return Response(" ".join(text.split()) + "\n", status=status.value, content_type="text/plain; charset=utf-8")


def _split(host: str) -> tuple[str, int]:
    """Splits a Host header; browsers leave out port 80."""
    name, colon, port = host.lower().rpartition(":")
    if not colon or port.endswith("]"):
        return host.lower(), 80
    return name, int(port) if port.isascii() and port.isdigit() and len(port) < 6 else 0


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True
