"""The load: one idempotent producer with acks=all at a steady rate and one consumer, both recorded in the ledger."""

from __future__ import annotations

from dataclasses import dataclass

import trio

from barnabas.client.cluster import Cluster, ClusterSettings, TopicPartition
from barnabas.client.consumer import LATEST, PartitionReader, open_reader
from barnabas.client.producer import Acked, Failed, FutureRecordMetadata, Producer, ProducerOptions
from barnabas.demo.ledger import Ledger

REQUEST_TIMEOUT_MS = 2_000
CLIENT = ClusterSettings(request_timeout_ms=REQUEST_TIMEOUT_MS, retry_backoff_ms=20, retry_backoff_max_ms=200)
"""Shorter than Kafka's defaults, so that gaps show the cluster's recovery time and not the client's backoff. A paused
broker keeps its connections open and answers nothing: only the request timeout detects it."""
PRODUCER: ProducerOptions = {
    "request_timeout_ms": REQUEST_TIMEOUT_MS,
    "retry_backoff_ms": CLIENT.retry_backoff_ms,
    "retry_backoff_max_ms": CLIENT.retry_backoff_max_ms,
    "linger_ms": 20,
}
"""Batches of a few records: the demo shares the machine with six nodes."""

READ_TO_THE_END_SECONDS = 30.0
"""Time limit for reading the last records; after it, missing ones count as lost."""
_POLL_MS = 100


@dataclass(frozen=True, slots=True)
class Load:
    """Topic and rate of the load."""

    topic: str
    records_per_second: int
    bootstrap_servers: str


async def run_load(
    client: Cluster,
    load: Load,
    ledger: Ledger,
    stop: trio.Event,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Produces and consumes until `stop`, then waits for every outcome and reads to the end.

    Started when a record of each partition is acked.
    """
    partitions = [TopicPartition(load.topic, index) for index in range(len(ledger.accounts))]
    written = trio.Event()
    async with open_reader(client) as consumer, trio.open_nursery() as nursery:
        consumer.assign(await consumer.offsets_at(dict.fromkeys(partitions, LATEST)))
        nursery.start_soon(_read, consumer, partitions, ledger, written)
        options: ProducerOptions = {**PRODUCER, "bootstrap_servers": load.bootstrap_servers}
        async with Producer(world=client.world, **options) as producer, trio.open_nursery() as outcomes:
            first_acks = [trio.Event() for _ in partitions]
            lines = []
            for index, first_ack in enumerate(first_acks):
                line, futures = trio.open_memory_channel[tuple[int, FutureRecordMetadata]](2**31)
                lines.append(line)
                outcomes.start_soon(_note_outcomes, client, ledger, index, futures, first_ack)
            outcomes.start_soon(_write, producer, load, ledger, lines, stop)
            for first_ack in first_acks:
                await first_ack.wait()
            task_status.started()
        ledger.finish(client.now_ms())
        written.set()


async def _write(
    producer: Producer,
    load: Load,
    ledger: Ledger,
    lines: list[trio.MemorySendChannel[tuple[int, FutureRecordMetadata]]],
    stop: trio.Event,
) -> None:
    """Sends records at fixed times; delays of slow sends are made up for."""
    began = trio.current_time()
    count = 0
    while not stop.is_set():
        index = count % len(lines)
        number, value = ledger.send(index)
        future = await producer.enqueue(load.topic, value, partition=index)
        lines[index].send_nowait((number, future))
        count += 1
        await trio.sleep_until(began + count / load.records_per_second)
    for line in lines:
        line.close()


async def _note_outcomes(
    client: Cluster,
    ledger: Ledger,
    index: int,
    futures: trio.MemoryReceiveChannel[tuple[int, FutureRecordMetadata]],
    first_ack: trio.Event,
) -> None:
    """Records the outcomes of one partition, which arrive in the order of its records."""
    async for number, future in futures:
        outcome = await future.outcome()
        if isinstance(outcome, Acked):
            ledger.acked(index, number, outcome.offset, client.now_ms())
            first_ack.set()
        elif isinstance(outcome, Failed):
            ledger.failed(index, number)
        else:
            ledger.unknown(index, number)


async def _read(
    consumer: PartitionReader, partitions: list[TopicPartition], ledger: Ledger, written: trio.Event
) -> None:
    """Reads all records; after `written` up to the end of the logs."""
    while not written.is_set():
        await _read_some(consumer, ledger)
    with trio.move_on_after(READ_TO_THE_END_SECONDS):
        ends = await consumer.offsets_at(dict.fromkeys(partitions, LATEST))
        for partition, account in zip(partitions, ledger.accounts, strict=True):
            ends[partition] = max(ends[partition], account.end_of_acked)
        while any(consumer.position(each) < ends[each] for each in partitions):
            await _read_some(consumer, ledger)


async def _read_some(consumer: PartitionReader, ledger: Ledger) -> None:
    for record in await consumer.poll(_POLL_MS):
        ledger.read(record.partition, record.offset, record.value)
