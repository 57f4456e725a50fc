"""Core: times and errors of requests, by API, counted where requests are dispatched.

The phases are Kafka's. One thread does all work here, so they mean:

    queue            from the arrival of its burst until the handler begins
    local            in the handler
    remote           until the answer is filled: waiting for replicas, other brokers, a deadline, more bytes for a fetch
    throttle         held back by a quota, after the answer: not a part of the total
    response queue   until earlier answers, and those of the rest of the burst, are filled, too
    send             in the system call that takes it

Sums and a histogram of total times are kept by API. If an API is busy, only every thirteenth request is timed: timing
all would cost one percent of a small one. Single requests are not kept; the logger that Kafka has for them writes one
line for each at DEBUG.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Generator
from typing import Any

from barnabas.protocol.schema import Message, Struct

request_log = logging.getLogger("kafka.request.logger")

BOUNDS_MS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000)
"""Upper bounds of the buckets of total times."""
BOUNDS = tuple(bound / 1000 for bound in BOUNDS_MS)
"""The same in seconds."""

STRIDE = 13
"""One in so many requests of a busy API is timed. A prime, so that the place in a burst varies."""
BUSY_SECONDS = 0.01
"""An API is busy if timed requests follow each other faster than this."""


class Spread:
    """A histogram of durations."""

    __slots__ = ("buckets", "total")

    def __init__(self) -> None:
        self.buckets = [0] * (len(BOUNDS_MS) + 1)
        """Counts between each bound and the one before it; the last: above all bounds."""
        self.total = 0.0
        """Sum in seconds."""

    @property
    def count(self) -> int:
        return sum(self.buckets)

    def took(self, seconds: float) -> None:
        self.buckets[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds


class ApiCounter:
    """The requests of one API. Times are sums in seconds over the timed requests."""

    __slots__ = (
        "answers",
        "errors",
        "failures",
        "local",
        "longest",
        "longest_cpu",
        "next_timed",
        "over_budget",
        "over_budget_cpu",
        "queue",
        "remote",
        "request_bytes",
        "requests",
        "response_queue",
        "send",
        "throttle",
        "timed_at",
        "total",
    )

    def __init__(self) -> None:
        self.requests = 0
        self.request_bytes = 0
        self.answers = 0
        self.errors: Counter[int] = Counter()
        """By code: occurrences at any place in an answer."""
        self.failures = 0
        """Requests that ended with an unexpected exception."""
        self.over_budget = 0
        """Requests and steps of requests that held the event loop for longer than `runtime.turns.BUDGET_SECONDS`."""
        self.longest = 0.0
        """The longest of those, in seconds."""
        self.over_budget_cpu = 0
        """Those of them that had as much CPU time, where it is measured (`runtime.step_watchdog`)."""
        self.longest_cpu = 0.0
        """The most CPU time of one of those, in seconds."""
        self.queue = 0.0
        self.local = 0.0
        self.remote = 0.0
        self.response_queue = 0.0
        self.send = 0.0
        self.throttle = 0.0
        self.total = Spread()
        self.next_timed = 0
        """The number, as `requests` counts, of the next request that is timed."""
        self.timed_at = -1.0
        """Time of the last timed request, on the stopwatch."""

    def timed(self, now: float) -> None:
        """Choose the next request to time. `now` is on the stopwatch."""
        is_busy = now - self.timed_at < BUSY_SECONDS and not request_log.isEnabledFor(logging.DEBUG)
        self.timed_at = now
        self.next_timed = self.requests + (STRIDE if is_busy else 1)


CollectErrors = Callable[[Message], list[int]]

_collectors: dict[type[Message], CollectErrors] = {}


def error_codes(message: Message) -> list[int]:
    """All error codes in an answer, at any place, except NONE."""
    kind = type(message)
    collect = _collectors.get(kind)
    if collect is None:
        collect = _collectors[kind] = _compile(kind)
    return collect(message)


STEP_ELEMENTS = 512
"""Elements of an answer whose error codes are collected in one step."""

CollectErrorsInSteps = Callable[[Message], Generator[None, None, list[int]]]

_stepped_collectors: dict[type[Message], CollectErrorsInSteps] = {}


def error_codes_in_steps(message: Message) -> Generator[None, None, list[int]]:
    """`error_codes` of a large answer, in steps."""
    kind = type(message)
    collect = _stepped_collectors.get(kind)
    if collect is None:
        collect = _stepped_collectors[kind] = _compile(kind, stepped=True)
    return collect(message)


def _compile(kind: type[Message], *, stepped: bool = False) -> Any:
    """Generate code that walks one type of message: it runs for every answer."""
    lines = ["def collect(m0):", "    found = []"]
    if stepped:
        lines += [f"    left = {STEP_ELEMENTS}", "    if not left:", "        yield  # so that it is a generator"]
    _walk(kind, "m0", lines, stepped=stepped)
    lines.append("    return found")
    namespace: dict[str, Any] = {}
    exec("\n".join(lines), namespace)
    return namespace["collect"]


def _walk(kind: type[Struct], name: str, lines: list[str], depth: int = 1, *, stepped: bool) -> bool:
    """Add the lines that walk a struct; returns False if it has no error codes."""
    indent, has_codes = "    " * depth, False
    for spec in kind.FIELDS:
        if spec.name.endswith("error_code"):
            lines.append(f"{indent}if {name}.{spec.name}: found.append({name}.{spec.name})")
            has_codes = True
            continue
        if spec.type.struct is not None:
            path = f"{name}.{spec.name}"
            part = [f"{indent}if {path} is not None:"]
            if _walk(spec.type.struct, path, part, depth + 1, stepped=stepped):
                lines += part
                has_codes = True
        element = spec.type.element
        if element is not None and element.struct is not None:
            inner = f"m{depth}"
            part = [f"{indent}for {inner} in {name}.{spec.name} or ():"]
            if _walk(element.struct, inner, part, depth + 1, stepped=stepped):
                lines += part
                if stepped:
                    lines += [f"{indent}    left -= 1", f"{indent}    if not left:"]
                    lines += [f"{indent}        left = {STEP_ELEMENTS}", f"{indent}        yield"]
                has_codes = True
    return has_codes
