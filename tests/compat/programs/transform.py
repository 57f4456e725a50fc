"""Consume, transform, produce with exactly-once, as confluent-kafka's documentation says it; runs until it is killed.

`transform.py BOOTSTRAP INPUT OUTPUT GROUP NAME PROTOCOL`: NAME is the transactional id, and with the classic protocol
the group.instance.id. With KIP-848 the id of a static member that was killed is in use until its session ends.
Says `began` when it has its partitions.

It ends itself if a call does not return: librdkafka's send_offsets_to_transaction may wait for ever, whatever its
timeout, for a coordinator that disappeared during the search for it. The test starts it again.
"""

from __future__ import annotations

import faulthandler
import sys
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

PATIENCE_SECONDS = 40
"""Longer than any call may take: their timeouts are 30 s."""


def main(bootstrap: str, source: str, target: str, group: str, name: str, protocol: str) -> None:
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "group.protocol": protocol,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "debug": "topic,fetch,cgrp",  # where it reads, and why there: some 300 KB that explain a failure
    }
    if protocol == "classic":
        settings |= {"group.instance.id": name, "session.timeout.ms": 6000, "heartbeat.interval.ms": 500}
    consumer = Consumer(settings)
    consumer.subscribe([source], on_assign=lambda _consumer, _partitions: print("began", flush=True))
    while True:
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": name,
                "transaction.timeout.ms": 20_000,
                "retry.backoff.max.ms": 200,
            }
        )
        try:
            producer.init_transactions(30)
            while True:
                faulthandler.dump_traceback_later(PATIENCE_SECONDS, exit=True)
                messages = consumer.consume(50, 0.2)
                if messages:
                    one_transaction(consumer, producer, messages, target)
        except KafkaException as error:
            print(f"restarts after {error}", file=sys.stderr, flush=True)
            if not error.args[0].txn_requires_abort() and not error.args[0].fatal():
                raise
            if error.args[0].txn_requires_abort():
                producer.abort_transaction(30)
            rewind(consumer)


def one_transaction(consumer: Consumer, producer: Producer, messages: list[Any], target: str) -> None:
    producer.begin_transaction()
    for message in messages:
        if message.error() is not None:
            raise KafkaException(message.error())
        producer.produce(target, b"did " + message.value(), message.key(), partition=message.partition())
    # Not `position`: after a seek to an earlier place it stays where it was until `consume` has come back there.
    read = {message.partition(): message.offset() + 1 for message in messages}
    offsets = [TopicPartition(messages[0].topic(), partition, offset) for partition, offset in read.items()]
    producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 30)
    producer.commit_transaction(30)


def rewind(consumer: Consumer) -> None:
    """Seeks back to the committed offsets, to read aborted records again."""
    for partition in consumer.committed(consumer.assignment(), 30):
        if partition.error is not None:
            raise KafkaException(partition.error)
        partition.offset = max(partition.offset, 0)
        consumer.seek(partition)


if __name__ == "__main__":
    main(*sys.argv[1:])
