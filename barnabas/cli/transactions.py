"""`barnabas transactions`: lists transactions and ends hanging ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from barnabas.cli import completion, hanging_transactions
from barnabas.cli.connection import AsJson, Connection
from barnabas.cli.hanging_transactions import BrokerId
from barnabas.cli.option_group import grouped
from barnabas.cli.output import Account, show_json, show_table, show_text
from barnabas.cli.partition_choice import PartitionChoice, by_name
from barnabas.cli.session import with_admin
from barnabas.cli.times import iso_time, parse_duration
from barnabas.cli.topic_records import chosen_partitions

if TYPE_CHECKING:
    from barnabas.client.admin import (
        Admin,
        ProducerIdAndEpoch,
        ProducerState,
        Results,
        TransactionDescription,
        TransactionListing,
    )
    from barnabas.client.cluster import TopicPartition

    Producers = Results[TopicPartition, tuple[ProducerState, ...]]

app = typer.Typer(help="List and describe transactions, and end hanging ones.", rich_markup_mode=None)

Choices = Annotated[
    list[str],
    typer.Argument(
        metavar="TOPIC[:PARTITIONS]...",
        autocompletion=completion.topics,
        help="Topics or partitions, e.g. flights:0,2-4.",
    ),
]


@app.command("list")
@grouped
def list_(
    state: Annotated[
        list[str] | None, typer.Option("--state", help="List only transactions in this state: Ongoing, …; repeatable.")
    ] = None,
    producer_id: Annotated[
        list[int] | None, typer.Option("--producer-id", help="List only this producer id; repeatable.")
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option("--older-than", metavar="TIME", help="List only transactions that run longer, e.g. 90s, 15m."),
    ] = None,
    pattern: Annotated[
        str | None, typer.Option("--pattern", help="List only ids that match this RE2 pattern as a whole.")
    ] = None,
    as_json: AsJson = False,
    *,
    connection: Connection,
) -> None:
    """List transactional ids and the states of their transactions."""
    duration_ms = None if older_than is None else parse_duration("--older-than", older_than)

    async def work(admin: Admin) -> list[TransactionListing]:
        return await admin.list_transactions(
            states=state or (),
            producer_ids=producer_id or (),
            duration_ms=-1 if duration_ms is None else duration_ms,
            transactional_id_pattern=pattern,
        )

    listings = with_admin(connection, work)
    if as_json:
        show_json(
            [
                {"transactional_id": each.transactional_id, "producer_id": each.producer_id, "state": each.state}
                for each in listings
            ]
        )
    else:
        rows = [(each.transactional_id, each.producer_id, each.state) for each in listings]
        show_table(("transactional id", "producer id", "state"), rows)


@app.command()
@grouped
def describe(
    ids: Annotated[list[str], typer.Argument(metavar="TRANSACTIONAL_ID...")],
    as_json: AsJson = False,
    *,
    connection: Connection,
) -> None:
    """Describe the transactions of transactional ids."""

    async def work(admin: Admin) -> Results[str, TransactionDescription]:
        return await admin.describe_transactions(ids)

    results = with_admin(connection, work)
    found = results.succeeded.items()
    account = Account()
    account.failures(results.errors)
    if as_json:
        show_json({"transactions": [_description_json(*each) for each in found], "errors": account.errors})
    else:
        rows = [
            (
                name,
                each.coordinator_id,
                each.producer_id,
                each.producer_epoch,
                each.state,
                each.transaction_timeout_ms,
                _time(each.transaction_start_time_ms),
                " ".join(f"{topic}:{partition}" for topic, partition in sorted(each.topic_partitions)),
            )
            for name, each in found
        ]
        titles = (
            "transactional id",
            "coordinator",
            "producer id",
            "epoch",
            "state",
            "timeout ms",
            "since",
            "partitions",
        )
        show_table(titles, rows)
    account.close()


@app.command()
@grouped
def producers(topics: Choices, broker: BrokerId = None, as_json: AsJson = False, *, connection: Connection) -> None:
    """Show the producer state of partitions, with the start offsets of open transactions."""
    choices = [PartitionChoice.parse("TOPIC", text) for text in topics]

    async def work(admin: Admin) -> Producers:
        partitions = await chosen_partitions(admin, choices)
        return await admin.describe_producers(partitions, broker_id=broker)

    results = with_admin(connection, work)
    found = results.succeeded.items()
    account = Account()
    account.failures(by_name(results.errors))
    if as_json:
        show_json(
            [
                {"topic": each.topic, "partition": each.partition, "producers": list(map(_producer_json, states))}
                for each, states in found
            ]
        )
    else:
        rows = [
            (
                *partition,
                each.producer_id,
                each.producer_epoch,
                each.coordinator_epoch,
                each.last_sequence,
                iso_time(each.last_timestamp_ms),
                each.current_transaction_start_offset,
            )
            for partition, states in found
            for each in states
        ]
        titles = (
            "topic",
            "partition",
            "producer id",
            "epoch",
            "coordinator epoch",
            "last sequence",
            "last time",
            "open since offset",
        )
        show_table(titles, rows)
    account.close()


@app.command()
@grouped
def fence(ids: Annotated[list[str], typer.Argument(metavar="TRANSACTIONAL_ID...")], *, connection: Connection) -> None:
    """Fence the producers of transactional ids and abort their open transactions."""

    async def work(admin: Admin) -> Results[str, ProducerIdAndEpoch]:
        return await admin.fence_producers(ids, raise_errors=False)

    results = with_admin(connection, work)
    account = Account()
    for name, taken in results.succeeded.items():
        show_text(f"fenced {name}: producer id {taken.producer_id}, epoch {taken.epoch}")
    account.failures(results.errors)
    account.close()


app.command("find-hanging")(hanging_transactions.find_hanging)
app.command("abort")(hanging_transactions.abort)


def _time(timestamp_ms: int | None) -> str:
    return iso_time(-1 if timestamp_ms is None else timestamp_ms)


def _description_json(name: str, found: TransactionDescription) -> dict[str, Any]:
    return {
        "transactional_id": name,
        "coordinator": found.coordinator_id,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "state": found.state,
        "timeout_ms": found.transaction_timeout_ms,
        "start_time": found.transaction_start_time_ms,
        "partitions": [{"topic": each.topic, "partition": each.partition} for each in sorted(found.topic_partitions)],
    }


def _producer_json(state: ProducerState) -> dict[str, Any]:
    return {
        "producer_id": state.producer_id,
        "producer_epoch": state.producer_epoch,
        "coordinator_epoch": state.coordinator_epoch,
        "last_sequence": state.last_sequence,
        "last_timestamp": state.last_timestamp_ms,
        "start_offset": state.current_transaction_start_offset,
    }
