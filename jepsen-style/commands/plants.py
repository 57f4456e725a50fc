"""`python jepsen-style plants`: known mistakes, and whether the checkers find them."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from barnabas.cluster.errors import ClusterError, WrongArgument
from plants.catalogue import PLANTS, find
from plants.plant import Plant
from plants.trying import Outcome, Tried, triable, trial_of, try_nothing, try_plant
from running.children import CHILDREN
from worlds.world_options import WorldOptions

WORLDS = ("sim", "local")
SETTINGS = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "30000",
}
"""Settings of the nodes of a story."""
ALL = "all"


def command(  # noqa: PLR0913, PLR0917 - the options of a command
    try_: Annotated[
        str, typer.Option("--try", metavar="NAME|all", help="Run with this mistake planted until it is found.")
    ] = "",
    cluster: Annotated[str, typer.Option(help="Where: sim or local.")] = "sim",
    seed: Annotated[int, typer.Option(help="Of the first run; the next has the next.")] = 1,
    store: Annotated[Path | None, typer.Option(help="Where the runs are kept; without it they are not.")] = None,
    control: Annotated[
        bool, typer.Option("--control", help="Also run each with the seed that found it, and without the mistake.")
    ] = False,
    story: Annotated[str, typer.Option(help="Run one story of plants/stories.py.")] = "",
    plant: Annotated[str | None, typer.Option(help="With --story: what every node is given.")] = None,
) -> None:
    """Lists the mistakes that can be planted into nodes, or tries whether they are found.

    Exit code 0 if each was found (and nothing without it), 1 if not, 2 if it could not be run.
    """
    if story:
        raise typer.Exit(_tell_story(story, cluster, seed, store or Path("store"), plant))
    if not try_:
        _list()
        return
    try:
        if cluster not in WORLDS:
            raise WrongArgument(f"--cluster {cluster}: plants are tried in {' or '.join(WORLDS)}")
        plants = triable(iter(PLANTS.values()), cluster) if try_ == ALL else [_one(try_, cluster)]
        # The last to go is the directory: whatever ends nodes finds them by what is in there.
        with tempfile.TemporaryDirectory(prefix="jepsen-style-plants-") as scratch, CHILDREN.ended_by_signals():
            good = _try(plants, cluster, store or Path(scratch), seed, control)
    except ClusterError as error:
        print(error, file=sys.stderr)
        raise typer.Exit(2) from None
    raise typer.Exit(0 if good else 1)


def _one(name: str, world: str) -> Plant:
    plant = find(name)
    assert plant is not None
    trial_of(plant, world)
    return plant


def _list() -> None:
    table = Table("name", "what the node does", "tried in", "found by", box=None, pad_edge=False)
    for plant in PLANTS.values():
        worlds = [world for world in WORLDS if plant.trial(world) is not None]
        table.add_row(plant.name, plant.title, ", ".join(worlds) or "make simulate", ", ".join(plant.found_by))
    _console().print(table)


def _tell_story(name: str, world: str, seed: int, store: Path, plant: str | None) -> int:
    from plants.stories import STORIES, play

    directory = store / f"{name}-{world}-{seed}-{plant or 'nothing'}"
    try:
        if name not in STORIES:
            raise WrongArgument(f"--story {name}: there are {', '.join(STORIES)}")
        find(plant)
        directory.mkdir(parents=True)
        found = play(name, WorldOptions(world, seed, directory, SETTINGS, plant))
    except FileExistsError:
        print(f"{directory} is there already: name another directory with --store", file=sys.stderr)
        return 2
    except ClusterError as error:
        print(error, file=sys.stderr)
        return 2
    for finding in found:
        print(f"{finding.anomaly} {finding.where}: {finding.description}")
    print(f"{'INVALID' if found else 'VALID'} | {directory}")
    return 1 if found else 0


def _try(plants: list[Plant], world: str, store: Path, seed: int, control: bool) -> bool:
    table = Table("plant", "found", "runs", "seconds", "by", box=None, pad_edge=False)
    if control:
        table.add_column("without it")
    good = True
    for plant in plants:

        def report(outcome: Outcome, name: str = plant.name) -> None:
            result = "not found" if outcome.valid else f"found: {', '.join(outcome.anomalies)}"
            print(f"{name} in {world}, seed {outcome.seed}: {result} ({outcome.seconds:.0f} s)", flush=True)

        tried = try_plant(plant, world, store, first_seed=seed, report=report)
        good = good and tried.found
        row = _row(plant, tried)
        if control:
            without = try_nothing(trial_of(plant, world), world, store, tried.outcomes[-1].seed)
            good = good and not without.found
            row.append(", ".join(without.outcomes[-1].anomalies) or "valid")
        table.add_row(*row)
    _console().print(table)
    return good


def _row(plant: Plant, tried: Tried) -> list[str]:
    last = tried.outcomes[-1]
    found = f"with seed {last.seed}" if tried.found else "NOT FOUND"
    return [plant.name, found, str(len(tried.outcomes)), f"{tried.seconds:.0f}", ", ".join(last.anomalies)]


def _console() -> Console:
    # A table that is piped somewhere is not cut.
    return Console() if sys.stdout.isatty() else Console(width=200)
