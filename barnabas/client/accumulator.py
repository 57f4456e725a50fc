"""Records on their way to one partition: batched, numbered, sent again, and told how it ended.

A core: it knows offsets, sequences and the time it is given, and neither brokers nor tasks. It promises:

- batches reach the log in the order of their records, whatever is sent again (KIP-98: a broker takes a
producer's batches in the order of their sequences only); - a record is `Failed` only if it certainly is not
in the log; whatever may be there and was not acked is `Unknown`.

When a batch is given up, the sequences after it will not be taken. The queue then goes on under a fresh
producer id, and only batches that certainly were not written may come along.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from protocol.errors import ErrorCode, KafkaError
from protocol.records.batch import BATCH_HEADER_BYTES, add_to_sequence
from protocol.records.builder import build_batch
from protocol.records.record import Record


@dataclass(frozen=True, slots=True)
class Acked:
    """The record is in the log, as durable as acks=all makes it."""

    partition: int
    offset: int
    """-1 if the broker remembers the batch, but no longer where it is."""
    timestamp: int


@dataclass(frozen=True, slots=True)
class Failed:
    """The record certainly is not in the log."""

    error: Exception


@dataclass(frozen=True, slots=True)
class Unknown:
    """The record may be in the log, now or later, or may not."""

    error: Exception


Outcome = Acked | Failed | Unknown
OnOutcome = Callable[[Outcome], None]

NEVER_APPENDED = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
"""Answers that a broker gives before it appends. After any other one the batch may be in a log that
survives: a leader may answer NOT_LEADER_OR_FOLLOWER when it loses its office while the followers already
fetch."""

SEQUENCE_BROKEN = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
"""The broker will take no batch with this producer id and sequence, and may take it with another."""


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """Names and defaults are Kafka's. acks=all and idempotence are not up for choice."""

    linger_ms: int = 5
    batch_size: int = 16_384
    compression: int = 0
    delivery_timeout_ms: int = 120_000
    request_timeout_ms: int = 30_000
    max_request_size: int = 1_048_576
    max_in_flight_requests: int = 5
    """At most 5: a broker remembers so many batches of a producer to tell repetitions by."""
    buffer_memory: int = 33_554_432
    max_block_ms: int = 60_000

    def __post_init__(self) -> None:
        if not 1 <= self.max_in_flight_requests <= 5:
            raise ValueError(f"max_in_flight_requests {self.max_in_flight_requests}: it must be 1 to 5")


@dataclass(frozen=True, slots=True)
class ProducerId:
    producer_id: int
    epoch: int


@dataclass(slots=True, eq=False)
class Batch:
    """Records that share a fate."""

    created_ms: int
    records: list[Record] = field(default_factory=list)
    on_outcome: list[OnOutcome] = field(default_factory=list)
    size_bytes: int = BATCH_HEADER_BYTES
    encoded: bytes = b""
    base_sequence: int = -1
    ordinal: int = -1
    """Counts the batches that got a sequence."""
    in_flight: bool = False
    sent_as_first: bool = False
    """No earlier batch was undecided when it was last sent, so a refused sequence is not that one's fault."""
    maybe_written: bool = False
    """An attempt ended without a clear answer."""
    last_error: Exception | None = None


