"""Records that were taken on before anybody knew the partitions of their topic: they wait in a line of their topic.

Whoever comes later goes to the end of the line, so that records keep their order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from barnabas.client.producer.future import FutureRecordMetadata, NewLatch, ProduceRequestResult
from barnabas.client.producer.record_accumulator import record_bytes_bound
from protocol.records.layout import Fields


@dataclass(slots=True)
class UnplacedRecord:
    """One of them."""

    topic: str
    partition: int | None
    """None: the partitioner will choose."""
    record: Fields
    future: FutureRecordMetadata
    result: ProduceRequestResult
    reserved_bytes: int
    deadline_ms: int

    def fail(self, error: Exception) -> None:
        """It was never sent."""
        if not self.result.done:
            self.result.error = error
            self.result.set()
            self.future.complete()

    def placed(self, following: FutureRecordMetadata) -> None:
        """It is in a batch, and ends as that does."""
        following.callback, self.future.callback = self.future.callback, None
        self.future.chain(following)
        self.result.set()


Line = deque[UnplacedRecord]
Place = Callable[[UnplacedRecord], Awaitable[None]]


class UnplacedRecords:
    """The lines of one producer."""

    def __init__(self, new_latch: NewLatch, on_failed: Callable[[Exception], None]) -> None:
        """`on_failed` hears of each that found no place."""
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
        """(the record in its line, the line if that begins with it: then somebody has to `serve` it)."""
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
        """Place one after the other, until nobody is left. What `place` raises is the end of one record."""
        while line:
            unplaced = line[0]
            try:
                await place(unplaced)
            except Exception as error:  # the record's future tells it; those behind it are placed all the same
                if not unplaced.result.done:
                    unplaced.fail(error)
                    self._on_failed(error)
            line.popleft()
        if self._lines.get(topic) is line:
            del self._lines[topic]

    def abort(self, error: Exception) -> list[UnplacedRecord]:
        """None of them will be sent."""
        aborted, self._lines = self.all, {}
        for unplaced in aborted:
            unplaced.fail(error)
        return aborted
