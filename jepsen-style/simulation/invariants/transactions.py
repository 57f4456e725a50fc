"""The promises of transactions, compared with the outcomes that their writers got.

- All of a transaction is seen, or nothing. Acknowledged: all of it. Aborted, or never asked to commit: nothing. Where
  the answer never came: all or nothing.
- Nobody is given a record of a transaction before its writer asked to commit it.
- What a group reads and writes on in transactions is there exactly once, up to where the group has committed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from simulation.findings import Findings
from simulation.invariants.places import PartitionKey


class Fate(Enum):
    """Outcome of a transaction, as its writer knows it."""

    OPEN = "open"
    """Nobody has asked to commit it."""
    COMMITTING = "asked to commit"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(slots=True, eq=False)
class Transaction:
    name: str
    fate: Fate = Fate.OPEN
    values: dict[bytes, PartitionKey] = field(default_factory=dict)


class TransactionPromises:
    """The promises of all transactions of one universe. Every value is written once."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._transactions: list[Transaction] = []
        self._writers: dict[bytes, Transaction] = {}

    def begins(self, name: str) -> Transaction:
        transaction = Transaction(name)
        self._transactions.append(transaction)
        return transaction

    def writes(self, transaction: Transaction, key: PartitionKey, value: bytes) -> None:
        transaction.values[value] = key
        self._writers[value] = transaction

    def seen(self, key: PartitionKey, offset: int, value: bytes | None) -> None:
        """A reader of committed records was given it."""
        transaction = self._writers.get(value or b"")
        if transaction is None:
            self._findings.report(f"{key}: nobody wrote {value!r}, which is at {offset}")
            return
        self._findings.check(
            transaction.fate in (Fate.COMMITTING, Fate.COMMITTED),
            lambda: (
                f"{key}: {value!r} is seen at {offset}, and transaction {transaction.name} is {transaction.fate.value}"
            ),
        )

    def check_all_seen(self, logs: Mapping[PartitionKey, Sequence[bytes]]) -> None:
        """At the end: everything that readers of committed records are given."""
        places = Counter((key, value) for key, values in logs.items() for value in values)
        for transaction in self._transactions:
            found = [places[key, value] for value, key in transaction.values.items()]
            whole, none = all(count == 1 for count in found), not any(found)
            fits = {
                Fate.OPEN: none,
                Fate.ABORTED: none,
                Fate.COMMITTED: whole,
                Fate.COMMITTING: whole or none,
            }[transaction.fate]
            if not fits:
                self._findings.report(
                    f"transaction {transaction.name} is {transaction.fate.value}, its records are seen {found} times"
                )
        for (key, value), count in places.items():
            if count != 1:
                self._findings.report(f"{key}: {value!r} is seen {count} times")
            if value not in self._writers:
                self._findings.report(f"{key}: nobody wrote {value!r}")


def check_exactly_once(
    findings: Findings,
    committed: Mapping[PartitionKey, int],
    inputs: Mapping[PartitionKey, Iterable[int]],
    outputs: Iterable[str],
) -> None:
    """`committed`: how far the group has come; `inputs`: offsets that have a record; `outputs`: `partition@offset` of
    the input that each record of the output stands for.
    """
    counts = Counter(outputs)
    for key, offsets in inputs.items():
        for offset in offsets:
            count = counts.pop(f"{key}@{offset}", 0)
            expected = 1 if offset < committed[key] else 0
            if count != expected:
                findings.report(
                    f"{key}: offset {offset} was written on {count} times, the group is at {committed[key]}"
                )
    for what, count in counts.items():
        findings.report(f"{what} was written on {count} times, and is no input")
