"""`barnabas transactions find-hanging` and `abort`: transactions that stay open in a partition for ever (KIP-664)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from barnabas.cli import completion
from barnabas.cli.connection import AsJson, Connection
from barnabas.cli.option_group import grouped
from barnabas.cli.output import show_json, show_table, show_text
from barnabas.cli.partition_choice import PartitionChoice
from barnabas.cli.session import with_admin
from barnabas.cli.times import iso_time, parse_duration
from barnabas.cli.topic_records import chosen_partitions
from barnabas.cluster.errors import ClusterError, WrongArgument

if TYPE_CHECKING:
    from barnabas.client.admin import Admin, ProducerState, Results
    from barnabas.client.cluster import TopicPartition

    Producers = Results[TopicPartition, tuple[ProducerState, ...]]

BrokerId = Annotated[
    int | None, typer.Option("--broker", metavar="ID", min=0, help="Ask this replica instead of the leader.")
]


@grouped
def find_hanging(
    topics: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TOPIC[:PARTITIONS]]...",
            autocompletion=completion.topics,
            help="Topics or partitions; all by default.",
        ),
    ] = None,
    broker: BrokerId = None,
    max_timeout: Annotated[
        str,
        typer.Option(
            "--max-timeout",
            metavar="TIME",
            help="The brokers' transaction.max.timeout.ms: report transactions that are idle longer.",
        ),
    ] = "15m",
    as_json: AsJson = False,
    *,
    connection: Connection,
) -> None:
    """List transactions that are open in a partition although no coordinator will end them."""
    longest_ms = parse_duration("--max-timeout", max_timeout)
    choices = [PartitionChoice.parse("TOPIC", text) for text in topics or []]

    async def work(admin: Admin) -> list[_Open]:
        chosen = choices or [PartitionChoice(name, None) for name in await admin.list_topics(list_internal=True)]
        partitions = await chosen_partitions(admin, chosen)
        opened = open_longer_than(await admin.describe_producers(partitions, broker_id=broker), longest_ms)
        return await without_owners(admin, opened) if opened else []

    hanging = with_admin(connection, work)
    if as_json:
        show_json([each.to_json() for each in hanging])
    else:
        rows = [
            (
                each.topic,
                each.partition,
                each.producer_id,
                each.producer_epoch,
                each.start_offset,
                iso_time(each.last_ms),
            )
            for each in hanging
        ]
        show_table(("topic", "partition", "producer id", "epoch", "open since offset", "last time"), rows)


@grouped
def abort(
    topic: Annotated[str, typer.Argument(metavar="TOPIC:PARTITION", autocompletion=completion.topics)],
    start_offset: Annotated[int, typer.Option("--start-offset", min=0, help="First offset of the transaction.")],
    *,
    connection: Connection,
) -> None:
    """Abort a hanging transaction in one partition."""
    choice = PartitionChoice.parse("TOPIC", topic)
    if choice.partitions is None or len(choice.partitions) != 1:
        raise WrongArgument(f"needs TOPIC:PARTITION, e.g. flights:0; got {topic!r}")

    async def work(admin: Admin) -> None:
        from barnabas.client.admin import AbortTransactionSpec

        [partition] = await chosen_partitions(admin, [choice])
        for each in (await admin.describe_producers(partition))[partition]:
            if each.current_transaction_start_offset == start_offset:
                break
        else:
            raise ClusterError(f"{topic}: no open transaction begins at offset {start_offset}")
        spec = AbortTransactionSpec(partition, each.producer_id, each.producer_epoch, each.coordinator_epoch or 0)
        await admin.abort_transaction(spec)

    with_admin(connection, work)
    show_text(f"aborted the transaction in {topic} that began at offset {start_offset}")


@dataclass(frozen=True, slots=True)
class _Open:
    """A transaction that is open in a partition."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    start_offset: int
    last_ms: int

    def to_json(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "partition": self.partition,
            "producer_id": self.producer_id,
            "producer_epoch": self.producer_epoch,
            "start_offset": self.start_offset,
            "last_timestamp": self.last_ms,
        }


def open_longer_than(found: Producers, longest_ms: int) -> list[_Open]:
    """Transactions without a write for longer than `longest_ms`."""
    now_ms = time.time_ns() // 1_000_000
    return [
        _Open(
            partition.topic,
            partition.partition,
            each.producer_id,
            each.producer_epoch,
            start,
            each.last_timestamp_ms,
        )
        for partition, states in found.succeeded.items()
        for each in states
        if (start := each.current_transaction_start_offset) is not None and now_ms - each.last_timestamp_ms > longest_ms
    ]


async def without_owners(admin: Admin, opened: Sequence[_Open]) -> list[_Open]:
    """Those whose partition is in no coordinator's open transaction (KIP-664)."""
    listings = await admin.list_transactions(producer_ids=sorted({each.producer_id for each in opened}))
    ids = {each.producer_id: each.transactional_id for each in listings}
    described = (await admin.describe_transactions(sorted(set(ids.values())))).succeeded if ids else {}

    def is_owned(each: _Open) -> bool:
        transaction = described.get(ids.get(each.producer_id, ""))
        return transaction is not None and (each.topic, each.partition) in transaction.topic_partitions

    return [each for each in opened if not is_owned(each)]
