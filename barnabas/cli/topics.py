"""`barnabas topics`: make, show and remove topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cli.options import DEFAULT_DATA, Bootstrap, Data, pairs_from
from barnabas.cli.session import PATIENCE_MS, partitions_of, with_cluster

if TYPE_CHECKING:
    from barnabas.client.admin import TopicDescription
    from barnabas.client.cluster import Cluster

app = typer.Typer(help="Make, show and remove topics.", rich_markup_mode=None)

Topic = Annotated[str, typer.Argument(metavar="TOPIC")]


@app.command()
def create(
    topic: Topic,
    partitions: Annotated[int, typer.Option("--partitions", "-p", help="-1: the brokers' num.partitions.")] = -1,
    replication_factor: Annotated[
        int, typer.Option("--replication-factor", "-r", help="-1: the brokers' default.replication.factor.")
    ] = -1,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", metavar="NAME=VALUE", help="A topic setting; may be repeated."),
    ] = None,
    bootstrap: Bootstrap = None,
    data: Data = DEFAULT_DATA,
) -> None:
    """Make a topic."""
    configs = pairs_from("--config", config)

    async def work(cluster: Cluster) -> tuple[int, int]:
        from barnabas.client.admin import Admin, NewTopic

        new = NewTopic(topic, partitions, replication_factor, configs=configs)
        made = (await Admin.over(cluster, PATIENCE_MS).create_topics(new))[topic]
        return made.num_partitions, made.replication_factor

    count, replicas = with_cluster(bootstrap, data, work)
    typer.echo(f"created {topic}: {count} partition{'s' if count != 1 else ''}, {replicas} replicas each")


@app.command("list")
def list_(
    internal: Annotated[bool, typer.Option("--internal", help="Also the brokers' own topics.")] = False,
    bootstrap: Bootstrap = None,
    data: Data = DEFAULT_DATA,
) -> None:
    """Show the names of all topics."""
    for topic in _describe([], bootstrap, data):
        if internal or not topic.is_internal:
            typer.echo(topic.name)


@app.command()
def describe(
    topics: Annotated[list[str] | None, typer.Argument(metavar="[TOPIC]...")] = None,
    bootstrap: Bootstrap = None,
    data: Data = DEFAULT_DATA,
) -> None:
    """Show partitions, leaders and replicas; of all topics unless some are named."""
    from rich.console import Console
    from rich.table import Table

    table = Table("topic", "partition", "leader", "epoch", "replicas", "in sync", box=None)
    for topic in _describe(topics or [], bootstrap, data):
        for partition in topic.partitions:
            table.add_row(
                topic.name,
                str(partition.partition),
                "none" if partition.leader is None else str(partition.leader),
                str(partition.leader_epoch),
                ",".join(map(str, partition.replicas)),
                ",".join(map(str, partition.isr)),
            )
    Console().print(table)


@app.command()
def delete(topic: Topic, bootstrap: Bootstrap = None, data: Data = DEFAULT_DATA) -> None:
    """Remove a topic and its records."""

    async def work(cluster: Cluster) -> None:
        from barnabas.client.admin import Admin

        await partitions_of(cluster, topic)
        await Admin.over(cluster, PATIENCE_MS).delete_topics(topic)

    with_cluster(bootstrap, data, work)
    typer.echo(f"deleted {topic}")


def _describe(names: list[str], bootstrap: str | None, data: Data) -> list[TopicDescription]:
    async def work(cluster: Cluster) -> list[TopicDescription]:
        from barnabas.client.admin import Admin

        admin = Admin.over(cluster, PATIENCE_MS)
        wanted = names or list(await admin.list_topics(list_internal=True))
        return list((await admin.describe_topics(wanted)).all().values())

    return with_cluster(bootstrap, data, work)
