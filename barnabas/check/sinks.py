"""Where outputs arrive: the protocol of a sink, and the sinks for files and HTTP. `reading.py` reads the output topic.

A sink of your own is a class in a file, `--sink FILE.py:CLASS`, with the methods of `Sink`; no base class is needed.
"""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Protocol

from barnabas.check.errors import CannotRun

MOST_BODY_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Arrived:
    """One output."""

    place: str
    """Partition, file, table or path: order is judged within it."""
    value: bytes
    key: bytes | None = None


class Sink(Protocol):
    """A destination of outputs that is no topic. Methods are called one at a time, in a thread, and may block."""

    def open(self, directory: Path) -> Mapping[str, str]:
        """Called once, before the application is started. `directory` may be written to. Returns environment variables
        for the application; each is a placeholder in its arguments, too (`{output_url}` for OUTPUT_URL)."""
        ...

    def read(self) -> Iterable[Any]:
        """New outputs since the last call, in order: objects with `place`, `value` and `key` as `Arrived` has them."""
        ...

    def close(self) -> None:
        """Called once, after the last `read`."""
        ...


class FileSink:
    """Files in a directory, one output in each line. Files are appended to; a line counts when it has its end."""

    def __init__(self) -> None:
        self._directory = Path()
        self._read: dict[Path, int] = {}

    def open(self, directory: Path) -> Mapping[str, str]:
        self._directory = directory / "output"
        self._directory.mkdir(exist_ok=True)
        return {"OUTPUT_DIR": str(self._directory), "OUTPUT_FILE": str(self._directory / "output.jsonl")}

    def read(self) -> Iterable[Arrived]:
        for path in sorted(it for it in self._directory.rglob("*") if it.is_file()):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    self._read[path] = self._read.get(path, 0) + len(line)
                    if line.strip():
                        yield Arrived(str(path.relative_to(self._directory)), line.strip())

    def close(self) -> None:
        return


class HttpSink:
    """An endpoint of the checker: the body of each POST or PUT is an output, its path is the place."""

    def __init__(self) -> None:
        self._arrived: list[Arrived] = []
        self._lock = threading.Lock()
        self._server: ThreadingHTTPServer | None = None

    def open(self, directory: Path) -> Mapping[str, str]:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self._take))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, name="check-http", daemon=True).start()
        return {"OUTPUT_URL": f"http://127.0.0.1:{self._server.server_address[1]}/output"}

    def read(self) -> Iterable[Arrived]:
        with self._lock:
            arrived, self._arrived = self._arrived, []
        return arrived

    def close(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def _take(self, place: str, body: bytes) -> None:
        with self._lock:
            self._arrived.append(Arrived(place, body))


def _handler(take: Callable[[str, bytes], None]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            text = self.headers.get("Content-Length", "")
            if not text.isdigit() or int(text) > MOST_BODY_BYTES:
                self.send_error(411 if not text.isdigit() else 413)
                self.close_connection = True
                return
            body = self.rfile.read(int(text))
            if len(body) == int(text):
                take(self.path, body)
                self.send_response(204)
                self.send_header("Content-Length", "0")
                self.end_headers()

        do_PUT = do_POST

        def log_message(self, format: str, *args: Any) -> None:
            """The application logs its requests itself."""

    return Handler


TOPIC = "topic"
_OWN: Mapping[str, Callable[[], Sink]] = {"file": FileSink, "http": HttpSink}


def sink_of(text: str) -> Sink | None:
    """The sink of `--sink`; None for the output topic. Raises `CannotRun`."""
    if text == TOPIC:
        return None
    if text in _OWN:
        return _OWN[text]()
    path, colon, name = text.rpartition(":")
    if not colon or not path.endswith(".py"):
        raise CannotRun(f"--sink must be topic, {', '.join(_OWN)} or FILE.py:CLASS; got {text!r}")
    made = attribute_of(Path(path), name)
    missing = [method for method in ("open", "read", "close") if not callable(getattr(made, method, None))]
    if missing:
        raise CannotRun(f"--sink {text}: {name} has no method {missing[0]}")
    try:
        sink: Sink = made()
    except Exception as error:
        raise CannotRun(f"--sink {text}: {name}() failed: {type(error).__name__}: {error}") from error
    return sink


def attribute_of(path: Path, name: str, default: Any = None) -> Any:
    """Something that a Python file of the user defines. Raises `CannotRun` if it is missing without a default."""
    spec = importlib.util.spec_from_file_location(f"barnabas_check_{path.stem}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise CannotRun(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise CannotRun(f"{path} cannot be loaded: {type(error).__name__}: {error}") from error
    found = getattr(module, name, default)
    if found is None:
        raise CannotRun(f"{path} does not define {name}")
    return found
