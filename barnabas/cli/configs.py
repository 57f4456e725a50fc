"""`barnabas configs`: dynamic configs of topics, brokers, groups and client metrics subscriptions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from barnabas.cli import quotas
from barnabas.cli.connection import AsJson, Connection
from barnabas.cli.option_group import grouped
from barnabas.cli.options import pairs_from
from barnabas.cli.output import Account, show_json, show_table, show_text
from barnabas.cli.session import with_admin
from barnabas.cluster.errors import ClusterError, WrongArgument

if TYPE_CHECKING:
    from barnabas.client.admin import Admin, ConfigEntry, ConfigResource

app = typer.Typer(
    help="Describe and alter configs of topics, brokers, groups and client metrics, and quotas.",
    rich_markup_mode=None,
)

KINDS = {
    "topic": "TOPIC",
    "broker": "BROKER",
    "broker-logger": "BROKER_LOGGER",
    "group": "GROUP",
    "client-metrics": "CLIENT_METRICS",
}
"""Config resource types: name on the command line (a final s is allowed), name in the protocol."""

Kind = Annotated[str, typer.Argument(metavar="KIND", autocompletion=lambda: list(KINDS), help=", ".join(KINDS))]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name or id of the resource; `default` for all brokers.")]
Changes = Annotated[list[str], typer.Argument(metavar="KEY=VALUE...")]


@app.command("list")
@grouped
def list_(kind: Kind, as_json: AsJson = False, *, connection: Connection) -> None:
    """List resources that have dynamic configs."""
    kind = _kind(kind)

    async def work(admin: Admin) -> list[ConfigResource]:
        from barnabas.client.admin import ResourceType

        return await admin.list_config_resources([ResourceType[KINDS[kind]]])

    names = sorted(each.name for each in with_admin(connection, work))
    if as_json:
        show_json([{"type": kind, "name": name} for name in names])
        return
    for name in names:
        show_text(name or "default")


@app.command()
@grouped
def describe(
    kind: Kind,
    name: Name,
    keys: Annotated[list[str] | None, typer.Argument(metavar="[KEY]...", help="Show only these keys.")] = None,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Include defaults and the node's own file.")] = False,
    as_json: AsJson = False,
    *,
    connection: Connection,
) -> None:
    """Show dynamic configs, or with --all every effective value, with the source of each."""

    async def work(admin: Admin) -> dict[str, ConfigEntry]:
        resource = _resource(kind, name)
        return (await admin.describe_configs(resource))[resource]

    found = with_admin(connection, work)
    entries = [
        entry
        for key, entry in sorted(found.items())
        if (key in keys if keys else everything or _was_set(kind, name, entry))
    ]
    if as_json:
        show_json([{"type": _kind(kind), "name": name, "configs": list(map(_entry_json, entries))}])
    else:
        rows = [
            (each.name, "(hidden)" if each.is_sensitive else each.value, each.source.name, each.is_read_only)
            for each in entries
        ]
        show_table(("key", "value", "source", "read only"), rows)
    account = Account()
    account.failures({key: ClusterError("no such config") for key in keys or [] if key not in found})
    account.close()


@app.command("set")
@grouped
def set_(kind: Kind, name: Name, changes: Changes, *, connection: Connection) -> None:
    """Set configs."""
    _change(connection, kind, name, "SET", pairs_from("set", changes))


@app.command()
@grouped
def unset(
    kind: Kind,
    name: Name,
    keys: Annotated[list[str], typer.Argument(metavar="KEY...")],
    *,
    connection: Connection,
) -> None:
    """Remove configs, which restores their defaults."""
    _change(connection, kind, name, "DELETE", dict.fromkeys(keys))


@app.command()
@grouped
def append(kind: Kind, name: Name, changes: Changes, *, connection: Connection) -> None:
    """Append values to list configs such as cleanup.policy."""
    _change(connection, kind, name, "APPEND", pairs_from("append", changes))


@app.command()
@grouped
def subtract(kind: Kind, name: Name, changes: Changes, *, connection: Connection) -> None:
    """Remove values from list configs."""
    _change(connection, kind, name, "SUBTRACT", pairs_from("subtract", changes))


def _change(connection: Connection, kind: str, name: str, operation: str, values: Mapping[str, str | None]) -> None:
    async def work(admin: Admin) -> None:
        from barnabas.client.admin import AlterConfigOp, OpType

        changes = [AlterConfigOp(key, value, OpType[operation]) for key, value in values.items()]
        await admin.incremental_alter_configs({_resource(kind, name): changes})

    _kind(kind)
    with_admin(connection, work)
    show_text(f"altered {_kind(kind)} {name}")


def _kind(text: str) -> str:
    """The key of `KINDS`. Raises `WrongArgument`."""
    for kind in KINDS:
        if text in (kind, f"{kind}s"):
            return kind
    raise WrongArgument(f"KIND must be one of {', '.join(KINDS)}; got {text!r}")


def _resource(kind: str, name: str) -> ConfigResource:
    from barnabas.client.admin import ConfigResource, ResourceType

    kind = _kind(kind)
    if kind in ("broker", "broker-logger") and name == "default":
        name = ""
    elif kind in ("broker", "broker-logger") and not name.isdecimal():
        raise WrongArgument(f"NAME must be a broker id or default; got {name!r}")
    return ConfigResource(ResourceType[KINDS[kind]], name)


def _was_set(kind: str, name: str, entry: ConfigEntry) -> bool:
    """True for a dynamic config, false for a value from a file or a default."""
    own = {
        "topic": {"DYNAMIC_TOPIC_CONFIG"},
        "broker": {"DYNAMIC_DEFAULT_BROKER_CONFIG"} if name == "default" else {"DYNAMIC_BROKER_CONFIG"},
        "broker-logger": {"DYNAMIC_BROKER_LOGGER_CONFIG"},
        "group": {"DYNAMIC_GROUP_CONFIG"},
        "client-metrics": {"DYNAMIC_CLIENT_METRICS_CONFIG"},
    }
    return entry.source.name in own[_kind(kind)]


def _entry_json(entry: ConfigEntry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "value": entry.value,
        "source": entry.source.name,
        "read_only": entry.is_read_only,
        "sensitive": entry.is_sensitive,
    }


app.add_typer(quotas.app, name="quotas")
