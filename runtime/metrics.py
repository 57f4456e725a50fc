"""Numbers of a node as Prometheus reads them: families of samples, gathered when somebody asks.

Nothing is counted here and nothing costs anything until a scrape. A long page is written in stretches, so that others
get their turn; the writer is our own because prometheus-client's takes four times as long. Names are Kafka's, as its
JMX exporters write them: `kafka_server_replicamanager_leadercount`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, islice
from typing import Literal, NamedTuple

import trio

from protocol.errors import ErrorCode
from runtime.http import HttpRequest, HttpResponse
from runtime.observatory import Page
from runtime.request_times import BOUNDS_MS, ApiCounter, Spread
from runtime.world import World

Kind = Literal["gauge", "counter", "histogram"]
Labels = Sequence[str]
"""Values, in the order of the family's names."""

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LINES_IN_A_STRETCH = 1_000
"""After so many lines others get their turn."""
CLOCK_TICKS = 100
"""A second of /proc/PID/stat, on every Linux that Python runs on."""
PAGE_BYTES = 4096


class Family(NamedTuple):
    """One metric: what it is called, and its value for each set of labels: a `Spread` (told in ms) in histograms."""

    kind: Kind
    name: str
    """A counter's without `_total`, which is written behind it."""
    told: str
    labels: Sequence[str] = ()
    samples: Iterable[tuple[Labels, float | Spread]] = ()

    @classmethod
    def of(cls, kind: Kind, name: str, told: str, value: float | Spread) -> Family:
        """A family of one sample without labels."""
        return cls(kind, name, told, (), [((), value)])


Gather = Callable[[], Iterable[Family]]
Prepare = Callable[[], Awaitable[None]]
"""What has to be asked elsewhere before `Gather` can tell it."""


def metrics_page(gather: Gather, prepare: Prepare | None = None) -> Page:
    """The page `/metrics`."""

    async def page(request: HttpRequest) -> HttpResponse:
        if prepare is not None:
            await prepare()
        lines: list[str] = []
        told = chain.from_iterable(map(render, gather()))
        while stretch := list(islice(told, LINES_IN_A_STRETCH)):
            lines += stretch
            await trio.lowlevel.checkpoint()
        return HttpResponse("".join(lines).encode(), CONTENT_TYPE)

    return page


_SPECIAL = re.compile(r'[\\"\n]')
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n"}


def _escaped(text: str) -> str:
    return _SPECIAL.sub(lambda found: _ESCAPES[found.group()], text)


def render(family: Family) -> Iterator[str]:
    """The lines of a family, as Prometheus reads them (text format 0.0.4)."""
    name = f"{family.name}_total" if family.kind == "counter" else family.name
    told = family.told.replace("\\", "\\\\").replace("\n", "\\n")
    yield f"# HELP {name} {told}\n# TYPE {name} {family.kind}\n"
    # One template for all of them: there may be a hundred thousand.
    pairs = ",".join(f'{label}="%s"' for label in family.labels)
    template = f"{name}{{{pairs}}} %s\n" if pairs else f"{name} %s\n"
    special = _SPECIAL.search
    for labels, value in family.samples:
        if isinstance(value, Spread):
            yield from _spread(name, family.labels, labels, value)
            continue
        if special("".join(labels)):
            labels = [_escaped(each) for each in labels]
        yield template % (*labels, value if type(value) is int else _number(value))


def _number(value: float) -> str:
    if math.isfinite(value):
        return repr(int(value) if value == int(value) else float(value))
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"


def _spread(name: str, names: Sequence[str], labels: Labels, spread: Spread) -> Iterator[str]:
    pairs = [f'{label}="{_escaped(value)}"' for label, value in zip(names, labels, strict=True)]
    count = 0
    for bound, count in zip((*BOUNDS_MS, math.inf), accumulate(spread.buckets), strict=True):
        bucket = ",".join([*pairs, f'le="{_number(bound)}"'])
        yield f"{name}_bucket{{{bucket}}} {count}\n"
    whole = f"{{{','.join(pairs)}}}" if pairs else ""
    yield f"{name}_sum{whole} {_number(spread.total * 1000)}\n"
    yield f"{name}_count{whole} {count}\n"


