"""Core: one batch from its first record to its end.

A batch ends once: as SUCCEEDED, FAILED or ABORTED; its futures are then completed, once and in order. A late success
may follow a failure; nothing may follow a success.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from barnabas.client.errors import IllegalStateException
from barnabas.client.metadata import TopicPartition
from barnabas.client.producer.future import FutureRecordMetadata, NewLatch, ProduceRequestResult
from barnabas.client.producer.memory_records_builder import NO_PRODUCER, MemoryRecordsBuilder, ProducerId
from barnabas.protocol.records.batch import add_to_sequence
from barnabas.protocol.records.layout import Fields

NO_SEQUENCE = -1


class FinalState(Enum):
    ABORTED = "aborted"
    FAILED = "failed"
    SUCCEEDED = "succeeded"


class ProducerBatch:
    """Records that are sent, and succeed or fail, together."""

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
        """Bytes taken from the pool; returned when the batch ends."""
        self.encoded = b""
        self.producer = NO_PRODUCER
        self.base_sequence = NO_SEQUENCE
        self.ordinal = -1
        """Number of the batch among those of the partition that got a sequence."""
        self.attempts = 0
        self.drained_ms = -1
        self.in_flight = False
        self.sent_as_first = False
        """No earlier batch was undecided when it was last sent, so no earlier one can have caused a refused
        sequence."""
        self.maybe_written = False
        """An attempt ended without a clear response."""
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
        """Size of the batch as it is sent; an estimate until it is closed."""
        return len(self.encoded) or self._builder.estimated_bytes

    @property
    def uncompressed_bytes(self) -> int:
        """Size of its records."""
        return self._builder.uncompressed_bytes

    @property
    def compression_ratio(self) -> float:
        """1.0 means that nothing was saved. Only for a closed batch."""
        return self._builder.compression_ratio(len(self.encoded))

    def try_append(self, record: Fields) -> tuple[FutureRecordMetadata, int] | None:
        """(future, bytes added); None if there is no room, and then there will never be."""
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
        """Accept no more records and encode them. It may be closed again with another producer id and sequence, as long
        as it was not written."""
        self.producer = producer
        self.base_sequence = base_sequence
        self.encoded = self._builder.build(producer, base_sequence)

    def reopen(self) -> None:
        """Drop its sequence; its records stay."""
        self.producer = NO_PRODUCER
        self.base_sequence = self.ordinal = NO_SEQUENCE
        self.encoded = b""

    # ---- the end

    def complete(self, base_offset: int, log_append_time_ms: int) -> bool:
        """The broker has it. False if it had failed already; IllegalStateException after a success."""
        return self._done(FinalState.SUCCEEDED, base_offset, log_append_time_ms)

    def complete_exceptionally(
        self, error: Exception, record_errors: Mapping[int, Exception] | None = None, *, maybe_written: bool = False
    ) -> bool:
        """It failed: for all of its records with `error`, except those with their own entry in `record_errors`."""
        if self.final_state is None:
            self.result.error = error
            self.result.record_errors = dict(record_errors or {})
            self.result.maybe_written = maybe_written
        return self._done(FinalState.FAILED)

    def abort(self, error: Exception, *, maybe_written: bool = False) -> bool:
        """It will never be sent again."""
        if self.final_state is None:
            self.result.error = error
            self.result.maybe_written = maybe_written
        return self._done(FinalState.ABORTED)

    def _done(self, state: FinalState, base_offset: int = -1, log_append_time_ms: int = -1) -> bool:
        if self.final_state is FinalState.SUCCEEDED:
            raise IllegalStateException(f"{self!r} has succeeded and cannot become {state.value}")
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
        """Move its records into the batches that `parts` already hold; its futures follow them. Sequences are kept:
        each part has the sequence that its first record had."""
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
