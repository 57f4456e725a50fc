"""Checks that transactions end as their external coordinator decided: the workload `two-phase` (KIP-939).

The decisions are what clients recorded beside the cluster, and the last `recover` of each thread reports them all. So
the outcome of a transaction is known, whatever became of its producer: the records of one that was committed there are
in the committed logs at the end, once and all of them (`lost-write`, `torn-transaction`, `duplicate`); those of any
other are not (`G1a`). A thread that found nothing to complete, though its decision was not carried out, shows as one of
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from checkers.attempts import Attempt, attempts
from checkers.readings import concluded, frozen, gather, readings_of
from checkers.transactions import Record, Transaction, judge
from checkers.verdict import Verdict
from operations import Outcome, Place


class TwoPhaseChecker:
    name = "two-phase"

    def check(self, history: Any) -> Verdict:
        whole = attempts(history)
        tries = [attempt for attempt in whole if attempt.f == "transact"]
        recoveries = [attempt for attempt in whole if attempt.f == "recover"]
        threads = int(history.run["options"]["processes"])
        reported = _reported(recoveries, threads)
        committed = {number for numbers in reported.values() for number in numbers}
        transactions = [_transaction(each, committed, is_known=each.process % threads in reported) for each in tries]
        logs = gather(readings_of(whole))
        findings = [*logs.findings, *judge(transactions, logs, owned=logs.values)]
        places = {record.place for transaction in transactions for record in transaction.records}
        figures = {
            "transactions": len(tries),
            "committed": len(committed),
            "decided by a later life": sum(each.asked["id"] in committed and each.type == "info" for each in tries),
            "recoveries": sum(each.type == "ok" for each in recoveries),
        }
        is_complete = places <= logs.complete and len(reported) == threads
        return concluded(history, findings, figures, complete=is_complete)


def _reported(recoveries: Sequence[Attempt], threads: int) -> dict[int, list[int]]:
    """By thread: what it had decided to commit by its last recovery."""
    reported: dict[int, list[int]] = {}
    for each in sorted(recoveries, key=lambda attempt: attempt.ended_ns):
        if each.type == "ok":
            reported[each.process % threads] = each.value["committed"]
    return reported


def _transaction(attempt: Attempt, committed: set[int], *, is_known: bool) -> Transaction:
    number = attempt.asked["id"]
    outcome: Outcome = attempt.type
    if number in committed:
        outcome = "ok"
    elif is_known and attempt.type == "info":
        outcome = "fail"
    records = [Record(Place(topic, partition), frozen(value)) for topic, partition, value in attempt.asked["records"]]
    return Transaction(f"transaction {number}", outcome, attempt.evidence, records)
