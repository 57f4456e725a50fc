"""`barnabas topics elect`: leader elections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cli import completion
from barnabas.cli.connection import AsJson, Connection
from barnabas.cli.option_group import grouped
from barnabas.cli.output import Account, show_json, show_text
from barnabas.cli.partition_choice import PartitionChoice, by_name
from barnabas.cli.session import with_admin
from barnabas.cli.topic_records import chosen_partitions
from barnabas.cluster.errors import WrongArgument

if TYPE_CHECKING:
    from barnabas.client.admin import Admin, Results
    from barnabas.client.cluster import TopicPartition


@grouped
def elect(
    topics: Annotated[
        list[str] | None, typer.Argument(metavar="[TOPIC[:PARTITIONS]]...", autocompletion=completion.topics)
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All eligible partitions.")] = False,
    unclean: Annotated[
        bool,
        typer.Option(
            "--unclean", help="Elect an out-of-sync replica where no replica is in sync; acked records may be lost."
        ),
    ] = False,
    as_json: AsJson = False,
    *,
    connection: Connection,
) -> None:
    """Elect the preferred replicas as leaders."""
    if everything == bool(topics):
        raise WrongArgument("needs TOPIC[:PARTITIONS] or --all")
    choices = [PartitionChoice.parse("TOPIC", text) for text in topics or []]

    async def work(admin: Admin) -> Results[TopicPartition, bool]:
        from barnabas.client.admin import ElectionType

        partitions = None if everything else await chosen_partitions(admin, choices)
        kind = ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED
        return await admin.elect_leaders(kind, partitions, raise_errors=False)

    results = with_admin(connection, work)
    account = Account()
    account.failures(by_name(results.errors))
    if as_json:
        elected = [
            {"topic": each.topic, "partition": each.partition, "elected": new}
            for each, new in results.succeeded.items()
        ]
        show_json({"partitions": elected, "errors": account.errors})
    else:
        for name, new in by_name(results.succeeded).items():
            show_text(f"{name} has a new leader" if new else f"{name} needs no new leader")
    account.close()
