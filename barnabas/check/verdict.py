"""Core: the verdict of a run: one line, an exit code, and the findings that decide."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from barnabas.check.judge import Finding
from barnabas.check.promises import Kind, Promise

HOLDS, BROKEN, CANNOT_RUN = 0, 1, 2
"""Exit codes."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of one run."""

    promise: Promise
    seed: int
    findings: Sequence[Finding]
    """All of them; those that do not break the promise are legal."""
    figures: Mapping[str, int] = field(default_factory=dict)
    """Numbers of inputs, outputs, faults and starts, by name."""
    notes: Sequence[str] = ()
    """Further remarks, a line each."""

    @property
    def broken(self) -> list[Finding]:
        return [each for each in self.findings if each.kind in self.promise.broken_by]

    @property
    def counts(self) -> Mapping[Kind, int]:
        """Number of findings that break the promise, by kind."""
        found = Counter(each.kind for each in self.broken)
        return {kind: found[kind] for kind in Kind if found[kind]}

    @property
    def legal_counts(self) -> Mapping[Kind, int]:
        """Number of findings that the promise allows, by kind."""
        found = Counter(each.kind for each in self.findings if each.kind not in self.promise.broken_by)
        return {kind: found[kind] for kind in Kind if found[kind]}

    @property
    def holds(self) -> bool:
        return not self.broken

    @property
    def exit_code(self) -> int:
        return HOLDS if self.holds else BROKEN

    @property
    def line(self) -> str:
        """The verdict on one line."""
        what = "holds" if self.holds else f"is broken: {_counted(self.counts)}"
        numbers = ", ".join(f"{count} {name}" for name, count in self.figures.items())
        return f"{self.promise} {what} ({numbers}; seed {self.seed})"

    def chosen(self, most: int) -> list[Finding]:
        """Up to `most` findings of each kind that break the promise, far from each other: neighbours have the same
        cause."""
        chosen = []
        for kind in self.counts:
            found = [each for each in self.broken if each.kind is kind]
            step = max(1.0, len(found) / most)
            chosen += [found[int(place * step)] for place in range(min(most, len(found)))]
        return chosen


def _counted(counts: Mapping[Kind, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in counts.items())
