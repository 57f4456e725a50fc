"""`barnabas cluster move-replica`: moves a replica to another log directory of its broker (KIP-113)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cli import completion
from barnabas.cli.connection import Connection
from barnabas.cli.option_group import grouped
from barnabas.cli.output import Account, show_text
from barnabas.cli.partition_choice import PartitionChoice
from barnabas.cli.session import with_admin
from barnabas.cli.topic_records import chosen_partitions

if TYPE_CHECKING:
    from barnabas.client.admin import Admin, Results, TopicPartitionReplica


@grouped
def move_replica(
    partitions: Annotated[list[str], typer.Argument(metavar="TOPIC[:PARTITIONS]...", autocompletion=completion.topics)],
    broker: Annotated[int, typer.Option("--broker", metavar="ID", min=0, help="The broker with the replicas.")],
    to: Annotated[str, typer.Option("--to", metavar="DIR", help="One of its log.dirs.")],
    *,
    connection: Connection,
) -> None:
    """Start moving replicas to another log directory of their broker."""
    choices = [PartitionChoice.parse("TOPIC", text) for text in partitions]

    async def work(admin: Admin) -> Results[TopicPartitionReplica, None]:
        from barnabas.client.admin import TopicPartitionReplica

        chosen = await chosen_partitions(admin, choices)
        moves = {TopicPartitionReplica(each.topic, each.partition, broker): to for each in chosen}
        return await admin.alter_replica_log_dirs(moves, raise_errors=False)

    results = with_admin(connection, work)
    account = Account()
    for replica in results.succeeded:
        show_text(f"{replica.topic}:{replica.partition} moves to {to} on broker {broker}")
    account.failures({f"{each.topic}:{each.partition}": error for each, error in results.errors.items()})
    account.close()
