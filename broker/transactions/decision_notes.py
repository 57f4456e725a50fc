"""Core: decision notes of transaction coordinators: new epochs, results with their reasons, completions."""

from __future__ import annotations

from barnabas.broker.coordinator.outcome import ProducerStamp
from barnabas.broker.transactions.transaction import Transaction
from barnabas.runtime.decisions import DecisionKind, Notes

MAX_NAMED = 5
"""Maximum number of partitions listed by name."""


def subject_of(transactional_id: str) -> str:
    return f"transaction {transactional_id}"


def note_given(notes: Notes, before: Transaction, given: ProducerStamp) -> None:
    """A producer got a new epoch, which fences the previous ones."""
    name = subject_of(before.transactional_id)
    cause = "requested by InitProducerId; the id was unknown"
    if before.producer_epoch >= 0:
        cause = f"requested by InitProducerId; epoch {before.producer_epoch} is fenced"
        if given.producer_id != before.producer_id:
            cause = f"requested by InitProducerId; the epochs of producer {before.producer_id} are exhausted"
    notes.note(
        DecisionKind.TRANSACTION,
        name,
        f"{name} belongs to producer {given.producer_id} in epoch {given.producer_epoch}",
        cause=cause,
        producer_id=given.producer_id,
        producer_epoch=given.producer_epoch,
        producer_epoch_before=before.producer_epoch,
        routine=True,
    )


def note_claimed(notes: Notes, transaction: Transaction, given: ProducerStamp) -> None:
    """A producer asked to keep the open transaction (KIP-939)."""
    name = subject_of(transaction.transactional_id)
    notes.note(
        DecisionKind.TRANSACTION,
        name,
        f"{name} stays open; producer {given.producer_id} in epoch {given.producer_epoch} may complete it",
        cause="requested by InitProducerId (KeepPreparedTxn); producers before it are fenced",
        producer_id=given.producer_id,
        producer_epoch=given.producer_epoch,
        producer_epoch_before=transaction.client.producer_epoch,
        partitions=len(transaction.partitions),
    )


def note_prepared(notes: Notes, before: Transaction, prepared: Transaction, cause: str, *, routine: bool) -> None:
    """The result is decided; markers follow."""
    name = subject_of(before.transactional_id)
    open_ms = max(0, prepared.updated_ms - prepared.started_ms)
    epoch = prepared.producer_epoch
    bumped = "" if epoch == before.producer_epoch else f", its producer's epoch goes {before.producer_epoch} -> {epoch}"
    notes.note(
        DecisionKind.TRANSACTION,
        name,
        f"{name} is to be {'committed' if prepared.commits else 'aborted'}{bumped}",
        also=[f"{topic}-{index}" for topic, index in sorted(prepared.partitions)[:MAX_NAMED]] if not routine else (),
        cause=cause,
        producer_id=prepared.producer_id,
        producer_epoch=epoch,
        producer_epoch_before=before.producer_epoch,
        partitions=len(prepared.partitions),
        open_ms=open_ms,
        routine=routine,
    )


def note_completed(notes: Notes, prepared: Transaction, completed: Transaction) -> None:
    """All partitions have their marker."""
    name = subject_of(completed.transactional_id)
    took_ms = max(0, completed.updated_ms - prepared.updated_ms)
    notes.note(
        DecisionKind.TRANSACTION,
        name,
        f"{name} is {'committed' if completed.commits else 'aborted'}",
        cause=f"all {len(prepared.partitions)} partitions have their marker, {took_ms} ms after the decision",
        producer_id=completed.producer_id,
        producer_epoch=completed.producer_epoch,
        partitions=len(prepared.partitions),
        took_ms=took_ms,
        routine=True,
    )


def note_hanging(notes: Notes, prepared: Transaction, waited_ms: int) -> None:
    """Some partitions do not accept their marker."""
    name = subject_of(prepared.transactional_id)
    partitions = [f"{topic}-{index}" for topic, index in sorted(prepared.partitions)]
    named = ", ".join(partitions[:MAX_NAMED]) + (" …" if len(partitions) > MAX_NAMED else "")
    notes.note(
        DecisionKind.TRANSACTION,
        name,
        f"{name} hangs",
        also=partitions[:MAX_NAMED],
        cause=f"it is to be {'committed' if prepared.commits else 'aborted'} since {waited_ms} ms, and not all of its "
        f"partitions have accepted their marker: {named}",
        producer_id=prepared.producer_id,
        producer_epoch=prepared.producer_epoch,
        partitions=len(partitions),
        waited_ms=waited_ms,
    )


def note_forgotten(notes: Notes, transaction: Transaction, unused_ms: int) -> None:
    """The transactional id has expired."""
    name = subject_of(transaction.transactional_id)
    notes.note(
        DecisionKind.LIFECYCLE,
        name,
        f"{name} is forgotten",
        cause=f"it was unused for {unused_ms} ms (transactional.id.expiration.ms)",
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        routine=True,
    )
