"""`barnabas log`: look into the files of a log directory."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Look into the files of a log directory.", rich_markup_mode=None)


@app.callback()
def _keep_the_name_of_the_only_command() -> None:
    """Look into the files of a log directory."""


@app.command()
def dump(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", exists=True, dir_okay=False)],
    batches: Annotated[bool, typer.Option("--batches", help="Only the batches, not the records in them.")] = False,
) -> None:
    """Print segments, indexes, checkpoints and snapshots in words."""
    from storage.dump import main

    raise typer.Exit(main([str(file) for file in files] + (["--batches"] if batches else [])))
