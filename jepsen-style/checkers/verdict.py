"""Findings and verdicts of checkers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

Valid = Literal["true", "false", "unknown"]

_RANK: dict[str, int] = {"true": 0, "unknown": 1, "false": 2}


@dataclass(frozen=True, slots=True)
class Finding:
    """One anomaly, with the evidence that shows it."""

    anomaly: str
    """Its name in the table of `legality`: `lost-write`, `duplicate`, ..."""
    where: str
    """Partition, group or node."""
    operations: Sequence[int]
    """The `i` of the operations that show it, in their order."""
    description: str
    """One sentence for people."""
    legal: bool = False
    """Kafka allows it under this run's options: it is reported, and does not make the run invalid."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict of one checker, or of all together."""

    valid: Valid
    findings: Sequence[Finding] = ()
    figures: Mapping[str, Any] = field(default_factory=dict)
    """Numbers for the report, JSON values: `{"unseen": 0, "longest gap": 1.2}`. Merged ones stand under the checker's
    name."""
    unknown_because: str = ""


class Checker(Protocol):
    """A pure function over a history. `histories.history.History` gives columns, never an object for each operation."""

    @property
    def name(self) -> str: ...

    def check(self, history: Any) -> Verdict: ...


def merge(verdicts: Mapping[str, Verdict]) -> Verdict:
    """The worst of all, with everything found; figures under each checker's name."""
    worst: Valid = max((verdict.valid for verdict in verdicts.values()), key=_RANK.__getitem__, default="unknown")
    return Verdict(
        worst,
        [finding for verdict in verdicts.values() for finding in verdict.findings],
        {name: verdict.figures for name, verdict in verdicts.items()},
        "; ".join(f"{name}: {each.unknown_because}" for name, each in verdicts.items() if each.unknown_because),
    )
