"""`report DIR`: makes report.html of a run again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(directory: Annotated[Path, typer.Argument(metavar="DIR", help="Of the run: store/NAME")]) -> None:
    """Makes report.html of a run that was recorded."""
    from reports import page
    from reports.facts import ReportError

    try:
        path = page.write(directory)
    except ReportError as error:
        typer.echo(error, err=True)
        raise typer.Exit(2) from error
    typer.echo(path)
