"""The metrics of a node in the format of Prometheus: families of samples, gathered at a scrape.

Nothing is counted here, so nothing costs anything until a scrape. prometheus-client writes the text; it is imported at
the first scrape, so most nodes never load it. What takes long is counted in steps, and a long page is written in
stretches, so that other tasks run in between.
Names are Kafka's, as its JMX exporters write them: `kafka_server_replicamanager_leadercount`.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from itertools import accumulate, islice
from typing import Any, cast

import trio

from barnabas.protocol.errors import ErrorCode
from barnabas.runtime.families import Family, Kind, Labels
from barnabas.runtime.http import HttpRequest, HttpResponse
from barnabas.runtime.observatory import Page
from barnabas.runtime.request_times import BOUNDS_MS, ApiCounter, Spread
from barnabas.runtime.server import Server
from barnabas.runtime.turns import BUDGET_SECONDS
from barnabas.runtime.version import version
from barnabas.runtime.world import Disk, World

SAMPLES_IN_A_STRETCH = 1_000
"""Samples after which other tasks run."""
CLOCK_TICKS = 100
"""Units of a second in /proc/PID/stat, on every Linux that Python runs on."""
PAGE_BYTES = 4096


Gather = Callable[[], Iterable[Family | None]]
"""All families of a node, in steps."""
Prepare = Callable[[], Awaitable[None]]
"""Collects from elsewhere what `Gather` needs."""


def metrics_page(gather: Gather, prepare: Prepare | None = None) -> Page:
    """The page `/metrics`."""

    async def page(request: HttpRequest) -> HttpResponse:
        from prometheus_client.exposition import CONTENT_TYPE_LATEST

        if prepare is not None:
            await prepare()
        text = bytearray()
        for family in gather():
            if family is None:
                await trio.lowlevel.checkpoint()
                continue
            for stretch in render(family):
                text += stretch
                await trio.lowlevel.checkpoint()
        return HttpResponse(bytes(text), CONTENT_TYPE_LATEST)

    return page


def render(family: Family) -> Iterator[bytes]:
    """The text of a family, in stretches."""
    samples = iter(family.samples)
    if not family.continues:
        yield _written(family, list(islice(samples, SAMPLES_IN_A_STRETCH)))
    while stretch := list(islice(samples, SAMPLES_IN_A_STRETCH)):
        # The first stretch has the lines HELP and TYPE.
        yield _written(family, stretch).split(b"\n", 2)[2]


def _written(family: Family, samples: Iterable[tuple[Labels, float | Spread]]) -> bytes:
    from prometheus_client.exposition import generate_latest

    # It calls `collect` alone of a registry: no global one, no threads, no locks.
    text: bytes = generate_latest(cast(Any, _Registry(family, samples)))
    return text


class _Registry:
    """Stands in for the registry of prometheus-client."""

    def __init__(self, family: Family, samples: Iterable[tuple[Labels, float | Spread]]) -> None:
        self._family = family
        self._samples = samples

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        makers: dict[Kind, Any] = {
            "gauge": GaugeMetricFamily,
            "counter": CounterMetricFamily,
            "histogram": HistogramMetricFamily,
        }
        family = self._family
        metric = makers[family.kind](family.name, family.help, labels=family.labels)
        for labels, value in self._samples:
            if isinstance(value, Spread):
                metric.add_metric(labels, _buckets(value), value.total * 1000)
            else:
                metric.add_metric(labels, value)
        yield metric


def _buckets(spread: Spread) -> list[tuple[str, int]]:
    """Counts up to each bound in ms."""
    from prometheus_client.utils import floatToGoString

    bounds = map(floatToGoString, (*BOUNDS_MS, math.inf))
    return list(zip(bounds, accumulate(spread.buckets), strict=True))


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
    # A request that a broker forwarded has its steps at the controller, where it is no request of its own.
    used = [((name,), counter) for name, counter in sorted(counters.items()) if counter.requests or counter.over_budget]
    values: tuple[tuple[str, str, Callable[[ApiCounter], int]], ...] = (
        ("requests", "Requests that were handled.", lambda each: each.requests),
        ("requestbytes", "Bytes of requests.", lambda each: each.request_bytes),
        ("answers", "Answers that were given.", lambda each: each.answers),
    )
    for name, text, value in values:
        yield Family("counter", prefix + name, text, label, [(api, value(counter)) for api, counter in used])
    bounds: tuple[tuple[str, str, Callable[[ApiCounter], int]], ...] = (
        ("failures", "Requests that ended with an error of the program.", lambda each: each.failures),
        (
            "overbudget",
            f"Requests and steps of requests that held the event loop for more than {BUDGET_SECONDS * 1000:.0f} ms.",
            lambda each: each.over_budget,
        ),
    )
    for name, text, value in bounds:
        samples = [(api, value(counter)) for api, counter in used]
        yield Family("counter", f"barnabas_request_{name}", text, label, samples)
    text = "The longest of those, in milliseconds."
    longest = [(api, counter.longest * 1000) for api, counter in used]
    yield Family("gauge", "barnabas_request_longest_step_ms", text, label, longest)
    errors = [
        ((*api, _error_name(code)), count) for api, counter in used for code, count in sorted(counter.errors.items())
    ]
    text = "Errors in answers, at any place in an answer."
    yield Family("counter", prefix + "errors", text, ("request", "error"), errors)
    timed = [(api, counter) for api, counter in used if counter.total.count]
    text = "Milliseconds from a request's arrival until its answer was sent. Of busy APIs some requests are timed."
    yield Family("histogram", prefix + "totaltimems", text, label, [(api, counter.total) for api, counter in timed])
    for name, text, phase in PHASES:
        text = f"Milliseconds of the requests that were timed (totaltimems_count), summed up: {text}."
        yield Family("counter", prefix + name, text, label, [(api, phase(counter) * 1000) for api, counter in timed])


def _error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


def process_families(world: World) -> Iterator[Family]:
    """Build, CPU time, memory, threads and file descriptors of the process, as far as this machine reports them."""
    build = (version(), platform.python_version())
    text = "1, with the versions of Barnabas and Python as labels."
    yield Family("gauge", "barnabas_build_info", text, ("version", "python"), [(build, 1)])
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
    yield from _descriptor_families(world)
    booted = _number_after(world, "/proc/stat", b"\nbtime ")
    if booted is not None:
        started = booted + int(fields[19]) / CLOCK_TICKS
        yield Family.of("gauge", "process_start_time_seconds", "Start of this process, in s since 1970.", started)


def _descriptor_families(world: World) -> Iterator[Family]:
    text = "Open file descriptors of this process."
    yield Family.of("gauge", "process_open_fds", text, len(world.disk.list("/proc/self/fd")))
    limit = _number_after(world, "/proc/self/limits", b"\nMax open files ")
    if limit is not None:
        yield Family.of("gauge", "process_max_fds", "Limit of open file descriptors of this process.", limit)


def _number_after(world: World, path: str, label: bytes) -> int | None:
    """The first word after the label in a file of /proc; None if it is not a number, such as `unlimited`."""
    words = world.disk.read_bytes(path).partition(label)[2].split(maxsplit=1)
    return int(words[0]) if words and words[0].isdigit() else None


def space_families(disk: Disk, directories: Iterable[str]) -> Iterator[Family]:
    """Size and free space of the volumes of log directories; a directory that cannot be read is left out."""
    spaces = []
    for directory in directories:
        try:
            spaces.append(((directory,), disk.space_bytes(directory)))
        except OSError:
            continue
    for index, (name, text) in enumerate((("total", "Size of its volume."), ("usable", "Free space on its volume."))):
        samples = [(labels, space[index]) for labels, space in spaces]
        yield Family("gauge", f"barnabas_logdir_{name}_bytes", text, ("logDirectory",), samples)


class BusyClock:
    """The share of time in which this thread ran, or was ready to, between two scrapes. The kernel counts it anyway."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._before: tuple[float, int] | None = None

    def busy_share(self) -> float | None:
        """The share since the last call; None at the first, and if the machine does not report it."""
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
    """The idle shares of Kafka's network threads and request handlers; here one thread is both."""
    share = clock.busy_share()
    if share is None:
        return
    for name, text in (
        ("kafka_network_socketserver_networkprocessoravgidlepercent", "Share of the time since the last scrape"),
        ("kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent", "The same: one thread does both"),
    ):
        yield Family.of("gauge", name, f"{text} in which the node's thread had nothing to do.", 1 - share)


def server_families(server: Server) -> Iterator[Family]:
    """The memory that connections hold, and connections that wait for a turn."""
    memory = server.memory
    values: tuple[tuple[Kind, str, str, int], ...] = (
        ("gauge", "barnabas_memory_request_bytes", "Requests that arrive or are not answered.", memory.request_bytes),
        ("gauge", "barnabas_memory_answer_bytes", "Answers that their peers have not taken.", memory.answer_bytes),
        ("counter", "barnabas_memory_closed", "Connections closed because of what they held.", memory.closed),
        ("gauge", "barnabas_turns_waiting", "Connections that wait for their turn.", server.turns.waiting),
    )
    for kind, name, text, value in values:
        yield Family.of(kind, name, text, value)
