"""`barnabas log`: inspects the files of a log directory."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Inspect the files of a log directory.", rich_markup_mode=None)


@app.command()
def dump(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", exists=True, dir_okay=False)],
    batches: Annotated[bool, typer.Option("--batches", help="Print batches without their records.")] = False,
) -> None:
    """Print segments, indexes, checkpoints and snapshots as text."""
    from barnabas.storage.dump import main

    raise typer.Exit(main([str(file) for file in files] + (["--batches"] if batches else [])))


@app.command()
def check(
    places: Annotated[list[Path], typer.Argument(metavar="PLACE...", exists=True)],
) -> None:
    """Report batches that are damaged or unreadable, in a segment or in all segments below a directory.

    Exit code 1 if there are any. Stop the broker first: a segment that is being written looks damaged.
    """
    from barnabas.storage.log_check import main

    raise typer.Exit(main([str(place) for place in places]))
