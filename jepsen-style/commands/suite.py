"""`suite quick|regression|nightly`: many runs, and one verdict."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from nemeses.kinds import FAULTS
from running.children import CHILDREN
from running.jobs import (
    LOCAL_FAULTS,
    PAIRS,
    SECURE_FAULTS,
    VOTER_FAULTS,
    Job,
    Tally,
    carry_out,
    coverage_of,
    past_runs,
    past_seeds,
    run_words,
    swarm,
)
from running.plan import LOG_IN, STORE
from running.processes import ANOMALY, COULD_NOT_RUN, VALID
from running.swarm import draw_plan

SUITES = ("quick", "regression", "nightly")
ROUNDS = 3
"""Rounds of quick."""
QUICK_SECONDS = 130.0
"""Nothing begins later in quick: with what runs then it takes three minutes at most."""
ENOUGH_RUNS = 200
"""Number of simulated runs from which on every state must have been met by some fault, or the night fails."""
FRESH_SEEDS = 300
"""Fresh seeds of `make simulate` each night; they must meet every pair of `pairs.txt`."""
LOCAL_EVERY = 20
"""Simulated runs of a night for each run in real processes."""


def command(
    which: Annotated[str, typer.Argument(metavar="quick|regression|nightly")],
    seed: Annotated[
        int | None, typer.Option(help="of the first run; the others follow it", show_default="fresh")
    ] = None,
    hours: Annotated[float, typer.Option(help="of nightly")] = 8.0,
    jobs: Annotated[int, typer.Option(help="at a time", show_default="one for each processor")] = 0,
    store: Annotated[Path, typer.Option(help="where the runs are kept")] = STORE,
) -> None:
    """quick: every workload in the simulation, and one run of real processes; at most three minutes on two processors.
    regression: a secure run of real processes, one whose voters change, all scenarios, and every run and seed that
    failed once. nightly: fresh runs for hours.

    Jobs that need root or docker are left out where there is none, and the last lines name them.

    Exit code 0: nothing was found; 1: something was; 2: something could not run, or it was interrupted. The last line
    is the verdict.
    """
    if which not in SUITES:
        typer.echo(f"there is no suite {which}; there are {', '.join(SUITES)}", err=True)
        raise typer.Exit(COULD_NOT_RUN)
    first = random.SystemRandom().randrange(1, 1_000_000) if seed is None else seed
    at_once = jobs or len(os.sched_getaffinity(0))
    typer.echo(f"suite {which}, seeds from {first} on")
    began = time.monotonic()
    limits = {"quick": QUICK_SECONDS, "regression": float("inf"), "nightly": hours * 3600}
    deadline = began + limits[which]
    folder = store / f"suite-{which}-{datetime.now(UTC):%Y%m%dT%H%M%S}"
    todo = {"quick": quick, "regression": regression, "nightly": nightly}[which](first)
    with CHILDREN.ended_by_signals():
        tally = carry_out(todo, folder, at_once, typer.echo, lambda: time.monotonic() < deadline)
    code = _report(which, tally, time.monotonic() - began, folder)
    raise typer.Exit(code)


TIERED = ("tiered", "table")
"""Workloads whose nodes need a remote store; worlds of processes have none."""


def quick(first: int) -> Iterator[Job]:
    """The dearest first, so that no processor waits for it at the end.

    A workload meets some of the faults in each round, until it has met all, or the time is over.
    """
    words = run_words("queue", "local", first, LOCAL_FAULTS, time=25, rate=60, concurrency=5, interval=6, quiet=3)
    yield Job("queue-local", words)
    for turn in range(ROUNDS):
        for count, workload in enumerate(workloads()):
            faults = [fault for place, fault in enumerate(FAULTS) if place % ROUNDS == (count + turn) % ROUNDS]
            if "rotate" in faults:
                # Nobody on the way can read messages then.
                faults = [fault for fault in faults if fault != "message"]
            seed = first + turn * 100 + count
            words = run_words(workload, "sim", seed, faults, time=16, rate=30, concurrency=4, interval=3, quiet=3)
            settings = draw_plan(seed).settings if turn else ()
            if workload in TIERED:
                settings = draw_plan(seed, workload).settings
            yield Job(f"{workload}-sim", (*words, *(word for pair in settings for word in ("--settings", pair))))


def regression(first: int) -> Iterator[Job]:
    words = run_words("queue", "local", first, SECURE_FAULTS, time=60, rate=60, concurrency=5, interval=6, quiet=3)
    yield Job("queue-local-secure", words)
    words = run_words("queue", "local", first, VOTER_FAULTS, time=60, rate=60, concurrency=5, interval=6, quiet=3)
    yield Job("queue-local-voters", words)
    for scenario, has_processes in scenarios():
        yield Job(f"scenario-{scenario}", ("scenario", scenario), keeps=False)
        if has_processes:
            yield Job(f"scenario-{scenario}-local", ("scenario", scenario, "--cluster", "local"), keeps=False)
    for words in past_runs():
        yield Job(words[1], words)
    yield from past_seeds()


def nightly(first: int) -> Iterator[Job]:
    yield from regression(first)
    fresh = f"{first}-{first + FRESH_SEEDS - 1}"
    yield Job("fresh-seeds", ("seeds", fresh, "--jobs", "1", "--must-meet", str(PAIRS)), keeps=False)
    for count, job in enumerate(swarm(first + FRESH_SEEDS)):
        if count % LOCAL_EVERY == 0:
            of_processes = [name for name in workloads() if name not in (*LOG_IN, *TIERED)]
            workload = of_processes[count // LOCAL_EVERY % len(of_processes)]
            faults = (LOCAL_FAULTS, SECURE_FAULTS, VOTER_FAULTS)[count // LOCAL_EVERY % 3]
            words = run_words(workload, "local", first + count, faults, time=120, interval=10)
            yield Job(f"{workload}-local", words)
        yield job


def workloads() -> list[str]:
    from workloads.catalogue import WORKLOADS

    return list(WORKLOADS)


def scenarios() -> list[tuple[str, bool]]:
    """Their names, and which of them have a form for processes."""
    from scenarios.catalogue import SCENARIOS
    from scenarios.processes import STORIES

    return [(scenario.name, scenario.number in STORIES) for scenario in SCENARIOS.values()]


def _report(which: str, tally: Tally, seconds: float, folder: Path) -> int:
    """The exit code. A night that never tried something shows nothing about it."""
    line, silent = coverage_of(tally.tables)
    if line:
        typer.echo(line)
    for line in tally.off:
        typer.echo(f"off on this machine: {line}")
    for line in tally.not_run:
        typer.echo(f"could not run: {line}")
    for line in tally.failed:
        typer.echo(f"found something: {line}")
    code = tally.exit_code
    found = f"{len(tally.failed)} failed" if tally.failed else "nothing was found"
    if tally.not_run:
        found += f", {len(tally.not_run)} could not run"
    if which == "nightly" and len(tally.tables) >= ENOUGH_RUNS and silent:
        found += f", {len(silent)} states were met by no fault"
        code = code or ANOMALY
    if tally.off:
        found += f", {len(tally.off)} off on this machine"
    if tally.cut_short:
        found += f", {len(tally.cut_short)} cut short"
    verdict = {VALID: "VALID", ANOMALY: "INVALID", COULD_NOT_RUN: "COULD NOT RUN"}[code]
    if tally.interrupted and code == COULD_NOT_RUN:
        verdict = "INTERRUPTED"
    typer.echo(f"{verdict}: suite {which}, {tally.done} jobs in {seconds:.0f} s, {found} | {folder}")
    return code
