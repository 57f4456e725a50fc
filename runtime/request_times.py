"""How long requests take, by what they wait for, and what they are answered with. Counted where they are dispatched.

The phases are Kafka's. One thread does all here, so they mean:

    queue            from the arrival of its burst until the handler begins
    local            in the handler
    remote           until the answer is there: replicas, other brokers, a deadline, more bytes for a fetch
    throttle         held back by a quota
    response queue   until answers before it, and the rest of the burst, are there, too
    send             in the system call that takes it

Sums are kept by API, and how the totals are spread. Of an API that is asked all the time only every thirteenth request
is timed: it would cost a hundredth of a small one to time them all. Nothing is kept of a single request, unless it is
logged: then one line each, by the logger that Kafka has for it, at DEBUG.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from typing import Any

from protocol.schema import Message, Struct

request_log = logging.getLogger("kafka.request.logger")

BOUNDS_MS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000)
"""Upper bounds of the buckets of total times."""
BOUNDS = tuple(bound / 1000 for bound in BOUNDS_MS)
"""In seconds, as times are measured."""


STRIDE = 13
"""Of so many requests one is timed, where they are many. A prime: its place in a burst is not always the same."""
BUSY_SECONDS = 0.01
"""Many are those that come closer together."""


class Spread:
    """How long something took, each time."""

    __slots__ = ("buckets", "total")

    def __init__(self) -> None:
        self.buckets = [0] * (len(BOUNDS_MS) + 1)
        """How many took no longer than each of the bounds, but longer than the one before; the last: longer still."""
        self.total = 0.0
        """Seconds, summed up."""

    @property
    def count(self) -> int:
        return sum(self.buckets)

    def took(self, seconds: float) -> None:
        self.buckets[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds


class ApiCounter:
    """Requests of one API. Times in seconds, of all that were timed together."""

    __slots__ = (
        "answers",
        "errors",
        "failures",
        "local",
        "longest",
        "next_timed",
        "over_budget",
        "queue",
        "remote",
        "request_bytes",
        "requests",
        "response_queue",
        "send",
        "timed_at",
        "total",
    )

    def __init__(self) -> None:
        self.requests = 0
        self.request_bytes = 0
        self.answers = 0
        self.errors: Counter[int] = Counter()
        """By code: how often it stood anywhere in an answer."""
        self.failures = 0
        """Requests that ended with a mistake of ours."""
        self.over_budget = 0
        """Requests and steps of requests that held the event loop for longer than `runtime.turns.BUDGET_SECONDS`."""
        self.longest = 0.0
        """The longest of those."""
        self.queue = 0.0
        self.local = 0.0
        self.remote = 0.0
        self.response_queue = 0.0
        self.send = 0.0
        self.total = Spread()
        self.next_timed = 0
        """The request that is timed next, counted as `requests` are."""
        self.timed_at = -1.0
        """When one was timed last."""

    def timed(self, now: float) -> None:
        """Choose the next one. `now` on the stopwatch."""
        is_busy = now - self.timed_at < BUSY_SECONDS and not request_log.isEnabledFor(logging.DEBUG)
        self.timed_at = now
        self.next_timed = self.requests + (STRIDE if is_busy else 1)


CollectErrors = Callable[[Message], list[int]]

_collectors: dict[type[Message], CollectErrors] = {}


def error_codes(message: Message) -> list[int]:
    """All codes in an answer, wherever they stand, but for NONE."""
    kind = type(message)
    collect = _collectors.get(kind)
    if collect is None:
        collect = _collectors[kind] = _compile(kind)
    return collect(message)


def _compile(kind: type[Message]) -> CollectErrors:
    """Messages are walked by code that is made for each kind: it runs for every answer."""
    lines = ["def collect(m0):", "    found = []"]
    _walk(kind, "m0", 1, lines)
    lines.append("    return found")
    namespace: dict[str, Any] = {}
    exec("\n".join(lines), namespace)
    collect: CollectErrors = namespace["collect"]
    return collect


def _walk(kind: type[Struct], name: str, depth: int, lines: list[str]) -> bool:
    """Adds the lines that look through a struct; False if it has no codes."""
    indent, has_codes = "    " * depth, False
    for spec in kind.FIELDS:
        if spec.name.endswith("error_code"):
            lines.append(f"{indent}if {name}.{spec.name}: found.append({name}.{spec.name})")
            has_codes = True
            continue
        if spec.type.struct is not None:
            path = f"{name}.{spec.name}"
            part = [f"{indent}if {path} is not None:"]
            if _walk(spec.type.struct, path, depth + 1, part):
                lines += part
                has_codes = True
        element = spec.type.element
        if element is not None and element.struct is not None:
            inner = f"m{depth}"
            part = [f"{indent}for {inner} in {name}.{spec.name} or ():"]
            if _walk(element.struct, inner, depth + 1, part):
                lines += part
                has_codes = True
    return has_codes
