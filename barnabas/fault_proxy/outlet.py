"""Core: one direction of one connection over a link that lets bytes leave late, slowly, in part, or not at all.

Order stays, as in TCP: what waits keeps back what came after it. The time is an argument, in seconds.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Literal

from barnabas.fault_proxy.rules import Faults, LinkState
from barnabas.runtime.at_once import Stepwise
from barnabas.runtime.world import Chance

RESEND_SECONDS = 0.2
"""First wait of a lost burst; it doubles each time it is lost again."""
_MOST_RESENDS = 6
_SLICE_SECONDS = 0.05
"""On a narrow link bytes leave in portions of what it carries in this time."""
_MOST_PORTIONS = 2000
"""Portions of one piece of bytes."""

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


class Outlet:
    """The bytes that wait at the beginning of a link."""

    def __init__(self, way: tuple[str, str], faults: Faults, chance: Chance) -> None:
        """`way`: the names of the two ends, the sender first."""
        self._way = way
        self._faults = faults
        self._chance = chance
        self._queue: deque[_Item] = deque()
        self._last_due = 0.0
        self._free_at = 0.0
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
    def portions(self) -> int:
        """Number of pieces that wait."""
        return len(self._queue)

    def feed(self, data: bytes, now: float) -> None:
        """These bytes arrived."""
        raise NotImplementedError

    def receive(self, data: bytes, now: float) -> Stepwise[None]:
        """`feed`, in steps if it has much to do."""
        self.feed(data, now)
        yield from ()

    def arrival(self, now: float) -> float:
        """Time of arrival of a burst that is sent now."""
        self._look(now)
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

    def push(self, what: What, data: bytes, due: float, *, delay: float = 0.0, held_by: int = 0) -> None:
        """Add bytes, the end, or a reset, to leave at `due` plus `delay` seconds and not while `held_by` exists."""
        rate = self._link.bytes_per_second
        portion = max(1, int(rate * _SLICE_SECONDS), len(data) // _MOST_PORTIONS) if rate else len(data)
        for start in range(0, len(data), portion) if data else (0,):
            part = data[start : start + portion]
            self._queue.append(_Item(what, part, self._paced(due + delay, len(part)), delay, held_by))
            self.buffered += len(part)

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

    def _paced(self, due: float, size: int) -> float:
        due = max(due, self._last_due)
        rate = self._link.bytes_per_second
        if rate:
            due = max(due, self._free_at)
            self._free_at = due + size / rate
        self._last_due = due
        return due

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
