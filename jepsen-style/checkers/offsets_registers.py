"""Checks that committed offsets stay committed: the workload `offsets`.

Each register, a partition's offset of a group, is written by one thread after the other of its operations, with numbers
that grow, so that every number shows its age:

- `lost-commit`: at the end, when the cluster was healed, a register is older than a commit that had been acknowledged;
- `stale-commit`: the same in the middle of a run. It is legal for as long as a lease lasts: a coordinator that is cut
  off from the others continues to answer clients until it has been isolated for a session. What is really lost is lost
  at the end as well, since a register is soon left alone;
- `deposed-coordinator`: the same, while nothing is wrong with any link but that a broker is cut off from all nodes, and
  has been for two sessions: it has to know that others may coordinate, and the others do know;
- `late-commit`: it is older, and has the number of a commit with an unknown outcome. Legal: commits of a group without
  members carry no generation and no sequence, so that one that was on its way still may overtake;
- `unexpected-offset`: a number that was never committed, or only by a commit that surely failed.

One thing that Kafka allows would look like a lost commit: a request that a client gave up and sent again over another
connection may take effect after the second one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from checkers.attempts import NEVER, Attempt, attempts
from checkers.readings import concluded
from checkers.verdict import Finding, Verdict
from histories.faults import Fault
from nemeses.kinds import names
from operations import Place

_NONE = 0
"""Value of a register before its first commit."""


SESSION_MS = 9_000
"""Kafka's broker.session.timeout.ms."""
LEASES = 2
DISTURBING = names(disturbs=True)
"""Kinds of faults under which a broker may be partly connected and not know that it was deposed."""


@dataclass(frozen=True, slots=True)
class RegistersChecker:
    """Pure."""

    session_ms: int = SESSION_MS
    """Session timeout of brokers."""

    name: ClassVar[str] = "offsets"

    def check(self, history: Any) -> Verdict:
        times = _surely_known(getattr(history, "faults", ()), LEASES * self.session_ms * 1_000_000)
        whole = attempts(history)
        commits = [attempt for attempt in whole if attempt.f == "commit"]
        fetches = [attempt for attempt in whole if attempt.f == "fetch" and attempt.type == "ok"]
        registers = _registers(commits)
        findings: list[Finding] = []
        for fetch in fetches:
            read = {Place(topic, partition): number for topic, partition, number in fetch.value["offsets"]}
            for place, register in registers.get(fetch.asked["group"], {}).items():
                found = register.judge(read.get(place, _NONE), fetch, times)
                if found is not None:
                    findings.append(found)
        final = {fetch.asked["group"] for fetch in fetches if fetch.asked["final"]}
        figures = {
            "registers": sum(len(each) for each in registers.values()),
            "commits": sum(commit.type == "ok" for commit in commits),
            "unknown": sum(commit.type == "info" for commit in commits),
            "fetches": len(fetches),
        }
        return concluded(history, findings, figures, complete=registers.keys() <= final)


@dataclass(slots=True)
class _Register:
    """Writes to one register."""

    group: str
    place: Place
    by_number: dict[int, Attempt] = field(default_factory=dict)
    acknowledged: list[tuple[int, int]] = field(default_factory=list)
    """(when, number), in both orders."""

    def judge(self, number: int, fetch: Attempt, times: Sequence[tuple[int, int]]) -> Finding | None:
        index = bisect_left(self.acknowledged, (fetch.began, _NONE))
        newest = self.acknowledged[index - 1][1] if index else _NONE
        write = self.by_number.get(number)
        if number != _NONE and (write is None or write.type == "fail" or write.began > fetch.ended):
            text = f"{self.group} has {number} for {self.place}, which was never committed"
            return Finding("unexpected-offset", f"{self.group} {self.place}", self._evidence(fetch, write), text)
        if number >= newest:
            return None
        text = f"{self.group} has {number} for {self.place}, and {newest} had been committed"
        evidence = self._evidence(fetch, write, self.by_number[newest])
        where = f"{self.group} {self.place}"
        if write is not None and write.type == "info":
            return Finding("late-commit", where, evidence, text, legal=True)
        if fetch.asked["final"]:
            return Finding("lost-commit", where, evidence, text)
        if any(began <= fetch.began_ns and fetch.ended_ns <= ended for began, ended in times):
            return Finding("deposed-coordinator", where, evidence, text)
        return Finding("stale-commit", where, evidence, text, legal=True)

    @staticmethod
    def _evidence(fetch: Attempt, *writes: Attempt | None) -> Sequence[int]:
        return sorted({*fetch.evidence, *(i for write in writes if write is not None for i in write.evidence)})


def _surely_known(faults: Iterable[Fault], lease_ns: int) -> list[tuple[int, int]]:
    """Periods (began, ended) in which brokers had been cut off for a lease and no other fault of links held."""
    faults = list(faults)
    found = []
    for fault in faults:
        if fault.kind != "cut-off" or fault.acted_ns is None:
            continue
        ended = NEVER if fault.ended_ns is None else fault.ended_ns
        disturbed = [each for each in faults if each.kind in DISTURBING and (each.ended_ns or NEVER) >= fault.began_ns]
        newer = [each for each in faults if each.kind == "cut-off" and each.began_ns > fault.began_ns]
        until = min([ended, *(each.began_ns for each in (*disturbed, *newer))])
        if fault.acted_ns + lease_ns < until:
            found.append((fault.acted_ns + lease_ns, until))
    return found


def _registers(commits: Iterable[Attempt]) -> dict[str, dict[Place, _Register]]:
    """By group and partition."""
    found: dict[str, dict[Place, _Register]] = {}
    for commit in commits:
        group = commit.asked["group"]
        for topic, partition, number in commit.asked["offsets"]:
            place = Place(topic, partition)
            register = found.setdefault(group, {}).setdefault(place, _Register(group, place))
            register.by_number[number] = commit
            if commit.type == "ok":
                register.acknowledged.append((commit.ended, number))
    return found
