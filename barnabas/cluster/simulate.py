"""`python -m barnabas.cluster.simulate --seeds A-B`: whole clusters under faults, one universe for each seed.

Prints one line for each seed that failed, with the command that replays it, and a summary of what happened in
all of them. Exit code 1 if a promise was broken, or if something that must happen never did (a run of many
seeds without one truncation shows nothing about truncations), or a pair of a state and a fault that must meet never
met.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from barnabas.cluster.simulation.coverage import merged, not_met, parse_pairs
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
    "questions to brokers that are cut off",
    "hostile: requests",
    "hostile: poison",
    "hostile: orders that must be kept",
    *(f"fault: {kind}" for kind in ALL_FAULTS),
)


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
    must_meet: Sequence[tuple[str, str]] = ()
    """Pairs of a state and a fault."""
    least_coverage: float = 0.0
    """How many percent of all pairs must be met."""

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

    @property
    def pairs(self) -> tuple[int, int]:
        """How many pairs of a state and a fault have met, and how many there are."""
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


def replay_command(report: SeedReport) -> str:
    """What a person types to see this seed again."""
    first_draw = "" if report.draws_later else " --first-draw"
    return f"python -m barnabas.cluster.simulate --seeds {report.seed}{first_draw} --verbose"


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


class RecordedSeed(NamedTuple):
    """A seed, and whether it has what seeds draw since there is `swarm.draw_later`."""

    seed: int
    draws_later: bool = True


FIRST_DRAW = "first-draw"
"""Behind a recorded seed: it failed before there were later draws, and runs without them."""


def read_seeds(path: Path) -> list[RecordedSeed]:
    """One a line; what stands behind a `#` is for people. Raises OSError, ValueError."""
    lines = (line.partition("#")[0].split() for line in path.read_text(encoding="utf-8").splitlines())
    return [_recorded(line) for line in lines if line]


def _recorded(words: Sequence[str]) -> RecordedSeed:
    """Raises ValueError."""
    if words[1:] not in ([], [FIRST_DRAW]):
        raise ValueError(f"{' '.join(words)!r}: a line is a seed, or a seed and {FIRST_DRAW}")
    return RecordedSeed(int(words[0]), draws_later=len(words) == 1)


def run_recorded(recorded: RecordedSeed, *, log_level: int = logging.WARNING) -> SeedReport:
    return run_seed(recorded.seed, draws_later=recorded.draws_later, log_level=log_level)


def run_seeds(seeds: Sequence[RecordedSeed], jobs: int) -> Iterable[SeedReport]:
    """The reports of many seeds, each as soon as it and those before it are there."""
    if jobs == 1:
        return map(run_recorded, seeds)
    pool = ProcessPoolExecutor(jobs)
    return pool.map(run_recorded, seeds)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="simulate", description="Run simulated clusters under faults.")
    parser.add_argument("--seeds", default="1-50", help="7, 1-50 or 3,8,20-30")
    parser.add_argument("--also", type=Path, help="a file with seeds that run before all others, one a line")
    parser.add_argument("--first-draw", action="store_true", help=f"run them as recorded seeds with {FIRST_DRAW} run")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--coverage", type=Path, help="write there which faults met which states, as JSON")
    parser.add_argument("--must-meet", type=Path, metavar="FILE", help="pairs that must be met, as `state | fault`")
    parser.add_argument("--require-coverage", type=float, default=0.0, metavar="PERCENT", help="of all pairs")
    parser.add_argument("--verbose", action="store_true", help="show what nodes say, seed by seed")
    arguments = parser.parse_args(argv)
    try:
        seeds = [RecordedSeed(seed, not arguments.first_draw) for seed in parse_seeds(arguments.seeds)]
    except ValueError as error:
        parser.error(f"--seeds: {error}")
    if arguments.also is not None:
        try:
            seeds = list(dict.fromkeys([*read_seeds(arguments.also), *seeds]))
        except (OSError, ValueError) as error:
            parser.error(f"--also {arguments.also}: {error}")
    summary = Summary(least_coverage=arguments.require_coverage)
    if not 0 <= arguments.require_coverage <= 100:
        parser.error(f"--require-coverage: {arguments.require_coverage:g} is not in 0 to 100")
    if arguments.must_meet is not None:
        path = arguments.must_meet
        try:
            summary.must_meet = parse_pairs(path.read_text(encoding="utf-8"), str(path))
        except (OSError, ValueError) as error:
            parser.error(f"--must-meet: {error}")
    if arguments.verbose:
        reports: Iterable[SeedReport] = (run_recorded(seed, log_level=logging.INFO) for seed in seeds)
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
    return 1 if summary.failed or summary.never or summary.not_met or summary.too_little else 0


if __name__ == "__main__":
    sys.exit(main())
