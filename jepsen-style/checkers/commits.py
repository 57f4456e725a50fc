"""Committed offsets that went back.

A consumer may commit what is lower than before, after a rebalance gave it back what another had not committed. So two
things are looked for: an acknowledged commit below an earlier one of the same generation (in which only one member has
the partition), and an offset from the coordinator below one whose commit was acknowledged before the request, if no
lower offset can have been committed since.

The second is legal during faults: a coordinator that is cut off from the others continues to answer clients that reach
it, and does not know about commits elsewhere. Once everything is healed and quiet (`settled` in the note) it is a bug.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, NamedTuple

from checkers.budget_of_loss import budget_of
from checkers.gathering import Gathered, in_order
from checkers.verdict import Finding, Verdict
from histories.history import History
from operations import place_of

NEVER = 1 << 62


class Commit(NamedTuple):
    """An attempt to commit one offset."""

    i: int
    began: int
    ended: int
    """NEVER if it is unknown whether and when it took place."""
    offset: int
    generation: int
    """-1 if unknown."""


class Sight(NamedTuple):
    """A committed offset in a response of the coordinator; -1: none."""

    i: int
    began: int
    ended: int
    offset: int
    settled: bool = True
    """Everything was healed and quiet."""


@dataclass
class Committed:
    """Commits of one partition in one group. Times are indexes in the history."""

    commits: list[Commit] = field(default_factory=list)
    sights: list[Sight] = field(default_factory=list)

    def steps_back(self) -> Iterable[tuple[Commit, Commit]]:
        """Acknowledged commits of one generation, in which the partition has one owner, be it in two lives: the later
        one, sent after the other was acknowledged, is lower."""
        generations: dict[int, list[Commit]] = {}
        for commit in self.commits:
            if commit.ended < NEVER and commit.generation >= 0:
                generations.setdefault(commit.generation, []).append(commit)
        for commits in generations.values():
            # They stand in the order of their acknowledgements.
            ended = [commit.ended for commit in commits]
            for commit in commits:
                place = bisect_left(ended, commit.began)
                if place and commit.offset < commits[place - 1].offset:
                    yield commits[place - 1], commit

    def regressions(self) -> Iterable[tuple[Commit, Sight]]:
        """Each sight of what is too low, with an acknowledged commit that shows it."""
        done = sorted((commit for commit in self.commits if commit.ended < NEVER), key=lambda commit: commit.ended)
        ended = [commit.ended for commit in done]
        highest = list(accumulate((commit.offset for commit in done), max))
        for sight in self.sights:
            before = bisect_left(ended, sight.began)
            if not before or highest[before - 1] <= sight.offset:
                continue
            last = [commit for commit in done[:before] if commit.offset > sight.offset]
            for commit in reversed(last):
                explained = any(
                    other.offset <= sight.offset and other.ended > commit.began and other.began < sight.ended
                    for other in self.commits
                )
                if not explained:
                    yield commit, sight
                    break


@dataclass(frozen=True)
class Commits:
    """Finds committed offsets that went back, from notes."""

    name: str = "commits"

    def check(self, history: History) -> Verdict:
        found: list[Finding] = []
        known: dict[tuple[str, str], Committed] = {}
        for i in history.commit_lines.tolist():
            completion = history.operation(i)
            note, began = completion.note, int(history.invocations[i])
            group = str(note.get("group", ""))
            generation = note.get("generation")
            generation = -1 if generation is None else int(generation)
            ended = i if completion.type == "ok" else NEVER
            for name, offset in _offsets(note, "committed"):
                committed = known.setdefault((group, name), Committed())
                committed.commits.append(Commit(i, began, ended, offset, generation))
            for name, offset in _offsets(note, "committed_seen"):
                sight = Sight(i, began, i, offset, bool(note.get("settled")))
                known.setdefault((group, name), Committed()).sights.append(sight)
        for (group, name), committed in known.items():
            where = f"{group} {name}".strip()
            for commit, later in committed.steps_back():
                text = f"in generation {commit.generation} operation {commit.i} committed {commit.offset} of {where}"
                text += f", and operation {later.i} committed {later.offset} after it"
                found.append(_finding(where, (commit.i, later.i), text))
            for commit, sight in committed.regressions():
                text = f"operation {commit.i} committed {commit.offset} of {where}, and operation {sight.i} got"
                text += f" {sight.offset} later, which was not committed since"
                found.append(_finding(where, (commit.i, sight.i), text, legal=not sight.settled))
        gathered = Gathered()
        for finding in budget_of(history).excused(found):
            gathered.add(finding)
        return gathered.verdict(
            {
                "commits": sum(len(each.commits) for each in known.values()),
                "sights": sum(len(each.sights) for each in known.values()),
            }
        )


def _finding(where: str, operations: tuple[int, int], text: str, *, legal: bool = False) -> Finding:
    return Finding("commit-regress", where, in_order(operations), f"{text[0].upper()}{text[1:]}", legal)


def _offsets(note: Mapping[str, Any], name: str) -> Iterable[tuple[str, int]]:
    for place, offset in (note.get(name) or {}).items():
        yield str(place_of(int(place))) if place.isdigit() else place, -1 if offset is None else offset
