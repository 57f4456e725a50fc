"""`run WORKLOAD`: one run, its verdict and its report."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from nemeses.kinds import FAULTS
from running.plan import STORE
from running.verdict_lines import print_verdict
from workloads.catalogue import WORKLOADS


def _comma(help_: str, metavar: str) -> Any:
    return typer.Option(help=help_, metavar=metavar)


def command(  # noqa: PLR0913, PLR0917 - the options of a command
    workload: Annotated[str, typer.Argument(metavar="WORKLOAD", help=", ".join(WORKLOADS))],
    cluster: Annotated[str | None, typer.Option(help="sim, local, netns or compose", show_default="local")] = None,
    nemesis: Annotated[str, _comma(f"faults, by commas: {', '.join(FAULTS)}", "KINDS")] = "",
    message: Annotated[
        list[str] | None,
        typer.Option(metavar="API:ACTION:DIRECTION", help="faults of messages are of these only: END_TXN:hold"),
    ] = None,
    time: Annotated[float, typer.Option(help="seconds of work and faults")] = 60.0,
    rate: Annotated[float, typer.Option(help="operations a second, over all processes")] = 100.0,
    concurrency: Annotated[int, typer.Option(help="processes at a time")] = 12,
    seed: Annotated[int | None, typer.Option(help="of operations and faults; in sim of everything")] = None,
    client: Annotated[str, _comma("barnabas,confluent,java; threads take them in turn", "CLIENTS")] = "barnabas",
    interval: Annotated[
        float, typer.Option("--interval", "--nemesis-interval", help="seconds between faults, on average")
    ] = 15.0,
    settings: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="of all nodes")] = None,
    store: Annotated[Path, typer.Option(help="where runs are kept")] = STORE,
    plant: Annotated[str | None, typer.Option(metavar="NAME", help="a mistake that every node is given")] = None,
    bootstrap: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="somebody else's cluster, which is not broken")
    ] = None,
    beyond_budget: Annotated[
        bool, typer.Option("--beyond-budget", help="faults may lose what was acknowledged")
    ] = False,
    only_faults: Annotated[str, _comma("of the faults of this seed only these, by number", "NUMBERS")] = "",
    without_processes: Annotated[
        str, _comma("processes that rest until everything is read, by number", "NUMBERS")
    ] = "",
    without_operations: Annotated[
        str, _comma("operations that nobody does, by number or range: 7,10-19", "NUMBERS")
    ] = "",
    without_nodes: Annotated[
        str, _comma("nodes that the cluster does not have; only in sim: broker-3,controller-103", "NODES")
    ] = "",
    isolation: Annotated[str, typer.Option(help="read_committed or read_uncommitted")] = "read_committed",
    assign_only: Annotated[bool, typer.Option("--assign-only", help="consumers never subscribe")] = False,
    no_transactions: Annotated[bool, typer.Option("--no-transactions", help="nobody has any")] = False,
    no_idempotence: Annotated[bool, typer.Option("--no-idempotence", help="producers may write twice")] = False,
    group_protocol: Annotated[str, typer.Option(help="classic or consumer")] = "classic",
    keys: Annotated[int, typer.Option(help="partitions that are written to at a time")] = 10,
    max_writes: Annotated[int, typer.Option(help="records of a partition, before another takes its place")] = 1_024,
    abort_probability: Annotated[float, typer.Option(help="at each step of a transaction")] = 0.1,
    crash_every: Annotated[float, typer.Option(help="seconds that a client lives, on average")] = 30.0,
    quiet: Annotated[float, typer.Option(help="seconds between the last fault and the last readings")] = 10.0,
    final: Annotated[float, typer.Option(help="seconds that the last readings may take")] = 200.0,
    option: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="of the workload")] = None,
    budget: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND=SECONDS", help="longest wait for an acknowledged write at such a fault; any, recovery"
        ),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="the nodes' data, also if all is well")] = False,
) -> None:
    """Works with a cluster, breaks it meanwhile, and checks what its clients saw.

    Exit code 0: valid; 1: an anomaly, or an unknown verdict; 2: it could not run. The last line is the verdict, and the
    command that does the same again.
    """
    from running.experiment import COULD_NOT_RUN, carry_out, new_directory
    from running.plan import Plan, WrongPlan, split

    try:
        plan = Plan(
            workload=workload,
            seed=int.from_bytes(os.urandom(3), "big") if seed is None else seed,
            cluster=cluster or ("local" if bootstrap is None else "bootstrap"),
            nemesis=tuple(split(nemesis)),
            message=tuple(word for words in message or () for word in split(words)),
            time=time,
            rate=rate,
            concurrency=concurrency,
            clients=tuple(split(client)),
            interval=interval,
            settings=tuple(settings or ()),
            plant=plant,
            bootstrap=bootstrap,
            beyond_budget=beyond_budget,
            only_faults=tuple(split(only_faults)),
            without_processes=tuple(split(without_processes)),
            without_operations=tuple(split(without_operations)),
            without_nodes=tuple(split(without_nodes)),
            isolation=isolation,
            assign_only=assign_only,
            no_transactions=no_transactions,
            no_idempotence=no_idempotence,
            group_protocol=group_protocol,
            keys=keys,
            max_writes=max_writes,
            abort_probability=abort_probability,
            crash_every=crash_every,
            quiet=quiet,
            final=final,
            option=tuple(option or ()),
            budget=tuple(budget or ()),
            keep=keep,
            store=store,
        )
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
