"""Writes records from its input with confluent-kafka: `write.py SETTINGS`.

Each line that comes in is JSON, `[TOPIC, PARTITION, VALUE]`; each that goes out `[VALUE, OFFSET, ERROR]`, the offset -1
if librdkafka knows only that the record is there. At the end of its input it waits for all that is under way, and ends.
"""

from __future__ import annotations

import json
import queue
import sys
import threading
from functools import partial
from typing import Any

from confluent_kafka import Producer

POLL_SECONDS = 0.005
FLUSH_SECONDS = 300


def main(settings: str) -> None:
    producer = Producer(json.loads(settings))
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=read, args=(lines,), daemon=True).start()
    while True:
        try:
            line = lines.get_nowait()
        except queue.Empty:
            producer.poll(POLL_SECONDS)
            continue
        if not line:
            break
        topic, partition, value = json.loads(line)
        producer.produce(topic, value, partition=partition, on_delivery=partial(delivered, value))
    producer.flush(FLUSH_SECONDS)


def read(lines: queue.SimpleQueue[str]) -> None:
    for line in sys.stdin:
        lines.put(line)
    lines.put("")


def delivered(value: str, error: Any, message: Any) -> None:
    print(json.dumps([value, max(-1, message.offset()), None if error is None else str(error)]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
