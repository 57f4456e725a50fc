"""The longest steps of the event loops of a cluster whose nodes run with `BARNABAS_MEASURE_STEPS`."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass

from measuring import Results

from barnabas.cluster.layout import Node
from barnabas.cluster.local import LocalCluster

BUDGET_MS = 20

_STEP = re.compile(r"a step of (\S+) took ([0-9.]+) ms, ([0-9.]+) ms of CPU")
_COLLECTION = re.compile(r"a collection of generation (\d) took ([0-9.]+) ms of CPU")
_SAMPLE = re.compile(
    r'^barnabas_request_(overbudget|longest_step)(_cpu)?(?:_ms|_total)?\{request="(\w+)"\} (\S+)', re.MULTILINE
)


@dataclass(slots=True)
class Longest:
    """Steps above the budget of one task, API or kind of collection, on one node."""

    above_ms: int = 0
    """Number of steps above the budget on the clock."""
    above_cpu: int = 0
    longest_ms: float = 0.0
    longest_cpu_ms: float = 0.0

    def add(self, ms: float, cpu_ms: float) -> None:
        self.above_ms += ms > BUDGET_MS
        self.above_cpu += cpu_ms > BUDGET_MS
        self.longest_ms = max(self.longest_ms, ms)
        self.longest_cpu_ms = max(self.longest_cpu_ms, cpu_ms)


class StepReport:
    """Reads the logs from where the last report ended; the counters of requests are those since the nodes started."""

    def __init__(self, cluster: LocalCluster, results: Results) -> None:
        self._cluster = cluster
        self._results = results
        self._read: dict[str, int] = {}
        """Characters of each node's log that were read."""

    def add(self, phase: str) -> None:
        """Report the steps since the last report: those of all nodes together, and the tasks that had too much CPU."""
        worst, above, above_cpu = Longest(), 0, 0
        for node in self._cluster.nodes:
            for what, longest in sorted(self._of_tasks(node).items()):
                if longest.above_cpu:
                    self._show(f"{phase}.{node.name}.{what}", longest)
                above, above_cpu = above + longest.above_ms, above_cpu + longest.above_cpu
                worst.add(longest.longest_ms, longest.longest_cpu_ms)
        worst.above_ms, worst.above_cpu = above, above_cpu
        self._show(f"{phase}.all", worst)

    def add_requests(self) -> None:
        """Report the steps of requests since the nodes started, by API."""
        for node in self._cluster.nodes:
            for api, longest in self._of_requests(node):
                self._show(f"requests.{node.name}.{api}", longest)

    def _show(self, name: str, it: Longest) -> None:
        self._results.add(
            f"scale.steps.{name}",
            "ms",
            1,
            it.longest_ms,
            above_20_ms=it.above_ms,
            longest_cpu_ms=it.longest_cpu_ms,
            above_20_ms_of_cpu=it.above_cpu,
        )

    def _of_tasks(self, node: Node) -> dict[str, Longest]:
        text = self._cluster.layout.log_file(node).read_text(errors="replace")
        begin, self._read[node.name] = self._read.get(node.name, 0), len(text)
        found: dict[str, Longest] = {}
        for task, ms, cpu_ms in _STEP.findall(text, begin):
            found.setdefault(task.removeprefix("barnabas."), Longest()).add(float(ms), float(cpu_ms))
        for generation, cpu_ms in _COLLECTION.findall(text, begin):
            found.setdefault(f"collection-{generation}", Longest()).add(float(cpu_ms), float(cpu_ms))
        return found

    def _of_requests(self, node: Node) -> Iterator[tuple[str, Longest]]:
        with urllib.request.urlopen(f"http://127.0.0.1:{node.http_port}/metrics") as page:
            text = page.read().decode()
        found: dict[str, Longest] = {}
        for what, of_cpu, api, value in _SAMPLE.findall(text):
            longest = found.setdefault(api, Longest())
            if what == "overbudget":
                setattr(longest, "above_cpu" if of_cpu else "above_ms", int(float(value)))
            else:
                setattr(longest, "longest_cpu_ms" if of_cpu else "longest_ms", float(value))
        yield from ((api, longest) for api, longest in sorted(found.items()) if longest.above_ms)
