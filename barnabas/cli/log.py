"""`barnabas log`: look into the files of a log directory."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Look into the files of a log directory.", rich_markup_mode=None)


@app.command()
def dump(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", exists=True, dir_okay=False)],
    batches: Annotated[bool, typer.Option("--batches", help="Only the batches, not the records in them.")] = False,
) -> None:
    """Print segments, indexes, checkpoints and snapshots in words."""
    from storage.dump import main

    raise typer.Exit(main([str(file) for file in files] + (["--batches"] if batches else [])))


@app.command()
def check(
    places: Annotated[list[Path], typer.Argument(metavar="PLACE...", exists=True)],
) -> None:
    """Report each batch that is damaged, or that no reader could read. A place is a segment or a directory with some.

    The exit status is 1 if there is one. Check the segments of a broker that is stopped: what is being written looks
    damaged.
    """
    from storage.log_check import main

    raise typer.Exit(main([str(place) for place in places]))
