"""`barnabas produce` and `barnabas consume`: records as lines."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cli.options import DEFAULT_DATA, Bootstrap, Data, bootstrap_from
from barnabas.cli.session import partitions_of, with_cluster
from barnabas.cluster.errors import WrongArgument

if TYPE_CHECKING:
    from barnabas.client.cluster import Cluster
    from barnabas.client.consumer import ConsumerRecord, PartitionReader
    from barnabas.client.producer import FutureRecordMetadata

Topic = Annotated[str, typer.Argument(metavar="TOPIC")]
Partition = Annotated[int | None, typer.Option("--partition", "-p", min=0, help="Only this one.")]
POLL_MS = 500
DELIVERIES_AWAITED = 10_000
"""How many lines may be on their way before the oldest must have arrived."""


def produce(
    topic: Topic,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-k", help="Lines are KEY, this, VALUE.")
    ] = None,
    partition: Partition = None,
    bootstrap: Bootstrap = None,
    data: Data = DEFAULT_DATA,
) -> None:
    """Send each line of standard input as a record, and wait until all are durable (acks=all)."""
    if key_separator == "":
        raise WrongArgument("--key-separator: cannot be empty")

    servers = [f"{host}:{port}" for host, port in bootstrap_from(bootstrap, data)]

    async def work(cluster: Cluster) -> int:
        from collections import deque

        from barnabas.client.producer import Producer

        await _count(cluster, topic, partition)
        sent = 0
        under_way: deque[FutureRecordMetadata] = deque()
        async with Producer(bootstrap_servers=servers) as producer:
            async for line in _lines():
                key, value = _split(line, key_separator, sent + 1)
                under_way.append(await producer.enqueue(topic, value, key=key, partition=partition))
                sent += 1
                while len(under_way) > DELIVERIES_AWAITED:
                    await under_way.popleft()
            for future in under_way:
                await future
        return sent

    sent = with_cluster(bootstrap, data, work)
    typer.echo(f"{sent} record{'s' if sent != 1 else ''} sent to {topic}", err=True)


def consume(  # noqa: PLR0913, PLR0917 - each is an option
    topic: Topic,
    from_beginning: Annotated[bool, typer.Option("--from-beginning", help="Start with the first record.")] = False,
    max_messages: Annotated[int | None, typer.Option("--max-messages", "-n", min=0, help="End after so many.")] = None,
    partition: Partition = None,
    show_key: Annotated[
        str | None, typer.Option("--key-separator", "-k", help="Write KEY and this before each value.")
    ] = None,
    bootstrap: Bootstrap = None,
    data: Data = DEFAULT_DATA,
) -> None:
    """Write the values of a topic's records to standard output, one per line, until Ctrl-C."""
    separator = None if show_key is None else show_key.encode()

    async def work(cluster: Cluster) -> None:
        from barnabas.client.consumer import open_reader

        async with open_reader(cluster) as consumer:
            await _assign(cluster, consumer, topic, partition, from_beginning)
            left = max_messages
            while left is None or left > 0:
                records = await consumer.poll(POLL_MS)
                for record in records[:left]:
                    sys.stdout.buffer.write(_line(record, separator))
                sys.stdout.flush()
                left = None if left is None else left - len(records)

    with_cluster(bootstrap, data, work)


async def _assign(
    cluster: Cluster, consumer: PartitionReader, topic: str, partition: int | None, from_beginning: bool
) -> None:
    from barnabas.client.cluster import TopicPartition
    from barnabas.client.consumer import EARLIEST, LATEST

    count = await _count(cluster, topic, partition)
    wanted = range(count) if partition is None else [partition]
    timestamp = EARLIEST if from_beginning else LATEST
    consumer.assign(await consumer.offsets_at({TopicPartition(topic, each): timestamp for each in wanted}))


async def _count(cluster: Cluster, topic: str, partition: int | None) -> int:
    """How many partitions there are. Raises `WrongArgument` if `partition` is none of them."""
    count = await partitions_of(cluster, topic)
    if partition is not None and partition >= count:
        raise WrongArgument(f"--partition {partition}: {topic} has {count}, 0 to {count - 1}")
    return count


async def _lines() -> AsyncIterator[bytes]:
    """The lines of standard input without their ends."""
    import trio

    source = trio.wrap_file(sys.stdin.buffer)
    while line := await source.readline():
        yield line.rstrip(b"\r\n")


def _split(line: bytes, separator: str | None, number: int) -> tuple[bytes | None, bytes]:
    if separator is None:
        return None, line
    key, found, value = line.partition(separator.encode())
    if not found:
        raise WrongArgument(f"line {number} has no {separator!r} between key and value")
    return key, value


def _line(record: ConsumerRecord, separator: bytes | None) -> bytes:
    value = b"null" if record.value is None else record.value
    if separator is None:
        return value + b"\n"
    return (b"null" if record.key is None else record.key) + separator + value + b"\n"
