"""`barnabas perf`: produce, consume and end-to-end latency benchmarks."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cli import completion
from barnabas.cli.connection import AsJson, Connection
from barnabas.cli.option_group import grouped
from barnabas.cli.output import complain, show_json
from barnabas.cli.percentiles import Histogram
from barnabas.cli.progress import progress
from barnabas.cli.session import NoAnswer, run_connected
from barnabas.cli.throughput import Result, Throughput
from barnabas.cluster.errors import WrongArgument

if TYPE_CHECKING:
    from barnabas.client.consumer.consumer import Consumer
    from barnabas.client.producer import Producer
    from barnabas.client.shares.share_consumer import ShareConsumer

app = typer.Typer(help="Measure producer and consumer throughput, and latency.", rich_markup_mode=None)

Topic = Annotated[str, typer.Argument(metavar="TOPIC", autocompletion=completion.topics)]
Records = Annotated[int, typer.Option("--records", "-n", min=1, metavar="N", help="Number of records.")]
Size = Annotated[int, typer.Option("--size", "-s", min=0, metavar="BYTES", help="Size of each value.")]


@dataclass(frozen=True)
class Report:
    """Options for the report."""

    percentiles: Annotated[
        str, typer.Option("--percentiles", metavar="LIST", help="Latency percentiles to print, comma-separated.")
    ] = "50,95,99,99.9"
    interval: Annotated[
        float,
        typer.Option(
            "--interval", min=0, metavar="SECONDS", help="Print progress every SECONDS; 0 prints the summary only."
        ),
    ] = 5.0
    as_json: AsJson = False

    def shares(self) -> list[float]:
        """Percentiles as ascending shares of 1. Raises `WrongArgument`."""
        try:
            found = sorted(float(text) / 100 for text in self.percentiles.split(","))
        except ValueError:
            found = [-1.0]
        if not all(0 <= share <= 1 for share in found):
            raise WrongArgument(f"--percentiles must be numbers from 0 to 100, e.g. 50,99; got {self.percentiles!r}")
        return found

    def show(self, result: Result) -> None:
        if self.as_json:
            show_json(result.to_json())
            return
        for line in result.lines():
            typer.echo(line)


@dataclass(frozen=True)
class Membership:
    """Options for the group to read in."""

    group: Annotated[
        str | None, typer.Option("--group", "-G", help="Consume as a member of this group; without it, all partitions.")
    ] = None
    share_group: Annotated[
        str | None,
        typer.Option("--share-group", metavar="ID", help="Consume as a member of this share group, and accept all."),
    ] = None

    def opening(
        self, connection: Connection, topics: Sequence[str]
    ) -> AbstractAsyncContextManager[Consumer | ShareConsumer]:
        """The consumer of these topics."""
        if self.share_group is None:
            return _reading(connection, topics, self.group)
        return _sharing(connection, topics, self.share_group)


@dataclass(frozen=True)
class Load:
    """Options for the records to send."""

    records: Records = 100_000
    size: Size = 100
    throughput: Annotated[
        float, typer.Option("--throughput", "-t", metavar="N", help="Limit to N records per second; -1 for no limit.")
    ] = -1
    payloads: Annotated[
        Path | None,
        typer.Option("--payloads", exists=True, dir_okay=False, help="File whose lines are the values, in rotation."),
    ] = None
    transaction_size: Annotated[
        int, typer.Option("--transaction-size", metavar="N", min=0, help="Records per transaction; 0 for none.")
    ] = 0


@app.command()
@grouped
def produce(
    topic: Topic,
    *,
    load: Load,
    report: Report,
    connection: Connection,
) -> None:
    """Measure producer throughput and the latency from send to ack."""
    shares = report.shares()
    values = _values(load.size, load.payloads)

    async def work() -> Result:
        from barnabas.cli import measuring
        from barnabas.cli.topic_check import existing_partitions
        from barnabas.client.producer import Producer, ProducerSettings

        settings = connection.settings(
            ProducerSettings.model_fields,
            transactional_id=f"barnabas-perf-{time.time_ns()}" if load.transaction_size else None,
            allow_auto_create_topics=False,
        )
        opening = Producer(**settings)
        await existing_partitions(connection, topic)
        began_us, began_cpu_us = measuring.now_us(), measuring.cpu_us()
        account = Throughput(began_us, round(report.interval * 1e6))
        with progress(f"to {topic}", load.records, quiet=report.as_json) as advance:

            def counted(count: int, size_bytes: int, duration_us: int) -> None:
                account.add(count, size_bytes, duration_us)
                advance(count)

            acks, pace = measuring.Acks(counted), measuring.Pace(load.throughput)
            async with opening as producer:
                for part in measuring.parts(load.records, load.transaction_size):
                    async with _maybe_transaction(producer, load.transaction_size):
                        for number in part:
                            await pace.wait(number)
                            value = values[number % len(values)]
                            sent_us = measuring.now_us()
                            acks.expect(await producer.enqueue(topic, value), sent_us, len(value))
                            if line := account.window(sent_us):
                                complain(line)
                await producer.flush()
                acks.check()
                elapsed_us, cpu_us = measuring.now_us() - began_us, measuring.cpu_us() - began_cpu_us
        durations = {"latency": account.durations}
        return Result(account.records, account.size_bytes, elapsed_us, cpu_us, durations, shares)

    report.show(run_connected(connection, work))


@app.command()
@grouped
def consume(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC...", autocompletion=completion.topics)],
    records: Records = 100_000,
    idle: Annotated[
        float, typer.Option("--idle", metavar="SECONDS", min=0.1, help="Exit if no record arrives for SECONDS.")
    ] = 10.0,
    *,
    membership: Membership,
    report: Report,
    connection: Connection,
) -> None:
    """Measure consumer throughput, from the beginning of the topics, or from where the share group is."""
    shares = report.shares()
    if membership.group is not None and membership.share_group is not None:
        raise WrongArgument("--group and --share-group exclude each other")

    async def work() -> Result:
        from barnabas.cli import measuring

        began_us, began_cpu_us = measuring.now_us(), measuring.cpu_us()
        account = Throughput(began_us, round(report.interval * 1e6))
        async with membership.opening(connection, topics) as consumer:
            last_us, first_us = measuring.now_us(), 0
            with progress("read", records, quiet=report.as_json) as advance:
                while account.records < records and measuring.now_us() - last_us < idle * 1e6:
                    found = await consumer.poll(timeout_ms=measuring.POLL_MS)
                    if not found:
                        continue
                    last_us = measuring.now_us()
                    first_us = first_us or last_us
                    account.add(len(found), sum(map(measuring.size_of, found)))
                    advance(len(found))
                    if line := account.window(last_us):
                        complain(line)
            cpu_us = measuring.cpu_us() - began_cpu_us
        more = {"until the first records": (first_us - began_us) / 1000} if first_us else {}
        return Result(account.records, account.size_bytes, last_us - began_us, cpu_us, {}, shares, more)

    result = run_connected(connection, work)
    report.show(result)
    if result.records < records:
        raise NoAnswer(f"only {result.records} of {records} records arrived; none for {idle:g} s")


@app.command()
@grouped
def latency(
    topic: Topic,
    records: Records = 1_000,
    size: Size = 100,
    *,
    report: Report,
    connection: Connection,
) -> None:
    """Measure end-to-end latency: send one record at a time and wait until it is consumed."""
    shares = report.shares()

    async def work() -> Result:
        from barnabas.cli import measuring
        from barnabas.client.consumer.consumer import Consumer
        from barnabas.client.consumer.settings import ConsumerSettings
        from barnabas.client.producer import Producer, ProducerSettings

        sending = connection.settings(ProducerSettings.model_fields, linger_ms=0, allow_auto_create_topics=False)
        reading = connection.settings(
            ConsumerSettings.model_fields, auto_offset_reset="latest", allow_auto_create_topics=False
        )
        acked, through = Histogram(), Histogram()
        async with Consumer(**reading) as consumer, Producer(**sending) as producer:
            await measuring.assign_all(consumer, [topic], at_end=True)
            began_us, began_cpu_us = measuring.now_us(), measuring.cpu_us()
            with progress("through", records, quiet=report.as_json) as advance:
                for number in range(records):
                    key = b"%d-%d" % (began_us, number)
                    sent_us = measuring.now_us()
                    await producer.send(topic, bytes(size), key=key)
                    acked.add(measuring.now_us() - sent_us)
                    await measuring.until_read(consumer, key, connection.timeout_ms)
                    through.add(measuring.now_us() - sent_us)
                    advance(1)
            elapsed_us, cpu_us = measuring.now_us() - began_us, measuring.cpu_us() - began_cpu_us
        durations = {"until acked": acked, "until read": through}
        return Result(records, records * size, elapsed_us, cpu_us, durations, shares)

    report.show(run_connected(connection, work))


@asynccontextmanager
async def _reading(connection: Connection, topics: Sequence[str], group: str | None) -> AsyncIterator[Consumer]:
    from barnabas.cli import measuring
    from barnabas.cli.topic_check import partitions_count
    from barnabas.client.consumer.consumer import Consumer
    from barnabas.client.consumer.settings import ConsumerSettings

    settings = connection.settings(
        ConsumerSettings.model_fields, group_id=group, auto_offset_reset="earliest", allow_auto_create_topics=False
    )
    async with Consumer(**settings) as consumer:
        if group is None:
            await measuring.assign_all(consumer, topics, at_end=False)
        else:
            for topic in topics:
                await partitions_count(consumer, topic)
            consumer.subscribe(topics=topics)
        yield consumer


@asynccontextmanager
async def _sharing(connection: Connection, topics: Sequence[str], group: str) -> AsyncIterator[ShareConsumer]:
    from barnabas.cli.topic_check import existing_partitions
    from barnabas.client.shares.settings import ShareConsumerSettings
    from barnabas.client.shares.share_consumer import ShareConsumer

    settings = connection.settings(ShareConsumerSettings.model_fields, group_id=group, allow_auto_create_topics=False)
    for topic in topics:
        await existing_partitions(connection, topic)
    async with ShareConsumer(*topics, **settings) as consumer:
        yield consumer


@asynccontextmanager
async def _maybe_transaction(producer: Producer, size: int) -> AsyncIterator[None]:
    if not size:
        yield
        return
    async with producer.transaction():
        yield


def _values(size: int, payloads: Path | None) -> Sequence[bytes]:
    """Values to send in rotation: incompressible bytes, or the lines of a file. Raises `WrongArgument`."""
    if payloads is not None:
        lines = payloads.read_bytes().splitlines()
        if not lines:
            raise WrongArgument(f"--payloads {payloads}: the file is empty")
        return lines
    import random

    chance = random.Random(0)
    return [chance.randbytes(size) for _ in range(64)]
