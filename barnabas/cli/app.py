"""The command tree of `barnabas`."""

from __future__ import annotations

import platform
from typing import Annotated, Any

import typer
from typer.main import get_command

from barnabas.cli import (
    balance,
    cluster,
    configs,
    consume,
    demo,
    groups,
    log,
    migrate,
    node_help,
    page,
    perf,
    pipeline,
    produce,
    security,
    storage,
    storage_backup,
    systemd,
    topics,
    transactions,
    why,
)
from barnabas.runtime.version import version

app = typer.Typer(
    name="barnabas",
    help="A replicated, durable event log that speaks the Apache Kafka protocol.",
    epilog="Exit codes: 0 done, 1 refused or failed, 2 a wrong argument, 3 no answer in time, 130 Ctrl-C, 143 SIGTERM.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"barnabas {version()} (Python {platform.python_version()})")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options of `barnabas` itself."""


app.command("produce")(produce.produce)
app.command("consume")(consume.consume)
app.add_typer(topics.app, name="topics")
app.add_typer(groups.app, name="groups")
app.add_typer(configs.app, name="configs")
app.add_typer(transactions.app, name="transactions")
cluster.app.command("balance")(balance.balance)
app.add_typer(cluster.app, name="cluster")
app.add_typer(security.app, name="security")
app.command("migrate")(migrate.migrate)
app.command("why")(why.why)
app.add_typer(perf.app, name="perf")
app.command("demo")(demo.demo)
app.command("page")(page.page)
app.add_typer(pipeline.app, name="pipeline")
storage.app.command("backup")(storage_backup.backup)
storage.app.command("restore")(storage_backup.restore)
app.add_typer(storage.app, name="storage")
app.add_typer(log.app, name="log")
app.command("systemd")(systemd.systemd)
app.command("node", context_settings=node_help.PASS_ON)(node_help.node)
app.command("broker", context_settings=node_help.PASS_ON)(node_help.broker)
app.command("controller", context_settings=node_help.PASS_ON)(node_help.controller)


def command() -> Any:
    """The command tree as typer's parser takes it."""
    return get_command(app)
