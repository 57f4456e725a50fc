"""Loads of `bench/python_clients.py`, one per Python client, each in the idiom of its library.

All of them send with acks=all, idempotent, 5 ms of linger (none where each record is waited for) and no compression, in
batches of 16384 bytes; only librdkafka has its own 1000000, as it crawls with less. They read partitions they are
assigned, at most 500 records at a time. Before the clock starts a client has sent, or read, some records.

Usage: client_loads.py CLIENT KIND BOOTSTRAP TOPIC SIZE SECONDS; prints what was done as one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

PARTITIONS = 3
BATCH_BYTES = 16_384
LINGER_MS = 5
POLL_RECORDS = 500
WARM_RECORDS = 300
BETWEEN_LOOKS = 100
"""Records between two looks at the clock."""


@dataclass
class Job:
    """Work of one process."""

    bootstrap: str
    topic: str
    size: int
    seconds: float
    linger_ms: int = LINGER_MS
    settings: dict[str, str] = field(default_factory=dict)
    """Further settings of librdkafka, e.g. how it authenticates."""


@dataclass
class Done:
    """Work done while the clock ran."""

    records: int = 0
    seconds: float = 0
    cpu_s: float = 0
    rss_mib: float = 0
    """The most that the process ever had."""
    sent_in_all: int = 0
    """With those before the clock."""
    latencies_ms: list[float] = field(default_factory=list)


class Clock:
    """Times a block and ends it after the wanted duration."""

    def __init__(self, done: Done, seconds: float) -> None:
        self._done = done
        self._seconds = seconds

    def __enter__(self) -> Clock:
        self._cpu_s = used_cpu_s()
        self._began = time.perf_counter()
        return self

    @property
    def is_over(self) -> bool:
        return time.perf_counter() - self._began >= self._seconds

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.seconds = time.perf_counter() - self._began
        self._done.cpu_s = used_cpu_s() - self._cpu_s


def used_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def peak_rss_mib() -> float:
    """Peak RSS of this process. getrusage would include the process that started it."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


# -- barnabas


async def barnabas_produces(job: Job, done: Done) -> None:
    from barnabas import Producer

    value = b"x" * job.size
    async with Producer(
        bootstrap_servers=job.bootstrap, linger_ms=job.linger_ms, batch_size=BATCH_BYTES, acks="all"
    ) as producer:
        for _ in range(WARM_RECORDS):
            await producer.enqueue(job.topic, value)
        await producer.flush()
        with Clock(done, job.seconds) as clock:
            while not clock.is_over:
                for _ in range(BETWEEN_LOOKS):
                    await producer.enqueue(job.topic, value)
                done.records += BETWEEN_LOOKS
            await producer.flush()


async def barnabas_waits(job: Job, done: Done) -> None:
    from barnabas import Producer

    value = b"x" * job.size
    async with Producer(bootstrap_servers=job.bootstrap, linger_ms=0, batch_size=BATCH_BYTES, acks="all") as producer:
        for _ in range(BETWEEN_LOOKS):
            await producer.send(job.topic, value)
        with Clock(done, job.seconds) as clock:
            while not clock.is_over:
                with each(done):
                    await producer.send(job.topic, value)


async def barnabas_consumes(job: Job, done: Done) -> None:
    from barnabas import Consumer, TopicPartition

    async with Consumer(
        bootstrap_servers=job.bootstrap, max_poll_records=POLL_RECORDS, enable_auto_commit=False
    ) as consumer:
        partitions = [TopicPartition(job.topic, index) for index in range(PARTITIONS)]
        consumer.assign(partitions)
        consumer.seek_to_beginning(partitions)
        await consumer.poll(timeout_ms=10_000)
        with Clock(done, job.seconds) as clock:
            while not clock.is_over:
                records = await consumer.poll(timeout_ms=1_000)
                if not records:
                    break
                done.records += len(records)
                check(sum([len(record.value or b"") for record in records]), records, job)


# -- aiokafka


