"""Checks that money was neither created nor lost: the workload `bank`.

For every transfer the committed logs hold both legs or none, so that their sum is zero. A reader in the middle of a run
may have one leg and not yet the other (each partition gets its marker by itself), and this is no anomaly: what is asked
of it is that it was given a prefix of each committed log without a hole. Both together are why what it saw, and what
was still on its way to it, sum to zero as well.
"""

from __future__ import annotations

from typing import Any

from checkers.attempts import Attempt, attempts
from checkers.readings import Logs, concluded, frozen, gather, readings_of
from checkers.transactions import Record, Transaction, judge
from checkers.verdict import Finding, Verdict
from operations import Place


class BankChecker:
    name = "bank"

    def __init__(self, isolation: str = "read_committed") -> None:
        self._committed = isolation == "read_committed"

    def check(self, history: Any) -> Verdict:
        whole = attempts(history)
        transfers = [_transaction(attempt) for attempt in whole if attempt.f == "transfer"]
        readings = readings_of(whole)
        logs = gather(readings)
        findings = logs.findings + judge(transfers, logs, owned=logs.values)
        total = sum(leg[2] for log in logs.values.values() for leg in log.values())
        if total != 0 and _all_complete(transfers, logs):
            text = f"the committed logs sum to {total}, and no transfer made or took any"
            findings.append(Finding("total-changed", "bank", [], text))
        if not self._committed:
            findings = [_excused(finding) for finding in findings]
        figures = {
            "transfers": len(transfers),
            "committed": sum(transfer.outcome == "ok" for transfer in transfers),
            "unknown": sum(transfer.outcome == "info" for transfer in transfers),
            "total": total,
            "largest sum on its way to a reader": _largest_on_its_way(readings),
        }
        return concluded(history, findings, figures, complete=_all_complete(transfers, logs))


def _excused(finding: Finding) -> Finding:
    """A reader of uncommitted records sees aborted transfers, and halves of open ones."""
    legal = finding.anomaly in ("G1a", "torn-transaction", "total-changed")
    return Finding(finding.anomaly, finding.where, finding.operations, finding.description, legal)


def _transaction(attempt: Attempt) -> Transaction:
    records = [Record(Place(topic, partition), frozen(leg)) for topic, partition, leg in attempt.asked["legs"]]
    return Transaction(f"transfer {attempt.asked['id']}", attempt.type, attempt.evidence, records)


def _all_complete(transfers: list[Transaction], logs: Logs) -> bool:
    return {record.place for transfer in transfers for record in transfer.records} <= logs.complete


def _largest_on_its_way(readings: list[Attempt]) -> int:
    """Sum of the values that one reader saw after each of its readings: the amount visible in one partition only."""
    sums: dict[int, int] = {}
    largest = 0
    for reading in readings:
        if all(part[2] == 0 for part in reading.value["parts"]):
            sums[reading.process] = 0
        if reading.process not in sums:
            continue  # it goes on where another life of its thread was
        seen = sum(record[1][2] for part in reading.value["parts"] for record in part[4])
        sums[reading.process] += seen
        largest = max(largest, abs(sums[reading.process]))
    return largest
