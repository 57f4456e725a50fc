"""`seeds SEEDS`: whole simulated clusters under faults, one universe for each seed (`make simulate`)."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from running import many_seeds
from running.plan import STORE
from running.seed import SeedReport
from simulation.coverage import parse_pairs
from workloads.catalogue import WORKLOADS

COULD_NOT_RUN = 2


def command(  # noqa: PLR0913, PLR0917 - the options of a command
    seeds: Annotated[str, typer.Argument(metavar="SEEDS", help="Seeds to run: 7, 1-50 or 3,8,20-30.")],
    also: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Run the seeds in this file first, one a line.")
    ] = None,
    workload: Annotated[str, typer.Option(metavar="NAME", help="The workload of all seeds; drawn if left out.")] = "",
    jobs: Annotated[int, typer.Option(help="Number of processes; 0: one for each processor.")] = 0,
    coverage: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write which faults met which states, as JSON.")
    ] = None,
    must_meet: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Fail unless each pair `state | fault` in the file was met.")
    ] = None,
    require_coverage: Annotated[
        float, typer.Option(metavar="PERCENT", help="Fail if fewer pairs of a state and a fault were met.")
    ] = 0.0,
    store: Annotated[Path, typer.Option(help="Where the runs of seeds that fail are kept.")] = STORE,
) -> None:
    """Run simulated clusters under faults and check every promise while they run.

    Each seed draws the plan of a `run`. Prints each seed that fails, with the directory of its run and the command
    that does the same again, and a summary of what happened in all of them. Exit
    code 0: every promise was kept; 1: a promise was broken, something that must happen never did, or too few pairs of
    a state and a fault were met; 2: wrong arguments.
    """
    try:
        chosen = many_seeds.parse_seeds(seeds)
    except ValueError:
        _refuse(f"SEEDS must be like 7, 1-50 or 3,8,20-30; got {seeds!r}")
    if workload and workload not in WORKLOADS:
        _refuse(f"--workload {workload}: there are {', '.join(WORKLOADS)}")
    if also is not None:
        try:
            chosen = list(dict.fromkeys([*many_seeds.read_seeds(also), *chosen]))
        except (OSError, ValueError) as error:
            _refuse(f"--also {also}: {error}")
    if not 0 <= require_coverage <= 100:
        _refuse(f"--require-coverage must be between 0 and 100; got {require_coverage:g}")
    summary = many_seeds.Summary(least_coverage=require_coverage)
    if must_meet is not None:
        try:
            summary.must_meet = parse_pairs(must_meet.read_text(encoding="utf-8"), str(must_meet))
        except (OSError, ValueError) as error:
            _refuse(f"--must-meet: {error}")
    _run(summary, many_seeds.run_seeds(chosen, jobs or os.cpu_count() or 1, store, workload))
    if coverage is not None:
        coverage.write_text(json.dumps(summary.coverage, indent=1) + "\n", encoding="utf-8")
    raise typer.Exit(0 if summary.passed else 1)


def _run(summary: many_seeds.Summary, reports: Iterable[SeedReport]) -> None:
    for report in reports:
        summary.add(report)
        if not report.passed:
            print(many_seeds.describe_failure(report), flush=True)
    print(*summary.lines(), sep="\n")


def _refuse(reason: str) -> NoReturn:
    typer.echo(reason, err=True)
    raise typer.Exit(COULD_NOT_RUN)
