"""Correct for exactly-once, ordered: outputs and offsets in one transaction, which a rebalance fences (KIP-447)."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

SERVERS, GROUP = os.environ["BOOTSTRAP_SERVERS"], os.environ["GROUP_ID"]


def main() -> None:
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: stopping.append(number))
    producer = Producer(
        {
            "bootstrap.servers": SERVERS,
            # The same after a restart, another one in each instance.
            "transactional.id": f"{GROUP}-{os.environ['INSTANCE']}",
            "transaction.timeout.ms": 10_000,
        }
    )
    consumer = Consumer(
        {
            "bootstrap.servers": SERVERS,
            "group.id": GROUP,
            "session.timeout.ms": int(os.environ["SESSION_TIMEOUT_MS"]),
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    retried(producer.init_transactions)
    consumer.subscribe([os.environ["INPUT_TOPIC"]])
    while not stopping:
        records = [record for record in consumer.consume(50, 0.2) if record.error() is None]
        if not records:
            continue
        producer.begin_transaction()
        try:
            for record in records:
                producer.produce(os.environ["OUTPUT_TOPIC"], record.value(), record.key())
            done = {(it.topic(), it.partition()): it.offset() + 1 for it in records}
            places = [TopicPartition(topic, partition, offset) for (topic, partition), offset in done.items()]
            metadata = consumer.consumer_group_metadata()
            retried(lambda places=places, metadata=metadata: producer.send_offsets_to_transaction(places, metadata))
            retried(producer.commit_transaction)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise  # this producer is fenced: the next process begins again
            print(f"aborted: {error}", flush=True)
            retried(producer.abort_transaction)
            rewind(consumer)
    consumer.close()


def retried(call: Callable[[], object]) -> None:
    while True:
        try:
            call()
            return
        except KafkaException as error:
            if not error.args[0].retriable():
                raise


def rewind(consumer: Consumer) -> None:
    """Back to what is committed: the aborted records come again."""
    for place in consumer.committed(consumer.assignment(), timeout=30):
        place.offset = max(place.offset, 0)
        consumer.seek(place)


if __name__ == "__main__":
    main()
