"""Checks that a group kept its promises to its members: the workload `group`.

- `two-owners`: in one generation (KIP-848: member epoch) two members owned a partition. A static member is one member
  in all its lives. Overlapping in time is legal: a member that was removed may not know it yet, and its generation is
  over.
- `generation-regress`: a member was given partitions in a generation below one it had been in.
- `gap`: an offset was committed, and no member had polled the record before it.
- `lost-commit`: a member that was given a partition began below an offset whose commit had been acknowledged before the
  partition became its; or the group's offset at the end is below one.
- `commit-regress`: within one generation a partition's later commit was lower.
- `stale-generation`: in the classic protocol a commit was acknowledged in a generation, and began when a later one had
  been given to members already. (With KIP-848 every member has an epoch of its own; and where members keep what they
  own through a rebalance, no member learns of its generation.)
- `unprocessed`: a record is in the log, and no member got it, though the group had the time.

A new owner begins where the coordinator says; a deposed coordinator assigns no partition, since it would have to
replicate that. So a stale response excuses none of these. One thing that Kafka allows would look like a lost commit: a
request that a client gave up and sent again over another connection may take effect after the second one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from checkers.attempts import NEVER, Attempt, attempts
from checkers.readings import Logs, concluded, gather, readings_of
from checkers.transactions import Record, Transaction, judge
from checkers.verdict import Finding, Verdict
from operations import Place

_SHOWN = 20
"""Records of one partition that are reported one by one."""


class GroupChecker:
    """Checker for the options of one run."""

    name = "group"

    def __init__(self, *, idempotence: bool = True, protocol: str = "classic") -> None:
        self._idempotence = idempotence
        self._protocol = protocol

    def check(self, history: Any) -> Verdict:
        whole = attempts(history)
        logs = gather(readings_of(whole))
        work = [attempt for attempt in whole if attempt.f == "work"]
        feeds = [_feed(attempt) for attempt in whole if attempt.f == "feed"]
        at_end = _at_end(whole)
        polled, commits = _Polled(), _Commits()
        ownership = _Ownership(begins_again=self._protocol == "mixed")
        findings: list[Finding] = []
        for attempt in sorted(work, key=lambda attempt: attempt.ended):
            ownership.observe(attempt)
            commits.observe(attempt, ownership.generation.get(attempt.process))
            polled.observe(attempt)
        written = judge(feeds, logs, owned=logs.values)
        if not self._idempotence:
            written = [_excused(finding) for finding in written]
        findings += [*logs.findings, *written, *ownership.findings, *commits.findings]
        findings += _gaps(logs, polled, commits, blind=_is_blind(work))
        findings += _lost_commits(ownership, commits, at_end)
        if self._protocol == "classic" and not ownership.keeps:
            findings += _stale_generations(ownership, commits)
        findings += _unprocessed(logs, polled, feeds) if at_end else []
        places = {record.place for feed in feeds for record in feed.records}
        figures = {
            "fed": sum(feed.outcome == "ok" for feed in feeds),
            "records polled": sum(len(found) for found in polled.first.values()),
            "polled again": polled.again,
            "commits": sum(len(found) for found in commits.acknowledged.values()),
            "generations": len({generation for _, generation in ownership.owners}),
            "partitions given": ownership.given,
            "rebalances": ownership.rebalances,
        }
        return concluded(history, findings, figures, complete=bool(at_end) and places <= logs.complete)


def _feed(attempt: Attempt) -> Transaction:
    record = Record(Place(*attempt.asked["place"]), attempt.asked["value"])
    return Transaction(f"feed {attempt.asked['value']}", attempt.type, attempt.evidence, [record])


def _excused(finding: Finding) -> Finding:
    if finding.anomaly != "duplicate":
        return finding
    return Finding(finding.anomaly, finding.where, finding.operations, finding.description, legal=True)


def _at_end(whole: Sequence[Attempt]) -> dict[Place, tuple[int, Attempt]]:
    """Committed offsets of the group in the last response to OffsetFetch."""
    offsets: dict[Place, tuple[int, Attempt]] = {}
    for attempt in whole:
        if attempt.f == "committed" and attempt.type == "ok":
            for topic, partition, offset in attempt.value["offsets"]:
                offsets[Place(topic, partition)] = offset, attempt
    return offsets


def _is_blind(work: Iterable[Attempt]) -> bool:
    """Whether polls and commits may be missing from the history."""
    return any(attempt.type == "info" and "parts" not in attempt.value for attempt in work)


@dataclass(slots=True)
class _Tenure:
    """A member was given a partition."""

    place: Place
    given: Attempt
    first: int | None = None
    """The first offset it polled."""


@dataclass(slots=True)
class _Ownership:
    """Owners of each partition."""

    owners: dict[tuple[Place, int], dict[str, Attempt]] = field(default_factory=dict)
    """By partition and generation: members."""
    generation: dict[int, int] = field(default_factory=dict)
    """Generation of each process."""
    tenures: list[_Tenure] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    generations: list[tuple[int, int, Attempt]] = field(default_factory=list)
    """Times at which members got each generation, in the order of completions."""
    in_generation: dict[int, int] = field(default_factory=dict)
    """By `began` of an operation, in which its member was at its end."""
    begins_again: bool = False
    """Members have both protocols: an empty classic group gives way to a consumer group, which begins again."""
    keeps: bool = False
    """Some member kept partitions through a rebalance."""
    given: int = 0
    rebalances: int = 0
    _owned: dict[int, dict[Place, _Tenure]] = field(default_factory=dict)
    _reported: set[tuple[Place, int]] = field(default_factory=set)

    def observe(self, attempt: Attempt) -> None:
        """In the order of completions."""
        owned = self._owned.setdefault(attempt.process, {})
        for event in attempt.note.get("rebalances", ()):
            self.rebalances += 1
            places = [Place(*place) for place in event["places"]]
            if event["kind"] != "assigned":
                for place in places:
                    owned.pop(place, None)
                continue
            self.given += len(places)
            self.keeps = self.keeps or bool(owned)
            for place in places:
                owned[place] = _Tenure(place, attempt)
                self.tenures.append(owned[place])
            generation = event.get("generation")
            if generation is not None and generation >= 0:
                self._claim(attempt, owned, generation)
        for topic, partition, first, *_ in attempt.value.get("parts", ()):
            tenure = owned.get(Place(topic, partition))
            if tenure is not None and tenure.first is None:
                tenure.first = first
        if attempt.process in self.generation:
            self.in_generation[attempt.began] = self.generation[attempt.process]

    def _claim(self, attempt: Attempt, owned: Iterable[Place], generation: int) -> None:
        member = attempt.asked["member"]
        before = self.generation.get(attempt.process, generation)
        if before > generation:
            text = f"{member} was given partitions in generation {generation}, and had been in {before}"
            self.findings.append(Finding("generation-regress", member, attempt.evidence, text))
        self.generation[attempt.process] = generation
        self.generations.append((attempt.ended, generation, attempt))
        for place in owned:
            members = self.owners.setdefault((place, generation), {})
            if self.begins_again:
                self._forget_earlier_group(members, generation)
            members.setdefault(member, attempt)
            if len(members) > 1 and (place, generation) not in self._reported:
                self._reported.add((place, generation))
                text = f"in generation {generation} {place} was of {' and of '.join(members)}"
                evidence = sorted({i for other in members.values() for i in other.evidence})
                self.findings.append(Finding("two-owners", str(place), evidence, text))

    def _forget_earlier_group(self, members: dict[str, Attempt], generation: int) -> None:
        """Remove owners of a generation that ended before somebody was given a later one."""
        later = max((ended for ended, other, _ in self.generations if other > generation), default=-1)
        for member in [member for member, given in members.items() if given.ended < later]:
            del members[member]


@dataclass(slots=True)
class _Polled:
    """By members."""

    first: dict[Place, dict[int, int]] = field(default_factory=dict)
    """Earliest invocation of a poll of each offset."""
    again: int = 0

    def observe(self, attempt: Attempt) -> None:
        for topic, partition, _, _, records in attempt.value.get("parts", ()):
            first = self.first.setdefault(Place(topic, partition), {})
            for offset, _ in records:
                known = first.get(offset)
                self.again += known is not None
                if known is None or attempt.began < known:
                    first[offset] = attempt.began


@dataclass(slots=True)
class _Commits:
    """Acknowledged ones."""

    acknowledged: dict[Place, list[tuple[int, Attempt]]] = field(default_factory=dict)
    """In the order of completions."""
    findings: list[Finding] = field(default_factory=list)
    _latest: dict[tuple[Place, int], tuple[int, Attempt]] = field(default_factory=dict)

    def observe(self, attempt: Attempt, generation: int | None) -> None:
        for topic, partition, offset in attempt.value.get("committed") or ():
            place = Place(topic, partition)
            self.acknowledged.setdefault(place, []).append((offset, attempt))
            if generation is None:
                continue
            before = self._latest.get((place, generation))
            if before is not None and before[0] > offset and before[1].ended < attempt.began:
                text = f"in generation {generation} {before[0]} was committed of {place}, and later {offset}"
                evidence = sorted({*before[1].evidence, *attempt.evidence})
                self.findings.append(Finding("commit-regress", str(place), evidence, text))
            if before is None or offset >= before[0]:
                self._latest[place, generation] = offset, attempt

    def highest_before(self, place: Place) -> _Highest:
        return _Highest(self.acknowledged.get(place, ()))


class _Highest:
    """The highest offset of a partition that had been committed by some moment."""

    def __init__(self, commits: Sequence[tuple[int, Attempt]]) -> None:
        self._commits = commits
        self._ended = np.asarray([attempt.ended for _, attempt in commits], np.int64)
        offsets = np.asarray([offset for offset, _ in commits], np.int64)
        self._highest = np.maximum.accumulate(offsets) if len(offsets) else offsets

    def before(self, moment: int) -> tuple[int, Attempt] | None:
        count = int(np.searchsorted(self._ended, moment))
        if not count:
            return None
        offset = int(self._highest[count - 1])
        return offset, self._commits[int(np.searchsorted(self._highest, offset))][1]

    def first_beyond(self, offsets: Iterable[int]) -> Iterator[tuple[int, Attempt | None]]:
        """For each offset the first commit of a higher one."""
        for offset in offsets:
            index = int(np.searchsorted(self._highest, offset, side="right"))
            yield offset, self._commits[index][1] if index < len(self._commits) else None


def _gaps(logs: Logs, polled: _Polled, commits: _Commits, *, blind: bool) -> list[Finding]:
    findings: list[Finding] = []
    for place, log in logs.values.items():
        first = polled.first.get(place, {})
        count = 0
        for offset, commit in commits.highest_before(place).first_beyond(log):
            if commit is None or first.get(offset, NEVER) < commit.ended or count >= _SHOWN:
                continue
            count += 1
            text = f"offset {offset} of {place} was passed by a commit, and no member had polled it"
            evidence = sorted({*commit.evidence, logs.read_by[place][offset]})
            findings.append(Finding("gap", str(place), evidence, text, legal=blind))
    return findings


def _lost_commits(
    ownership: _Ownership, commits: _Commits, at_end: Mapping[Place, tuple[int, Attempt]]
) -> list[Finding]:
    findings: list[Finding] = []
    highest = {place: commits.highest_before(place) for place in commits.acknowledged}
    for tenure in ownership.tenures:
        if tenure.first is None or tenure.place not in highest:
            continue
        before = highest[tenure.place].before(tenure.given.began)
        if before is not None and tenure.first < before[0]:
            text = f"{before[0]} was committed of {tenure.place}, and its next owner began at {tenure.first}"
            evidence = sorted({*before[1].evidence, *tenure.given.evidence})
            findings.append(Finding("lost-commit", str(tenure.place), evidence, text))
    for place, found in highest.items():
        if not at_end:
            break
        offset, answered_by = at_end.get(place, (0, next(iter(at_end.values()))[1]))
        before = found.before(answered_by.began)
        if before is not None and offset < before[0]:
            text = f"{before[0]} was committed of {place}, and at the end it is {offset}"
            evidence = sorted({*before[1].evidence, *answered_by.evidence})
            findings.append(Finding("lost-commit", str(place), evidence, text))
    return findings


def _stale_generations(ownership: _Ownership, commits: _Commits) -> list[Finding]:
    ended = np.asarray([ended for ended, _, _ in ownership.generations], np.int64)
    numbers = np.asarray([generation for _, generation, _ in ownership.generations], np.int64)
    highest = np.maximum.accumulate(numbers) if len(numbers) else numbers
    findings: list[Finding] = []
    for attempt in {each.began: each for found in commits.acknowledged.values() for _, each in found}.values():
        mine = ownership.in_generation.get(attempt.began)
        count = int(np.searchsorted(ended, attempt.began))
        if mine is None or not count or int(highest[count - 1]) <= mine:
            continue
        _, later, given = ownership.generations[int(np.searchsorted(highest, mine, side="right"))]
        text = f"{attempt.asked['member']} committed in generation {mine}, when members had been given {later}"
        evidence = sorted({*given.evidence, *attempt.evidence})
        findings.append(Finding("stale-generation", attempt.asked["member"], evidence, text))
    return findings


def _unprocessed(logs: Logs, polled: _Polled, feeds: Sequence[Transaction]) -> list[Finding]:
    findings: list[Finding] = []
    for feed in feeds:
        [(place, value)] = feed.records
        offset = logs.offset_of.get(place, {}).get(value)
        if offset is not None and offset not in polled.first.get(place, {}):
            text = f"{value} at offset {offset} of {place} was given to no member"
            findings.append(Finding("unprocessed", str(place), feed.evidence, text))
    return findings
