"""`barnabas cluster` commands for any Kafka cluster: brokers, quorum, features, log directories."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from barnabas.cli import completion
from barnabas.cli.connection import AsJson, Connection
from barnabas.cli.option_group import grouped
from barnabas.cli.output import Account, Styled, show_json, show_table, show_text
from barnabas.cli.session import with_admin
from barnabas.cli.times import iso_time
from barnabas.cluster.errors import WrongArgument

if TYPE_CHECKING:
    from barnabas.client.admin import (
        Admin,
        ApiVersion,
        ClusterDescription,
        FeatureMetadata,
        LogDirDescription,
        QuorumInfo,
        ReplicaState,
        Results,
    )

Broker = Annotated[
    list[int] | None, typer.Option("--broker", metavar="ID", min=0, help="Ask only this broker; repeatable.")
]


@grouped
def describe(as_json: AsJson = False, *, connection: Connection) -> None:
    """Show brokers and their addresses."""

    async def work(admin: Admin) -> ClusterDescription:
        return await admin.describe_cluster(include_fenced_brokers=True)

    found = with_admin(connection, work)
    controller = None if found.controller is None else found.controller.node_id
    if as_json:
        show_json(
            {
                "cluster_id": found.cluster_id,
                "controller": controller,
                "brokers": [
                    {
                        "id": each.node_id,
                        "host": each.host,
                        "port": each.port,
                        "rack": each.rack,
                        "fenced": each.is_fenced,
                    }
                    for each in found.nodes
                ],
            }
        )
        return
    show_text(f"cluster {found.cluster_id}")
    rows = [
        (
            each.node_id,
            each.host,
            each.port,
            each.rack,
            Styled("fenced", "red") if each.is_fenced else "in service",
        )
        for each in found.nodes
    ]
    show_table(("broker", "host", "port", "rack", "state"), rows)


@grouped
def quorum(as_json: AsJson = False, *, connection: Connection) -> None:
    """Show the metadata quorum: leader, epoch, and the lag of voters and observers."""

    async def work(admin: Admin) -> QuorumInfo:
        return await admin.describe_metadata_quorum()

    found = with_admin(connection, work)
    if as_json:
        show_json(
            {
                "leader": found.leader_id,
                "epoch": found.leader_epoch,
                "high_watermark": found.high_watermark,
                "voters": list(map(_replica_json, found.voters)),
                "observers": list(map(_replica_json, found.observers)),
            }
        )
        return
    show_text(f"leader {found.leader_id}, epoch {found.leader_epoch}, committed up to offset {found.high_watermark}")
    ends = {each.replica_id: each.log_end_offset for each in (*found.voters, *found.observers)}
    end = ends.get(found.leader_id, max(ends.values(), default=0))
    rows = [
        (
            each.replica_id,
            "leader" if each.replica_id == found.leader_id else role,
            each.log_end_offset,
            max(0, end - each.log_end_offset),
            iso_time(-1 if each.last_fetch_timestamp_ms is None else each.last_fetch_timestamp_ms),
        )
        for role, replicas in (("voter", found.voters), ("observer", found.observers))
        for each in replicas
    ]
    show_table(("node", "role", "log end", "lag", "last fetch"), rows)


@grouped
def features(
    upgrade: Annotated[
        list[str] | None,
        typer.Option("--upgrade", metavar="NAME=LEVEL", help="Raise a level before, e.g. kraft.version=1; repeatable."),
    ] = None,
    as_json: AsJson = False,
    *,
    connection: Connection,
) -> None:
    """Show finalized and supported feature levels."""
    levels = dict(_level(each) for each in upgrade or ())

    async def work(admin: Admin) -> FeatureMetadata:
        if levels:
            from barnabas.client.admin import FeatureUpdate

            await admin.update_features({name: FeatureUpdate(level) for name, level in levels.items()})
        return await admin.describe_features()

    found = with_admin(connection, work)
    names = sorted({*found.supported_features, *found.finalized_features})
    rows = []
    for name in names:
        supported = found.supported_features.get(name)
        finalized = found.finalized_features.get(name)
        least, most = (0, 0) if supported is None else (supported.min_version, supported.max_version)
        rows.append((name, least, most, 0 if finalized is None else finalized.max_version_level))
    if as_json:
        shown = [{"name": name, "min": least, "max": most, "finalized": level} for name, least, most, level in rows]
        show_json({"epoch": found.finalized_features_epoch, "features": shown})
    else:
        show_table(("feature", "lowest", "highest", "finalized"), rows)


def _level(text: str) -> tuple[str, int]:
    name, _, level = text.partition("=")
    if not name or not (level.isascii() and level.isdigit()):
        raise WrongArgument(f"--upgrade {text}: must be NAME=LEVEL, e.g. kraft.version=1")
    return name, int(level)


@grouped
def log_dirs(
    broker: Broker = None,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", autocompletion=completion.topics, help="Show only this topic; repeatable."),
    ] = None,
    as_json: AsJson = False,
    *,
    connection: Connection,
) -> None:
    """Show the log directories of brokers and the replicas in them."""

    async def work(admin: Admin) -> Results[int, dict[str, LogDirDescription]]:
        return await admin.describe_log_dirs(broker)

    results = with_admin(connection, work)
    account = Account()
    account.failures({f"broker {broker_id}": error for broker_id, error in results.errors.items()})
    directories_json: list[dict[str, Any]] = []
    for broker_id, directories in results.succeeded.items():
        for path, found in directories.items():
            if found.error is not None:
                account.failure(f"broker {broker_id} {path}", found.error)
                continue
            replicas = [
                {
                    "topic": partition.topic,
                    "partition": partition.partition,
                    "size": replica.size_bytes,
                    "lag": replica.offset_lag,
                    "future": replica.is_future,
                }
                for partition, replica in sorted(found.replicas.items())
                if not topic or partition.topic in topic
            ]
            directories_json.append(
                {
                    "broker": broker_id,
                    "path": path,
                    "total": found.total_bytes,
                    "usable": found.usable_bytes,
                    "replicas": replicas,
                }
            )
    if as_json:
        show_json(directories_json)
    else:
        rows = [
            (each["broker"], each["path"], part["topic"], part["partition"], part["size"], part["lag"])
            for each in directories_json
            for part in each["replicas"]
        ]
        show_table(("broker", "directory", "topic", "partition", "bytes", "lag"), rows)
    account.close()


@grouped
def api_versions(broker: Broker = None, as_json: AsJson = False, *, connection: Connection) -> None:
    """Show the API keys and versions that brokers support."""

    async def work(admin: Admin) -> dict[int, tuple[ApiVersion, ...]]:
        ids = broker or [each.node_id for each in (await admin.describe_cluster()).nodes]
        return {each: await admin.api_versions(each) for each in ids}

    found = with_admin(connection, work)
    rows = [
        (broker_id, each.api_key, _api_name(each.api_key), each.min_version, each.max_version)
        for broker_id, versions in found.items()
        for each in versions
    ]
    if as_json:
        show_json([dict(zip(("broker", "key", "name", "min", "max"), row, strict=True)) for row in rows])
    else:
        show_table(("broker", "key", "request", "lowest", "highest"), rows)


@grouped
def unregister(
    broker: Annotated[int, typer.Argument(metavar="BROKER", min=0, help="Broker id.")], *, connection: Connection
) -> None:
    """Unregister a broker that will not return."""

    async def work(admin: Admin) -> None:
        await admin.unregister_broker(broker)

    with_admin(connection, work)
    show_text(f"unregistered broker {broker}")


def _replica_json(replica: ReplicaState) -> dict[str, Any]:
    return {
        "id": replica.replica_id,
        "log_end_offset": replica.log_end_offset,
        "last_fetch_timestamp": replica.last_fetch_timestamp_ms,
        "last_caught_up_timestamp": replica.last_caught_up_timestamp_ms,
    }


def _api_name(key: int) -> str:
    from barnabas.protocol.api_keys import API_SPECS, ApiKey

    try:
        return API_SPECS[ApiKey(key)].name
    except (ValueError, KeyError):
        return "unknown"
