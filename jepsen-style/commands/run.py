"""`run WORKLOAD`: one run, its verdict and its report."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import typer

from barnabas.cli.option_group import grouped
from nemeses.kinds import FAULTS
from running.plan import STORE
from running.verdict_lines import print_verdict
from simulation.conditions import NAMES
from workloads.catalogue import WORKLOADS


def _comma(help_: str, metavar: str, *names: str) -> Any:
    return typer.Option(*names, help=help_, metavar=metavar)


def _pairs(help_: str) -> Any:
    return typer.Option(help=help_, metavar="KEY=VALUE")


@dataclass(frozen=True)
class World:
    """The cluster, and where the run is kept."""

    cluster: Annotated[str | None, typer.Option(help="sim, local, netns or compose", show_default="local")] = None
    seed: Annotated[int | None, typer.Option(help="of operations and faults; in sim of everything")] = None
    secure: Annotated[
        bool, typer.Option("--secure", help="TLS between nodes and to clients, users and ACLs; in sim only nodes")
    ] = False
    settings: Annotated[list[str] | None, _pairs("of all nodes")] = None
    condition: Annotated[list[str] | None, _pairs(f"only in sim: {', '.join(NAMES)}")] = None
    bootstrap: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="somebody else's cluster, which is not broken")
    ] = None
    plant: Annotated[str | None, typer.Option(metavar="NAME", help="a mistake that every node is given")] = None
    store: Annotated[Path, typer.Option(help="where runs are kept")] = STORE
    keep: Annotated[bool, typer.Option("--keep", help="the nodes' data, also if all is well")] = False


@dataclass(frozen=True)
class Faults:
    """The faults, and how much of them clients have to bear."""

    nemesis: Annotated[str, _comma(f"faults, by commas: {', '.join(FAULTS)}", "KINDS")] = ""
    message: Annotated[
        list[str] | None,
        typer.Option(metavar="API:ACTION:DIRECTION", help="faults of messages are of these only: END_TXN:hold"),
    ] = None
    interval: Annotated[
        float, typer.Option("--interval", "--nemesis-interval", help="seconds between faults, on average")
    ] = 15.0
    beyond_budget: Annotated[bool, typer.Option("--beyond-budget", help="faults may lose what was acknowledged")] = (
        False
    )
    budget: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND=SECONDS", help="longest wait for an acknowledged write at such a fault; any, recovery"
        ),
    ] = None


@dataclass(frozen=True)
class Work:
    """The work of the clients."""

    time: Annotated[float, typer.Option(help="seconds of work and faults")] = 60.0
    rate: Annotated[float, typer.Option(help="operations a second, over all processes")] = 100.0
    concurrency: Annotated[int, typer.Option(help="processes at a time")] = 12
    clients: Annotated[str, _comma("barnabas,confluent,java; threads take them in turn", "CLIENTS", "--client")] = (
        "barnabas"
    )
    client_config: Annotated[list[str] | None, _pairs("of all clients: session_timeout_ms=6000, assignors=range")] = (
        None
    )
    isolation: Annotated[str, typer.Option(help="read_committed or read_uncommitted")] = "read_committed"
    assign_only: Annotated[bool, typer.Option("--assign-only", help="consumers never subscribe")] = False
    no_transactions: Annotated[bool, typer.Option("--no-transactions", help="nobody has any")] = False
    no_idempotence: Annotated[bool, typer.Option("--no-idempotence", help="producers may write twice")] = False
    group_protocol: Annotated[str, typer.Option(help="classic, consumer, or mixed: clients take turns")] = "classic"
    keys: Annotated[int, typer.Option(help="partitions that are written to at a time")] = 10
    max_writes: Annotated[int, typer.Option(help="records of a partition, before another takes its place")] = 1_024
    abort_probability: Annotated[float, typer.Option(help="at each step of a transaction")] = 0.1
    crash_every: Annotated[float, typer.Option(help="seconds that a client lives, on average")] = 30.0
    quiet: Annotated[float, typer.Option(help="seconds between the last fault and the last readings")] = 10.0
    final: Annotated[float, typer.Option(help="seconds that the last readings may take")] = 200.0
    topic_config: Annotated[list[str] | None, _pairs("of the workload's topics")] = None
    option: Annotated[list[str] | None, _pairs("of the workload")] = None


@dataclass(frozen=True)
class LeftOut:
    """Parts of the run that do not take place: `shrink` finds them."""

    only_faults: Annotated[str, _comma("of the faults of this seed only these, by number", "NUMBERS")] = ""
    without_processes: Annotated[str, _comma("processes that rest until everything is read, by number", "NUMBERS")] = ""
    without_operations: Annotated[
        str, _comma("operations that nobody does, by number or range: 7,10-19", "NUMBERS")
    ] = ""
    without_nodes: Annotated[
        str, _comma("nodes that the cluster does not have; only in sim: broker-3,controller-103", "NODES")
    ] = ""


@grouped
def command(
    workload: Annotated[str, typer.Argument(metavar="WORKLOAD", help=", ".join(WORKLOADS))],
    *,
    world: World,
    faults: Faults,
    work: Work,
    left_out: LeftOut,
) -> None:
    """Works with a cluster, breaks it meanwhile, and checks what its clients saw.

    Exit code 0: valid; 1: an anomaly, or an unknown verdict; 2: it could not run. The last line is the verdict, and the
    command that does the same again.
    """
    from running.experiment import COULD_NOT_RUN, carry_out, new_directory
    from running.plan import Plan, WrongPlan

    groups = (world, faults, work, left_out)
    given = {each.name: getattr(group, each.name) for group in groups for each in fields(group)}
    try:
        plan = Plan(workload, **_of_plan(given))
    except WrongPlan as error:
        typer.echo(error, err=True)
        raise typer.Exit(COULD_NOT_RUN) from error
    directory = new_directory(plan)
    typer.echo(f"seed {plan.seed}: {plan.summary()} | {directory}")
    outcome = carry_out(plan, typer.echo, directory=directory)
    if outcome.verdict is not None:
        print_verdict(outcome.verdict)
    line = f"{outcome.summary} | {outcome.directory} | again: {plan.replay()}"
    typer.echo(line, err=outcome.exit_code == COULD_NOT_RUN)
    raise typer.Exit(outcome.exit_code)


def _of_plan(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options as the fields of a plan."""
    from running.plan import PAIRS, Plan, split

    plan = dict(given)
    for each in fields(Plan):
        if isinstance(each.default, tuple):
            texts = given[each.name] or ()
            if isinstance(texts, str):
                texts = (texts,)
            is_pair = each.metadata["option"] in PAIRS
            plan[each.name] = tuple(texts) if is_pair else tuple(word for text in texts for word in split(text))
    if plan["seed"] is None:
        plan["seed"] = int.from_bytes(os.urandom(3), "big")
    plan["cluster"] = plan["cluster"] or ("local" if plan["bootstrap"] is None else "bootstrap")
    return plan
