"""Wrong: commits the offsets of records before it has worked on them. What it holds when it is killed is lost."""

from __future__ import annotations

import os
import time

from confluent_kafka import Consumer, Producer

SERVERS = os.environ["BOOTSTRAP_SERVERS"]


def main() -> None:
    producer = Producer({"bootstrap.servers": SERVERS})
    consumer = Consumer(
        {
            "bootstrap.servers": SERVERS,
            "group.id": os.environ["GROUP_ID"],
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([os.environ["INPUT_TOPIC"]])
    while True:
        records = [record for record in consumer.consume(20, 0.2) if record.error() is None]
        if not records:
            continue
        consumer.commit(asynchronous=False)
        for record in records:
            time.sleep(0.01)  # the work
            producer.produce(os.environ["OUTPUT_TOPIC"], record.value(), record.key())
        producer.flush()


if __name__ == "__main__":
    main()
