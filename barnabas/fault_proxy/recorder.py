"""Writes what passes a proxy to a file and a terminal, and keeps the newest for the HTTP port."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from barnabas.fault_proxy.dialogue import Seen
from barnabas.fault_proxy.listeners import ClusterProxy
from barnabas.fault_proxy.trace import MOST_FRAME_BYTES, Entry
from barnabas.fault_proxy.trace_file import TraceFile, open_trace
from barnabas.protocol.api_keys import ApiKey

NEWEST = 500
"""Entries for the HTTP port."""
NEWEST_VALUES = 60
"""Values of a body that they show."""


class Recorder:
    """An observer of one proxy."""

    def __init__(self, proxy: ClusterProxy) -> None:
        self._proxy = proxy
        self._file: TraceFile | None = None
        self._path: Path | None = None
        self._say: Callable[[str], None] | None = None
        self.newest: deque[dict[str, Any]] | None = None
        """None until `keep_newest`."""

    def keep_newest(self) -> None:
        self.newest = deque(maxlen=NEWEST)
        self._observe()

    def watch(self, say: Callable[[str], None]) -> None:
        """Call `say` with a line for each message."""
        self._say = say
        self._observe()

    def record(self, path: Path, most_frame_bytes: int = MOST_FRAME_BYTES) -> None:
        """Write a trace to a new file, which its owner alone may read; one called `NAME.pcapng` is a capture for
        Wireshark. Raises `ClusterError`."""
        self._file, self._path = open_trace(path, most_frame_bytes, self._proxy.ends_of), path
        self._observe()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _observe(self) -> None:
        observers = self._proxy.common.observers
        if self._see not in observers:
            observers.append(self._see)

    def _see(self, seen: Seen) -> None:
        entry = Entry(seen, self._proxy.world.wall_clock.now_ms(), self._proxy.node_id_of(seen.broker))
        if self._file is not None:
            try:
                self._file.write(entry)
            except OSError as error:
                self._give_up(error)
        if self.newest is not None and seen.api_key not in (ApiKey.SASL_AUTHENTICATE, ApiKey.SASL_HANDSHAKE):
            self.newest.append(entry.as_json(most_values=NEWEST_VALUES))
        if self._say is not None:
            self._say(entry.line(self._proxy.common.topics))

    def _give_up(self, error: OSError) -> None:
        """A trace that cannot go on ends; the proxy does not."""
        assert self._file is not None
        self._file = None
        self._proxy.complain(f"the trace {self._path} ends here: {error.strerror}")
