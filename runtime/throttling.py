"""Core: how quotas meet requests: the port that decides, and calls that are measured for it (KIP-124, KIP-219).

While no quota is set, requests are ordinary calls and cost nothing more. Otherwise each request is a `ThrottledCall`:
the time of its handler is counted, its answer names the time for which its client is held back, and the connection is
muted for that long. An answer never waits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from barnabas.runtime.request import Request

NO_LIMIT_BYTES = 2**31 - 1


class Throttling(Protocol):
    """Decides for how long the sender of a request is held back. Times of handlers are seconds on the stopwatch."""

    stopwatch: Callable[[], float]

    @property
    def is_active(self) -> bool:
        """False while no quota is set."""
        ...

    def arrival_throttle_ms(self, request: Request) -> int:
        """Count a request that arrived, if its size counts; returns the time for which its sender is held back.

        Requests of one connection may be under way together, so this cannot wait until the first one is answered.
        """
        ...

    def still_held_back(self, request: Request) -> Callable[[], int] | None:
        """A question to ask when a throttle of this request's sender ends: for how long it has to be held back from
        then on. None if the throttle says it all: only limits that are divided between brokers change that fast."""
        ...

    def throttle_ms(self, request: Request, message: Any, used: float, otherwise_ms: int) -> int:
        """Count a request that is about to be answered; returns the time for which its sender is held back.

        `otherwise_ms`: the time for which something else holds it back already.
        """
        ...

    def fetch_throttle_ms(self, request: Request, size_bytes: int, used: float) -> tuple[int, bool]:
        """Count a consumer's fetch that is about to be answered with this much. Returns the time for which its sender
        is held back, and whether the answer may have its records nevertheless."""
        ...

    def most_fetch_bytes(self, request: Request) -> int:
        """The most that a consumer can fetch without being held back."""
        ...

    def used_later(self, request: Request, message: Any, used: float) -> None:
        """Count time that a request took after its answer."""
        ...

    def mutations(self, request: Request, *, strict: bool) -> Mutations | None:
        """The quota of a change of the cluster; None: without limit. `strict`: the change fails without tokens."""
        ...


class Mutations(Protocol):
    """The quota of one request that creates or deletes partitions (KIP-599)."""

    def spend(self, partitions: int) -> None:
        """Raises KafkaError THROTTLING_QUOTA_EXCEEDED if there are no tokens."""
        ...

    def again(self) -> None:
        """Give back what this request spent: the decision on it is made again."""
        ...

    def throttle_ms(self) -> int:
        """The time for which the sender is held back from now on."""
        ...
