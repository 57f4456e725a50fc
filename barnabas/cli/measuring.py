"""Clock, rate limit and acknowledgement timing, shared by the `barnabas perf` commands."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from barnabas.cli.session import NoAnswer, in_one_line, refusal

if TYPE_CHECKING:
    from barnabas.client.consumer import ConsumerRecord
    from barnabas.client.consumer.consumer import Consumer
    from barnabas.client.producer import FutureRecordMetadata, RecordMetadata
    from barnabas.client.shares.record import ShareRecord

POLL_MS = 100
Counted = Callable[[int, int, int], None]
"""(records, bytes, microseconds that each took)"""


def now_us() -> int:
    """Monotonic time in microseconds."""
    return time.monotonic_ns() // 1_000


def cpu_us() -> int:
    """CPU time of this process, all threads."""
    return time.process_time_ns() // 1_000


class Pace:
    """Limits the rate, measured from the first record."""

    def __init__(self, per_second: float) -> None:
        """0 or less means no limit."""
        self._per_second = per_second
        self._began_us = now_us()

    async def wait(self, number: int) -> None:
        """Sleeps until record `number` is due."""
        if self._per_second <= 0:
            return
        import trio

        ahead_us = number / self._per_second * 1e6 - (now_us() - self._began_us)
        if ahead_us > 1_000:
            await trio.sleep(ahead_us / 1e6)


class Acks:
    """Measures the time from sending each record to its acknowledgement."""

    def __init__(self, counted: Counted) -> None:
        self._counted = counted
        self._error: Exception | None = None

    def expect(self, future: FutureRecordMetadata, sent_us: int, size_bytes: int) -> None:
        """Raises `ClusterError` if an earlier record failed."""
        self.check()

        def decided(metadata: RecordMetadata, error: Exception | None) -> None:
            if error is not None:
                self._error = self._error or error
            else:
                self._counted(1, size_bytes, now_us() - sent_us)

        if future.done:
            decided(future.metadata(), future.exception())
        else:
            future.callback = decided

    def check(self) -> None:
        """Raises `ClusterError` if a record failed."""
        if self._error is not None:
            error = refusal(self._error)
            raise type(error)(f"a record was not accepted: {in_one_line(self._error)}")


async def assign_all(consumer: Consumer, topics: Sequence[str], *, at_end: bool) -> None:
    """Assigns all partitions of the topics, from the log start or from the current end."""
    from barnabas.cli.topic_check import partitions_count
    from barnabas.client.cluster import TopicPartition

    partitions = [
        TopicPartition(topic, index) for topic in topics for index in range(await partitions_count(consumer, topic))
    ]
    consumer.assign(partitions)
    starts = await (consumer.end_offsets(partitions) if at_end else consumer.beginning_offsets(partitions))
    for partition, offset in starts.items():
        consumer.seek(partition, offset)


async def until_read(consumer: Consumer, key: bytes, timeout_ms: int) -> ConsumerRecord:
    """Polls until the record with that key arrives. Raises `NoAnswer` after the timeout."""
    deadline_us = now_us() + timeout_ms * 1_000
    while now_us() < deadline_us:
        for record in await consumer.poll(timeout_ms=POLL_MS):
            if record.key == key:
                return record
    raise NoAnswer(f"a record that was acked was not read within {timeout_ms / 1000:g} s")


def parts(count: int, size: int) -> Iterator[range]:
    """Splits 0 to `count` into ranges of `size`; one range if `size` is 0."""
    step = size or count
    for first in range(0, count, step):
        yield range(first, min(first + step, count))


def size_of(record: ConsumerRecord | ShareRecord) -> int:
    """Size of key and value in bytes."""
    return len(record.key or b"") + len(record.value or b"")
