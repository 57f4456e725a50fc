"""Core: the batches of one partition: numbered, sent, retried, and completed or failed.

It knows sequences and the time it is given, and neither brokers nor tasks. For an idempotent producer it guarantees:

- batches reach the log in the order of their records, despite retries (KIP-98: a broker accepts a producer's batches in
  the order of their sequences only);
- a record is reported as failed only if it certainly is not in the log; a record that may be there without an
  acknowledgement is reported so (`maybe_written`).

When a batch is given up, brokers refuse the sequences after it. The queue then goes on in a new epoch (KIP-360), or
with another producer id, and only batches that certainly were not written are sent again: Kafka's own client sends all
of them, and may write one twice.

Without idempotence nothing is numbered, and retries may duplicate or reorder records.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from barnabas.client.metadata import TopicPartition
from barnabas.client.producer.memory_records_builder import ProducerId
from barnabas.client.producer.producer_batch import NO_SEQUENCE, ProducerBatch
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.primitives import ZERO_UUID
from barnabas.protocol.records.batch import add_to_sequence

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
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.SASL_AUTHENTICATION_FAILED,
        ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        ErrorCode.ILLEGAL_SASL_STATE,
    }
)
"""Errors that a broker returns before it appends. After any other error the batch may be in a log that survives: a
leader may answer NOT_LEADER_OR_FOLLOWER when it resigns while the followers already fetch. A topic id that is unknown
after the append was deleted, and its log with it."""

ID_LOST = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING})
SEQUENCE_BROKEN = ID_LOST | {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID}
"""The broker accepts no batch with this producer id and sequence, but may in another epoch; after `ID_LOST` only with
another id."""

TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """Names and defaults are Kafka's."""

    linger_ms: int = 5
    delivery_timeout_ms: int = 120_000
    max_in_flight: int = 5
    """Batches of one partition in flight at a time; with idempotence at most 5."""
    retries: int = 2**31 - 1
    idempotent: bool = True
    first_sequence: int = 0
    """First sequence of a partition. Not a setting of Kafka: simulations reach the wrap-around sooner with another
    one."""


Split = Callable[[ProducerBatch], list[ProducerBatch]]
OnDecided = Callable[[ProducerBatch], None]


