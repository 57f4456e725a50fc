"""Records that were accepted before the partitions of their topic were known: each topic has a queue of them.

Later records of the topic join the end of the queue, so that records keep their order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from barnabas.client.producer.future import FutureRecordMetadata, NewLatch, ProduceRequestResult
from barnabas.client.producer.record_accumulator import record_bytes_bound
from barnabas.protocol.records.layout import Fields


@dataclass(slots=True)
class UnplacedRecord:
    topic: str
    partition: int | None
    """None: the partitioner chooses."""
    record: Fields
    future: FutureRecordMetadata
    result: ProduceRequestResult
    reserved_bytes: int
    deadline_ms: int

    def fail(self, error: Exception) -> None:
        """The record was never sent."""
        if not self.result.done:
            self.result.error = error
            self.result.set()
            self.future.complete()

    def placed(self, following: FutureRecordMetadata) -> None:
        """The record is in a batch, whose future it follows."""
        following.callback, self.future.callback = self.future.callback, None
        self.future.chain(following)
        self.result.set()


Line = deque[UnplacedRecord]
Place = Callable[[UnplacedRecord], Awaitable[None]]


class UnplacedRecords:
    """The queues of one producer."""

    def __init__(self, new_latch: NewLatch, on_failed: Callable[[Exception], None]) -> None:
        """`on_failed` is called for each record that found no partition."""
        self._new_latch = new_latch
        self._on_failed = on_failed
        self._lines: dict[str, Line] = {}

    def has_line(self, topic: str) -> bool:
        return topic in self._lines

    @property
    def all(self) -> list[UnplacedRecord]:
        return [unplaced for line in self._lines.values() for unplaced in line]

    def add(
        self, topic: str, partition: int | None, record: Fields, deadline_ms: int
    ) -> tuple[UnplacedRecord, Line | None]:
        """(the record, its queue if that is new: then the caller has to start `serve` for it)."""
        result = ProduceRequestResult(topic, -1 if partition is None else partition, self._new_latch)
        _, timestamp, key, value, _ = record
        sizes = (-1 if key is None else len(key), -1 if value is None else len(value))
        future = FutureRecordMetadata(result, 0, timestamp, sizes)
        reserved_bytes = record_bytes_bound(record)
        unplaced = UnplacedRecord(topic, partition, record, future, result, reserved_bytes, deadline_ms)
        line = self._lines.get(topic)
        if line is not None:
            line.append(unplaced)
            return unplaced, None
        line = self._lines[topic] = deque((unplaced,))
        return unplaced, line

    async def serve(self, topic: str, line: Line, place: Place) -> None:
        """Place one record after the other, until the queue is empty. An error of `place` fails that record only."""
        while line:
            unplaced = line[0]
            try:
                await place(unplaced)
            except Exception as error:  # the future of this record gets it
                if not unplaced.result.done:
                    unplaced.fail(error)
                    self._on_failed(error)
            line.popleft()
        if self._lines.get(topic) is line:
            del self._lines[topic]

    def abort(self, error: Exception) -> list[UnplacedRecord]:
        """Fail all of them."""
        aborted, self._lines = self.all, {}
        for unplaced in aborted:
            unplaced.fail(error)
        return aborted
