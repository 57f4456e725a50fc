"""Wrong: a pool of workers, and offsets that are committed by time. What waits in the pool is committed already."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka import Consumer, Message, Producer

SERVERS = os.environ["BOOTSTRAP_SERVERS"]


def main() -> None:
    producer = Producer({"bootstrap.servers": SERVERS})
    consumer = Consumer(
        {
            "bootstrap.servers": SERVERS,
            "group.id": os.environ["GROUP_ID"],
            "auto.offset.reset": "earliest",
            "enable.auto.commit": True,
            "auto.commit.interval.ms": 1000,
        }
    )

    def work(record: Message) -> None:
        time.sleep(0.05)
        producer.produce(os.environ["OUTPUT_TOPIC"], record.value(), record.key())
        producer.poll(0)

    consumer.subscribe([os.environ["INPUT_TOPIC"]])
    with ThreadPoolExecutor(4) as pool:
        while True:
            record = consumer.poll(0.2)
            if record is not None and record.error() is None:
                pool.submit(work, record)


if __name__ == "__main__":
    main()
