"""One request as it arrived, and the place for its answer, as a handler sees them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from barnabas.runtime.identity import ANONYMOUS, Principal
from barnabas.runtime.steps import Steps
from barnabas.runtime.world import Chunk


@dataclass(slots=True)
class Request:
    """One request as it arrived."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body: memoryview
    """Writable, and this request's own: a handler may keep and change it."""
    peer_host: str
    listener_name: str
    connection_id: int
    """Unique within the server."""
    received_ms: int
    """On the monotonic clock."""
    received: float = 0.0
    """On the stopwatch."""
    principal: Principal = ANONYMOUS
    """Principal of the connection, or of the client whose request a broker forwarded."""


class Timed(Protocol):
    """A request whose times are taken."""

    def sent(self, size_bytes: int, began: float, ended: float) -> None:
        """The answer went to the socket, with others, between these moments on the stopwatch."""


class AnswerSlot(Protocol):
    """The place for one answer. Exactly one of `fill`, `drop` and `abort` is called, once, at any time."""

    timed: Timed | None
    """Called when the answer leaves."""

    @property
    def connection_closed(self) -> bool:
        """The connection is closed; filling the slot does nothing."""
        ...

    @property
    def connection_ended(self) -> bool:
        """The peer closed its side before this request began: it takes no answer."""
        ...

    def fill(self, chunks: Sequence[Chunk]) -> None:
        """Answer with `chunks`: response header and body, without the size."""

    def drop(self) -> None:
        """Leave the request without an answer (acks=0)."""

    def abort(self, reason: str) -> None:
        """Close the connection instead of answering."""

    def grow(self, size_bytes: int) -> None:
        """The request takes this much more memory, until its answer leaves: what it was decoded to, or an answer that
        is being built. May close the connection."""

    def mute(self, throttle_ms: int, still_held_back: Callable[[], int] | None = None) -> None:
        """Take nothing more from the connection for this long (KIP-219); the answer itself does not wait.

        `still_held_back` is asked at the end: for how much longer, in ms.
        """

    def comes_from_node(self) -> None:
        """The peer is a broker or a controller of this cluster: its requests do not wait for clients."""

    async def take_steps(self, steps: Steps) -> None:
        """Take steps of this request outside the turn in which it arrived, in turns of its connection. Returns when
        they are over or the connection is closed. Raises what a step raises."""
