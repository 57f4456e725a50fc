"""`barnabas configs quotas`: client quotas of users, client ids and IP addresses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cli.connection import AsJson, Connection
from barnabas.cli.option_group import grouped
from barnabas.cli.options import pairs_from
from barnabas.cli.output import show_json, show_table, show_text
from barnabas.cli.session import with_admin
from barnabas.cluster.errors import WrongArgument

if TYPE_CHECKING:
    from barnabas.client.admin import Admin, ClientQuotaEntity

app = typer.Typer(help="Describe and alter client quotas of users, client ids and IP addresses.", rich_markup_mode=None)

DEFAULT = "default"
"""The default entity, for clients without a quota of their own."""


@dataclass(frozen=True)
class QuotaEntity:
    """Options for the quota's entity: a user, a client id, both, or an IP address."""

    user: Annotated[str | None, typer.Option("--user", help=f"User name, or `{DEFAULT}`.")] = None
    client: Annotated[str | None, typer.Option("--client", metavar="ID", help="Client id, or `default`.")] = None
    ip: Annotated[str | None, typer.Option("--ip", help="IP address, or `default`.")] = None

    def entity(self) -> ClientQuotaEntity:
        """Raises `WrongArgument`."""
        from barnabas.client.admin import ClientQuotaEntity

        named = (("user", self.user), ("client-id", self.client), ("ip", self.ip))
        entries = tuple((kind, None if name == DEFAULT else name) for kind, name in named if name is not None)
        if not entries or (self.ip is not None and len(entries) > 1):
            raise WrongArgument("needs --user, --client or both, or --ip")
        return ClientQuotaEntity(entries)


@app.command()
@grouped
def describe(as_json: AsJson = False, *, connection: Connection) -> None:
    """List quotas."""

    async def work(admin: Admin) -> dict[ClientQuotaEntity, dict[str, float]]:
        return await admin.describe_client_quotas()

    found = with_admin(connection, work)
    if as_json:
        show_json([{"entity": dict(entity.entries), "quotas": quotas} for entity, quotas in found.items()])
    else:
        rows = [(str(entity), key, value) for entity, quotas in found.items() for key, value in sorted(quotas.items())]
        show_table(("entity", "quota", "value"), sorted(rows))


@app.command("set")
@grouped
def set_(
    changes: Annotated[
        list[str],
        typer.Argument(metavar="KEY=NUMBER...", help="Quotas, e.g. producer_byte_rate=1048576 (bytes per second)."),
    ],
    *,
    target: QuotaEntity,
    connection: Connection,
) -> None:
    """Set quotas of an entity."""
    try:
        quotas = {key: float(value) for key, value in pairs_from("set", changes).items()}
    except ValueError:
        raise WrongArgument(f"quotas must be numbers; got {' '.join(changes)!r}") from None
    _change(connection, target, quotas)


@app.command()
@grouped
def unset(
    keys: Annotated[list[str], typer.Argument(metavar="KEY...")], *, target: QuotaEntity, connection: Connection
) -> None:
    """Remove quotas of an entity."""
    _change(connection, target, dict.fromkeys(keys))


def _change(connection: Connection, target: QuotaEntity, quotas: Mapping[str, float | None]) -> None:
    entity = target.entity()

    async def work(admin: Admin) -> None:
        await admin.alter_client_quotas({entity: quotas})

    with_admin(connection, work)
    show_text(f"altered quotas of {entity}")
