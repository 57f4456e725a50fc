"""`python jepsen-style attack`: what an anonymous client can do to a cluster, and what it costs."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from attacks.budgets import HEADINGS, excesses, markdown, row
from attacks.catalogue import ATTACKS, Attack
from attacks.performing import perform
from attacks.scene import Outcome
from attacks.simulated import REQUESTS, simulate
from barnabas.cluster.errors import ClusterError, WrongArgument


def command(  # noqa: PLR0913, PLR0917 - the options of a command
    only: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="This attack alone; several times: these.")
    ] = None,
    base_port: Annotated[int, typer.Option(help="Of the cluster; 0: ports that are free.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Write the table there, as Markdown.")] = None,
    simulated: Annotated[
        int, typer.Option(metavar="N", help="In place of all that: N requests of hostile clients in the simulation.")
    ] = 0,
    seed: Annotated[int, typer.Option(help="With --simulated: the first seed.")] = 1,
    jobs: Annotated[int, typer.Option(help="With --simulated: processes.")] = 1,
    prefer: Annotated[bool, typer.Option("--prefer", help="Before other work on this machine; for root.")] = False,
    list_: Annotated[bool, typer.Option("--list", help="Show what attacks there are.")] = False,
) -> None:
    """Attacks a cluster of processes of its own, on this machine and over loopback only.

    Exit code 0 if every attack stayed within the budgets, 1 if not, 2 if it could not be run.
    """
    if list_:
        _list()
        return
    if simulated:
        raise typer.Exit(_simulate(simulated, seed, jobs))
    try:
        attacks = [_one(name) for name in only or ATTACKS]
        outcomes = perform(attacks, base_port, _print_outcome, preferred=prefer)
    except (ClusterError, OSError) as error:
        print(error, file=sys.stderr)
        raise typer.Exit(2) from None
    table = Table(*HEADINGS, box=None, pad_edge=False)
    for outcome in outcomes:
        table.add_row(*row(outcome))
    Console(width=None if sys.stdout.isatty() else 240).print(table)
    if out is not None:
        out.write_text(markdown(outcomes), encoding="utf-8")
    raise typer.Exit(1 if any(list(excesses(outcome)) for outcome in outcomes) else 0)


def _simulate(requests: int, seed: int, jobs: int) -> int:
    counts: Counter[str] = Counter()
    cpu_seconds, failed = 0.0, []
    for report in simulate(requests, seed, jobs):
        counts.update(report.counts)
        cpu_seconds += report.cpu_seconds
        if not report.passed:
            failed.append(report.seed)
            print(f"seed {report.seed}: {'; '.join(report.broken)}", flush=True)
    for what in sorted(what for what in counts if what.startswith("hostile")):
        print(f"{counts[what]:9}  {what}")
    print(f"{counts[REQUESTS] / cpu_seconds:.0f} requests for a second of CPU, {cpu_seconds:.0f} s in all")
    print(f"failed: {', '.join(map(str, failed))}" if failed else "every promise was kept")
    return 1 if failed else 0


def _one(name: str) -> Attack:
    if name not in ATTACKS:
        raise WrongArgument(f"--only {name}: there are {', '.join(ATTACKS)}")
    return ATTACKS[name]


def _list() -> None:
    table = Table("name", "what it does", box=None, pad_edge=False)
    for attack in ATTACKS.values():
        table.add_row(attack.name, attack.title)
    Console(width=None if sys.stdout.isatty() else 200).print(table)


def _print_outcome(outcome: Outcome) -> None:
    result = "; ".join(excesses(outcome)) or "within budget"
    print(f"{outcome.name}: {result} ({outcome.seconds:.0f} s)", flush=True)
