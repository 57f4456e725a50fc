"""Core: the producer state of a log, by which a leader refuses gaps and recognises retries.

Keeps the last five batches of each producer id (KIP-98). A batch that continues the sequence is accepted; one that
equals a kept batch is answered as before; any other gets OUT_OF_ORDER_SEQUENCE_NUMBER. The last stable offset is
computed here, too. All of it follows from the batches in the log, so a snapshot and the batches after it rebuild it.

Knows no files: `producer_snapshot_format` gives the bytes of a snapshot, `producer_snapshots` keeps the files.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.batch import (
    MAX_INT32,
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    BatchHeader,
)
from barnabas.protocol.records.control import EndTxn

_new: Any = tuple.__new__  # skips the Python-level constructor of named tuples

BATCHES_KEPT = 5
"""Maximum number of batches that an idempotent producer has in flight."""

NO_OFFSET = -1


@dataclass(slots=True)
class ProducerStateConfig:
    """Broker settings of producer state; all logs of a node share the object, and it may change at any time."""

    expiration_ms: int = 86_400_000
    """`producer.id.expiration.ms`: time after which a producer without an open transaction is removed."""
    requires_verification: bool = False
    """`transaction.partition.verification.enable`: the first batch of a transaction requires a `Verification`
    (KIP-890).
    """


class SequencedBatch(NamedTuple):
    """Sequence numbers and offsets of an appended batch."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class CompletedTransaction(NamedTuple):
    """A transaction whose marker was just applied."""

    producer_id: int
    first_offset: int
    last_offset: int
    """Offset of the marker."""
    aborted: bool


@dataclass(slots=True, eq=False)
class Verification:
    """A pending check with the transaction coordinator that the transaction is open and has this partition.

    The caller with the object of `ProducerStates.begin_verification` may append the first batch, unless a marker was
    appended meanwhile: then the answer refers to a finished transaction, and the object is no longer the state's. It is
    kept between retries, so that a later batch cannot overtake an earlier one.
    """

    since_ms: int
    lowest_sequence: int
    epoch: int
    supports_epoch_bump: bool
    """The client supports transaction.version 2: each transaction has its own epoch and begins at sequence 0."""

    def asked_for(self, epoch: int, sequence: int) -> None:
        """Another batch requires it."""
        if epoch > self.epoch:
            self.epoch, self.lowest_sequence = epoch, sequence
        elif epoch == self.epoch:
            self.lowest_sequence = min(self.lowest_sequence, sequence)


class Warrant(NamedTuple):
    """Authority of a transactional append by a leader."""

    verification: Verification | None = None
    """For the data batch that begins a transaction."""
    transaction_version: int = 0
    """For a marker: the `transaction.version` of its coordinator."""
    is_admitted: bool = False
    """The records were admitted before, so `max.message.bytes` does not apply."""


NO_WARRANT = Warrant()

LAST_EPOCH = 0x7FFF

BUMPS_EPOCHS = 2
"""`transaction.version` from which every transaction has its own epoch (KIP-890)."""


