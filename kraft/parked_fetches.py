"""Fetches of the metadata log that wait for new records. Knows no sockets and no log: its owner answers them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from barnabas.kraft.raft.messages import Fetch
from barnabas.runtime.dispatch import Call


@dataclass(frozen=True, slots=True, eq=False)
class ParkedFetch:
    """A fetch whose answer had nothing new so far."""

    call: Call
    fetch: Fetch
    until_ms: int
    """Time at which it is answered anyway, on the replica's monotonic clock."""


class ParkedFetches:
    """Mutable. In order of arrival; there are as many as replicas, so nothing is indexed."""

    def __init__(self) -> None:
        self._parked: list[ParkedFetch] = []

    @property
    def next_deadline_ms(self) -> int | None:
        return min((parked.until_ms for parked in self._parked), default=None)

    def add(self, parked: ParkedFetch) -> None:
        """Also drops those whose connection has closed, so that a peer that reconnects again and again leaves none
        behind."""
        self._parked = [known for known in self._parked if not known.call.slot.connection_closed]
        self._parked.append(parked)

    def take(self, has_news: Callable[[Fetch], bool]) -> list[ParkedFetch]:
        """Remove and return the fetches for which there is something new."""
        taken = [parked for parked in self._parked if has_news(parked.fetch)]
        if taken:
            self._parked = [parked for parked in self._parked if parked not in taken]
        return taken

    def take_expired(self, now_ms: int) -> list[ParkedFetch]:
        taken = [parked for parked in self._parked if parked.until_ms <= now_ms]
        if taken:
            self._parked = [parked for parked in self._parked if parked.until_ms > now_ms]
        return taken