async def aiokafka_produces(job: Job, done: Done) -> None:
    from aiokafka import AIOKafkaProducer

    value = b"x" * job.size
    async with AIOKafkaProducer(
        bootstrap_servers=job.bootstrap,
        linger_ms=job.linger_ms,
        max_batch_size=BATCH_BYTES,
        acks="all",
        enable_idempotence=True,
    ) as producer:
        for _ in range(WARM_RECORDS):
            await producer.send(job.topic, value)
        await producer.flush()
        with Clock(done, job.seconds) as clock:
            while not clock.is_over:
                for _ in range(BETWEEN_LOOKS):
                    await producer.send(job.topic, value)
                done.records += BETWEEN_LOOKS
            await producer.flush()


async def aiokafka_waits(job: Job, done: Done) -> None:
    from aiokafka import AIOKafkaProducer

    value = b"x" * job.size
    async with AIOKafkaProducer(
        bootstrap_servers=job.bootstrap,
        linger_ms=0,
        max_batch_size=BATCH_BYTES,
        acks="all",
        enable_idempotence=True,
    ) as producer:
        for _ in range(BETWEEN_LOOKS):
            await producer.send_and_wait(job.topic, value)
        with Clock(done, job.seconds) as clock:
            while not clock.is_over:
                with each(done):
                    await producer.send_and_wait(job.topic, value)


async def aiokafka_consumes(job: Job, done: Done) -> None:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async with AIOKafkaConsumer(
        bootstrap_servers=job.bootstrap, max_poll_records=POLL_RECORDS, enable_auto_commit=False
    ) as consumer:
        partitions = [TopicPartition(job.topic, index) for index in range(PARTITIONS)]
        consumer.assign(partitions)
        await consumer.seek_to_beginning(*partitions)
        await consumer.getmany(timeout_ms=10_000)
        with Clock(done, job.seconds) as clock:
            while not clock.is_over:
                found = await consumer.getmany(timeout_ms=1_000, max_records=POLL_RECORDS)
                if not found:
                    break
                for records in found.values():
                    done.records += len(records)
                    check(sum([len(record.value or b"") for record in records]), records, job)


# -- kafka-python


def kafka_python_produces(job: Job, done: Done) -> None:
    from kafka import KafkaProducer

    value = b"x" * job.size
    producer = KafkaProducer(
        bootstrap_servers=job.bootstrap.split(","),
        linger_ms=job.linger_ms,
        batch_size=BATCH_BYTES,
        acks="all",
        enable_idempotence=True,
    )
    for _ in range(WARM_RECORDS):
        producer.send(job.topic, value)
    producer.flush()
    with Clock(done, job.seconds) as clock:
        while not clock.is_over:
            for _ in range(BETWEEN_LOOKS):
                producer.send(job.topic, value)
            done.records += BETWEEN_LOOKS
        producer.flush()
    producer.close()


def kafka_python_waits(job: Job, done: Done) -> None:
    from kafka import KafkaProducer

    value = b"x" * job.size
    producer = KafkaProducer(
        bootstrap_servers=job.bootstrap.split(","),
        linger_ms=0,
        batch_size=BATCH_BYTES,
        acks="all",
        enable_idempotence=True,
    )
    for _ in range(BETWEEN_LOOKS):
        producer.send(job.topic, value).get(10)
    with Clock(done, job.seconds) as clock:
        while not clock.is_over:
            with each(done):
                producer.send(job.topic, value).get(10)
    producer.close()


def kafka_python_consumes(job: Job, done: Done) -> None:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=job.bootstrap.split(","), max_poll_records=POLL_RECORDS, enable_auto_commit=False
    )
    partitions = [TopicPartition(job.topic, index) for index in range(PARTITIONS)]
    consumer.assign(partitions)
    consumer.seek_to_beginning(*partitions)
    consumer.poll(timeout_ms=10_000)
    with Clock(done, job.seconds) as clock:
        while not clock.is_over:
            found = consumer.poll(timeout_ms=1_000)
            if not found:
                break
            for records in found.values():
                done.records += len(records)
                check(sum([len(record.value or b"") for record in records]), records, job)
    consumer.close()


# -- confluent-kafka


def confluent_settings(job: Job, **more: Any) -> dict[str, Any]:
    common = {"bootstrap.servers": job.bootstrap, "broker.address.family": "v4", "log_level": 0}
    return {**common, **job.settings, **more}