class ProducerEntry:
    """State of one producer id."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "last_timestamp",
        "producer_id",
        "transaction_first_offset",
    )

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.epoch = NO_PRODUCER_EPOCH
        self.coordinator_epoch = -1
        self.last_timestamp = NO_TIMESTAMP
        self.transaction_first_offset = NO_OFFSET
        """-1 unless a transaction is open."""
        self.batches: list[SequencedBatch] = []
        """Batches of the current epoch, the newest last."""

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def in_transaction(self, epoch: int) -> bool:
        """True if the transaction of this epoch is open."""
        return self.transaction_first_offset >= 0 and self.epoch == epoch

    def move_to_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()

    def __repr__(self) -> str:
        return (
            f"ProducerEntry({self.producer_id}, epoch {self.epoch}, last sequence {self.last_sequence}, "
            f"transaction from {self.transaction_first_offset})"
        )


class ProducerStates:
    """All producers of one log, as of `end_offset`."""

    __slots__ = (
        "_ongoing",
        "_unreplicated",
        "config",
        "end_offset",
        "entries",
        "first_unstable_offset",
        "verifications",
    )

    def __init__(self, config: ProducerStateConfig) -> None:
        self.config = config
        self.entries: dict[int, ProducerEntry] = {}
        self.end_offset = 0
        """The state includes all records below this offset."""
        self._ongoing: dict[int, int] = {}
        """First offset of each open transaction, ascending, to its producer id."""
        self._unreplicated: dict[int, int] = {}
        """First to last offset of the transactions whose marker is not below the high watermark."""
        self.first_unstable_offset = NO_OFFSET
        """First offset of the earliest transaction that is open or not yet replicated; -1 if there is none."""
        self.verifications: dict[int, Verification] = {}
        """By producer id: transactions that are about to begin here. Not durable."""

    # -- before an append

    def check(
        self, header: BatchHeader, before: BatchHeader | None = None, verification: Verification | None = None
    ) -> SequencedBatch | None:
        """Check that a leader may append this data batch. Returns the batch that it repeats, if any.

        `before` is the preceding batch of the same producer in the same request. Raises KafkaError:
        INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_TXN_STATE. Batches without sequences come from a
        coordinator, so their sequence is not checked.
        """
        entry = self.entries.get(header.producer_id)
        epoch, sequence = header.producer_epoch, header.base_sequence
        is_transactional = header.attributes & TRANSACTIONAL_BIT
        if entry is None:
            if is_transactional and before is None:
                self._check_begins(header, None, verification)
            if before is not None:
                self._check_continues(header, before.producer_epoch, before.last_sequence)
            return None
        if epoch < entry.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {header.producer_id} has epoch {entry.epoch}, the batch comes from epoch {epoch}",
            )
        last_sequence = entry.batches[-1].last_sequence if entry.batches else NO_SEQUENCE
        follows = epoch != entry.epoch or sequence == (last_sequence + 1) & MAX_INT32
        if not follows and before is None and sequence != NO_SEQUENCE:
            repeated = self._repeated(entry, header)
            if repeated is not None:
                return repeated
        if is_transactional and before is None and not entry.in_transaction(epoch):
            self._check_begins(header, entry, verification)
        if sequence != NO_SEQUENCE:
            if before is not None:
                self._check_continues(header, before.producer_epoch, before.last_sequence)
            elif not follows:
                raise self._out_of_order(header, last_sequence)
            elif epoch != entry.epoch and sequence != 0 and entry.epoch != NO_PRODUCER_EPOCH:
                raise self._out_of_order(header, NO_SEQUENCE)
        if entry.transaction_first_offset >= 0 and not is_transactional:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {header.producer_id} has an open transaction, but the batch is not transactional",
            )
        return None

    def _check_begins(
        self, header: BatchHeader, entry: ProducerEntry | None, verification: Verification | None
    ) -> None:
        """Check that this batch may begin a transaction."""
        known = self.verifications.get(header.producer_id)
        if self.config.requires_verification and (verification is None or verification is not known):
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {header.producer_id}: the batch is not part of an ongoing transaction",
            )
        sequence = header.base_sequence
        if known is None or sequence == NO_SEQUENCE:
            return
        if known.supports_epoch_bump and sequence != 0 and (entry is None or not entry.batches):
            raise self._out_of_order(header, NO_SEQUENCE)
        if sequence > known.lowest_sequence:
            # The batch before it was refused and will be retried.
            raise self._out_of_order(header, known.lowest_sequence - 1)

    def _repeated(self, entry: ProducerEntry, header: BatchHeader) -> SequencedBatch | None:
        first, last = header.base_sequence, header.last_sequence
        for batch in entry.batches:
            if batch.first_sequence == first and batch.last_sequence == last:
                return batch
        return None

    def _check_continues(self, header: BatchHeader, epoch: int, last_sequence: int) -> None:
        if header.producer_epoch != epoch or header.base_sequence != (last_sequence + 1) & MAX_INT32:
            raise self._out_of_order(header, last_sequence)

    def _out_of_order(self, header: BatchHeader, last_sequence: int) -> KafkaError:
        return KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {header.producer_id} epoch {header.producer_epoch}: sequence {header.base_sequence} "
            f"does not follow {last_sequence}",
        )

    def begin_verification(
        self, producer_id: int, epoch: int, sequence: int, now_ms: int, *, supports_epoch_bump: bool
    ) -> Verification | None:
        """The verification that a transactional batch requires; None if its transaction has begun here already. Raises
        KafkaError with INVALID_PRODUCER_EPOCH.
        """
        entry = self.entries.get(producer_id)
        if entry is not None:
            if epoch < entry.epoch:
                raise KafkaError(
                    ErrorCode.INVALID_PRODUCER_EPOCH,
                    f"producer {producer_id} has epoch {entry.epoch}, the batch comes from epoch {epoch}",
                )
            if entry.in_transaction(epoch):
                return None
        known = self.verifications.get(producer_id)
        if known is None:
            known = self.verifications[producer_id] = Verification(now_ms, sequence, epoch, supports_epoch_bump)
        else:
            known.asked_for(epoch, sequence)
        return known

    def check_marker(self, header: BatchHeader, marker: EndTxn, transaction_version: int = 0) -> None:
        """Check that a leader may append this transaction marker. Raises KafkaError: INVALID_PRODUCER_EPOCH,
        TRANSACTION_COORDINATOR_FENCED.

        From transaction.version 2 on the epoch of a marker is that of the transaction plus one; the same epoch is
        accepted if it may be a retry, or cannot be bumped any further.
        """
        entry = self.entries.get(header.producer_id)
        if entry is None:
            return
        epoch = header.producer_epoch
        is_old = epoch < entry.epoch
        if epoch == entry.epoch and transaction_version >= BUMPS_EPOCHS:
            is_old = entry.transaction_first_offset >= 0 and epoch != LAST_EPOCH
        if is_old:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {header.producer_id} has epoch {entry.epoch}, the marker {epoch} "
                f"by transaction.version {transaction_version}",
            )
        if marker.coordinator_epoch < entry.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"coordinator epoch {marker.coordinator_epoch} is older than {entry.coordinator_epoch}",
            )

    # -- after an append, in log order

    def apply(self, header: BatchHeader, base_offset: int, timestamp: int) -> None:
        """A data batch with a producer id was appended at `base_offset`."""
        entry = self.entries.get(header.producer_id) or self._entry(header.producer_id)
        if header.producer_epoch != entry.epoch:
            entry.move_to_epoch(header.producer_epoch)
        delta, first = header.last_offset_delta, header.base_sequence
        last = first if first == NO_SEQUENCE else (first + delta) & MAX_INT32
        batches = entry.batches
        if len(batches) == BATCHES_KEPT:
            del batches[0]
        batches.append(_new(SequencedBatch, (first, last, base_offset, base_offset + delta, timestamp)))
        entry.last_timestamp = timestamp
        if header.attributes & TRANSACTIONAL_BIT:
            self.verifications.pop(header.producer_id, None)
            if entry.transaction_first_offset < 0:
                entry.transaction_first_offset = base_offset
                self._ongoing[base_offset] = header.producer_id
                if self.first_unstable_offset < 0:
                    self.first_unstable_offset = base_offset

    def apply_marker(
        self, header: BatchHeader, marker: EndTxn, offset: int, transaction_version: int = 0
    ) -> CompletedTransaction | None:
        """A transaction marker was appended at `offset`; returns the transaction that it ended, if any. The log does
        not contain `transaction_version`; only the leader that appends the marker knows it.
        """
        entry = self._entry(header.producer_id)
        entry.move_to_epoch(header.producer_epoch)
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp = header.max_timestamp
        verification = self.verifications.get(header.producer_id)
        if verification is not None:
            # This may be the transaction being verified. (A marker with the bumped epoch belongs to the previous one;
            # after a recovered two-phase commit the next epoch is even higher, KIP-939.
            # But a client that writes by version 2 may end by version 1, which bumps nothing.)
            is_next = verification.supports_epoch_bump and verification.epoch >= header.producer_epoch
            if not is_next or transaction_version < BUMPS_EPOCHS:
                del self.verifications[header.producer_id]
        first_offset, entry.transaction_first_offset = entry.transaction_first_offset, NO_OFFSET
        if first_offset < 0:
            return None
        del self._ongoing[first_offset]
        self._unreplicated[first_offset] = offset
        return CompletedTransaction(header.producer_id, first_offset, offset, not marker.committed)

    def _entry(self, producer_id: int) -> ProducerEntry:
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self.entries[producer_id] = ProducerEntry(producer_id)
        return entry

    def last_stable_offset_after(self, completed: CompletedTransaction) -> int:
        """The last stable offset once `completed` is replicated, for its index entry."""
        return next(iter(self._ongoing), completed.last_offset + 1)

    def replicated_to(self, offset: int) -> None:
        """The high watermark or the log start has reached `offset`: markers below it are settled."""
        if not self._unreplicated:
            return
        for first_offset, last_offset in list(self._unreplicated.items()):
            if last_offset < offset:
                del self._unreplicated[first_offset]
        self._find_first_unstable()

    def _find_first_unstable(self) -> None:
        firsts = list(self._unreplicated)
        firsts += list(self._ongoing)[:1]
        self.first_unstable_offset = min(firsts, default=NO_OFFSET)

    def remove_expired(self, now_ms: int) -> int:
        """Remove producers that were inactive for too long; returns their number."""
        for producer_id, verification in list(self.verifications.items()):
            if now_ms - verification.since_ms >= self.config.expiration_ms:
                del self.verifications[producer_id]
        expired = [entry.producer_id for entry in self.entries.values() if self._is_expired(entry, now_ms)]
        for producer_id in expired:
            del self.entries[producer_id]
        return len(expired)

    def _is_expired(self, entry: ProducerEntry, now_ms: int) -> bool:
        if entry.transaction_first_offset >= 0:
            return False
        return now_ms - entry.last_timestamp >= self.config.expiration_ms

    # -- loading

    def clear(self, end_offset: int) -> None:
        self.entries.clear()
        self._ongoing.clear()
        self._unreplicated.clear()
        self.first_unstable_offset = NO_OFFSET
        self.end_offset = end_offset

    def load(self, entries: Iterable[ProducerEntry], end_offset: int, now_ms: int) -> None:
        """Replace the state by a snapshot's, without producers that have expired since."""
        self.clear(end_offset)
        alive = [entry for entry in entries if not self._is_expired(entry, now_ms)]
        self.entries = {entry.producer_id: entry for entry in alive}
        open_transactions = [entry for entry in alive if entry.transaction_first_offset >= 0]
        open_transactions.sort(key=lambda entry: entry.transaction_first_offset)
        self._ongoing = {entry.transaction_first_offset: entry.producer_id for entry in open_transactions}
        self._find_first_unstable()


