"""The load: one idempotent producer with acks=all and one consumer, at a steady rate, every record in the ledger."""

from __future__ import annotations

from dataclasses import dataclass

import trio

from barnabas.client.accumulator import Acked, Failed, ProducerSettings
from barnabas.client.cluster import Cluster, ClusterSettings, TopicPartition
from barnabas.client.consumer import LATEST, PartitionReader, open_reader
from barnabas.client.producer import Delivery, Producer, open_producer
from barnabas.demo.ledger import Ledger

REQUEST_TIMEOUT_MS = 2_000
CLIENT = ClusterSettings(request_timeout_ms=REQUEST_TIMEOUT_MS, retry_backoff_ms=20, retry_backoff_max_ms=200)
"""Less patient than Kafka's defaults, so that gaps show how long the cluster takes, and not how long a client sleeps.
A paused broker keeps its connections open and answers nothing: only this timeout tells."""
PRODUCER = ProducerSettings(request_timeout_ms=REQUEST_TIMEOUT_MS, linger_ms=20)
"""Batches of a few records: the demo shares the machine with six nodes."""

READ_TO_THE_END_SECONDS = 30.0
"""How long the consumer looks for the last records before what is missing counts as lost."""
_POLL_MS = 100


@dataclass(frozen=True, slots=True)
class Load:
    """What to write, and how fast."""

    topic: str
    records_per_second: int


async def run_load(
    client: Cluster,
    load: Load,
    ledger: Ledger,
    stop: trio.Event,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Writes and reads until `stop`, then waits for every outcome and reads to the end.

    It has started when a record of each partition was acked.
    """
    partitions = [TopicPartition(load.topic, index) for index in range(len(ledger.accounts))]
    written = trio.Event()
    async with open_reader(client) as consumer, trio.open_nursery() as nursery:
        consumer.assign(await consumer.offsets_at(dict.fromkeys(partitions, LATEST)))
        nursery.start_soon(_read, consumer, partitions, ledger, written)
        async with open_producer(client, PRODUCER) as producer, trio.open_nursery() as outcomes:
            first_acks = [trio.Event() for _ in partitions]
            lines = []
            for index, first_ack in enumerate(first_acks):
                line, deliveries = trio.open_memory_channel[tuple[int, Delivery]](2**31)
                lines.append(line)
                outcomes.start_soon(_note_outcomes, client, ledger, index, deliveries, first_ack)
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
    lines: list[trio.MemorySendChannel[tuple[int, Delivery]]],
    stop: trio.Event,
) -> None:
    """One record after another, at moments that were fixed before: a slow send is made up for."""
    began = trio.current_time()
    count = 0
    while not stop.is_set():
        index = count % len(lines)
        number, value = ledger.send(index)
        delivery = await producer.send(load.topic, value, partition=index)
        lines[index].send_nowait((number, delivery))
        count += 1
        await trio.sleep_until(began + count / load.records_per_second)
    for line in lines:
        line.close()


async def _note_outcomes(
    client: Cluster,
    ledger: Ledger,
    index: int,
    deliveries: trio.MemoryReceiveChannel[tuple[int, Delivery]],
    first_ack: trio.Event,
) -> None:
    """Outcomes of a partition come in the order of its records, so one task sees each when it comes."""
    async for number, delivery in deliveries:
        outcome = await delivery.wait()
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
    """Everything there is; once all is written, up to the end of the logs."""
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
