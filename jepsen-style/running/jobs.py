"""The jobs of a suite: each is a command of its own. A few run at a time, and each is reported when it ends."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from nemeses.kinds import FAULTS, OFF
from running.children import CHILDREN
from running.many_seeds import read_seeds
from running.privileges import why_off
from running.processes import ANOMALY, COULD_NOT_RUN, VALID, Done, do
from running.swarm import draw_plan

ROOT = Path(__file__).resolve().parents[2]
RUN_SEEDS = ROOT / "jepsen-style" / "seeds.txt"
"""Runs that failed once, a command line each; what they found stands behind a `#`."""
SWARM_SEEDS = ROOT / "tests" / "simulation" / "seeds.txt"
"""The same of `make simulate`, a seed each."""
PAIRS = ROOT / "tests" / "simulation" / "pairs.txt"
"""The pairs of a state and a fault that many seeds must meet."""
CUT_SHORT = "cut short"
LOCAL_FAULTS = ("kill", "pause", "partition", "cut-off")
SECURE_FAULTS = (*LOCAL_FAULTS, "rotate")
"""Faults of real processes with TLS, users and ACLs."""
VOTER_FAULTS = (*LOCAL_FAULTS, "voters")
"""Faults of real processes whose voters can change."""


@dataclass(frozen=True, slots=True)
class Job:
    """One command."""

    name: str
    words: tuple[str, ...]
    """After `python jepsen-style`."""
    keeps: bool = True
    """It is a run, with a directory of its own."""


@dataclass(slots=True)
class Tally:
    """Results of all jobs so far."""

    done: int = 0
    failed: list[str] = field(default_factory=list)
    """Command lines that found something."""
    not_run: list[str] = field(default_factory=list)
    off: list[str] = field(default_factory=list)
    """Jobs and faults that this machine cannot do, and why."""
    cut_short: list[str] = field(default_factory=list)
    """Those that ran when the suite was interrupted, and had found nothing until then."""
    interrupted: bool = False
    seconds: float = 0.0
    tables: list[Path] = field(default_factory=list)
    """Coverage of the simulated ones."""

    def add(self, job: Job, done: Done) -> str:
        """The word for what came of it."""
        self.done += 1
        self.seconds += done.seconds
        for line in done.lines:
            fault, is_off, why = line.partition(OFF)
            if is_off and fault in FAULTS:
                self.leave_out(f"{fault} in {job.name}", why)
        line = "python jepsen-style " + " ".join(job.words)
        if self.interrupted and done.exit_code != VALID and not done.found_something:
            self.cut_short.append(line)
            return CUT_SHORT
        if done.exit_code == ANOMALY:
            self.failed.append(line)
        elif done.exit_code == COULD_NOT_RUN:
            self.not_run.append(line)
        if done.directory is not None and (done.directory / "coverage.json").exists():
            self.tables.append(done.directory / "coverage.json")
        return {VALID: "ok", ANOMALY: "FAILED", COULD_NOT_RUN: "could not run"}[done.exit_code]

    def leave_out(self, what: str, why: str) -> None:
        line = f"{what}: {why}"
        if line not in self.off:
            self.off.append(line)

    @property
    def exit_code(self) -> int:
        return ANOMALY if self.failed else COULD_NOT_RUN if self.not_run or self.interrupted else VALID


def carry_out(
    jobs: Iterable[Job], store: Path, at_once: int, log: Callable[[str], None], may_begin: Callable[[], bool]
) -> Tally:
    """Runs jobs until there are none left, or none may begin; those that run then still end. Jobs that cannot run on
    this machine are reported and left out."""
    tally, running = Tally(), dict[Future[Done], Job]()
    left = iter(jobs)
    pool = ThreadPoolExecutor(at_once)

    def begin() -> bool:
        job = next(left, None) if may_begin() and not CHILDREN.interrupted else None
        while job is not None and (why := why_off(job.words)) is not None:
            tally.leave_out(job.name, why)
            log(f"off                {job.name}: {why}")
            job = next(left, None)
        if job is not None:
            folder = store / f"{job.name}-{tally.done + len(running)}" if job.keeps else None
            running[pool.submit(do, job.words, folder)] = job
        return job is not None

    try:
        while len(running) < at_once and begin():
            pass
        while running:
            ended, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in ended:
                job, done = running.pop(future), future.result()
                tally.interrupted = CHILDREN.interrupted
                word = tally.add(job, done)
                log(f"{word:6} {done.seconds:6.1f} s  {job.name}")
                if done.exit_code != VALID and word != CUT_SHORT:
                    for line in done.lines[-8:]:
                        log(f"         {line}")
            while len(running) < at_once and begin():
                pass
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
    return tally


def run_words(workload: str, world: str, seed: int, faults: Sequence[str], **options: float) -> tuple[str, ...]:
    """`run WORKLOAD …`; secure if certificates rotate."""
    words = ["run", workload, "--cluster", world, "--seed", str(seed)]
    if faults:
        words += ["--nemesis", ",".join(faults)]
    if "rotate" in faults:
        words.append("--secure")
    for name, value in options.items():
        words += [f"--{name.replace('_', '-')}", f"{value:g}"]
    return tuple(words)


def past_runs() -> list[tuple[str, ...]]:
    """The runs that failed once: what comes after `python jepsen-style`."""
    return [tuple(line.split()) for line in _lines(RUN_SEEDS)]


def past_seeds() -> Iterator[Job]:
    """The seeds of `make simulate` that failed once."""
    seeds = read_seeds(SWARM_SEEDS) if SWARM_SEEDS.exists() else []
    if seeds:
        yield Job("seeds", ("seeds", ",".join(map(str, seeds)), "--jobs", "1"), keeps=False)


def _lines(path: Path) -> Iterator[str]:
    if path.exists():
        for text in path.read_text(encoding="utf-8").splitlines():
            line = text.partition("#")[0].strip()
            if line:
                yield line


def swarm(first_seed: int) -> Iterator[Job]:
    """Runs without end, as `seeds` draws them, each in a directory of its own."""
    for seed in count(first_seed):
        plan = draw_plan(seed)
        yield Job(f"{plan.workload}-{seed}", plan.words())


def coverage_of(tables: Iterable[Path]) -> tuple[str, list[str]]:
    """One line of what all of them have tried, and the states that no fault has met; empty without any."""
    from simulation.coverage import merged

    read = [json.loads(path.read_text(encoding="utf-8")) for path in tables]
    if not read:
        return "", []
    table = merged(read)
    cells = sum(len(faults) for faults in table["cells"].values())
    silent = [state for state, faults in table["cells"].items() if not any(faults.values())]
    line = f"state × fault: {cells - len(table['never'])} of {cells} cells happened"
    return line + (f"; no fault met: {', '.join(silent)}" if silent else ""), silent
