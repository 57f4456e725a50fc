"""A page's server without a cluster: it serves the page's own files, and a feed that the test writes.

What it says is what `barnabas page` says (kinds of events, paths, headers), so that the page can be shown states that
no cluster gets into at will. `python -m tests.page.fake_page PORT` plays a scene for who draws the page.
"""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

STATIC = Path(__file__).resolve().parents[2] / "barnabas" / "page" / "static"
TOKEN = "a-token"
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_POLL_SECONDS = 0.05


class FakePage:
    """One server. New readers get the last event of each kind, and all marks."""

    def __init__(self, port: int = 0) -> None:
        self.posts: list[tuple[str, Any]] = []
        """Requests with the right token: path and body."""
        self.topics_asked: list[str | None] = []
        self.refuse_with: tuple[int, str] | None = None
        """Status and text with which control and /why answer, if set."""
        self.stories: dict[str, list[Any]] = {}
        self.access: dict[str, Any] = {}
        """Answers of /access by table; a callable gets the query."""
        self.groups: Any = {"rows": [], "start": 0, "found": 0, "total": 0, "problem": ""}
        """Answer of /groups; a callable gets the query."""
        self.group: dict[str, Any] = {}
        """Answers of /group by id."""
        self.topics: Any = {"rows": [], "start": 0, "found": 0, "total": 0, "problem": ""}
        """Answer of /topics; a callable gets the query."""
        self.topic: dict[str, Any] = {}
        """Answers of /topic by name."""
        self.schemas: Any = {"rows": [], "start": 0, "found": 0, "total": 0, "problem": ""}
        """Answer of /schemas; a callable gets the query."""
        self.schema: dict[str, Any] = {}
        """Answers of /schema by subject."""
        self.records: list[Any] = []
        """Status and answer of the REST interface for records, one after the other."""
        self.records_asked: list[Mapping[str, str]] = []
        self.feed_is_up = True
        """False: who asks for the feed is refused, as by a server that is gone."""
        self._said: dict[str, Any] = {}
        self._marks: list[Any] = []
        self._listeners: list[queue.SimpleQueue[bytes | None]] = []
        self._lock = threading.Lock()
        self._number = 0
        self._server = _Server(("127.0.0.1", port), self)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def say(self, kind: str, data: Any) -> None:
        """To all that listen, and to those who come later."""
        with self._lock:
            if kind == "mark":
                self._marks = [*self._marks, data][-200:]
            else:
                self._said[kind] = data
            event = self._event(kind, data)
            for listener in self._listeners:
                listener.put(event)

    def break_feeds(self) -> None:
        """Ends every stream, as a server that dies does."""
        with self._lock:
            for listener in self._listeners:
                listener.put(None)
            self._listeners = []

    @property
    def listening(self) -> int:
        return len(self._listeners)

    def _event(self, kind: str, data: Any) -> bytes:
        self._number += 1
        text = data if isinstance(data, str) else json.dumps(data)
        return f"id: {self._number}\nevent: {kind}\ndata: {text}\n\n".encode()

    def listen(self, topic: str | None) -> queue.SimpleQueue[bytes | None]:
        with self._lock:
            self.topics_asked.append(topic)
            listener: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
            first = [pair for pair in self._said.items() if pair[0] == "hello"]
            others = [pair for pair in self._said.items() if pair[0] != "hello"]
            for kind, data in [*first, *(("mark", mark) for mark in self._marks), *others]:
                listener.put(self._event(kind, data))
            self._listeners.append(listener)
            return listener

    def forget(self, listener: queue.SimpleQueue[bytes | None]) -> None:
        with self._lock:
            if listener in self._listeners:
                self._listeners.remove(listener)

    @contextmanager
    def running(self) -> Iterator[FakePage]:
        thread = threading.Thread(target=self._server.serve_forever, args=(_POLL_SECONDS,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.break_feeds()
            self._server.shutdown()
            self._server.server_close()
            thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], page: FakePage) -> None:
        super().__init__(address, _Handler)
        self.page = page

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that disconnects is no error."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        page, target = self.server.page, urlsplit(self.path)
        query = parse_qs(target.query)
        if target.path == "/":
            self._answer(200, (STATIC / "index.html").read_bytes(), "text/html")
        elif (file := STATIC / target.path.removeprefix("/static/")).parent == STATIC and file.exists():
            self._answer(200, file.read_bytes(), _TYPES[file.suffix])
        elif target.path == "/feed" and page.feed_is_up:
            self._stream(query.get("topic", [None])[0])
        elif target.path == "/why" and page.refuse_with:
            self._answer(page.refuse_with[0], page.refuse_with[1].encode(), "text/plain")
        elif target.path == "/why":
            subject = query["subject"][0]
            answer = {"subject": subject, "decisions": page.stories.get(subject, [])}
            self._answer(200, json.dumps(answer).encode(), "application/json")
        elif target.path.startswith("/access/"):
            given = page.access[target.path.removeprefix("/access/")]
            answer = given({name: values[0] for name, values in query.items()}) if callable(given) else given
            self._answer(200, json.dumps(answer).encode(), "application/json")
        elif target.path in ("/groups", "/topics", "/schemas"):
            given = {"/groups": page.groups, "/topics": page.topics, "/schemas": page.schemas}[target.path]
            answer = given({name: values[0] for name, values in query.items()}) if callable(given) else given
            self._answer(200, json.dumps(answer).encode(), "application/json")
        elif target.path == "/group":
            name = query["group"][0]
            answer = page.group.get(name, {"group": name, "problem": f"Group {name} not found."})
            self._answer(200, json.dumps(answer).encode(), "application/json")
        elif target.path == "/topic":
            name = query["topic"][0]
            answer = page.topic.get(name, {"topic": name, "problem": f"Topic {name} not found."})
            self._answer(200, json.dumps(answer).encode(), "application/json")
        elif target.path == "/schema":
            name = query["schema"][0]
            answer = page.schema.get(name, {"schema": name, "problem": f"Subject '{name}' not found."})
            self._answer(200, json.dumps(answer).encode(), "application/json")
        elif target.path.startswith("/v3/"):
            page.records_asked.append({name: values[0] for name, values in query.items()})
            status, answer = page.records.pop(0)
            self._answer(status, json.dumps(answer).encode(), "application/json")
        else:
            self._answer(404, b"nothing here\n", "text/plain")

    def do_POST(self) -> None:
        page = self.server.page
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.headers.get("X-Barnabas-Token") != TOKEN:
            self._answer(403, b"wrong token\n", "text/plain")
        elif page.refuse_with:
            self._answer(page.refuse_with[0], page.refuse_with[1].encode(), "text/plain")
        else:
            page.posts.append((self.path, json.loads(body or b"{}")))
            self._answer(200, b"{}", "application/json")

    def _answer(self, status: int, body: bytes, content_type: str) -> None:
        self.send_response(status)
        self._headers({"Content-Type": f"{content_type}; charset=utf-8", "Content-Length": str(len(body))})
        self.wfile.write(body)

    def _headers(self, headers: Mapping[str, str]) -> None:
        for name, value in {"Content-Security-Policy": "default-src 'self'", **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def _stream(self, topic: str | None) -> None:
        listener = self.server.page.listen(topic)
        self.close_connection = True
        self.send_response(200)
        self._headers({"Content-Type": "text/event-stream", "Connection": "close"})
        try:
            while (event := listener.get()) is not None:
                self.wfile.write(event)
        finally:
            self.server.page.forget(listener)

    def log_message(self, format: str, *args: Any) -> None:
        """Tests are quiet."""


if __name__ == "__main__":
    import sys
    import time

    from tests.page.scene import Scene

    fake = FakePage(int(sys.argv[1]))
    print(f"{fake.url}/#token={TOKEN}", flush=True)
    with fake.running():
        scene = Scene(fake, int(time.time() * 1000))
        scene.begin()
        while True:
            scene.tick(int(time.time() * 1000))
            time.sleep(0.5)
