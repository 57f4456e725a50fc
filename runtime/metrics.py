"""Numbers of a node as Prometheus reads them: families of samples, gathered when somebody asks.

Nothing is counted here and nothing costs anything until a scrape. The text is written by prometheus-client, which is
imported at the first scrape: most nodes' memory never sees it. Names are Kafka's, as its JMX exporters write them:
`kafka_server_replicamanager_leadercount`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, cast

from runtime.http import HttpRequest, HttpResponse
from runtime.observatory import Page
from runtime.world import World

Kind = Literal["gauge", "counter"]
Labels = Sequence[str]
"""Values, in the order of the family's names."""

CLOCK_TICKS = 100
"""A second of /proc/PID/stat, on every Linux that Python runs on."""
PAGE_BYTES = 4096


class Family(NamedTuple):
    """One metric: what it is called, and its value for each set of labels."""

    kind: Kind
    name: str
    """A counter's without `_total`, which is written behind it."""
    told: str
    labels: Sequence[str] = ()
    samples: Iterable[tuple[Labels, float]] = ()

    @classmethod
    def of(cls, kind: Kind, name: str, told: str, value: float) -> Family:
        """A family of one sample without labels."""
        return cls(kind, name, told, (), [((), value)])


Gather = Callable[[], Iterable[Family]]


def metrics_page(gather: Gather) -> Page:
    """The page `/metrics`."""

    async def page(request: HttpRequest) -> HttpResponse:
        from prometheus_client.exposition import CONTENT_TYPE_LATEST

        return HttpResponse(render(gather()), CONTENT_TYPE_LATEST)

    return page


def render(families: Iterable[Family]) -> bytes:
    """The text that Prometheus reads."""
    from prometheus_client.exposition import generate_latest

    # All that it uses of a registry is `collect`.
    text: bytes = generate_latest(cast(Any, _Registry(families)))
    return text


class _Registry:
    """What prometheus-client takes for its registry: no global one, no threads, no locks."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = families

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        makers: dict[Kind, Any] = {"gauge": GaugeMetricFamily, "counter": CounterMetricFamily}
        for family in self._families:
            metric = makers[family.kind](family.name, family.told, labels=family.labels)
            for labels, value in family.samples:
                metric.add_metric(labels, value)
            yield metric


class ApiCounter:
    """Requests of one API. Counted where they are dispatched."""

    __slots__ = ("answers", "request_bytes", "requests", "total_ms")

    def __init__(self) -> None:
        self.requests = 0
        self.request_bytes = 0
        self.answers = 0
        self.total_ms = 0
        """From the arrival of a request to its answer, of all answers together."""


def request_families(counters: Mapping[str, ApiCounter]) -> Iterator[Family]:
    """`counters` by the name of the API."""
    used = [(name, counter) for name, counter in sorted(counters.items()) if counter.requests]
    values: tuple[tuple[str, str, Callable[[ApiCounter], int]], ...] = (
        ("requests", "Requests that were handled.", lambda each: each.requests),
        ("requestbytes", "Bytes of requests.", lambda each: each.request_bytes),
        ("answers", "Answers that were given.", lambda each: each.answers),
        ("totaltimems", "Milliseconds from a request's arrival to its answer, summed up.", lambda each: each.total_ms),
    )
    for name, told, value in values:
        samples = [((api,), value(counter)) for api, counter in used]
        yield Family("counter", f"kafka_network_requestmetrics_{name}", told, ("request",), samples)


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
