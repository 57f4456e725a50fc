"""`seeds SEEDS`: whole clusters under the swarm of `make simulate`, held to every promise."""

from __future__ import annotations

from typing import Annotated

import typer

from barnabas.cluster import simulate


def command(
    seeds: Annotated[str, typer.Argument(metavar="SEEDS", help="7, 1-50 or 3,8,20-30")],
    jobs: Annotated[int, typer.Option(help="processes")] = 1,
    first_draw: Annotated[bool, typer.Option("--first-draw", help="as seeds were before they drew more")] = False,
) -> None:
    """Exit code 0: every promise was kept; 1: one was broken, or something that must happen never did."""
    try:
        simulate.parse_seeds(seeds)
    except ValueError as error:
        typer.echo(f"{seeds} are no seeds: 7, 1-50 or 3,8,20-30", err=True)
        raise typer.Exit(2) from error
    more = ["--first-draw"] if first_draw else []
    raise typer.Exit(simulate.main(["--seeds", seeds, "--jobs", str(jobs), *more]))