PHASES: tuple[tuple[str, str, Callable[[ApiCounter], float]], ...] = (
    ("requestqueuetimems", "until the handler began", lambda each: each.queue),
    ("localtimems", "in the handler", lambda each: each.local),
    ("remotetimems", "waiting for others: replicas, brokers, a deadline", lambda each: each.remote),
    ("throttletimems", "held back by a quota", lambda each: each.throttle),
    ("responsequeuetimems", "waiting for its turn to be sent", lambda each: each.response_queue),
    ("responsesendtimems", "in the system call that sent it", lambda each: each.send),
)


def request_families(counters: Mapping[str, ApiCounter]) -> Iterator[Family]:
    """`counters` by the name of the API."""
    prefix, label = "kafka_network_requestmetrics_", ("request",)
    used = [((name,), counter) for name, counter in sorted(counters.items()) if counter.requests]
    values: tuple[tuple[str, str, Callable[[ApiCounter], int]], ...] = (
        ("requests", "Requests that were handled.", lambda each: each.requests),
        ("requestbytes", "Bytes of requests.", lambda each: each.request_bytes),
        ("answers", "Answers that were given.", lambda each: each.answers),
    )
    for name, told, value in values:
        yield Family("counter", prefix + name, told, label, [(api, value(counter)) for api, counter in used])
    errors = [
        ((*api, _error_name(code)), count) for api, counter in used for code, count in sorted(counter.errors.items())
    ]
    told = "Errors in answers, wherever in an answer they stand."
    yield Family("counter", prefix + "errors", told, ("request", "error"), errors)
    timed = [(api, counter) for api, counter in used if counter.total.count]
    told = "Milliseconds from a request's arrival until its answer was sent. Of busy APIs some requests are timed."
    yield Family("histogram", prefix + "totaltimems", told, label, [(api, counter.total) for api, counter in timed])
    for name, told, phase in PHASES:
        told = f"Milliseconds of the requests that were timed (totaltimems_count), summed up: {told}."
        yield Family("counter", prefix + name, told, label, [(api, phase(counter) * 1000) for api, counter in timed])


def _error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


def process_families(world: World) -> Iterator[Family]:
    """What the process takes, as far as this machine tells."""
    try:
        fields = world.disk.read_bytes("/proc/self/stat").rpartition(b")")[2].split()
        pages = world.disk.read_bytes("/proc/self/statm").split()
    except OSError:
        return
    seconds = (int(fields[11]) + int(fields[12])) / CLOCK_TICKS
    yield Family.of("counter", "process_cpu_seconds", "CPU time of this process.", seconds)
    resident = int(pages[1]) * PAGE_BYTES
    yield Family.of("gauge", "process_resident_memory_bytes", "Memory of this process, shared pages too.", resident)
    yield Family.of("gauge", "process_threads", "Threads of this process.", int(fields[17]))


class BusyClock:
    """How much of the time this thread worked, or wanted to, between two scrapes. The kernel counts it anyway."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._before: tuple[float, int] | None = None

    def busy_share(self) -> float | None:
        """Since this was asked before; None if it was not, or if the machine does not say."""
        try:
            on_cpu, waiting, *_ = self._world.disk.read_bytes("/proc/thread-self/schedstat").split()
        except (OSError, ValueError):
            return None
        before, now = self._before, (self._world.stopwatch(), int(on_cpu) + int(waiting))
        self._before = now
        if before is None or now[0] <= before[0]:
            return None
        return min((now[1] - before[1]) / 1e9 / (now[0] - before[0]), 1.0)


def busy_families(clock: BusyClock) -> Iterator[Family]:
    """One thread is Kafka's network threads and request handlers."""
    share = clock.busy_share()
    if share is None:
        return
    for name, told in (
        ("kafka_network_socketserver_networkprocessoravgidlepercent", "Share of the time since the last scrape"),
        ("kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent", "The same: one thread does both"),
    ):
        yield Family.of("gauge", name, f"{told} in which the node's thread had nothing to do.", 1 - share)
