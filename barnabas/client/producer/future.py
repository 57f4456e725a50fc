"""Core: the future of a record, and the result that all records of a batch share.

Only `await` needs an event loop; it gets its latches from the caller. If a batch was too large it is split, and its
futures follow the parts.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Protocol

from barnabas.client.errors import IllegalStateException
from barnabas.client.producer.record_metadata import Acked, Failed, Outcome, RecordMetadata, Unknown

OnCompletion = Callable[[RecordMetadata, Exception | None], None]
"""Called when a record is acknowledged or has failed, in the order of the records."""


class Latch(Protocol):
    """An event that is set once; `trio.Event` is one."""

    def set(self) -> None: ...
    async def wait(self) -> None: ...


NewLatch = Callable[[], Latch]


class ProduceRequestResult:
    """The result of one batch, which all of its records share."""

    __slots__ = (
        "_latch",
        "_new_latch",
        "base_offset",
        "done",
        "error",
        "log_append_time_ms",
        "maybe_written",
        "partition",
        "parts",
        "record_errors",
        "topic",
    )

    def __init__(self, topic: str, partition: int, new_latch: NewLatch) -> None:
        self.topic = topic
        self.partition = partition
        self.done = False
        self.base_offset = -1
        self.log_append_time_ms = -1
        self.error: Exception | None = None
        self.record_errors: dict[int, Exception] = {}
        """Errors of single records by their index in the batch, where the broker reported them."""
        self.maybe_written = False
        """The batch failed, and may be in the log nevertheless."""
        self.parts: list[ProduceRequestResult] = []
        """The batches that this one was split into."""
        self._new_latch = new_latch
        self._latch: Latch | None = None

    def set(self) -> None:
        """The batch has ended: wake all waiting callers."""
        self.done = True
        if self._latch is not None:
            self._latch.set()

    async def wait(self) -> None:
        """Wait until the batch has ended, not counting the parts that it was split into."""
        if not self.done:
            if self._latch is None:
                self._latch = self._new_latch()
            await self._latch.wait()

    async def wait_for_all(self) -> None:
        """Wait until the batch has ended, and all parts that it was split into."""
        waiting = [self]
        while waiting:
            result = waiting.pop()
            await result.wait()
            waiting += result.parts

    def error_of(self, index: int) -> Exception | None:
        return self.record_errors.get(index, self.error) if self.record_errors else self.error


class FutureRecordMetadata:
    """The outcome of one record. `await` returns its `RecordMetadata`, or raises the reason why it has none.

    Waiting may be cancelled at any time: the record is still sent, and may be waited for again, by several tasks too.
    """

    __slots__ = ("_index", "_key_size", "_next", "_result", "_timestamp", "_value_size", "callback")

    def __init__(self, result: ProduceRequestResult, index: int, timestamp: int, sizes: tuple[int, int]) -> None:
        self._result = result
        self._index = index
        self._timestamp = timestamp
        self._key_size, self._value_size = sizes
        self._next: FutureRecordMetadata | None = None
        self.callback: OnCompletion | None = None

    @property
    def done(self) -> bool:
        """Whether the outcome is known."""
        return self._last._result.done

    @property
    def topic(self) -> str:
        return self._result.topic

    @property
    def partition(self) -> int:
        """-1 until one is chosen."""
        return self._last._result.partition

    @property
    def maybe_written(self) -> bool:
        """The record failed, and may be in the log nevertheless: the response was lost, or came too late."""
        return self._last._result.maybe_written

    def exception(self) -> Exception | None:
        """The reason of the failure; None if it was delivered, or is not `done`."""
        last = self._last
        return last._result.error_of(last._index) if last._result.done else None

    def result(self) -> RecordMetadata:
        """Topic, partition and offset. Raises the reason of a failure, and IllegalStateException if it is not done."""
        if not self.done:
            raise IllegalStateException("the record is not acknowledged yet: wait for its future first")
        error = self.exception()
        if error is not None:
            raise error
        return self.metadata()

    def __await__(self) -> Generator[Any, Any, RecordMetadata]:
        yield from self._settled().__await__()
        return self.result()

    async def outcome(self) -> Outcome:
        """Acked, Failed or Unknown: whether the record is in the log. Raises nothing."""
        await self._settled()
        error = self.exception()
        if error is None:
            metadata = self.metadata()
            return Acked(metadata.partition, metadata.offset, metadata.timestamp_ms)
        return Unknown(error) if self.maybe_written else Failed(error)

    def metadata(self) -> RecordMetadata:
        """The metadata known so far: without an offset if it was not delivered."""
        last = self._last
        result = last._result
        base_offset, append_time = result.base_offset, result.log_append_time_ms
        return RecordMetadata(
            result.topic,
            result.partition,
            base_offset + last._index if base_offset >= 0 else -1,
            append_time if append_time >= 0 else last._timestamp,
            last._key_size,
            last._value_size,
        )

    def chain(self, following: FutureRecordMetadata) -> None:
        """Follow another future: the batch was split, or an unplaced record got into a batch."""
        self._next = following

    def add_callback(self, notify: Callable[[], object]) -> None:
        """Call `notify` when the record is done, after the callback that is set already. It must not wait."""
        before = self.callback

        def both(metadata: RecordMetadata, error: Exception | None) -> None:
            try:
                if before is not None:
                    before(metadata, error)
            finally:
                notify()

        self.callback = both

    def complete(self) -> None:
        """Run the callback; the batch has ended."""
        if self.callback is not None:
            self.callback(self.metadata(), self.exception())

    @property
    def sizes(self) -> tuple[int, int]:
        return self._key_size, self._value_size

    @property
    def _last(self) -> FutureRecordMetadata:
        future = self
        while future._next is not None:
            future = future._next
        return future

    async def _settled(self) -> None:
        future: FutureRecordMetadata | None = self
        while future is not None:
            await future._result.wait()
            future = future._next

    def __repr__(self) -> str:
        if not self.done:
            return f"<record of {self.topic} on its way>"
        error = self.exception()
        return f"<record {self.metadata()}>" if error is None else f"<record of {self.topic}: {error}>"
