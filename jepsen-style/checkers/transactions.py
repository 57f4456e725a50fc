"""Checks that transactions left all of their records in the committed logs or none, and only if they may be committed.

Kafka promises atomicity, not snapshots: a reader may see one partition's part before another's, since each partition
gets its marker by itself. So this looks at logs that were read to the end after the cluster was healed; only a record
of an aborted transaction is wrong whenever it was seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from checkers.readings import Logs
from checkers.verdict import Finding
from operations import Outcome, Place


class Record(NamedTuple):
    """A record of a transaction; its value is unique in the run."""

    place: Place
    value: Any


@dataclass(frozen=True, slots=True)
class Transaction:
    """One try of one producer."""

    name: str
    outcome: Outcome
    """`info`: its commit was requested, and its outcome is unknown."""
    evidence: Sequence[int]
    records: Sequence[Record]


def judge(transactions: Iterable[Transaction], logs: Logs, *, owned: Iterable[Place]) -> list[Finding]:
    """`G1a`, `torn-transaction`, `lost-write`, `duplicate`, `unexpected-read`, in the logs of the partitions `owned`,
    which have no other writers."""
    findings: list[Finding] = []
    found = logs.found()
    known: set[tuple[Place, Any]] = set()
    for transaction in transactions:
        known.update(transaction.records)
        findings.extend(_judge_one(transaction, found, logs))
    for place in owned:
        for offset, value in logs.values.get(place, {}).items():
            if (place, value) not in known:
                text = f"offset {offset} of {place} is {value}, which was never written there"
                findings.append(Finding("unexpected-read", str(place), [logs.read_by[place][offset]], text))
    return findings


def _judge_one(transaction: Transaction, found: dict[tuple[Place, Any], list[int]], logs: Logs) -> list[Finding]:
    findings: list[Finding] = []
    there = [record for record in transaction.records if record in found]
    gone = [record for record in transaction.records if record not in found and record.place in logs.complete]
    name, evidence = transaction.name, list(transaction.evidence)

    def add(anomaly: str, place: Place, more: Sequence[int], text: str) -> None:
        findings.append(Finding(anomaly, str(place), sorted({*evidence, *more}), text))

    for record in there:
        offsets = found[record]
        if len(offsets) > 1:
            readers = [logs.read_by[record.place][offset] for offset in offsets]
            add("duplicate", record.place, readers, f"{record.value} of {name} is in {record.place} at {offsets}")
    if there and transaction.outcome == "fail":
        place, value = there[0]
        reader = logs.read_by[place][found[there[0]][0]]
        add("G1a", place, [reader], f"{name} was aborted, and its {value} was read from {place}")
    elif there and gone:
        readers = [logs.read_by[record.place][found[record][0]] for record in there[:1]]
        text = f"{name}: {there[0].value} is in {there[0].place}, and {gone[0].value} is not in {gone[0].place}"
        add("torn-transaction", gone[0].place, readers, text)
    elif gone and transaction.outcome == "ok":
        add("lost-write", gone[0].place, [], f"{name} was committed, and {gone[0].value} is not in {gone[0].place}")
    return findings
