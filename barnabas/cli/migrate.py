"""`barnabas migrate`: moves a running cluster, ours or Apache Kafka's, onto other nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cli.connection import Connection
from barnabas.cli.option_group import grouped
from barnabas.cli.output import show_text
from barnabas.cli.session import with_admin
from barnabas.cluster.errors import WrongArgument

if TYPE_CHECKING:
    from barnabas.client.admin import Admin
    from barnabas.migration.plan import Wait

UNFINISHED = 3
"""Exit code: the rest waits for the operator."""


@dataclass(frozen=True)
class Pace:
    throttle: Annotated[
        int | None,
        typer.Option("--throttle", metavar="BYTES", min=1, help="Limit of each broker for moved replicas, per second."),
    ] = None
    at_once: Annotated[int, typer.Option("--at-once", min=1, help="Partitions that move at the same time.")] = 20
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for what you have to do, instead of exit code 3.")
    ] = False


@grouped
def migrate(
    brokers: Annotated[
        str, typer.Option("--brokers", metavar="OLD=NEW,…", help="Brokers and the brokers that take over from them.")
    ] = "",
    controllers: Annotated[
        str,
        typer.Option(
            "--controllers", metavar="OLD=NEW@HOST:PORT,…", help="Controllers and those that take over from them."
        ),
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan; change nothing.")] = False,
    *,
    pace: Pace,
    connection: Connection,
) -> None:
    """Move a running cluster onto other nodes: replicas, then voters of the metadata log, one step at a time.

    The new nodes must run already, brokers registered and controllers as observers. Interrupt it at any time and run it
    again; with each pair reversed it moves back.
    """
    from barnabas.migration.migrating import Migrating, Options
    from barnabas.migration.plan import Migration, all_steps

    pairs, endpoints = _controllers(controllers)
    wanted = Migration(_brokers(brokers), pairs, pace.at_once)
    if not wanted.brokers and not wanted.controllers:
        raise WrongArgument("give --brokers OLD=NEW,… or --controllers OLD=NEW@HOST:PORT,…")
    options = Options(pace.throttle, endpoints, pace.wait)

    async def work(admin: Admin) -> tuple[Sequence[str], Wait | None]:
        migrating = Migrating(admin, wanted, options, show_text)
        if dry_run:
            return list(all_steps(await migrating.observe(), wanted)), None
        return (), await migrating.run()

    plan, unfinished = with_admin(connection, work)
    for number, line in enumerate(plan, 1):
        show_text(f"{number}. {line}")
    if unfinished is not None:
        show_text(f"{unfinished}; then run this command again")
        raise typer.Exit(UNFINISHED)
    if not dry_run:
        show_text("the migration is complete")
    elif not plan:
        show_text("nothing to do")


def _brokers(text: str) -> dict[int, int]:
    return dict(_pair("--brokers", each) for each in text.split(",") if each)


def _controllers(text: str) -> tuple[dict[int, int], dict[int, tuple[str, int]]]:
    pairs, endpoints = {}, {}
    for each in text.split(","):
        if not each:
            continue
        ids, _, address = each.partition("@")
        old, new = _pair("--controllers", ids)
        host, _, port = address.rpartition(":")
        if not host or not port.isascii() or not port.isdigit():
            raise WrongArgument(f"--controllers {each}: must be OLD=NEW@HOST:PORT, e.g. 101=201@10.0.0.4:9093")
        pairs[old] = new
        endpoints[new] = host.strip("[]"), int(port)
    return pairs, endpoints


def _pair(option: str, text: str) -> tuple[int, int]:
    old, _, new = text.partition("=")
    if not all(each.isascii() and each.isdigit() for each in (old, new)):
        raise WrongArgument(f"{option} {text}: must be OLD=NEW, e.g. 1=11")
    return int(old), int(new)
