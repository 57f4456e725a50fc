"""`barnabas pipeline history`: the checks of the fault injection suite, over executors."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from barnabas.cli.option_group import grouped
from barnabas.cli.output import show_json, show_table
from barnabas.cli.pipeline_options import SparkOptions
from barnabas.cli.pipeline_session import spark_session, told

_SHOWN = 20


@grouped
def command(
    stores: Annotated[list[str], typer.Argument(metavar="RUN", help="Directories of runs: store/NAME.")],
    parts: Annotated[
        int | None, typer.Option("--parts", min=1, metavar="N", help="By key; as many as fit into memory unless set.")
    ] = None,
    checkers: Annotated[
        str | None, typer.Option("--checkers", metavar="DIR", help="The folder jepsen-style, if it is elsewhere.")
    ] = None,
    *,
    spark: SparkOptions,
) -> None:
    """Checks recorded histories: the verdicts of one process, for many runs and for such as no process holds.

    Exit code 0: all are valid; 1: an anomaly, or nobody can tell.
    """
    from barnabas.pipeline.jobs import history as jobs

    with told():
        runs = jobs.find_runs(stores)
    with spark_session(spark, "history") as session:
        began = time.monotonic()
        judged = jobs.check(session, runs, jobs.checkers_folder(checkers), parts)
        seconds = round(time.monotonic() - began, 2)
    if spark.as_json:
        show_json({"runs": [each.to_json() for each in judged], "seconds": seconds})
    else:
        for each in judged:
            rows = [
                (name, "by key" if name in each.by_key else "whole", verdict.valid, f"{len(verdict.findings):,}")
                for name, verdict in each.verdicts.items()
            ]
            show_table((f"checker of {each.run_id}", "checked", "valid", "findings"), rows)
            findings = [found for verdict in each.verdicts.values() for found in verdict.findings if not found.legal]
            for found in findings[:_SHOWN]:
                typer.echo(f"{found.anomaly}: {found.told}", err=True)
            because = f": {each.unknown_because}" if each.unknown_because else ""
            pieces = f"{each.parts} parts" if each.parts > 1 else "one part"
            typer.echo(f"{each.run_id}: {each.valid}{because} ({each.lines:,} lines in {pieces})")
        typer.echo(f"{seconds} s")
    if any(each.valid != "true" for each in judged):
        raise typer.Exit(1)
