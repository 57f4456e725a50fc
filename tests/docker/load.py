"""Numbered records, produced through librdkafka during faults, and checked against the log."""

from __future__ import annotations

import threading
import time
from itertools import pairwise

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

RECORDS_PER_SECOND = 200
_DELIVERY_SECONDS = 240.0


class Load:
    """Produces to partition 0 of a topic inside the `with` block; at its end every record has an outcome."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._topic = topic
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self._answered_at: list[float] = []
        self.acked: dict[int, int] = {}
        """Offsets of acked records by number."""
        self.unknown: list[int] = []
        """Records without an ack, which may or may not be in the log."""

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def run_for(self, seconds: float) -> None:
        self._thread.join(seconds)
        assert self._thread.is_alive(), "the load ended by itself"

    def wait_for_acks(self, count: int, timeout_seconds: float) -> None:
        """Waits for so many more acks."""
        wanted = len(self._answered_at) + count
        ends_at = time.monotonic() + timeout_seconds
        while len(self._answered_at) < wanted:
            assert time.monotonic() < ends_at, (
                f"{len(self._answered_at)} acks after {timeout_seconds:.0f} s, not {wanted}"
            )
            self.run_for(0.1)

    def longest_gap(self) -> float:
        """The longest time without an ack, in seconds; valid after the block."""
        return max(later - earlier for earlier, later in pairwise(self._answered_at))

    def _write(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap_servers,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 0,
                "delivery.timeout.ms": int(_DELIVERY_SECONDS * 1000),
                # A paused broker does not answer; a short timeout moves on to another one.
                "socket.timeout.ms": 3000,
                "retry.backoff.ms": 50,
                "retry.backoff.max.ms": 200,
                "reconnect.backoff.ms": 50,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        number = 0
        while not self._stop.is_set():
            producer.produce(self._topic, b"%d" % number, partition=0, on_delivery=self._answered)
            number += 1
            producer.poll(1 / RECORDS_PER_SECOND)
        producer.flush(_DELIVERY_SECONDS + 5)

    def _answered(self, error: KafkaError | None, record: Message) -> None:
        number = int(record.value())
        if error is not None:
            self.unknown.append(number)
            return
        self.acked[number] = record.offset()
        self._answered_at.append(time.monotonic())

    def losses(self) -> list[str]:
        """Violations of the acks: lost, moved, duplicated or reordered records."""
        there = read_all(self._bootstrap_servers, self._topic)
        numbers = [int(value) for value in there.values()]
        found = [f"{number} is not at {at}" for number, at in self.acked.items() if there.get(at) != b"%d" % number]
        return found + [f"{later} comes after {earlier}" for earlier, later in pairwise(numbers) if later <= earlier]


def read_all(bootstrap_servers: str, topic: str, timeout_seconds: float = 120.0) -> dict[int, bytes]:
    """Values of partition 0 by offset, up to the current end."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "unused", "enable.auto.commit": False})
    try:
        partition = TopicPartition(topic, 0, 0)
        _, end = consumer.get_watermark_offsets(partition, timeout=timeout_seconds)
        consumer.assign([partition])
        values: dict[int, bytes] = {}
        ends_at = time.monotonic() + timeout_seconds
        while max(values, default=-1) < end - 1:
            assert time.monotonic() < ends_at, f"{topic}: read up to {max(values, default=-1)} of {end}"
            for record in consumer.consume(1000, timeout=0.5):
                assert record.error() is None, record.error()
                values[record.offset()] = record.value()
        return values
    finally:
        consumer.close()
