"""`scenario NAME`: what went wrong in another system, played on this one."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

COULD_NOT_RUN = 2
FIRST_SEEDS = (1, 2, 3)
"""Without `--seed`."""
WORLDS = ("sim", "local", "netns")


def command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="its name or number; see --list")] = "",
    seed: Annotated[
        int | None, typer.Option(help="one order of events", show_default="1, 2 and 3 in sim, else 1")
    ] = None,
    cluster: Annotated[str, typer.Option(help="sim, or local and netns where there is a form for processes")] = "sim",
    list_: Annotated[bool, typer.Option("--list", help="what there is")] = False,
    keep: Annotated[Path | None, typer.Option(metavar="DIR", help="where processes keep data and logs")] = None,
) -> None:
    """Plays a regression scenario.

    Exit code 0: it ended well; 1: something did not hold; 2: the situation did not come about, or nothing could run.
    """
    from scenarios.catalogue import SCENARIOS, find
    from scenarios.processes import STORIES

    if list_:
        for scenario in SCENARIOS.values():
            forms = "sim, local" if scenario.number in STORIES else "sim"
            typer.echo(f"{scenario.number:2}  {scenario.name:26} {forms:11} {scenario.title} ({scenario.source})")
        return
    found = find(name)
    if found is None:
        _refuse(f"there is no scenario {name!r}; --list names all" if name else "which one? --list names all")
        return
    if cluster not in WORLDS:
        _refuse(f"--cluster {cluster}: scenarios are played in {', '.join(WORLDS)}")
    if cluster != "sim" and found.number not in STORIES:
        _refuse(f"{found.name} has no form for processes; those that have: {_with_processes()}")
    for each in (seed,) if seed is not None else FIRST_SEEDS if cluster == "sim" else FIRST_SEEDS[:1]:
        began = time.monotonic()
        if cluster == "sim":
            code, result = _play_simulated(found.number, each)
        else:
            code, result = _play(found.number, cluster, each, keep)
        typer.echo(f"{found.number} {found.name}, seed {each}: {result} ({time.monotonic() - began:.1f} s)")
        if code:
            typer.echo(f"{'anomaly' if code == 1 else 'unknown'}; again: {_again(found.name, cluster, each)}")
            raise typer.Exit(code)
    typer.echo(f"valid; again: {_again(found.name, cluster, seed)}")


def _again(name: str, cluster: str, seed: int | None) -> str:
    chosen = "" if seed is None else f" --seed {seed}"
    return f"python jepsen-style scenario {name}{chosen}{'' if cluster == 'sim' else f' --cluster {cluster}'}"


def _refuse(reason: str) -> None:
    print(reason, file=sys.stderr)
    raise typer.Exit(COULD_NOT_RUN)


def _with_processes() -> str:
    from scenarios.catalogue import SCENARIOS
    from scenarios.processes import STORIES

    return ", ".join(scenario.name for scenario in SCENARIOS.values() if scenario.number in STORIES)


def _play_simulated(number: int, seed: int) -> tuple[int, str]:
    from scenarios.catalogue import find

    scenario = find(str(number))
    assert scenario is not None
    for act in scenario.acts:
        code, result = _judged(partial(act.play, seed))
        if code:
            return code, f"{act.name}: {result}"
    return 0, f"ended well, {', '.join(act.name for act in scenario.acts)}"


def _play(number: int, world: str, seed: int, keep: Path | None) -> tuple[int, str]:
    from scenarios.processes import STORIES
    from scenarios.stage import SETTINGS
    from worlds.world_options import WorldOptions, run_in

    with tempfile.TemporaryDirectory(prefix="scenario-") as temporary:
        directory = keep or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        faults = ("kill", "pause", "stop", "partition", "message", "kill-at", "power")
        options = WorldOptions(world, seed, directory, settings=SETTINGS, faults=faults)
        code, result = _judged(lambda: run_in(options, STORIES[number]))
    return code, result or "ended well"


def _judged(play: Callable[[], object]) -> tuple[int, str]:
    """(exit code, reason)"""
    from barnabas.cluster.errors import ClusterError
    from scenarios.stage import NotBroughtAbout, Violation, leaves_of

    try:
        play()
    except (Exception, BaseExceptionGroup) as error:
        leaves = list(leaves_of(error))
        for leaf in leaves:
            if isinstance(leaf, Violation):
                return 1, f"does not hold: {leaf}"
        for leaf in leaves:
            if isinstance(leaf, NotBroughtAbout | ClusterError):
                return COULD_NOT_RUN, f"did not come about: {leaf}"
        raise
    return 0, ""
