"""`check DIR`: judges a run again that was recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from checkers.legality import printed
from histories.recorder import RUN
from running.verdict_lines import print_verdict


def _print_table(wanted: bool) -> None:
    if wanted:
        typer.echo(printed())
        raise typer.Exit


def command(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Of the run: store/NAME")],
    legality: Annotated[
        bool,
        typer.Option("--legality", callback=_print_table, is_eager=True, help="only print what Kafka allows, and when"),
    ] = False,
) -> None:
    """Check a recorded history, and write its verdict and report again.

    Exit code 0: valid; 1: an anomaly, or an unknown verdict; 2: it cannot be checked. The last line is the verdict, and
    the command that does the same run again.
    """
    from running.experiment import COULD_NOT_RUN, judged

    del legality
    outcome = judged(directory, None, typer.echo)
    again = ""
    if outcome.verdict is not None:
        print_verdict(outcome.verdict)
        replay = json.loads((directory / RUN).read_text(encoding="utf-8")).get("replay")
        again = f" | again: {replay}" if replay else ""
    typer.echo(f"{outcome.summary} | {directory}{again}", err=outcome.exit_code == COULD_NOT_RUN)
    raise typer.Exit(outcome.exit_code)