class PartitionQueue:
    """The batches of one partition, from the first record to the end."""

    def __init__(self, partition: TopicPartition, settings: QueueSettings, split: Split, on_decided: OnDecided) -> None:
        """`split` divides a batch that was too large; `on_decided` is called for every batch that has ended."""
        self.partition = partition
        self.producer: ProducerId | None = None
        """None: a producer id is needed before anything can be sent."""
        self.id_lost = False
        """A new epoch of the last producer id does not suffice."""
        self.last_producer: ProducerId | None = None
        self.turn = 0
        """Turn in which a batch was last taken: the queue that waits longest is served first."""
        self._settings = settings
        self._split = split
        self._on_decided = on_decided
        self._waiting: deque[ProducerBatch] = deque()
        """Batches without a sequence. The last one may still be filled."""
        self._undecided: deque[ProducerBatch] = deque()
        """Batches with a sequence, in order; in flight, or to be retried."""
        self._next_sequence = settings.first_sequence
        self._numbered = 0
        self._retry_at_ms = 0
        self._proven = not settings.idempotent
        """Whether a batch with the present producer id was acknowledged."""
        self._topic_id = ZERO_UUID
        self._broken = False
        """A sequence was given up or refused: no batch numbered after it will be accepted."""

    # ---- filling

    @property
    def idle(self) -> bool:
        return not self._waiting and not self._undecided

    @property
    def last(self) -> ProducerBatch | None:
        """The batch that may still be filled."""
        return self._waiting[-1] if self._waiting else None

    @property
    def size(self) -> int:
        """Number of batches that are not in flight."""
        return len(self._waiting) + len(self._undecided) - self.in_flight

    @property
    def has_unsent(self) -> bool:
        """Whether any batch is not in flight; cheaper than `size`."""
        return bool(self._waiting) or not all(batch.in_flight for batch in self._undecided)

    @property
    def in_flight(self) -> int:
        return sum(batch.in_flight for batch in self._undecided)

    @property
    def muted(self) -> bool:
        """Whether nothing may be sent now: enough is in flight, or a failure has to be resolved first."""
        return not self._may_send()

    def open(self, batch: ProducerBatch) -> None:
        """Add a batch; following records go into it."""
        self._waiting.append(batch)

    # ---- sending

    def next_to_send(self, now_ms: int, *, urgent: bool = False) -> ProducerBatch | None:
        """The batch that may be sent now, not taken yet; None if there is none. `urgent`: do not linger."""
        if now_ms < self._retry_at_ms or self.muted:
            return None
        if self.in_flight < len(self._undecided):
            return self._again()
        return self._waiting[0] if self._may_number() and (urgent or self._is_ready(now_ms)) else None

    def take(self, batch: ProducerBatch, now_ms: int) -> None:
        """Mark the batch that `next_to_send` returned as in flight, and encode it."""
        if self._waiting and batch is self._waiting[0]:
            self._number(self._waiting.popleft())
            self._undecided.append(batch)
        batch.in_flight = True
        batch.attempts += 1
        batch.drained_ms = now_ms
        batch.sent_as_first = batch is self._undecided[0]

    def addressed(self, topic_id: bytes) -> None:
        """A batch goes to this topic. One that was deleted and created again has another id, and knows no producer."""
        if topic_id != self._topic_id:
            self._topic_id = topic_id
            self._proven = not self._settings.idempotent

    def wake_at_ms(self) -> int | None:
        """Earliest end of a linger, a retry backoff or a delivery timeout."""
        times = [
            batches[0].created_ms + self._settings.delivery_timeout_ms
            for batches in (self._undecided, self._waiting)
            if batches
        ]
        if self._may_send():
            if self._again() is not None:
                times.append(self._retry_at_ms)
            elif self._may_number():
                times.append(max(self._retry_at_ms, self._waiting[0].created_ms + self._settings.linger_ms))
        return min(times, default=None)

    # ---- responses

    def acked(self, batch: ProducerBatch, base_offset: int, log_append_time_ms: int) -> None:
        """The broker has acknowledged the batch."""
        batch.in_flight = False
        if batch not in self._undecided:
            return  # given up before the response came
        self._undecided.remove(batch)
        self._proven = True
        self._settle()
        batch.complete(base_offset, log_append_time_ms)
        self._on_decided(batch)

    def refused(
        self,
        batch: ProducerBatch,
        error: KafkaError,
        retry_at_ms: int,
        record_errors: Mapping[int, Exception] | None = None,
    ) -> None:
        """The broker returned an error."""
        batch.in_flight = False
        batch.last_error = error
        if error.code not in NEVER_APPENDED:
            batch.maybe_written = True
        if batch not in self._undecided:
            return
        broken = self._settings.idempotent and error.code in SEQUENCE_BROKEN
        if broken and batch.sent_as_first:
            self._break(lost=error.code in ID_LOST)
            self._retry_at_ms = retry_at_ms
        elif error.code in TOO_LARGE and batch.record_count > 1 and not batch.maybe_written:
            self._replace(batch, self._split(batch))
        elif broken or (error.code.retriable and batch.attempts <= self._settings.retries):
            self._retry_at_ms = retry_at_ms
        else:
            self._give_up(batch, error, record_errors)
        self._settle()

    def lost(self, batch: ProducerBatch, error: KafkaError, retry_at_ms: int, *, sent: bool) -> None:
        """There is no response. `sent` is False only if the request certainly was not sent; then it was no attempt."""
        batch.in_flight = False
        batch.last_error = error
        batch.maybe_written = batch.maybe_written or sent
        batch.attempts -= not sent
        self._retry_at_ms = retry_at_ms
        if batch in self._undecided and batch.attempts > self._settings.retries:
            self._give_up(batch, error)
        self._settle()

    # ---- giving up

    def expire(self, now_ms: int) -> None:
        """Fail batches whose delivery.timeout.ms has passed."""
        cut_ms = now_ms - self._settings.delivery_timeout_ms
        while self._undecided and self._undecided[0].created_ms <= cut_ms:
            self._give_up(self._undecided[0], self._timed_out(self._undecided[0]))
        self._settle()
        while self._waiting and self._waiting[0].created_ms <= cut_ms:
            batch = self._waiting.popleft()
            self._fail(batch, self._timed_out(batch))

    def abort(self, error: Exception) -> None:
        """End everything now: nothing will be sent any longer."""
        self._broken = self._broken or bool(self._undecided)
        batches = [*self._undecided, *self._waiting]
        self._undecided.clear()
        self._waiting.clear()
        for batch in batches:
            batch.abort(error, maybe_written=batch.maybe_written or batch.in_flight)
            self._on_decided(batch)
        self._settle()

    def abort_undrained(self, error: Exception) -> None:
        """Abort the batches that are not in flight."""
        aborted = [batch for batch in self._undecided if not batch.in_flight]
        if aborted:
            self._break()
            self._undecided = deque(batch for batch in self._undecided if batch.in_flight)
        aborted += self._waiting
        self._waiting.clear()
        for batch in aborted:
            batch.abort(error, maybe_written=batch.maybe_written)
            self._on_decided(batch)
        self._settle()

    def assign(self, producer: ProducerId) -> None:
        """Send further batches with this producer id."""
        self.producer = self.last_producer = producer
        self.id_lost = False

    def renumber(self, producer: ProducerId | None) -> None:
        """Send further batches with another producer id or epoch, from sequence 0; all earlier batches have ended."""
        assert not self._undecided, f"{self.partition} has records under the old epoch"
        self.producer = self.last_producer = producer
        self._proven = not self._settings.idempotent
        self._broken = self.id_lost = False
        self._next_sequence = 0

    # ---- inside

    @property
    def _window(self) -> int:
        return self._settings.max_in_flight if self._settings.idempotent else 2**31

    def _may_send(self) -> bool:
        # A broker that does not know a producer id accepts any first sequence. So the first batch is sent alone, lest
        # the second be accepted before it.
        limit = self._settings.max_in_flight if self._proven else 1
        if self._settings.idempotent and (self.producer is None or self._broken):
            return False
        in_flight, failed = 0, False
        # After a failure, batches sent behind it are awaited first; then all that is left is sent again, in order.
        for batch in self._undecided:
            if batch.in_flight:
                in_flight += 1
                if failed or in_flight >= limit:
                    return False
            else:
                failed = True
        return True

    def _again(self) -> ProducerBatch | None:
        """The first numbered batch that is not in flight, if the broker will still remember the first undecided one
        afterwards.
        """
        for batch in self._undecided:
            if not batch.in_flight:
                return batch if batch.ordinal - self._undecided[0].ordinal < self._window else None
        return None

    def _may_number(self) -> bool:
        """Whether the next batch may get its sequence. It must not be so far from the first undecided one that the
        broker can no longer distinguish a retry of that from a gap.
        """
        return (
            bool(self._waiting)
            and self.in_flight == len(self._undecided)
            and (not self._undecided or self._numbered - self._undecided[0].ordinal < self._window)
        )

    def _is_ready(self, now_ms: int) -> bool:
        batch = self._waiting[0]
        return len(self._waiting) > 1 or batch.is_full or now_ms - batch.created_ms >= self._settings.linger_ms

    def _number(self, batch: ProducerBatch) -> None:
        batch.ordinal = self._numbered
        self._numbered += 1
        if not self._settings.idempotent:
            batch.close(batch.producer, NO_SEQUENCE)
            return
        assert self.producer is not None
        batch.close(self.producer, self._next_sequence)
        self._next_sequence = add_to_sequence(self._next_sequence, batch.record_count)

    def _replace(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """Replace a batch that was too large by its parts, which have its sequences; the ordinals after it move up."""
        place = self._undecided.index(batch)
        later = list(self._undecided)[place + 1 :]
        for _ in range(len(later) + 1):
            self._undecided.pop()
        for ordinal, part in enumerate(parts, start=batch.ordinal):
            part.ordinal = ordinal
        for each in later:
            each.ordinal += len(parts) - 1
        self._numbered += len(parts) - 1
        self._undecided.extend([*parts, *later])

    def _break(self, *, lost: bool = False) -> None:
        self._broken = self._settings.idempotent
        self.id_lost = self.id_lost or lost

    def _settle(self) -> None:
        """Once the sequence is broken and nothing is in flight, go on in another epoch, from sequence 0.

        A batch that may have been written in the old epoch must not be sent in the new one: it would be there twice.
        """
        if not self._broken or self.in_flight:
            return
        self._broken = self._proven = False
        self.last_producer, self.producer = self.producer or self.last_producer, None
        self._next_sequence = 0
        unwritten = []
        while self._undecided:
            batch = self._undecided.popleft()
            if batch.maybe_written:
                self._fail(batch, batch.last_error or self._timed_out(batch), maybe_written=True)
            else:
                batch.reopen()
                unwritten.append(batch)
        self._waiting.extendleft(reversed(unwritten))

    def _give_up(
        self, batch: ProducerBatch, error: Exception, record_errors: Mapping[int, Exception] | None = None
    ) -> None:
        self._undecided.remove(batch)
        self._break()
        maybe_written = batch.maybe_written or batch.in_flight
        batch.complete_exceptionally(error, record_errors, maybe_written=maybe_written)
        self._on_decided(batch)

    def _fail(self, batch: ProducerBatch, error: Exception, *, maybe_written: bool = False) -> None:
        batch.complete_exceptionally(error, maybe_written=maybe_written)
        self._on_decided(batch)

    def _timed_out(self, batch: ProducerBatch) -> KafkaError:
        """The error of an expired batch, with its last error."""
        last = batch.last_error
        error = KafkaError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"{batch.record_count} record(s) for {self.partition} not delivered within "
            f"{self._settings.delivery_timeout_ms} ms" + (f"; last error: {last}" if last is not None else ""),
        )
        error.__cause__ = last
        return error
