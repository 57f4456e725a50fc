"""One client against one broker: writes ten records, reads them in a group, and writes five in a transaction.

Usage: dev_clients.py CLIENT BOOTSTRAP TOPIC. Prints the steps that worked, in order; the exit code is 0 if all did.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterator

PATIENCE_SECONDS = 20.0
COUNT, IN_TRANSACTION = 10, 5

Steps = Iterator[str]
"""The name of each step that worked."""


def confluent_kafka(servers: str, topic: str) -> Steps:
    from confluent_kafka import Consumer, Producer

    producer = Producer({"bootstrap.servers": servers, "message.timeout.ms": 15_000})
    for number in range(COUNT):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(PATIENCE_SECONDS) == 0
    yield "produce"
    settings = {"bootstrap.servers": servers, "group.id": f"{topic}-c", "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    _until(COUNT, lambda: [it for it in consumer.consume(COUNT, 1.0) if it.error() is None])
    consumer.commit(asynchronous=False)
    consumer.close()
    yield "group"
    writer = Producer({"bootstrap.servers": servers, "transactional.id": f"{topic}-t"})
    writer.init_transactions(PATIENCE_SECONDS)
    writer.begin_transaction()
    for number in range(IN_TRANSACTION):
        writer.produce(topic, b"%d" % number)
    writer.commit_transaction(PATIENCE_SECONDS)
    yield "transaction"


def kafka_python(servers: str, topic: str) -> Steps:
    from kafka import KafkaConsumer, KafkaProducer

    producer = KafkaProducer(bootstrap_servers=servers)
    for number in range(COUNT):
        producer.send(topic, b"%d" % number).get(PATIENCE_SECONDS)
    producer.close()
    yield "produce"
    consumer = KafkaConsumer(topic, bootstrap_servers=servers, group_id=f"{topic}-k", auto_offset_reset="earliest")
    _until(COUNT, lambda: [it for each in consumer.poll(1000).values() for it in each])
    consumer.commit()
    consumer.close()
    yield "group"
    writer = KafkaProducer(bootstrap_servers=servers, transactional_id=f"{topic}-k")
    writer.init_transactions()
    writer.begin_transaction()
    for number in range(IN_TRANSACTION):
        writer.send(topic, b"%d" % number)
    writer.commit_transaction()
    writer.close()
    yield "transaction"


def aiokafka(servers: str, topic: str) -> Steps:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    async def produce() -> None:
        async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
            for number in range(COUNT):
                await producer.send_and_wait(topic, b"%d" % number)

    async def consume() -> None:
        settings = {"bootstrap_servers": servers, "group_id": f"{topic}-a", "auto_offset_reset": "earliest"}
        async with AIOKafkaConsumer(topic, **settings) as consumer:
            for _ in range(COUNT):
                await consumer.getone()
            await consumer.commit()

    async def transact() -> None:
        settings = {"bootstrap_servers": servers, "transactional_id": f"{topic}-a"}
        async with AIOKafkaProducer(**settings) as producer, producer.transaction():
            for number in range(IN_TRANSACTION):
                await producer.send(topic, b"%d" % number)

    for name, work in (("produce", produce), ("group", consume), ("transaction", transact)):
        asyncio.run(asyncio.wait_for(work(), PATIENCE_SECONDS))
        yield name


def barnabas(servers: str, topic: str) -> Steps:
    from barnabas import sync

    with sync.Producer(bootstrap_servers=servers) as producer:
        producer.send_all(topic, [b"%d" % number for number in range(COUNT)])
    yield "produce"
    settings = {"bootstrap_servers": servers, "group_id": f"{topic}-b", "auto_offset_reset": "earliest"}
    with sync.Consumer(topic, **settings) as consumer:
        _until(COUNT, lambda: consumer.poll(1000))
        consumer.commit()
    yield "group"
    with sync.Producer(bootstrap_servers=servers, transactional_id=f"{topic}-b") as writer, writer.transaction():
        for number in range(IN_TRANSACTION):
            writer.send(topic, b"%d" % number)
    yield "transaction"


CLIENTS: dict[str, Callable[[str, str], Steps]] = {
    "confluent-kafka": confluent_kafka,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
    "barnabas": barnabas,
}


def _until(count: int, read: Callable[[], list[object]]) -> None:
    deadline, found = time.monotonic() + PATIENCE_SECONDS, 0
    while found < count:
        assert time.monotonic() < deadline, f"{found} of {count} records within {PATIENCE_SECONDS:g} s"
        found += len(read())


def main() -> int:
    client, servers, topic = sys.argv[1:]
    try:
        for step in CLIENTS[client](servers, topic):
            print(step, flush=True)
    except Exception as error:  # of whatever client
        print(" ".join(f"{type(error).__name__}: {error}".split())[:300], file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