class PartitionQueue:
    """The batches of one partition, from `append` to the outcome of every record."""

    def __init__(self, partition: int, settings: ProducerSettings, *, transactional: bool = False) -> None:
        self.partition = partition
        self._transactional = transactional
        self.producer: ProducerId | None = None
        """None: one is wanted before anything can be sent."""
        self.flushing = False
        self._settings = settings
        self._waiting: deque[Batch] = deque()
        """No sequence yet. The last one may still be filled."""
        self._undecided: deque[Batch] = deque()
        """Numbered one after another; sent, or to be sent again."""
        self._next_sequence = 0
        self._numbered = 0
        self._retry_at_ms = 0
        self._proven = False
        """A batch with the present producer id was acked."""
        self._broken = False
        """A sequence was given up or refused: no batch numbered after it will be taken."""

    @property
    def idle(self) -> bool:
        return not self._waiting and not self._undecided

    @property
    def in_flight(self) -> int:
        return sum(batch.in_flight for batch in self._undecided)

    def append(self, record: Record, size_bytes: int, on_outcome: OnOutcome, now_ms: int) -> bool:
        """Put a record of `size_bytes` at most into the last batch, or into a new one.

        True if the queue wants attention for it.
        """
        batch = self._waiting[-1] if self._waiting else None
        opened = batch is None or batch.size_bytes + size_bytes > self._settings.batch_size
        if batch is None or opened:
            batch = Batch(now_ms)
            self._waiting.append(batch)
        batch.records.append(record)
        batch.on_outcome.append(on_outcome)
        batch.size_bytes += size_bytes
        return opened or batch.size_bytes >= self._settings.batch_size

    def next_to_send(self, now_ms: int) -> Batch | None:
        """The batch to send now, encoded and taken to be in flight; None if there is none, or none may go."""
        if now_ms < self._retry_at_ms or not self._may_send():
            return None
        if self.in_flight < len(self._undecided):
            batch = next(batch for batch in self._undecided if not batch.in_flight)
        elif self._may_number() and self._is_ready(now_ms):
            batch = self._number(self._waiting.popleft())
            self._undecided.append(batch)
        else:
            return None
        batch.in_flight = True
        batch.sent_as_first = batch is self._undecided[0]
        return batch

    def wake_at_ms(self) -> int | None:
        """When to look again without news from outside: a linger, a retry or a delivery timeout ends then."""
        times = [
            batches[0].created_ms + self._settings.delivery_timeout_ms
            for batches in (self._undecided, self._waiting)
            if batches
        ]
        if self._may_send():
            if self.in_flight < len(self._undecided):
                times.append(self._retry_at_ms)
            elif self._may_number():
                times.append(max(self._retry_at_ms, self._waiting[0].created_ms + self._settings.linger_ms))
        return min(times, default=None)

    def acked(self, batch: Batch, base_offset: int, log_append_time_ms: int) -> None:
        """The broker has the batch."""
        batch.in_flight = False
        if batch not in self._undecided:
            return  # given up before the answer came
        self._undecided.remove(batch)
        self._proven = True
        self._settle()
        for index, (record, tell) in enumerate(zip(batch.records, batch.on_outcome, strict=True)):
            offset = base_offset + index if base_offset >= 0 else -1
            timestamp = log_append_time_ms if log_append_time_ms >= 0 else record.timestamp
            tell(Acked(self.partition, offset, timestamp))

    def refused(self, batch: Batch, error: KafkaError, now_ms: int, retry_in_ms: int) -> None:
        """The broker answered with an error."""
        batch.in_flight = False
        batch.last_error = error
        if error.code not in NEVER_APPENDED:
            batch.maybe_written = True
        if batch not in self._undecided:
            return
        if error.code in SEQUENCE_BROKEN and batch.sent_as_first:
            self._broken = True
            self._retry_at_ms = now_ms + retry_in_ms
        elif error.code in SEQUENCE_BROKEN or error.code.retriable:
            self._retry_at_ms = now_ms + retry_in_ms
        else:
            self._give_up(batch, error)
        self._settle()

    def lost(self, batch: Batch, error: Exception, retry_at_ms: int, *, sent: bool) -> None:
        """No answer. `sent` False only if the request certainly did not go."""
        batch.in_flight = False
        batch.last_error = error
        batch.maybe_written = batch.maybe_written or sent
        self._retry_at_ms = retry_at_ms
        self._settle()

    def expire(self, now_ms: int) -> None:
        """Give up batches whose delivery.timeout.ms is over."""
        cut_ms = now_ms - self._settings.delivery_timeout_ms
        while self._undecided and self._undecided[0].created_ms <= cut_ms:
            self._give_up(self._undecided[0], self._timed_out(self._undecided[0]))
        self._settle()
        while self._waiting and self._waiting[0].created_ms <= cut_ms:
            self._tell(self._waiting.popleft(), self._timed_out(None))

    def abandon(self, error: Exception) -> None:
        """Decide everything now: nobody will send any more."""
        while self._undecided:
            self._give_up(self._undecided[0], error)
        while self._waiting:
            self._tell(self._waiting.popleft(), error)

    def _may_send(self) -> bool:
        # A broker that has never heard of a producer id takes any sequence for its first. So the first batch
        # goes alone, lest the second be taken before it.
        limit = self._settings.max_in_flight_requests if self._proven else 1
        if self.producer is None or self._broken or self.in_flight >= limit:
            return False
        # After a failure those sent behind it land first; then all that is left goes again, in order.
        failed = False
        for batch in self._undecided:
            if failed and batch.in_flight:
                return False
            failed = failed or not batch.in_flight
        return True

    def _may_number(self) -> bool:
        """Whether the next batch may get its sequence: not so far from the first undecided one that the broker could
        no longer tell a repetition of that from a gap.
        """
        window = self._settings.max_in_flight_requests
        return bool(self._waiting) and (not self._undecided or self._numbered - self._undecided[0].ordinal < window)

    def _is_ready(self, now_ms: int) -> bool:
        batch = self._waiting[0]
        settings = self._settings
        return (
            self.flushing
            or len(self._waiting) > 1
            or batch.size_bytes >= settings.batch_size
            or now_ms - batch.created_ms >= settings.linger_ms
        )

    def _number(self, batch: Batch) -> Batch:
        producer = self.producer
        assert producer is not None
        batch.ordinal = self._numbered
        self._numbered += 1
        batch.base_sequence = self._next_sequence
        self._next_sequence = add_to_sequence(self._next_sequence, len(batch.records))
        batch.encoded = build_batch(
            batch.records,
            compression=self._settings.compression,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=batch.base_sequence,
            transactional=self._transactional,
        )
        return batch

    def _settle(self) -> None:
        """Once the sequence is broken and nothing is in flight, go on with a fresh producer id and sequence
        0.

        Whatever may have been taken under the old one must not be sent under the new: it would be there
        twice.
        """
        if not self._broken or self.in_flight:
            return
        self._broken = self._proven = False
        self.producer = None
        self._next_sequence = 0
        unwritten = []
        while self._undecided:
            batch = self._undecided.popleft()
            if batch.maybe_written:
                self._tell(batch, self._timed_out(batch), maybe_written=True)
            else:
                unwritten.append(batch)
        self._waiting.extendleft(reversed(unwritten))

    def _give_up(self, batch: Batch, error: Exception) -> None:
        self._undecided.remove(batch)
        self._broken = True
        self._tell(batch, error, maybe_written=batch.maybe_written or batch.in_flight)

    def _tell(self, batch: Batch, error: Exception, *, maybe_written: bool = False) -> None:
        outcome: Outcome = Unknown(error) if maybe_written else Failed(error)
        for tell in batch.on_outcome:
            tell(outcome)

    def _timed_out(self, batch: Batch | None) -> Exception:
        """The last error of the batch if it had any, as that tells more."""
        if batch is not None and batch.last_error is not None:
            return batch.last_error
        return KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"not delivered in {self._settings.delivery_timeout_ms} ms")
