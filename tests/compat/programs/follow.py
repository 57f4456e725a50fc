"""Reads partitions with confluent-kafka while they are written: `follow.py SETTINGS TOPIC OFFSETS`.

OFFSETS is JSON, where to begin in each partition: `{"0": 17}`. Each line that goes out is JSON, too,
`[PARTITION, OFFSET, VALUE]`. Runs until its input ends.
"""

from __future__ import annotations

import json
import os
import sys
import threading

from confluent_kafka import Consumer, TopicPartition


def main(settings: str, topic: str, offsets: str) -> None:
    threading.Thread(target=end_with_input, daemon=True).start()
    consumer = Consumer(json.loads(settings))
    begin = json.loads(offsets)
    consumer.assign([TopicPartition(topic, int(partition), offset) for partition, offset in begin.items()])
    while True:
        for message in consumer.consume(500, 0.05):
            error = message.error()
            if error is None:
                print(json.dumps([message.partition(), message.offset(), message.value().decode()]), flush=True)
            elif not error.retriable():
                raise RuntimeError(str(error))


def end_with_input() -> None:
    """At once: nothing is committed, and to close might never come to an end."""
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
