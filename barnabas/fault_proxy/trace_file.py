"""Files of traces: JSONL, which can be replayed, and captures for Wireshark."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from barnabas.cluster.errors import ClusterError, WrongArgument
from barnabas.fault_proxy.dialogue import sized
from barnabas.fault_proxy.pcapng import Address, CapturedConnection, beginning
from barnabas.fault_proxy.trace import Entry

CAPTURE = ".pcapng"
_OTHER_CAPTURES = (".pcap", ".cap")

EndsOf = Callable[[int], tuple[Address, Address]]
"""Number of a connection → addresses of its client and its broker."""


class TraceFile(Protocol):
    """A file that grows by one entry after the other. Raises `OSError` if it cannot be written."""

    def write(self, entry: Entry) -> None: ...

    def close(self) -> None: ...


class JsonTrace:
    """A line of JSON for each entry."""

    def __init__(self, file: io.FileIO, most_frame_bytes: int) -> None:
        self._file = file
        self._most_frame_bytes = most_frame_bytes

    def write(self, entry: Entry) -> None:
        line = json.dumps(entry.as_json(self._most_frame_bytes), ensure_ascii=False) + "\n"
        _write(self._file, line.encode(errors="surrogatepass"))

    def close(self) -> None:
        self._file.close()


class CaptureTrace:
    """A capture with the messages as the client sent and got them; messages with credentials are left out."""

    def __init__(self, file: io.FileIO, most_frame_bytes: int, ends_of: EndsOf) -> None:
        self._file = file
        self._most_frame_bytes = most_frame_bytes
        self._ends_of = ends_of
        self._connections: dict[int, CapturedConnection] = {}
        _write(file, beginning())

    def write(self, entry: Entry) -> None:
        seen, written = entry.seen, b""
        connection = self._connections.get(seen.connection)
        if connection is None:
            connection = self._connections[seen.connection] = CapturedConnection(*self._ends_of(seen.connection))
            written = connection.opened(entry.time_ms)
        if entry.is_secret:
            text = f"{entry.api} v{seen.version} with credentials is left out"
            written += connection.note(entry.time_ms, text, is_request=seen.is_request)
        else:
            written += connection.message(
                entry.time_ms,
                sized(seen.frame),
                "" if seen.rule is None else f"rule {seen.rule.number}: {seen.rule.text}",
                is_request=seen.is_request,
                most_bytes=self._most_frame_bytes,
            )
        _write(self._file, written)

    def close(self) -> None:
        self._file.close()


def open_trace(path: Path, most_frame_bytes: int, ends_of: EndsOf) -> TraceFile:
    """A new file, which its owner alone may read; its format by the end of its name. Raises `ClusterError`."""
    if path.suffix in _OTHER_CAPTURES:
        raise WrongArgument(f"--trace {path}: a capture must be called NAME{CAPTURE}")
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise WrongArgument(f"--trace {path}: the file exists; a trace needs a new one") from None
    except OSError as error:
        raise ClusterError(f"--trace {path}: {error.strerror}") from None
    file = io.FileIO(descriptor, "w")
    if path.suffix == CAPTURE:
        return CaptureTrace(file, most_frame_bytes, ends_of)
    return JsonTrace(file, most_frame_bytes)


def _write(file: io.FileIO, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]
