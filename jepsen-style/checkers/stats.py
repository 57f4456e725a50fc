"""Counts of successful operations by kind. A run in which one kind never succeeded proves nothing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from checkers.verdict import Verdict
from histories.faults import EVERYTHING
from histories.history import FAIL, INFO, OK, History

EXCEPTED = ("crash", "debug")
"""They never are ok, or need not be."""


@dataclass(frozen=True)
class Stats:
    """Counts."""

    name: str = "stats"

    def check(self, history: History) -> Verdict:
        operations = history.operations
        counts: dict[str, dict[str, int]] = {}
        for number, f in enumerate(history.fs):
            outcome = operations.outcome[operations.f == number]
            if len(outcome):
                named = (("ok", OK), ("fail", FAIL), ("info", INFO))
                counts[f] = {name: int((outcome == type_).sum()) for name, type_ in named}
        errors = history.lines.error[history.lines.error >= 0]
        figures = {
            "operations": len(operations),
            "by f": counts,
            "errors": {history.errors[number]: int((errors == number).sum()) for number in np.unique(errors).tolist()},
            "faults": sum(fault.number != EVERYTHING for fault in history.faults),
        }
        never = [f for f, count in counts.items() if f not in EXCEPTED and not count["ok"]]
        if not len(operations):
            return Verdict("unknown", (), figures, "nothing was ever asked of the cluster")
        if never:
            return Verdict(
                "unknown", (), figures, f"no {' and no '.join(never)} ever succeeded: this run proves nothing"
            )
        return Verdict("true", (), figures)
