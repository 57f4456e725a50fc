"""A server that speaks as much S3 as a put needs, and does it wrong where it is asked to."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class FakeS3(ThreadingHTTPServer):
    """Keeps objects by path. `kept` makes the bytes that are kept of those that arrive, `etag` their ETag."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, bytes] = {}
        self.requests: list[tuple[str, str]] = []
        self.kept: Callable[[bytes], bytes] = bytes
        self.etag: Callable[[bytes], str] = lambda data: hashlib.md5(data, usedforsecurity=False).hexdigest()
        self.failure: tuple[int, str] | None = None
        """Status and body of every answer."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: FakeS3
    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if not self._fails():
            self.server.objects[self.path] = self.server.kept(body)
            # The server computes the checksum of what arrived, before it loses a part of it.
            self._answer(200, b"", etag=self.server.etag(body))

    def do_HEAD(self) -> None:
        self._find(with_body=False)

    def do_GET(self) -> None:
        self._find(with_body=True)

    def do_DELETE(self) -> None:
        if not self._fails():
            self.server.objects.pop(self.path, None)
            self._answer(204, b"")

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _find(self, *, with_body: bool) -> None:
        data = self.server.objects.get(self.path)
        if self._fails():
            return
        if data is None:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>", with_body=with_body)
        else:
            self._answer(200, data, etag=self.server.etag(data), with_body=with_body)

    def _fails(self) -> bool:
        self.server.requests.append((self.command, self.path))
        if self.server.failure is None:
            return False
        status, text = self.server.failure
        self._answer(status, text.encode(), with_body=self.command != "HEAD")
        return True

    def _answer(self, status: int, body: bytes, *, etag: str = "", with_body: bool = True) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Last-Modified", "Sat, 28 Nov 2026 12:00:00 GMT")
        if etag:
            self.send_header("ETag", f'"{etag}"')
        self.end_headers()
        if with_body:
            self.wfile.write(body)


@contextmanager
def fake_s3() -> Iterator[FakeS3]:
    server = FakeS3()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
