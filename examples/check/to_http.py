"""Correct for at-least-once, ordered: posts each record to OUTPUT_URL, then commits."""

from __future__ import annotations

import os
import signal
import time
from urllib.error import URLError
from urllib.request import Request, urlopen

from confluent_kafka import Consumer, KafkaException


def post(value: bytes) -> None:
    while True:
        try:
            with urlopen(Request(os.environ["OUTPUT_URL"], value, method="POST"), timeout=10):
                return
        except URLError as error:
            print(f"again: {error}", flush=True)
            time.sleep(0.2)


def main() -> None:
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: stopping.append(number))
    consumer = Consumer(
        {
            "bootstrap.servers": os.environ["BOOTSTRAP_SERVERS"],
            "group.id": os.environ["GROUP_ID"],
            "session.timeout.ms": int(os.environ["SESSION_TIMEOUT_MS"]),
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([os.environ["INPUT_TOPIC"]])
    while not stopping:
        record = consumer.poll(0.2)
        if record is None or record.error() is not None:
            continue
        post(record.value())
        try:
            consumer.commit(record, asynchronous=False)
        except KafkaException as error:
            print(f"not committed: {error}", flush=True)
    consumer.close()


if __name__ == "__main__":
    main()
