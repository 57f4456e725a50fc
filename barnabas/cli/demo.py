"""`barnabas demo`: a cluster loses a partition leader and the active controller under load, but no acked record."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cli.option_group import grouped
from barnabas.cli.options import DEFAULT_DATA, LocalOptions, overrides_from, program
from barnabas.cli.session import with_cluster
from barnabas.cluster.errors import WrongArgument

if TYPE_CHECKING:
    from barnabas.cluster.local import LocalCluster
    from barnabas.demo.play import Audience, Event, Run, Summary

_ROWS_AROUND_EVENTS = 18
"""Rows of the view other than the list of events."""


@grouped
def demo(
    scenario: Annotated[
        str, typer.Option("--scenario", metavar="NAME", help="Scenario: kill, pause, all-at-once or rolling.")
    ] = "kill",
    *,
    local: LocalOptions,
    seconds: Annotated[
        float, typer.Option("--seconds", min=1, help="Duration of the script; recovery times of the cluster are added.")
    ] = 20.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON summary; events go to standard error.")] = False,
    picture_path: Annotated[
        Path | None, typer.Option("--picture", metavar="FILE", help="Save the final view as an SVG file.")
    ] = None,
) -> None:
    """Show a cluster lose a leader and its active controller under load, without losing an acked record.

    Uses the cluster in --data, or starts one there, and leaves it running.
    """
    from barnabas.demo.play import play
    from barnabas.demo.scenario import SCENARIOS
    from barnabas.demo.workload import CLIENT

    if scenario not in SCENARIOS:
        raise WrongArgument(f"--scenario must be one of {', '.join(SCENARIOS)}; got {scenario!r}")
    story = SCENARIOS[scenario]
    cluster = _cluster(local)
    try:
        with _audience(as_json) as audience:
            run, summary = with_cluster(
                cluster.bootstrap_servers,
                local.data,
                lambda client: play(client, cluster, story, seconds, audience),
                CLIENT,
            )
    finally:
        if changed := _restore(cluster):
            _note(f"interrupted; restored {', '.join(changed)}")
    _report(summary, cluster, local.data, as_json)
    if picture_path is not None:
        _draw(run, summary, picture_path)
    if not summary.verdict.clean:
        raise typer.Exit(1)


def _cluster(local: LocalOptions) -> LocalCluster:
    """The cluster in `data` with all nodes running; a running cluster keeps its settings."""
    from barnabas.cluster.local import LocalCluster

    present = LocalCluster(local.data)
    if any(node.state in ("running", "paused") for node in present.processes()):
        if local.settings or local.base_port not in (None, present.layout.base_port):
            raise WrongArgument(f"the cluster in {local.data} is running; --set and --base-port need a new one")
        restored = _restore(present)
        _note(f"using the running cluster in {local.data}" + (f"; restored {', '.join(restored)}" if restored else ""))
        return present
    cluster = LocalCluster(local.data, local.base_port, overrides_from(local.settings))
    cluster.up()
    _note(f"started six nodes in {local.data}; ready after {cluster.wait_ready():.1f} s")
    return cluster


def _restore(cluster: LocalCluster) -> list[str]:
    """Restarts nodes that are not running, whatever happened. Returns their names."""
    states = {node.name: node.state for node in cluster.processes()}
    paused = [name for name, state in states.items() if state == "paused"]
    ended = [name for name, state in states.items() if state in ("dead", "stopped")]
    for name in paused:
        cluster.resume(name)
    if ended:
        cluster.start(*ended)
    if paused or ended:
        cluster.wait_ready()
    return paused + ended


@contextmanager
def _audience(as_json: bool) -> Iterator[Audience]:
    """A live view on a terminal, otherwise one line per event."""
    from rich.console import Console
    from rich.live import Live

    from barnabas.demo.play import Audience
    from barnabas.demo.view import draw, line_of

    console = Console()
    if as_json or not console.is_terminal:

        def on_event(event: Event) -> None:
            print(line_of(event), file=sys.stderr if as_json else sys.stdout, flush=True)

        yield Audience(on_event)
        return

    with Live(console=console, auto_refresh=False) as live:

        def on_status(run: Run) -> None:
            events_count = max(3, console.height - _ROWS_AROUND_EVENTS)
            live.update(draw(run, console.width, events_count), refresh=True)

        yield Audience(lambda event: None, on_status)


def _report(summary: Summary, cluster: LocalCluster, data: Path, as_json: bool) -> None:
    from rich.console import Console

    from barnabas.demo.view import draw_summary

    if as_json:
        typer.echo(json.dumps(summary.to_json(), indent=2))
    else:
        console = Console()
        console.print()
        console.print(draw_summary(summary))
    where = "" if data == DEFAULT_DATA else f" --data {data}"
    _note(f"the cluster keeps running at {cluster.bootstrap_servers}; {program()} cluster down{where} stops it")


def _draw(run: Run, summary: Summary, path: Path) -> None:
    from barnabas.demo.view import picture

    command = "make demo" if summary.scenario == "kill" else f"make demo SCENARIO={summary.scenario}"
    path.write_text(picture(run, summary, command))
    _note(f"saved {path}")


def _note(text: str) -> None:
    """Prints a note, to standard error if standard output is JSON."""
    typer.echo(text, err=True)
