"""Reads position reports and keeps the last of each plane: `python tracker.py BOOTSTRAP TOPIC DATABASE`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from protocol.position import Position
from storage.positions import Positions


def track(bootstrap_servers: str, topic: str, positions: Positions, enough: Callable[[], bool]) -> None:
    """Reads on from where `positions` ends, until there is `enough`."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "unused", "enable.auto.commit": False})
    try:
        partitions = sorted(consumer.list_topics(topic, 10).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, each, positions.next_offset(each)) for each in partitions])
        while not enough():
            message = consumer.poll(0.1)
            if message is None or message.error():
                continue
            plane, position = message.key().decode(), Position.decode(message.value())
            positions.take(plane, position, message.partition(), message.offset())
    finally:
        consumer.close()


if __name__ == "__main__":
    track(sys.argv[1], sys.argv[2], Positions(Path(sys.argv[3])), lambda: False)
