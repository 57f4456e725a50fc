"""One batch from its first record to its end. A core.

A batch ends once: as SUCCEEDED, FAILED or ABORTED, and then its futures are told, once and in their order. A failure
may be followed by a success that came too late; after a success nothing may come.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from barnabas.client.errors import IllegalStateException
from barnabas.client.metadata import TopicPartition
from barnabas.client.producer.future import FutureRecordMetadata, NewLatch, ProduceRequestResult
from barnabas.client.producer.memory_records_builder import NO_PRODUCER, MemoryRecordsBuilder, ProducerId
from protocol.records.batch import add_to_sequence
from protocol.records.layout import Fields

NO_SEQUENCE = -1


class FinalState(Enum):
    ABORTED = "aborted"
    FAILED = "failed"
    SUCCEEDED = "succeeded"


class ProducerBatch:
    """Records that share a fate."""

    __slots__ = (
        "_builder",
        "_new_latch",
        "allocated_bytes",
        "attempts",
        "base_sequence",
        "created_ms",
        "drained_ms",
        "encoded",
        "final_state",
        "futures",
        "in_flight",
        "last_error",
        "maybe_written",
        "ordinal",
        "partition",
        "producer",
        "result",
        "sent_as_first",
    )

    def __init__(
        self, partition: TopicPartition, builder: MemoryRecordsBuilder, created_ms: int, new_latch: NewLatch
    ) -> None:
        self.partition = partition
        self.created_ms = created_ms
        self.result = ProduceRequestResult(partition.topic, partition.partition, new_latch)
        self.futures: list[FutureRecordMetadata] = []
        self.final_state: FinalState | None = None
        self.allocated_bytes = 0
        """Of the pool; given back when the batch ends."""
        self.encoded = b""
        self.producer = NO_PRODUCER
        self.base_sequence = NO_SEQUENCE
        self.ordinal = -1
        """Counts the batches of a partition that got a sequence."""
        self.attempts = 0
        self.drained_ms = -1
        self.in_flight = False
        self.sent_as_first = False
        """No earlier batch was undecided when it was last sent, so a refused sequence is not that one's fault."""
        self.maybe_written = False
        """An attempt ended without a clear answer."""
        self.last_error: Exception | None = None
        self._builder = builder
        self._new_latch = new_latch

    def __repr__(self) -> str:
        return f"<batch of {self.record_count} for {self.partition}>"

    @property
    def record_count(self) -> int:
        return len(self.futures)

    @property
    def records(self) -> list[Fields]:
        return self._builder.records

    @property
    def is_full(self) -> bool:
        return self._builder.is_full

    @property
    def is_done(self) -> bool:
        return self.final_state is not None

    @property
    def size_bytes(self) -> int:
        """Of the batch as it is sent; estimated until it is closed."""
        return len(self.encoded) or self._builder.estimated_bytes

    @property
    def uncompressed_bytes(self) -> int:
        """Of its records."""
        return self._builder.uncompressed_bytes

    @property
    def compression_ratio(self) -> float:
        """1.0 is no saving. Only of a closed batch."""
        return self._builder.compression_ratio(len(self.encoded))

    def try_append(self, record: Fields) -> tuple[FutureRecordMetadata, int] | None:
        """(what becomes of it, bytes it added); None if there is no room, and then there will never be."""
        added_bytes = self._builder.try_append(record)
        if not added_bytes:
            self._builder.close_for_record_appends()
            return None
        _, timestamp, key, value, _ = record
        futures = self.futures
        sizes = (-1 if key is None else len(key), -1 if value is None else len(value))
        future = FutureRecordMetadata(self.result, len(futures), timestamp, sizes)
        futures.append(future)
        return future, added_bytes

    def close(self, producer: ProducerId, base_sequence: int) -> None:
        """No more records. It may be closed again with another producer id and sequence, as long as it was not
        written."""
        self.producer = producer
        self.base_sequence = base_sequence
        self.encoded = self._builder.build(producer, base_sequence)

    def reopen(self) -> None:
        """It has no sequence any more; its records stay."""
        self.producer = NO_PRODUCER
        self.base_sequence = self.ordinal = NO_SEQUENCE
        self.encoded = b""

    # ---- the end

    def complete(self, base_offset: int, log_append_time_ms: int) -> bool:
        """The broker has it. False if it had ended already, as a failure; IllegalStateException after a success."""
        return self._done(FinalState.SUCCEEDED, base_offset, log_append_time_ms)

    def complete_exceptionally(
        self, error: Exception, record_errors: Mapping[int, Exception] | None = None, *, maybe_written: bool = False
    ) -> bool:
        """It failed, for all its records or, by their place, for some in a way of their own."""
        if self.final_state is None:
            self.result.error = error
            self.result.record_errors = dict(record_errors or {})
            self.result.maybe_written = maybe_written
        return self._done(FinalState.FAILED)

    def abort(self, error: Exception, *, maybe_written: bool = False) -> bool:
        """Nobody will send it any more."""
        if self.final_state is None:
            self.result.error = error
            self.result.maybe_written = maybe_written
        return self._done(FinalState.ABORTED)

    def _done(self, state: FinalState, base_offset: int = -1, log_append_time_ms: int = -1) -> bool:
        if self.final_state is FinalState.SUCCEEDED:
            raise IllegalStateException(f"{self!r} succeeded, and cannot become {state.value}")
        if self.final_state is not None:
            return False
        self.final_state = state
        result = self.result
        result.base_offset = base_offset
        result.log_append_time_ms = log_append_time_ms
        result.set()
        for future in self.futures:
            future.complete()
        return True

    # ---- too large

    def split(self, parts: list[MemoryRecordsBuilder]) -> list[ProducerBatch]:
        """The same records in the batches that `parts` hold already; its futures go on as theirs. What was numbered
        stays numbered: each part has the sequence that its first record had."""
        batches, sequence, place = [], self.base_sequence, 0
        for builder in parts:
            batch = ProducerBatch(self.partition, builder, self.created_ms, self._new_latch)
            batch.attempts = self.attempts
            for record in builder.records:
                old = self.futures[place]
                future = FutureRecordMetadata(batch.result, len(batch.futures), record[1], old.sizes)
                future.callback, old.callback = old.callback, None
                old.chain(future)
                batch.futures.append(future)
                place += 1
            batch.close(self.producer, sequence)
            if sequence != NO_SEQUENCE:
                sequence = add_to_sequence(sequence, len(builder.records))
            self.result.parts.append(batch.result)
            batches.append(batch)
        assert place == len(self.futures), "every record is in one part"
        self.final_state = FinalState.ABORTED
        self.result.set()
        return batches
