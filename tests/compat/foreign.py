"""Other people's clients behind one face: write records to a partition, read a partition from its start.

Each does it the way its own documentation says. Consumers are assigned their partition; they form no group.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from tests.compat.java import Java

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
"""By their number in a batch's attributes."""
TIMEOUT_SECONDS = 30


class Sent(NamedTuple):
    """A record as given to a client. Text that holds no tab and no line end, as pipes need it."""

    key: str
    value: str


class Seen(NamedTuple):
    """A record as a client gave it."""

    offset: int
    key: str
    value: str


def _text(data: bytes | None) -> str:
    return "" if data is None else data.decode()


class Client(Protocol):
    """Writes with acks=all, and returns when all is acked; reads exactly `count` records."""

    name: str

    def produce(self, topic: str, records: Sequence[Sent], codec: str = "none") -> None: ...

    def consume(self, topic: str, count: int, partition: int = 0) -> list[Seen]: ...


class Kcat:
    name = "kcat"

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def produce(self, topic: str, records: Sequence[Sent], codec: str = "none") -> None:
        lines = "".join(f"{key}\t{value}\n" for key, value in records)
        self.run("-P", "-t", topic, "-p", "0", "-K", "\t", "-z", codec, "-X", "acks=all", stdin=lines)

    def consume(self, topic: str, count: int, partition: int = 0) -> list[Seen]:
        out = self.run("-C", "-t", topic, "-p", str(partition), "-o", "beginning", "-c", str(count), "-e", "-q", "-J")
        records = [json.loads(line) for line in out.splitlines()]
        return [Seen(record["offset"], record["key"], record["payload"]) for record in records]

    def run(self, *words: str, stdin: str = "") -> str:
        done = subprocess.run(
            ["kcat", "-b", self._bootstrap, *words],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "ERROR" not in done.stderr, done.stderr
        return done.stdout


class Confluent:
    name = "confluent-kafka"

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def produce(self, topic: str, records: Sequence[Sent], codec: str = "none") -> None:
        from confluent_kafka import Producer

        errors: list[object] = []
        producer = Producer(
            {"bootstrap.servers": self._bootstrap, "compression.type": codec, "enable.idempotence": True}
        )
        for key, value in records:
            producer.produce(topic, value, key, partition=0, on_delivery=lambda error, _message: errors.append(error))
        assert producer.flush(TIMEOUT_SECONDS) == 0
        assert errors == [None] * len(records)

    def consume(self, topic: str, count: int, partition: int = 0) -> list[Seen]:
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": "compat", "enable.auto.commit": False})
        seen: list[Seen] = []
        try:
            consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
            deadline = time.monotonic() + TIMEOUT_SECONDS
            while len(seen) < count and time.monotonic() < deadline:
                for message in consumer.consume(count - len(seen), 1.0):
                    assert message.error() is None, message.error()
                    seen.append(Seen(message.offset(), _text(message.key()), _text(message.value())))
        finally:
            consumer.close()
        return seen


class KafkaPython:
    name = "kafka-python"

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap.split(",")

    def produce(self, topic: str, records: Sequence[Sent], codec: str = "none") -> None:
        from kafka import KafkaProducer

        compression = None if codec == "none" else codec
        producer = KafkaProducer(bootstrap_servers=self._bootstrap, compression_type=compression, linger_ms=5)
        try:
            futures = [producer.send(topic, value.encode(), key.encode(), partition=0) for key, value in records]
            for future in futures:
                future.get(TIMEOUT_SECONDS)
        finally:
            producer.close(TIMEOUT_SECONDS)

    def consume(self, topic: str, count: int, partition: int = 0) -> list[Seen]:
        from kafka import KafkaConsumer, TopicPartition

        consumer = KafkaConsumer(
            bootstrap_servers=self._bootstrap, auto_offset_reset="earliest", enable_auto_commit=False
        )
        seen: list[Seen] = []
        try:
            consumer.assign([TopicPartition(topic, partition)])
            deadline = time.monotonic() + TIMEOUT_SECONDS
            while len(seen) < count and time.monotonic() < deadline:
                for records in consumer.poll(1000, max_records=count - len(seen)).values():
                    seen += [Seen(each.offset, _text(each.key), _text(each.value)) for each in records]
        finally:
            consumer.close()
        return seen


class AioKafka:
    name = "aiokafka"

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def produce(self, topic: str, records: Sequence[Sent], codec: str = "none") -> None:
        asyncio.run(self._produce(topic, records, None if codec == "none" else codec))

    async def _produce(self, topic: str, records: Sequence[Sent], compression: str | None) -> None:
        from aiokafka import AIOKafkaProducer

        producer = AIOKafkaProducer(
            bootstrap_servers=self._bootstrap,
            compression_type=compression,
            enable_idempotence=True,
            linger_ms=5,
        )
        async with producer, asyncio.timeout(TIMEOUT_SECONDS):
            acks = [await producer.send(topic, value.encode(), key.encode(), partition=0) for key, value in records]
            await asyncio.gather(*acks)

    def consume(self, topic: str, count: int, partition: int = 0) -> list[Seen]:
        return asyncio.run(self._consume(topic, count, partition))

    async def _consume(self, topic: str, count: int, partition: int) -> list[Seen]:
        from aiokafka import AIOKafkaConsumer, TopicPartition

        seen: list[Seen] = []
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap, auto_offset_reset="earliest", enable_auto_commit=False
        )
        consumer.assign([TopicPartition(topic, partition)])
        async with consumer, asyncio.timeout(TIMEOUT_SECONDS):
            while len(seen) < count:
                found = await consumer.getmany(timeout_ms=1000, max_records=count - len(seen))
                for records in found.values():
                    seen += [Seen(each.offset, _text(each.key), _text(each.value)) for each in records]
        return seen


class JavaConsole:
    """Console producer and console consumer; topics have one partition, for the producer chooses."""

    name = "java"

    def __init__(self, java: Java) -> None:
        self._java = java

    def produce(self, topic: str, records: Sequence[Sent], codec: str = "none") -> None:
        lines = "".join(f"{key}\t{value}\n" for key, value in records)
        separated = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=\t")
        words = ("--topic", topic, *separated, "--compression-codec", codec)
        # The first question for a topic makes it; the answer to that is that it is not there, as Kafka's is.
        self._java.ask("console-producer", *words, stdin=lines, expected="=UNKNOWN_TOPIC_OR_PARTITION}")

    def consume(self, topic: str, count: int, partition: int = 0) -> list[Seen]:
        where = ("--topic", topic, "--partition", str(partition), "--offset", "earliest")
        until = ("--max-messages", str(count), "--timeout-ms", str(TIMEOUT_SECONDS * 1000))
        printed = self._java.ask("console-consumer", *where, *until, *self.shown("print.key", "print.offset"))
        seen = []
        for line in printed.lines:
            offset, key, value = line.split("\t")
            seen.append(Seen(int(offset.removeprefix("Offset:")), key, value))
        return seen

    @staticmethod
    def shown(*properties: str) -> list[str]:
        """The options of the console consumer that make it print more than values."""
        return [word for each in properties for word in ("--formatter-property", f"{each}=true")]
