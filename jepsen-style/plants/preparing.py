"""Mistakes of transaction coordinators with two-phase commit (KIP-939)."""

from __future__ import annotations

from typing import Any

from barnabas.broker.coordinator.outcome import Outcome
from barnabas.broker.transactions.machine import TransactionMachine
from barnabas.broker.transactions.transaction import Transaction, TransactionState

PATIENCE_MS = 1_000


def abort_at_the_start(_original: Any) -> Any:
    """A producer that starts aborts what it has prepared, as without two-phase commit."""
    return property(lambda self: False)


def let_time_end_it(original: Any) -> Any:
    """A prepared transaction is aborted after some time."""

    def timed_out(self: Transaction, wall_ms: int) -> bool:
        if self.is_two_phase and self.state is TransactionState.ONGOING:
            return self.started_ms + PATIENCE_MS < wall_ms
        over: bool = original(self, wall_ms)
        return over

    return timed_out


def forget_who_prepared_it(original: Any) -> Any:
    """The second producer that claims a prepared transaction is given the epoch of the first one that did, in place of
    the epoch that prepared it (as before KAFKA-20739)."""

    def claim(self: TransactionMachine, transaction: Transaction, *rest: Any) -> Outcome:
        outcome: Outcome = original(self, transaction, *rest)
        ((_, answer),) = outcome.answers
        answer.ongoing_txn_producer_epoch = transaction.client.producer_epoch
        return outcome

    return claim
