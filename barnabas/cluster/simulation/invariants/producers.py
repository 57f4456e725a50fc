"""The promises of producers and their transactions, as the committed log of a partition shows them.

- The sequences of a producer, in one of its epochs, begin at 0 and have neither gap nor repetition (KIP-98).
- Epochs only grow, those of markers, too: where each transaction has an epoch of its own (KIP-890), nothing of it comes
  after its end.
- A producer has one transaction open at most: in a newer epoch it writes only once that of the older one has ended.
- The markers of a producer come from coordinators whose epoch only grows.
- Every transaction has ended, once all is quiet.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from barnabas.cluster.simulation.findings import Findings
from barnabas.cluster.simulation.ghosts import Batch
from barnabas.cluster.simulation.invariants.places import PartitionKey
from protocol.records.batch import BatchHeader, add_to_sequence, read_header
from protocol.records.control import EndTxn, read_end_txn


@dataclass(slots=True)
class _Producer:
    epoch: int = -1
    next_sequence: int = 0
    coordinator_epoch: int = -1
    open_from: int = -1
    """Where its open transaction begins; -1 if none is."""

    def take(self, header: BatchHeader, marker: EndTxn | None) -> str | None:
        """The next of its batches; gives what is wrong with it."""
        before, self.epoch = self.epoch, max(self.epoch, header.producer_epoch)
        if self.epoch > before:
            self.next_sequence = 0
        if header.producer_epoch < before:
            return f"it was at epoch {before}"
        if header.is_control:
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


def check_producers(
    findings: Findings, key: PartitionKey, batches: Iterable[Batch], *, may_be_open: bool = False
) -> None:
    """Once all is quiet. `may_be_open`: somebody writes there who ends no transaction, and whose timeout is long."""
    producers: dict[int, _Producer] = {}
    for batch in batches:
        header = read_header(batch.data, 0)
        if header.producer_id < 0:
            continue
        marker = read_end_txn(batch.data) if header.is_control else None
        wrong = producers.setdefault(header.producer_id, _Producer()).take(header, marker)
        if wrong is not None:
            whose = f"producer {header.producer_id} epoch {header.producer_epoch}"
            findings.report(f"{key}: {whose} at {header.base_offset}: {wrong}")
    for producer_id, producer in producers.items():
        if producer.open_from >= 0 and not may_be_open:
            findings.report(f"{key}: producer {producer_id} has had a transaction open since {producer.open_from}")
