"""`barnabas configs quotas`: how much users, client ids and addresses may send, fetch and ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cli.connection import AsJson, Connection
from barnabas.cli.option_group import grouped
from barnabas.cli.options import pairs_from
from barnabas.cli.output import say, show_json, show_table
from barnabas.cli.session import with_admin
from barnabas.cluster.errors import WrongArgument

if TYPE_CHECKING:
    from barnabas.client.admin import Admin, ClientQuotaEntity

app = typer.Typer(help="How much users, client ids and addresses may send, fetch and ask for.", rich_markup_mode=None)

DEFAULT = "default"
"""Stands for everybody who has no quota of his own."""


@dataclass(frozen=True)
class Whose:
    """Who is meant: one of them, or a user with a client id."""

    user: Annotated[str | None, typer.Option("--user", help=f"`{DEFAULT}`: all that have none of their own.")] = None
    client: Annotated[str | None, typer.Option("--client", metavar="ID", help="A client.id, or `default`.")] = None
    ip: Annotated[str | None, typer.Option("--ip", help="An address, or `default`.")] = None

    def entity(self) -> ClientQuotaEntity:
        """Raises `WrongArgument`."""
        from barnabas.client.admin import ClientQuotaEntity

        named = (("user", self.user), ("client-id", self.client), ("ip", self.ip))
        entries = tuple((kind, None if name == DEFAULT else name) for kind, name in named if name is not None)
        if not entries or (self.ip is not None and len(entries) > 1):
            raise WrongArgument("whose? --user, --client or both, or --ip")
        return ClientQuotaEntity(entries)


@app.command()
@grouped
def describe(as_json: AsJson = False, *, connection: Connection) -> None:
    """Show all quotas."""

    async def work(admin: Admin) -> dict[ClientQuotaEntity, dict[str, float]]:
        return await admin.describe_client_quotas()

    found = with_admin(connection, work)
    if as_json:
        show_json([{"entity": dict(entity.entries), "quotas": quotas} for entity, quotas in found.items()])
    else:
        rows = [(str(entity), key, value) for entity, quotas in found.items() for key, value in sorted(quotas.items())]
        show_table(("whose", "quota", "value"), sorted(rows))


@app.command("set")
@grouped
def set_(
    changes: Annotated[
        list[str], typer.Argument(metavar="KEY=NUMBER...", help="As in producer_byte_rate=1048576, bytes a second.")
    ],
    *,
    whose: Whose,
    connection: Connection,
) -> None:
    """Set quotas."""
    try:
        quotas = {key: float(value) for key, value in pairs_from("set", changes).items()}
    except ValueError:
        raise WrongArgument(f"set {' '.join(changes)}: a quota is a number") from None
    _change(connection, whose, quotas)


@app.command()
@grouped
def unset(
    keys: Annotated[list[str], typer.Argument(metavar="KEY...")], *, whose: Whose, connection: Connection
) -> None:
    """Remove quotas."""
    _change(connection, whose, dict.fromkeys(keys))


def _change(connection: Connection, whose: Whose, quotas: Mapping[str, float | None]) -> None:
    entity = whose.entity()

    async def work(admin: Admin) -> None:
        await admin.alter_client_quotas({entity: quotas})

    with_admin(connection, work)
    say(f"altered quotas of {entity}")
