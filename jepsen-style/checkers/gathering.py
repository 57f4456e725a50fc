"""Findings of one checker, few of each kind kept and all of them counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from checkers.verdict import Finding, Verdict

KEPT = 40
"""Findings kept of each anomaly, legal and not: more do not help, and a run can have a million."""


class Gathered:
    """Grows while a checker looks."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.counts: dict[str, int] = {}
        self._kept: dict[tuple[str, bool], int] = {}

    def add(self, finding: Finding) -> None:
        self._count(finding.anomaly, finding.legal, 1)
        if self._room(finding.anomaly, finding.legal):
            self._keep(finding)

    def add_rows(self, anomaly: str, rows: Sequence[Any], describe: Callable[[Any], Finding], *, legal: bool) -> None:
        """One finding per row; `describe` is called only for those that are kept."""
        if not len(rows):
            return
        self._count(anomaly, legal, len(rows))
        for row in rows[: self._room(anomaly, legal)]:
            self._keep(describe(row))

    def add_apart(
        self,
        anomaly: str,
        rows: Sequence[Any],
        describe: Callable[[Any, bool], Finding],
        *,
        legal: bool,
        excused: Callable[[Any], bool] | None,
    ) -> None:
        """Like `add_rows`; `excused` marks the legal ones if not all are. `describe` gets that as well."""
        if legal or excused is None:
            self.add_rows(anomaly, rows, lambda row: describe(row, legal), legal=legal)
            return
        allowed = [excused(row) for row in rows]
        bugs = [row for row, is_legal in zip(rows, allowed, strict=True) if not is_legal]
        self.add_rows(anomaly, bugs, lambda row: describe(row, False), legal=False)
        others = [row for row, is_legal in zip(rows, allowed, strict=True) if is_legal]
        self.add_rows(anomaly, others, lambda row: describe(row, True), legal=True)

    def verdict(self, figures: Mapping[str, Any] | None = None) -> Verdict:
        """False if anything was found that is not legal."""
        bad = any(not finding.legal for finding in self.findings)
        return Verdict("false" if bad else "true", self.findings, {**self.counts, **(figures or {})})

    def _count(self, anomaly: str, legal: bool, count: int) -> None:
        name = _counted_as(anomaly, legal)
        self.counts[name] = self.counts.get(name, 0) + count

    def _room(self, anomaly: str, legal: bool) -> int:
        return KEPT - self._kept.get((anomaly, legal), 0)

    def _keep(self, finding: Finding) -> None:
        kind = (finding.anomaly, finding.legal)
        self._kept[kind] = self._kept.get(kind, 0) + 1
        self.findings.append(finding)


def in_order(operations: Iterable[int]) -> list[int]:
    """Each once."""
    return sorted({int(i) for i in operations})


def counts_of(kept: Iterable[tuple[str, bool]], figures: Mapping[str, Any]) -> dict[tuple[str, bool], int]:
    """Count of each (anomaly, whether it is legal), including findings that were not kept: from a merged verdict's
    figures, and never less than the kept ones."""
    return {
        (anomaly, legal): max(count, _count(figures, _counted_as(anomaly, legal)))
        for (anomaly, legal), count in Counter(kept).items()
    }


def _count(figures: Mapping[str, Any], name: str) -> int:
    """Sum over all checkers."""
    counts = [each.get(name) for each in figures.values() if isinstance(each, Mapping)]
    return sum(each for each in counts if isinstance(each, int))


def _counted_as(anomaly: str, legal: bool) -> str:
    return f"{anomaly} (legal)" if legal else anomaly
