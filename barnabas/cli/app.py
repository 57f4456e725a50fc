"""All commands put together."""

from __future__ import annotations

from typing import Any

import typer
from typer.main import get_command

from barnabas.cli import cluster, demo, log, nodes, records, storage, topics

app = typer.Typer(
    name="barnabas",
    help="A replicated, durable event log that speaks the Apache Kafka protocol.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.add_typer(cluster.app, name="cluster")
app.add_typer(topics.app, name="topics")
app.command("produce")(records.produce)
app.command("consume")(records.consume)
app.command("demo")(demo.demo)
app.add_typer(storage.app, name="storage")
app.add_typer(log.app, name="log")
app.command("broker", context_settings=nodes.PASS_ON)(nodes.broker)
app.command("controller", context_settings=nodes.PASS_ON)(nodes.controller)


def command() -> Any:
    """The whole as one command object of typer's parser."""
    return get_command(app)