def confluent_producer(job: Job, linger_ms: int) -> Any:
    from confluent_kafka import Producer

    return Producer(confluent_settings(job, **{"linger.ms": linger_ms, "acks": "all", "enable.idempotence": True}))


def confluent_produces(job: Job, done: Done) -> None:
    value = b"x" * job.size
    producer = confluent_producer(job, job.linger_ms)
    failed = 0

    def delivered(error: Any, _: Any) -> None:
        nonlocal failed
        failed += error is not None

    def produce() -> None:
        while True:
            try:
                producer.produce(job.topic, value, on_delivery=delivered)
            except BufferError:
                producer.poll(0.05)
            else:
                return

    for _ in range(WARM_RECORDS):
        produce()
    producer.flush()
    with Clock(done, job.seconds) as clock:
        while not clock.is_over:
            for _ in range(BETWEEN_LOOKS):
                produce()
            producer.poll(0)
            done.records += BETWEEN_LOOKS
        producer.flush()
    if failed:
        raise RuntimeError(f"{failed} records failed")


def confluent_waits(job: Job, done: Done) -> None:
    value = b"x" * job.size
    producer = confluent_producer(job, 0)
    reports: list[Any] = []

    def send() -> None:
        reports.clear()
        producer.produce(job.topic, value, on_delivery=lambda error, _: reports.append(error))
        while not reports:
            producer.poll(1)
        if reports[0] is not None:
            raise RuntimeError(str(reports[0]))

    for _ in range(BETWEEN_LOOKS):
        send()
    with Clock(done, job.seconds) as clock:
        while not clock.is_over:
            with each(done):
                send()


def confluent_consumes(job: Job, done: Done) -> None:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(confluent_settings(job, **{"group.id": "unused", "enable.auto.commit": False}))
    consumer.assign([TopicPartition(job.topic, index, 0) for index in range(PARTITIONS)])
    consumer.consume(POLL_RECORDS, 10)
    with Clock(done, job.seconds) as clock:
        while not clock.is_over:
            records = consumer.consume(POLL_RECORDS, 1)
            if not records:
                break
            done.records += len(records)
            check(sum([len(record.value() or b"") for record in records]), records, job)
    consumer.close()


def check(size_bytes: int, records: list[Any], job: Job) -> None:
    if size_bytes != len(records) * job.size:
        raise RuntimeError(f"{len(records)} records of {job.size} bytes had {size_bytes}")


@contextmanager
def each(done: Done) -> Iterator[None]:
    began = time.perf_counter()
    yield
    done.latencies_ms.append((time.perf_counter() - began) * 1000)
    done.records += 1


# -- the processes


def with_trio(work: Callable[[Job, Done], Awaitable[None]], job: Job, done: Done) -> None:
    import trio

    trio.run(work, job, done)


def with_asyncio(work: Callable[[Job, Done], Any], job: Job, done: Done) -> None:
    asyncio.run(work(job, done))


Work = Callable[[Job, Done], None]
CLIENTS: dict[str, dict[str, Work]] = {
    "barnabas": {
        "produce": partial(with_trio, barnabas_produces),
        "consume": partial(with_trio, barnabas_consumes),
        "latency": partial(with_trio, barnabas_waits),
    },
    "aiokafka": {
        "produce": partial(with_asyncio, aiokafka_produces),
        "consume": partial(with_asyncio, aiokafka_consumes),
        "latency": partial(with_asyncio, aiokafka_waits),
    },
    "kafka-python": {
        "produce": kafka_python_produces,
        "consume": kafka_python_consumes,
        "latency": kafka_python_waits,
    },
    "confluent-kafka": {
        "produce": confluent_produces,
        "consume": confluent_consumes,
        "latency": confluent_waits,
    },
}


def main() -> None:
    client, kind, bootstrap, topic, size, seconds = sys.argv[1:]
    done = Done()
    CLIENTS[client][kind](Job(bootstrap, topic, int(size), float(seconds)), done)
    done.rss_mib = peak_rss_mib()
    done.sent_in_all = done.records + {"produce": WARM_RECORDS, "latency": BETWEEN_LOOKS}.get(kind, 0)
    print(json.dumps(asdict(done)))


if __name__ == "__main__":
    main()
