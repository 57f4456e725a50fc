"""Core: one direction of one connection: bytes come in as they arrive, and leave when links and rules let them.

Order stays, as in TCP: what waits keeps back what came after it. A core: the time is an argument, in seconds.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Literal

from barnabas.cluster.proxy.frames import Conversation, Frames, Piece
from barnabas.cluster.proxy.rules import Faults, LinkState, MessageRule
from barnabas.runtime.world import Chance

RESEND_SECONDS = 0.2
"""First wait of a lost burst; it doubles each time it is lost again."""
_MOST_RESENDS = 6
_SLICE_SECONDS = 0.05
"""On a narrow link bytes leave in portions of what it carries in this time."""

What = Literal["bytes", "end", "reset"]


@dataclass(slots=True)
class _Item:
    what: What
    data: bytes
    due: float
    """Not before."""
    delay: float = 0.0
    """The part of `due` that a rule has added: it stays when the link gets better."""
    held_by: int = 0


@dataclass(frozen=True, slots=True)
class Ends:
    """The two ends of a connection: who asks, who is asked."""

    asker: str
    asked: str


class Stream:
    """The requests, or the responses, of one connection."""

    def __init__(
        self, ends: Ends, conversation: Conversation, faults: Faults, chance: Chance, *, is_request: bool
    ) -> None:
        self._ends = ends
        self._way = (ends.asker, ends.asked) if is_request else (ends.asked, ends.asker)
        self._frames = Frames(conversation, is_request=is_request)
        self._faults = faults
        self._chance = chance
        self._queue: deque[_Item] = deque()
        self._last_due = 0.0
        self._free_at = 0.0
        self._verdict: tuple[int, MessageRule] | None = None
        """The rule that struck the message that is coming in."""
        self._version = -1
        self._link = LinkState()
        self._budget = 0
        """Bytes until the link breaks the connection."""
        self.buffered = 0
        """Bytes that wait here."""
        self.is_reset = False
        """The connection is to be broken now."""
        self.is_over = False
        """The sender has closed it, and all it sent has left."""

    @property
    def waits(self) -> bool:
        """Something is kept back here: bytes, or the end."""
        return bool(self._queue)

    @property
    def kept_bytes(self) -> int:
        """Bytes that arrived, were not dropped, and have not left."""
        return self.buffered + self._frames.kept_bytes

    def feed(self, data: bytes, now: float) -> None:
        """These bytes arrived."""
        self._look(now)
        due = self._arrival(now)
        for piece in self._frames.feed(data):
            self._take_in(piece, due)

    def end(self, now: float) -> None:
        """The sender closed the connection, or lost it."""
        self._look(now)
        due = self._arrival(now)
        rest = self._frames.rest()
        if rest:
            self._push("bytes", rest, due)
        self._push("end", b"", due)

    def take(self, now: float) -> list[bytes]:
        """The bytes that may leave now; look at `is_reset` and `is_over` afterwards."""
        self._look(now)
        taken: list[bytes] = []
        while not self.is_reset and self._is_ready(now):
            item = self._queue.popleft()
            if item.what == "end":
                self.is_over = True
            elif item.what == "reset":
                self.is_reset = True
            else:
                self.buffered -= len(item.data)
                data = self._until_it_breaks(item.data)
                if data:
                    taken.append(data)
        return taken

    def next_due(self, now: float) -> float | None:
        """Time of the next look; None: not before something changes."""
        self._look(now)
        if not self._queue or not self._link.carries or self._is_held(self._queue[0]):
            return None
        return self._queue[0].due

    # ---- inside

    def _look(self, now: float) -> None:
        """The link may be another one: what waits does so no longer than it would have to on this one."""
        if self._version == self._faults.version:
            return
        self._version = self._faults.version
        link = self._faults.link(*self._way)
        if link == self._link:
            return
        if link.reset_after_bytes != self._link.reset_after_bytes:
            self._budget = link.reset_after_bytes
        self._link = link
        self._last_due = self._free_at = now
        for item in self._queue:
            item.due = self._paced(now + item.delay, len(item.data))

    def _arrival(self, now: float) -> float:
        """Time of arrival of a burst that is sent now."""
        link = self._link
        due = now
        if link.latency_ms or link.jitter_ms:
            due += (link.latency_ms + link.jitter_ms * self._chance.random()) / 1000.0
        if link.loss:
            wait = RESEND_SECONDS
            for _ in range(_MOST_RESENDS):
                if self._chance.random() >= link.loss:
                    break
                due += wait
                wait *= 2
        return due

    def _paced(self, due: float, size: int) -> float:
        due = max(due, self._last_due)
        rate = self._link.bytes_per_second
        if rate:
            due = max(due, self._free_at)
            self._free_at = due + size / rate
        self._last_due = due
        return due

    def _take_in(self, piece: Piece, due: float) -> None:
        if piece.begins:
            self._verdict = self._faults.rule_for(piece.message, self._ends.asker, self._ends.asked, self._chance)
        if self._verdict is None:
            self._push("bytes", piece.data, due)
            return
        number, rule = self._verdict
        if rule.action == "hold":
            self._push("bytes", piece.data, due, held_by=number)
        elif rule.action == "delay":
            self._push("bytes", piece.data, due, delay=rule.delay_ms / 1000.0 if piece.begins else 0.0)
        elif rule.action == "reset" and not piece.message.is_request:
            if piece.begins:
                self._push("reset", b"", due)
        elif rule.action == "reset":
            self._push("bytes", piece.data, due)
            if piece.ends:
                self._push("reset", b"", due)

    def _push(self, what: What, data: bytes, due: float, *, delay: float = 0.0, held_by: int = 0) -> None:
        rate = self._link.bytes_per_second
        portion = max(1, int(rate * _SLICE_SECONDS)) if rate else len(data)
        for start in range(0, len(data), portion) if data else (0,):
            part = data[start : start + portion]
            self._queue.append(_Item(what, part, self._paced(due + delay, len(part)), delay, held_by))
            self.buffered += len(part)

    def _is_held(self, item: _Item) -> bool:
        return item.held_by != 0 and self._faults.holds(item.held_by)

    def _is_ready(self, now: float) -> bool:
        return (
            bool(self._queue)
            and self._link.carries
            and self._queue[0].due <= now
            and not self._is_held(self._queue[0])
        )

    def _until_it_breaks(self, data: bytes) -> bytes:
        if not self._link.reset_after_bytes:
            return data
        if len(data) < self._budget:
            self._budget -= len(data)
            return data
        # In the middle of a frame: the last byte of what would have fitted stays here.
        self.is_reset = True
        return data[: self._budget - 1]
