"""`python -m barnabas.cluster.simulate --seeds A-B`: whole clusters under faults, one universe for each seed.

Prints one line for each seed that failed, with the command that replays it, and a summary of what happened in
all of them. Exit code 1 if a promise was broken, or if something that must happen never did (a run of many
seeds without one truncation shows nothing about truncations).
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from barnabas.cluster.simulation.coverage import merged
from barnabas.cluster.simulation.seed import SeedReport, run_seed
from barnabas.cluster.simulation.swarm import ALL_FAULTS

ENOUGH_SEEDS = 50
"""From so many seeds on, everything must have happened at least once."""
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
    "kills of members",
    "kills of writers",
    "kills of transformers",
    "partitions taken on",
    "commits",
    "transactions committed",
    "transactions aborted",
    "inputs written on",
    "cores that converged",
    "hostile: requests",
    "hostile: poison",
    "hostile: orders that must be kept",
    *(f"fault: {kind}" for kind in ALL_FAULTS),
)


HOSTILE = "hostile"
_HOSTILE = {"drawn": None, "always": True, "never": False}


@dataclass(slots=True)
class Summary:
    """What came of many seeds."""

    counts: Counter[str] = field(default_factory=Counter)
    failed: list[int] = field(default_factory=list)
    seeds: int = 0
    simulated_seconds: float = 0.0
    cpu_seconds: float = 0.0
    coverage: dict[str, Any] = field(default_factory=dict)
    """Of all: see `simulation.coverage`."""

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
        """How many took hold."""
        return sum(count for what, count in self.counts.items() if what.startswith("fault: "))

    @property
    def never(self) -> list[str]:
        """What should have happened by now, and did not."""
        return [what for what in MUST_HAPPEN if not self.counts[what]] if self.seeds >= ENOUGH_SEEDS else []

    def lines(self) -> Iterator[str]:
        if not self.seeds:
            return
        yield (
            f"{self.seeds} seeds: {self.simulated_seconds / 3600:.2f} simulated hours and {self.faults} faults in "
            f"{self.cpu_seconds:.0f} CPU seconds ({self.cpu_seconds / self.seeds:.2f} each)"
        )
        if self.coverage:
            cells = sum(map(len, self.coverage["cells"].values()))
            yield f"{cells - len(self.coverage['never'])} of {cells} pairs of a state and a fault have met"
        for what in dict.fromkeys((*MUST_HAPPEN, *sorted(self.counts))):
            yield f"  {self.counts[what]:9}  {what}"
        for what in self.never:
            yield f"never happened: {what}"
        yield f"failed: {', '.join(map(str, self.failed))}" if self.failed else "every promise was kept"


def replay_command(report: SeedReport) -> str:
    """What a person types to see this seed again."""
    hostile = "always" if report.plan.hostile is not None else "never"
    return f"python -m barnabas.cluster.simulate --seeds {report.seed} --hostile {hostile} --verbose"


def describe_failure(report: SeedReport, last_lines: int = 40) -> str:
    """All about a failed seed: what was broken, what nodes said, what happened last, how to see it again."""
    return "\n".join(
        [
            f"seed {report.seed} failed after {report.simulated_seconds:.3f} simulated seconds",
            *(f"  {broken}" for broken in report.broken),
            *report.log[-last_lines:],
            *report.trace[-last_lines:],
            f"replay: {replay_command(report)}",
        ]
    )


def parse_seeds(text: str) -> list[int]:
    """`7`, `1-50` or `3,8,20-30`. Raises ValueError."""
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        seeds += range(int(first), int(last if dash else first) + 1)
    if not seeds:
        raise ValueError(f"{text!r} names no seed")
    return seeds


def read_seeds(path: Path) -> dict[int, bool]:
    """One a line, each with whether it has hostile clients: `7 hostile`. Those that failed before there were any go on
    without. What stands behind a `#` is for people. Raises OSError, ValueError."""
    seeds = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        words = line.partition("#")[0].split()
        if words:
            if words[1:] not in ([], [HOSTILE]):
                raise ValueError(f"{' '.join(words)!r}: a seed may be followed by {HOSTILE!r} and nothing else")
            seeds[int(words[0])] = bool(words[1:])
    return seeds


def run_seeds(seeds: Mapping[int, bool | None], jobs: int) -> Iterable[SeedReport]:
    """The reports of many seeds, each with or without hostile clients or as drawn, as soon as it and those before it
    are there."""
    if jobs == 1:
        return map(_run_seed, seeds.items())
    pool = ProcessPoolExecutor(jobs)
    return pool.map(_run_seed, seeds.items())


def _run_seed(item: tuple[int, bool | None]) -> SeedReport:
    seed, hostile = item
    return run_seed(seed, hostile=hostile)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="simulate", description="Run simulated clusters under faults.")
    parser.add_argument("--seeds", default="1-50", help="7, 1-50 or 3,8,20-30")
    parser.add_argument("--also", type=Path, help="a file with seeds that run before all others, one a line")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--hostile", choices=list(_HOSTILE), default="drawn", help="whether seeds have hostile clients")
    parser.add_argument("--coverage", type=Path, help="write there which faults met which states, as JSON")
    parser.add_argument("--verbose", action="store_true", help="show what nodes say, seed by seed")
    arguments = parser.parse_args(argv)
    try:
        hostile = _HOSTILE[arguments.hostile]
        seeds = dict.fromkeys(parse_seeds(arguments.seeds), hostile)
    except ValueError as error:
        parser.error(f"--seeds: {error}")
    if arguments.also is not None:
        try:
            recorded = read_seeds(arguments.also)
            seeds = {**recorded, **{seed: how for seed, how in seeds.items() if seed not in recorded}}
        except (OSError, ValueError) as error:
            parser.error(f"--also {arguments.also}: {error}")
    summary = Summary()
    if arguments.verbose:
        reports: Iterable[SeedReport] = (
            run_seed(seed, log_level=logging.INFO, hostile=how) for seed, how in seeds.items()
        )
    else:
        reports = run_seeds(seeds, arguments.jobs)
    for report in reports:
        summary.add(report)
        if arguments.verbose:
            print(report.plan, *report.log, sep="\n")
            print(f"seed {report.seed}: digest {report.digest}")
        if not report.passed:
            print(describe_failure(report), flush=True)
    print(*summary.lines(), sep="\n")
    if arguments.coverage is not None:
        arguments.coverage.write_text(json.dumps(summary.coverage, indent=1) + "\n", encoding="utf-8")
    return 1 if summary.failed or summary.never else 0


if __name__ == "__main__":
    sys.exit(main())
