"""Many seeds of the simulation: which seeds to run, and a summary of what happened in all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from running.seed import SeedReport, run_seed
from running.swarm import SWARM_FAULTS
from simulation.coverage import merged, not_met

ENOUGH_SEEDS = 50
"""Number of seeds from which on everything must have happened at least once."""
MUST_HAPPEN = (
    "acks",
    "raft elections",
    "raft truncations",
    "partition elections",
    "isr shrinks",
    "isr expansions",
    "log truncations",
    "log recoveries",
    "logs cleaned",
    "clients that crashed",
    "partitions taken on",
    "commits",
    "transactions committed",
    "transactions aborted",
    "cores that converged",
    "questions to brokers that are cut off",
    "hostile: requests",
    "hostile: poison",
    "hostile: orders that must be kept",
    *(f"fault: {kind}" for kind in SWARM_FAULTS),
)


@dataclass(slots=True)
class Summary:
    """The results of many seeds."""

    counts: Counter[str] = field(default_factory=Counter)
    failed: list[int] = field(default_factory=list)
    seeds: int = 0
    simulated_seconds: float = 0.0
    cpu_seconds: float = 0.0
    coverage: dict[str, Any] = field(default_factory=dict)
    """The tables of all seeds in one: see `simulation.coverage`."""
    must_meet: Sequence[tuple[str, str]] = ()
    """Pairs of a state and a fault."""
    least_coverage: float = 0.0
    """Percentage of all pairs that must be met."""

    def add(self, report: SeedReport) -> None:
        self.seeds += 1
        self.counts.update(report.counts)
        self.simulated_seconds += report.simulated_seconds
        self.cpu_seconds += report.cpu_seconds
        if report.coverage:
            self.coverage = merged([self.coverage, report.coverage]) if self.coverage else report.coverage
        if not report.passed:
            self.failed.append(report.seed)

    @property
    def faults(self) -> int:
        """Number of faults that acted."""
        return sum(count for what, count in self.counts.items() if what.startswith("fault: "))

    @property
    def never(self) -> list[str]:
        """Events that must have happened by now, and did not."""
        return [what for what in MUST_HAPPEN if not self.counts[what]] if self.seeds >= ENOUGH_SEEDS else []

    @property
    def pairs(self) -> tuple[int, int]:
        """(pairs of a state and a fault that have met, all pairs)."""
        if not self.coverage:
            return 0, 0
        count = sum(map(len, self.coverage["cells"].values()))
        return count - len(self.coverage["never"]), count

    @property
    def not_met(self) -> list[str]:
        """The pairs that must meet, and did not."""
        return not_met(self.coverage.get("cells", {}), self.must_meet)

    @property
    def too_little(self) -> bool:
        met, count = self.pairs
        return 100 * met < self.least_coverage * count or (self.least_coverage > 0 and not count)

    @property
    def passed(self) -> bool:
        return not (self.failed or self.never or self.not_met or self.too_little)

    def lines(self) -> Iterator[str]:
        if not self.seeds:
            return
        yield (
            f"{self.seeds} seeds: {self.simulated_seconds / 3600:.2f} simulated hours and {self.faults} faults in "
            f"{self.cpu_seconds:.0f} CPU seconds ({self.cpu_seconds / self.seeds:.2f} each)"
        )
        met, count = self.pairs
        if count:
            yield f"{met} of {count} pairs of a state and a fault have met ({100 * met / count:.1f} %)"
        for what in dict.fromkeys((*MUST_HAPPEN, *sorted(self.counts))):
            yield f"  {self.counts[what]:9}  {what}"
        for what in self.never:
            yield f"never happened: {what}"
        for pair in self.not_met:
            yield f"never met: {pair}"
        if self.too_little:
            yield f"too few pairs have met: {self.least_coverage:g} % are required"
        yield f"failed: {', '.join(map(str, self.failed))}" if self.failed else "every promise was kept"


def describe_failure(report: SeedReport) -> str:
    """Describes a failed seed: broken promises, where the run is kept, and how to replay it."""
    lines = [f"seed {report.seed} failed after {report.simulated_seconds:.3f} simulated seconds"]
    lines += [f"  {broken}" for broken in report.broken]
    if report.directory is not None:
        lines.append(f"run: {report.directory}")
    return "\n".join([*lines, f"again: {report.plan.replay()}"])


def parse_seeds(text: str) -> list[int]:
    """`7`, `1-50` or `3,8,20-30`. Raises ValueError."""
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        seeds += range(int(first), int(last if dash else first) + 1)
    if not seeds:
        raise ValueError(f"{text!r} names no seed")
    return seeds


def read_seeds(path: Path) -> list[int]:
    """Reads a file with one seed a line; `#` begins a comment. Raises OSError, ValueError."""
    lines = (line.partition("#")[0].strip() for line in path.read_text(encoding="utf-8").splitlines())
    return [int(line) for line in lines if line]


def run_seeds(
    seeds: Sequence[int], jobs: int, store: Path | None = None, workload: str = ""
) -> Iterable[SeedReport]:
    """The reports of the seeds, in their order, each as soon as it is ready. `store`, `workload`: see `run_seed`."""
    run = partial(run_seed, store=store, workload=workload)
    if jobs == 1:
        return map(run, seeds)
    return ProcessPoolExecutor(jobs).map(run, seeds)
