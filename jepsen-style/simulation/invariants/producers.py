"""The promises of producers and their transactions, as the committed log of a partition shows them while it grows.

- The sequences of a producer, in one of its epochs, begin at 0 and have neither gap nor repetition (KIP-98). In its
  first epoch a producer of a run may begin at the sequence of the plan.
- Epochs only grow, those of markers, too: where each transaction has an epoch of its own (KIP-890), nothing of it comes
  after its end.
- A producer has one transaction open at most: in a newer epoch it writes only once that of the older one has ended.
- The markers of a producer come from coordinators whose epoch only grows.
- Every transaction has ended, once all is quiet.
- Nobody who wants committed records is given one behind the begin of a transaction whose marker is not committed yet.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from barnabas.protocol.records.batch import BatchHeader, add_to_sequence, read_header
from barnabas.protocol.records.control import EndTxn, read_end_txn
from simulation.findings import Findings
from simulation.ghosts import Batch
from simulation.invariants.places import PartitionKey


@dataclass(slots=True)
class _Producer:
    first_sequence: int = 0
    """First sequence that it may use besides 0 in its first epoch."""
    epoch: int = -1
    next_sequence: int = 0
    coordinator_epoch: int = -1
    open_from: int = -1
    """First offset of its open transaction; -1: none."""

    def take(self, header: BatchHeader, marker: EndTxn | None) -> str | None:
        """The next of its batches; gives what is wrong with it."""
        before, self.epoch = self.epoch, max(self.epoch, header.producer_epoch)
        if self.epoch > before:
            begins_elsewhere = before < 0 and header.base_sequence == self.first_sequence
            self.next_sequence = self.first_sequence if begins_elsewhere else 0
        if header.producer_epoch < before:
            return f"it was at epoch {before}"
        if header.is_marker:
            return None if marker is None else self._end(marker)
        if self.epoch > before and self.open_from >= 0:
            return f"it writes in another epoch, and what it began at {self.open_from} has not ended"
        if header.is_transactional and self.open_from < 0:
            self.open_from = header.base_offset
        if header.base_sequence < 0:
            return None  # a coordinator's own records
        expected, self.next_sequence = self.next_sequence, add_to_sequence(header.last_sequence, 1)
        return (
            None if header.base_sequence == expected else f"sequence {header.base_sequence} where {expected} was next"
        )

    def _end(self, marker: EndTxn) -> str | None:
        before, self.coordinator_epoch = self.coordinator_epoch, marker.coordinator_epoch
        self.open_from = -1
        return None if marker.coordinator_epoch >= before else f"marker of {marker}, after one of epoch {before}"


@dataclass(slots=True)
class ProducerPromises:
    """Checks the batches of one partition in the order in which they were committed."""

    first_sequence: int = 0
    """First sequence that producers of the run may use besides 0."""
    _producers: dict[int, _Producer] = field(default_factory=dict)

    def take(self, batch: Batch) -> str | None:
        """The next one; gives what is wrong with it."""
        header = read_header(batch.data, 0)
        if header.producer_id < 0:
            return None
        marker = read_end_txn(batch.data) if header.is_marker else None
        producer = self._producers.setdefault(header.producer_id, _Producer(self.first_sequence))
        wrong = producer.take(header, marker)
        if wrong is None:
            return None
        return f"producer {header.producer_id} epoch {header.producer_epoch} at {header.base_offset}: {wrong}"

    @property
    def first_open(self) -> int | None:
        """First offset of the first transaction without a marker; None if there is none."""
        return min((each.open_from for each in self._producers.values() if each.open_from >= 0), default=None)

    def open_ones(self) -> list[str]:
        """Transactions that have not ended; none once all is quiet."""
        return [
            f"producer {producer_id} has had a transaction open since {producer.open_from}"
            for producer_id, producer in self._producers.items()
            if producer.open_from >= 0
        ]


def check_producers(findings: Findings, key: PartitionKey, batches: Iterable[Batch], first_sequence: int = 0) -> None:
    """Checks a whole log once all is quiet."""
    promises = ProducerPromises(first_sequence)
    wrong = [found for batch in batches if (found := promises.take(batch)) is not None]
    for each in (*wrong, *promises.open_ones()):
        findings.report(f"{key}: {each}")
