"""The feed: what happens, handed to whoever looks. A core.

What replaces itself (`cluster`, `partitions`, `load`) has one place for each reader: a slow one skips to the newest.
What happened once (`mark`, `tour`) waits in a line of bounded length. So a reader costs the same, however slow it is.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

MARKS_KEPT = 200
"""Of what happened, as much is told to whoever comes."""
LINE_LENGTH = 400
"""Of what happened, as much waits for a reader; older ones are dropped."""
MOST_READERS = 32
STALLED_MS = 30_000
"""A reader that takes nothing for so long is let go: it may come again."""


class TooMany(Exception):
    """So many read already."""


@dataclass(eq=False, slots=True)
class Reader:
    """Somebody who looks."""

    topic: str
    wake: Callable[[], None]
    """There is something to take."""
    took_ms: int
    """When it last took something."""
    chose: bool = True
    """It asked for this topic, and for no other."""
    gone: bool = False
    """It was let go: it gets nothing more."""
    _newest: dict[str, str] = field(default_factory=dict)
    _line: deque[tuple[str, str]] = field(default_factory=lambda: deque(maxlen=LINE_LENGTH))

    def take(self, now_ms: int) -> list[tuple[str, str]]:
        """What is new: kinds of events, and their JSON."""
        taken = [*self._newest.items(), *self._line]
        self._newest.clear()
        self._line.clear()
        self.took_ms = now_ms
        return taken

    @property
    def has_news(self) -> bool:
        return bool(self._newest or self._line)

    def replace(self, kind: str, data: str) -> None:
        self._newest[kind] = data
        self.wake()

    def add(self, kind: str, data: str) -> None:
        self._line.append((kind, data))
        self.wake()


class Feed:
    """All readers, and what was told last."""

    def __init__(self) -> None:
        self.on_readers: Callable[[], None] = lambda: None
        """Somebody came or went."""
        self._readers: list[Reader] = []
        self._marks: deque[str] = deque(maxlen=MARKS_KEPT)
        self._last_mark = 0
        self._tour: list[str] = []
        """All that was told of the present tour, or the last; some two dozen lines."""
        self.newest: dict[str, dict[str, Any]] = {}
        """What was told last, by kind, of what concerns all readers."""

    # Who looks

    @property
    def is_read(self) -> bool:
        return bool(self._readers)

    @property
    def topics(self) -> list[str]:
        """That somebody looks at."""
        return list(dict.fromkeys(reader.topic for reader in self._readers))

    def join(self, topic: str, wake: Callable[[], None], now_ms: int, *, chose: bool = True) -> Reader:
        """A new reader, for whom what was told last is ready. Raises `TooMany`."""
        if len(self._readers) >= MOST_READERS:
            raise TooMany(f"{MOST_READERS} look already")
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
        """Lets go of readers for whom something waits, and who do not take it."""
        for reader in list(self._readers):
            if reader.has_news and now_ms - reader.took_ms > STALLED_MS:
                reader.gone = True
                self.leave(reader)
                reader.wake()

    # What is told

    def cluster(self, event: dict[str, Any]) -> None:
        self.newest["cluster"] = event
        self._replace("cluster", event)

    def partitions(self, event: dict[str, Any]) -> None:
        """To those who look at its topic."""
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
        """Who has not chosen, and looks at a topic that is not there, is shown `topic`, and greeted anew."""
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
        """Something happened: a decision of a node, or a fault that somebody made."""
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
