"""`barnabas topics`: create, describe, alter and delete topics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from barnabas.cli import completion, leader_election, reassignment, topic_records
from barnabas.cli.connection import AsJson, Connection
from barnabas.cli.option_group import grouped
from barnabas.cli.options import pairs_from
from barnabas.cli.output import Account, Cell, Styled, show_json, show_table, show_text
from barnabas.cli.session import with_admin
from barnabas.cli.topic_check import with_missing_topics_named
from barnabas.cluster.errors import ClusterError, WrongArgument

if TYPE_CHECKING:
    from barnabas.client.admin import Admin, CreatedTopic, Results, TopicDescription, TopicListing, TopicPartitionInfo

app = typer.Typer(help="Create, list, describe, alter and delete topics.", rich_markup_mode=None)

Topic = Annotated[str, typer.Argument(metavar="TOPIC", autocompletion=completion.topics)]
Topics = Annotated[list[str], typer.Argument(metavar="TOPIC...", autocompletion=completion.topics)]
Configs = Annotated[
    list[str] | None,
    typer.Option("--config", metavar="NAME=VALUE", help="Topic config; repeatable."),
]
Assignment = Annotated[
    str | None,
    typer.Option("--assign", metavar="B:B,…", help="Replicas of each partition, preferred leader first, e.g. 1:2,2:3."),
]


@dataclass(frozen=True)
class Shape:
    """Options for a new topic."""

    partitions: Annotated[
        int, typer.Option("--partitions", "-p", help="Number of partitions; -1 for the cluster's num.partitions.")
    ] = -1
    replication_factor: Annotated[
        int,
        typer.Option(
            "--replication-factor",
            "-r",
            help="Replicas per partition; -1 for the cluster's default.replication.factor.",
        ),
    ] = -1
    config: Configs = None
    assign: Assignment = None
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="Succeed if the topic already exists.")] = False
    validate_only: Annotated[
        bool, typer.Option("--validate-only", help="Validate the request without creating the topic.")
    ] = False


@app.command()
@grouped
def create(topics: Topics, *, shape: Shape, as_json: AsJson = False, connection: Connection) -> None:
    """Create topics."""
    configs = pairs_from("--config", shape.config)
    assignments = _assignments(shape.assign)
    if assignments and (shape.partitions, shape.replication_factor) != (-1, -1):
        raise WrongArgument("--assign excludes -p and -r: it determines the numbers of partitions and replicas")

    async def work(admin: Admin) -> Results[str, CreatedTopic]:
        from barnabas.client.admin import NewTopic

        count, replicas = shape.partitions, shape.replication_factor
        wanted = [NewTopic(name, count, replicas, assignments, configs) for name in dict.fromkeys(topics)]
        return await admin.create_topics(wanted, validate_only=shape.validate_only, raise_errors=False)

    results = with_admin(connection, work)
    account = Account()
    account.failures(
        {
            name: error
            for name, error in results.errors.items()
            if not (shape.if_not_exists and error.code.name == "TOPIC_ALREADY_EXISTS")
        }
    )
    made = results.succeeded.values()
    if as_json:
        created = [
            {"name": each.name, "partitions": each.num_partitions, "replication_factor": each.replication_factor}
            for each in made
        ]
        show_json({"topics": created, "errors": account.errors})
    for each in [] if as_json else made:
        plural = "s" if each.num_partitions != 1 else ""
        what = f"{each.name}: {each.num_partitions} partition{plural}, replication factor {each.replication_factor}"
        show_text(f"would create {what}" if shape.validate_only else f"created {what}")
    account.close()


@app.command("list")
@grouped
def list_(
    internal: Annotated[bool, typer.Option("--internal", help="Include internal topics.")] = False,
    as_json: AsJson = False,
    *,
    connection: Connection,
) -> None:
    """List topics."""

    async def work(admin: Admin) -> dict[str, TopicListing]:
        return await admin.list_topics(list_internal=internal)

    listings = with_admin(connection, work).values()
    if as_json:
        show_json([{"name": each.name, "topic_id": each.topic_id, "internal": each.is_internal} for each in listings])
        return
    for each in listings:
        show_text(each.name)


@dataclass(frozen=True)
class Filter:
    """Options that select partitions."""

    under_replicated: Annotated[
        bool, typer.Option("--under-replicated", help="Show only partitions with fewer in-sync replicas than replicas.")
    ] = False
    unavailable: Annotated[bool, typer.Option("--unavailable", help="Show only partitions without a leader.")] = False
    at_most_in_sync: Annotated[
        int | None,
        typer.Option("--at-most-in-sync", metavar="N", help="Show only partitions with N in-sync replicas or fewer."),
    ] = None

    def takes(self, partition: TopicPartitionInfo) -> bool:
        if self.unavailable and partition.leader is not None:
            return False
        if self.at_most_in_sync is not None and len(partition.isr) > self.at_most_in_sync:
            return False
        return not self.under_replicated or len(partition.isr) < len(partition.replicas)


@app.command()
@grouped
def describe(
    topics: Annotated[list[str] | None, typer.Argument(metavar="[TOPIC]...", autocompletion=completion.topics)] = None,
    as_json: AsJson = False,
    *,
    chosen: Filter,
    connection: Connection,
) -> None:
    """Describe topics: partitions, leaders, replicas and in-sync replicas; all topics by default."""

    async def work(admin: Admin) -> Results[str, TopicDescription]:
        return await admin.describe_topics(topics or list(await admin.list_topics(list_internal=True)))

    results = with_admin(connection, work)
    found = results.succeeded.values()
    account = Account()
    account.failures(with_missing_topics_named(results.errors))
    if as_json:
        show_json({"topics": [_topic_json(each, chosen) for each in found], "errors": account.errors})
    else:
        titles = ("topic", "partition", "leader", "epoch", "replicas", "in sync", "eligible")
        show_table(titles, [_row(each.name, part) for each in found for part in each.partitions if chosen.takes(part)])
    account.close()


@app.command()
@grouped
def alter(
    topic: Topic,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", min=1, help="New total number of partitions.")
    ] = None,
    config: Configs = None,
    unset: Annotated[
        list[str] | None, typer.Option("--unset", metavar="NAME", help="Remove a topic config; repeatable.")
    ] = None,
    *,
    connection: Connection,
) -> None:
    """Add partitions to a topic, or alter its configs."""
    changes: dict[str, str | None] = {**pairs_from("--config", config), **dict.fromkeys(unset or [])}
    if partitions is None and not changes:
        raise WrongArgument("nothing to alter: --partitions, --config or --unset")

    async def work(admin: Admin) -> None:
        from barnabas.client.admin import ConfigResource, ResourceType

        if partitions is not None:
            await admin.create_partitions({topic: partitions})
        if changes:
            await admin.incremental_alter_configs({ConfigResource(ResourceType.TOPIC, topic): changes})

    with_admin(connection, work)
    show_text(f"altered {topic}")


@app.command()
@grouped
def delete(
    topics: Topics,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Succeed if the topic does not exist.")] = False,
    *,
    connection: Connection,
) -> None:
    """Delete topics and their records."""

    async def work(admin: Admin) -> Results[str, None]:
        return await admin.delete_topics(topics, raise_errors=False)

    results = with_admin(connection, work)
    account = Account()
    for name in results.succeeded:
        show_text(f"deleted {name}")
    for name, error in results.errors.items():
        if error.code.name != "UNKNOWN_TOPIC_OR_PARTITION":
            account.failure(name, error)
        elif not if_exists:
            account.failure(name, ClusterError("there is no such topic"))
    account.close()


app.command("offsets")(topic_records.offsets)
app.command("delete-records")(topic_records.delete_records)
app.command("elect")(leader_election.elect)
app.add_typer(reassignment.app, name="reassign")


def _row(topic: str, partition: TopicPartitionInfo) -> Sequence[Cell | Styled]:
    in_sync = _ids(partition.isr)
    return (
        topic,
        partition.partition,
        Styled("none", "red") if partition.leader is None else partition.leader,
        partition.leader_epoch,
        _ids(partition.replicas),
        Styled(in_sync, "yellow") if len(partition.isr) < len(partition.replicas) else in_sync,
        _ids(partition.elr or ()),
    )


def _topic_json(topic: TopicDescription, chosen: Filter) -> dict[str, Any]:
    return {
        "name": topic.name,
        "topic_id": topic.topic_id,
        "internal": topic.is_internal,
        "partitions": [
            {
                "partition": each.partition,
                "leader": each.leader,
                "leader_epoch": each.leader_epoch,
                "replicas": each.replicas,
                "isr": each.isr,
                "elr": each.elr or (),
                "last_known_elr": each.last_known_elr or (),
                "offline": each.offline_replicas,
            }
            for each in topic.partitions
            if chosen.takes(each)
        ],
    }


def _assignments(text: str | None) -> dict[int, list[int]] | None:
    if text is None:
        return None
    try:
        return {index: [int(broker) for broker in part.split(":")] for index, part in enumerate(text.split(","))}
    except ValueError:
        raise WrongArgument(f"--assign {text}: must be broker ids, e.g. 1:2,2:3") from None


def _ids(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers))
