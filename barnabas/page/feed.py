"""Core: the feed of events for all connected browsers.

A state (`cluster`, `partitions`, `load`) has one slot per reader: a slow reader skips to the newest. Single events
(`mark`, `tour`) wait in a bounded queue. So the cost of a reader is bounded, however slow it is.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

MARKS_KEPT = 200
"""Number of past marks that a new reader gets."""
QUEUE_LENGTH = 400
"""Limit of queued events per reader; the oldest are dropped."""
MOST_READERS = 32
STALLED_MS = 30_000
"""A reader that takes nothing for so long is disconnected; it may connect again."""


class TooMany(Exception):
    """The limit of readers is reached."""


@dataclass(eq=False, slots=True)
class Reader:
    """A connected browser."""

    topic: str
    wake: Callable[[], None]
    """Called when there is something to take."""
    took_ms: int
    """Time of the last `take`."""
    chose: bool = True
    """Whether the reader asked for this topic, rather than getting the default."""
    gone: bool = False
    """Whether it was disconnected."""
    _newest: dict[str, str] = field(default_factory=dict)
    _queue: deque[tuple[str, str]] = field(default_factory=lambda: deque(maxlen=QUEUE_LENGTH))

    def take(self, now_ms: int) -> list[tuple[str, str]]:
        """New events as (kind, JSON)."""
        taken = [*self._newest.items(), *self._queue]
        self._newest.clear()
        self._queue.clear()
        self.took_ms = now_ms
        return taken

    @property
    def has_news(self) -> bool:
        return bool(self._newest or self._queue)

    def replace(self, kind: str, data: str) -> None:
        self._newest[kind] = data
        self.wake()

    def add(self, kind: str, data: str) -> None:
        self._queue.append((kind, data))
        self.wake()


class Feed:
    """All readers and the newest events."""

    def __init__(self) -> None:
        self.on_readers: Callable[[], None] = lambda: None
        """Called when a reader joins or leaves."""
        self._readers: list[Reader] = []
        self._marks: deque[str] = deque(maxlen=MARKS_KEPT)
        self._last_mark = 0
        self._tour: list[str] = []
        """All events of the current or last tour; about two dozen."""
        self.newest: dict[str, dict[str, Any]] = {}
        """The newest event of each kind that is sent to all readers."""

    # Readers

    @property
    def is_read(self) -> bool:
        return bool(self._readers)

    @property
    def topics(self) -> list[str]:
        """Topics some reader has open."""
        return list(dict.fromkeys(reader.topic for reader in self._readers))

    def join(self, topic: str, wake: Callable[[], None], now_ms: int, *, chose: bool = True) -> Reader:
        """A new reader with past marks in its queue. Raises `TooMany`."""
        if len(self._readers) >= MOST_READERS:
            raise TooMany(f"the limit of {MOST_READERS} readers is reached")
        reader = Reader(topic, wake, now_ms, chose)
        for mark in self._marks:
            reader.add("mark", mark)
        for step in self._tour:
            reader.add("tour", step)
        self._readers.append(reader)
        self.on_readers()
        return reader

    def leave(self, reader: Reader) -> None:
        if reader in self._readers:
            self._readers.remove(reader)
            self.on_readers()

    def drop_stalled(self, now_ms: int) -> None:
        """Disconnects readers that do not take what waits for them."""
        for reader in list(self._readers):
            if reader.has_news and now_ms - reader.took_ms > STALLED_MS:
                reader.gone = True
                self.leave(reader)
                reader.wake()

    # Events

    def cluster(self, event: dict[str, Any]) -> None:
        self.newest["cluster"] = event
        self._replace("cluster", event)

    def partitions(self, event: dict[str, Any]) -> None:
        """Sends the event to readers of its topic."""
        data = json.dumps(event, separators=(",", ":"))
        for reader in self._readers:
            if reader.topic == event["topic"]:
                reader.replace("partitions", data)

    def load(self, event: dict[str, Any]) -> None:
        self.newest["load"] = event
        self._replace("load", event)

    def tour(self, event: dict[str, Any]) -> None:
        if self.newest.get("tour", {}).get("finished"):
            self._tour.clear()
        self.newest["tour"] = event
        self._tour.append(self._add("tour", event))

    def offer(self, topics: Sequence[str], topic: str, hello: Callable[[str], Mapping[str, Any]]) -> None:
        """Switches readers without a choice of their own whose topic does not exist to `topic`."""
        for reader in self._readers:
            if not reader.chose and reader.topic not in topics and reader.topic != topic:
                reader.topic = topic
                reader.replace("hello", json.dumps(hello(topic), separators=(",", ":")))

    def mark(
        self,
        kind: str,
        subject: str,
        text: str,
        *,
        at_ms: int,
        node: str | None = None,
        decision: Mapping[str, Any] | None = None,
    ) -> None:
        """A decision of a node, or an injected fault."""
        self._last_mark += 1
        event = {
            "number": self._last_mark,
            "at_ms": at_ms,
            "kind": kind,
            "subject": subject,
            "text": text,
            "node": node,
            "decision": decision,
        }
        self._marks.append(self._add("mark", event))

    def marks(self) -> list[dict[str, Any]]:
        return [json.loads(mark) for mark in self._marks]

    def _replace(self, kind: str, event: Mapping[str, Any]) -> None:
        if self._readers:
            data = json.dumps(event, separators=(",", ":"))
            for reader in self._readers:
                reader.replace(kind, data)

    def _add(self, kind: str, event: Mapping[str, Any]) -> str:
        data = json.dumps(event, separators=(",", ":"))
        for reader in self._readers:
            reader.add(kind, data)
        return data
