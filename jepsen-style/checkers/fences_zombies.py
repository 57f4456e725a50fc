"""Checks that a producer did nothing after another had taken its transactional id: the workload `fences`.

Once InitProducerId was answered to a newer process, nothing that an older one *begins* may take place:

- `zombie-commit`: a commit that it asked for later took place: it was acknowledged, or its records were read as
  committed;
- `zombie-append`: records that it sent later stand in the log, be it as aborted ones: a leader has such a batch
  verified by the coordinator (KIP-890), or has seen the newer epoch; or its records stand in a partition's log behind
  the newer process's, whenever they were sent.

An operation in progress at that moment may have taken place just before. If two processes took the id at the same time,
only the log shows which one is newer; their records must not alternate.

Otherwise transactions are checked as elsewhere: see `checkers.transactions`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

from checkers.attempts import Attempt, attempts
from checkers.readings import Logs, concluded, frozen, gather, readings_of
from checkers.transactions import Record, Transaction, judge
from checkers.verdict import Finding, Verdict
from operations import Place


class FencesChecker:
    """Pure; needs no options."""

    name = "fences"

    def check(self, history: Any) -> Verdict:
        whole = attempts(history)
        readings = readings_of(whole)
        logs = {
            isolation: gather(reading for reading in readings if reading.asked["isolation"] == isolation)
            for isolation in ("read_committed", "read_uncommitted")
        }
        committed, everything = logs["read_committed"], logs["read_uncommitted"]
        appends = [attempt for attempt in whole if attempt.f == "append"]
        commits = {attempt.asked["transaction"]: attempt for attempt in whole if attempt.f == "commit"}
        transactions = {append.asked["transaction"]: _transaction(append, commits) for append in appends}
        fences = _Fences([attempt for attempt in whole if attempt.f == "init" and attempt.type == "ok"])
        findings = [
            *committed.findings,
            *everything.findings,
            *judge(transactions.values(), committed, owned=committed.values),
            *_commits_of_zombies(fences, commits, transactions, committed),
            *_appends_of_zombies(fences, appends, everything),
            *_alternating(everything, appends, fences),
        ]
        figures = {
            "taken": len(fences),
            "transactions": len(appends),
            "committed": sum(transaction.outcome == "ok" for transaction in transactions.values()),
            "unknown": sum(transaction.outcome == "info" for transaction in transactions.values()),
            "fenced": sum("Fenced" in (attempt.error or "") for attempt in whole),
            "begun by zombies": sum(
                fences.before(attempt) is not None for attempt in whole if attempt.f in ("append", "commit")
            ),
        }
        places = {record.place for transaction in transactions.values() for record in transaction.records}
        return concluded(history, findings, figures, complete=places <= committed.complete & everything.complete)


class _Fences:
    """Processes and the times at which they took each id."""

    def __init__(self, inits: Sequence[Attempt]) -> None:
        self._began = {init.process: init.began for init in inits}
        self._ended = {init.process: init.ended for init in inits}
        self._by_id: dict[str, list[Attempt]] = {}
        for init in sorted(inits, key=lambda init: init.ended):
            self._by_id.setdefault(init.asked["id"], []).append(init)

    def __len__(self) -> int:
        return len(self._began)

    def is_older(self, process: int, other: int) -> bool:
        """It took the id surely before the other one did."""
        return self._ended.get(process, -1) < self._began.get(other, -1)

    def before(self, attempt: Attempt) -> Attempt | None:
        """The first surely newer process's taking of this one's id, if that was over before `attempt` began."""
        mine = self._ended.get(attempt.process)
        if mine is None:
            return None
        inits = self._by_id[attempt.asked["id"]]
        for init in inits[bisect_right(inits, mine, key=lambda init: init.ended) :]:
            if init.ended > attempt.began:
                return None
            if init.began > mine:
                return init
        return None


def _transaction(append: Attempt, commits: Mapping[int, Attempt]) -> Transaction:
    number = append.asked["transaction"]
    commit = commits.get(number)
    records = [Record(Place(topic, partition), frozen(record)) for topic, partition, record in append.asked["records"]]
    evidence = [*append.evidence, *(commit.evidence if commit else ())]
    return Transaction(f"transaction {number}", commit.type if commit else "fail", evidence, records)


def _commits_of_zombies(
    fences: _Fences, commits: Mapping[int, Attempt], transactions: Mapping[int, Transaction], logs: Logs
) -> list[Finding]:
    findings = []
    for number, commit in commits.items():
        if (fence := fences.before(commit)) is None:
            continue
        seen = [record for record in transactions[number].records if record.value in _values(logs, record.place)]
        if commit.type == "ok" or seen:
            text = (
                f"process {commit.process} committed transaction {number}, though process {fence.process} had taken "
                f"{commit.asked['id']} before"
            )
            evidence = sorted({*fence.evidence, *transactions[number].evidence})
            findings.append(Finding("zombie-commit", commit.asked["id"], evidence, text))
    return findings


def _appends_of_zombies(fences: _Fences, appends: Sequence[Attempt], logs: Logs) -> list[Finding]:
    findings = []
    for append in appends:
        if (fence := fences.before(append)) is None:
            continue
        for topic, partition, record in append.asked["records"]:
            place = Place(topic, partition)
            if frozen(record) in _values(logs, place):
                text = (
                    f"process {append.process} began to send {record} to {place}, where it stands, when process "
                    f"{fence.process} had taken {append.asked['id']}"
                )
                evidence = sorted({*fence.evidence, *append.evidence})
                findings.append(Finding("zombie-append", str(place), evidence, text))
    return findings


def _values(logs: Logs, place: Place) -> Mapping[Any, int]:
    return logs.offset_of.get(place, {})


def _alternating(logs: Logs, appends: Sequence[Attempt], fences: _Fences) -> list[Finding]:
    """In each partition the processes of one id stand one behind the other, the older ones first."""
    ids = {append.process: append.asked["id"] for append in appends}
    by_number = {append.asked["transaction"]: append for append in appends}
    findings = []
    for place, log in logs.values.items():
        latest: dict[str, int] = {}
        over: dict[str, dict[int, None]] = {}
        for offset, (process, number, _) in log.items():
            if (id_ := ids.get(process)) is None:
                continue
            before = latest.setdefault(id_, process)
            if before == process:
                continue
            over.setdefault(id_, {})[before] = None
            latest[id_] = process
            if process in over[id_] or fences.is_older(process, before):
                text = (
                    f"offset {offset} of {place} is of process {process}, behind those of {before}, which had fenced it"
                )
                evidence = by_number[number].evidence if number in by_number else []
                findings.append(Finding("zombie-append", str(place), evidence, text))
                latest[id_] = before
    return findings
