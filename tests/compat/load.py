"""Writers that never stop, one client library and one partition each; librdkafka's is in `librdkafka.py`.

Each runs in a thread of its own and keeps its acknowledgements, for `history.py` to compare.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

OUTAGE_SECONDS = 300
"""How long a writer goes on trying to get one record through: longer than anything a test does."""
REQUEST_TIMEOUT_MS = 3_000
"""How long it takes a client to give up on a node that is silent."""
METADATA_AGE_MS = 1_000


UNKNOWN_OFFSET = -1


class Ack(NamedTuple):
    """A record that a client saw acknowledged."""

    offset: int
    """UNKNOWN_OFFSET if the client knows only that the record was written. librdkafka infers that if the response to an
    earlier batch is late and that to a later one of the same sequence is not.
    """
    value: str
    sent_at: float
    acked_at: float
    """Monotonic seconds, both."""


class Stored(NamedTuple):
    """A record that a client was given."""

    partition: int
    offset: int
    value: str


class Writer(threading.Thread, ABC):
    """Writes `PARTITION:NUMBER` with numbers that grow, acks=all, until it is stopped."""

    client: str

    def __init__(self, bootstrap: str, topic: str, partition: int, records_per_second: int) -> None:
        super().__init__(name=f"writer of {topic}-{partition}", daemon=True)
        self.bootstrap = bootstrap
        self.topic = topic
        self.partition = partition
        self.acks: list[Ack] = []
        """Acknowledgements in the order of their arrival."""
        self.failures: list[str] = []
        """Records that were given up, or what ended this thread."""
        self.unsure: set[str] = set()
        """Values in flight when a client was restarted: they may be in the log or not."""
        self.revivals: list[str] = []
        """Reasons of its restarts."""
        self.sent = 0
        self._pause_seconds = 1 / records_per_second
        self.stopped = threading.Event()

    def run(self) -> None:
        try:
            self.write_until_stopped()
        except Exception as error:
            self.failures.append(f"the writer ended: {error!r}")

    def stop(self) -> None:
        """Returns when the fate of every record is known."""
        self.stopped.set()
        self.join(OUTAGE_SECONDS)

    def next_value(self) -> str:
        self.sent += 1
        return f"{self.partition}:{self.sent}"

    def acked(self, value: str, sent_at: float, offset: int) -> None:
        self.acks.append(Ack(offset, value, sent_at, time.monotonic()))

    def failed(self, value: str, error: object) -> None:
        self.failures.append(f"{value}: {error!r}")

    def has_ack_of(self, since: float) -> bool:
        """Whether a record sent after that moment is safe."""
        return bool(self.acks) and self.acks[-1].sent_at > since

    def longest_gap(self, since: float) -> float:
        """The longest time without an ack from that moment on, in seconds."""
        times = [since, *(ack.acked_at for ack in reversed_until(self.acks, since))]
        times.sort()
        return max((later - earlier for earlier, later in itertools.pairwise(times)), default=0.0)

    def how_it_is(self) -> str:
        """For a test that waits in vain."""
        last = (
            f"the last of {len(self.acks)} acks is {time.monotonic() - self.acks[-1].acked_at:.1f} s old"
            if self.acks
            else "no acks"
        )
        return f"sent {self.sent}, {last}, {'running' if self.is_alive() else 'ended'}, failures {self.failures[-3:]}"

    @abstractmethod
    def write_until_stopped(self) -> None: ...


def reversed_until(acks: list[Ack], since: float) -> list[Ack]:
    """The acks that came after that moment."""
    place = len(acks)
    while place and acks[place - 1].acked_at > since:
        place -= 1
    return acks[place:]


def kafka_python_producer(bootstrap: str) -> Any:
    """kafka-python's producer, for a cluster whose nodes fail."""
    from kafka import KafkaProducer

    return KafkaProducer(
        bootstrap_servers=bootstrap.split(","),
        enable_idempotence=True,
        acks="all",
        delivery_timeout_ms=OUTAGE_SECONDS * 1000,
        max_block_ms=OUTAGE_SECONDS * 1000,
        request_timeout_ms=REQUEST_TIMEOUT_MS,
        reconnect_backoff_max_ms=500,
        metadata_max_age_ms=METADATA_AGE_MS,
    )


class KafkaPythonWriter(Writer):
    client = "kafka-python"

    def write_until_stopped(self) -> None:
        producer = kafka_python_producer(self.bootstrap)
        try:
            while not self.stopped.is_set():
                value, sent_at = self.next_value(), time.monotonic()

                def delivered(metadata: Any, value: str = value, sent_at: float = sent_at) -> None:
                    self.acked(value, sent_at, metadata.offset)

                def refused(error: Any, value: str = value) -> None:
                    self.failed(value, error)

                future = producer.send(self.topic, value.encode(), partition=self.partition)
                future.add_callback(delivered).add_errback(refused)
                time.sleep(self._pause_seconds)
            producer.flush(OUTAGE_SECONDS)
        finally:
            producer.close(10)


class AioKafkaWriter(Writer):
    client = "aiokafka"

    def write_until_stopped(self) -> None:
        asyncio.run(self._write())

    async def _write(self) -> None:
        from aiokafka import AIOKafkaProducer

        # One number for the patience with a node and with a record: there is no second one in this library.
        producer = AIOKafkaProducer(
            bootstrap_servers=self.bootstrap,
            enable_idempotence=True,
            acks="all",
            request_timeout_ms=60_000,
            metadata_max_age_ms=METADATA_AGE_MS,
        )
        async with producer, asyncio.TaskGroup() as group:
            while not self.stopped.is_set():
                value, sent_at = self.next_value(), time.monotonic()
                ack = await producer.send(self.topic, value.encode(), partition=self.partition)
                group.create_task(self._await_ack(ack, value, sent_at))
                await asyncio.sleep(self._pause_seconds)

    async def _await_ack(self, ack: Any, value: str, sent_at: float) -> None:
        try:
            self.acked(value, sent_at, (await ack).offset)
        except Exception as error:
            self.failed(value, error)
