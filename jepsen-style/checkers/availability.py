"""How long clients had to wait: the longest time without an acknowledged write for each fault, and how fast writes came
back after it; and whether that is within the run's budgets.

A fault's time goes from its beginning to the beginning of the next one, or to the end of what was asked of the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from checkers.arrays import Ints
from checkers.gathering import Gathered
from checkers.verdict import Finding, Verdict
from histories.faults import EVERYTHING, Fault
from histories.history import OK, SEND, History

QUANTILES = (0.5, 0.9, 0.99, 1.0)
AFTERMATH_NS = 30_000_000_000
"""A fault with no other after it is answered for so long."""


@dataclass(frozen=True)
class Availability:
    """Measures, and finds what is over budget."""

    budgets: Mapping[str, float] = field(default_factory=dict)
    """Kind of fault to the longest time without an acknowledged write, in seconds; `any` for all kinds, `recovery` for
    the time from a fault's end to the next acknowledged write."""
    name: str = "availability"

    def check(self, history: History) -> Verdict:
        gathered = Gathered()
        acked_ns = _acknowledged_ns(history)
        faults = [fault for fault in history.faults if fault.number != EVERYTHING]
        if not len(acked_ns):
            return gathered.verdict({"longest gap": None})
        gaps: dict[str, list[float]] = {}
        recoveries: dict[str, list[float]] = {}
        told: list[dict[str, Any]] = []
        for index, fault in enumerate(faults):
            gap = self._gap(fault, faults[index + 1 :], acked_ns)
            recovery = _recovery(fault, acked_ns)
            gaps.setdefault(fault.kind, []).append(gap)
            if recovery is not None:
                recoveries.setdefault(fault.kind, []).append(recovery)
            told.append({"number": fault.number, "kind": fault.kind, "gap": gap, "recovery": recovery})
            for limit, seconds, what in (
                (self.budgets.get(fault.kind, self.budgets.get("any")), gap, "had no acknowledged write for"),
                (self.budgets.get("recovery"), recovery, "got the next acknowledged write, after its end, after"),
            ):
                if limit is not None and seconds is not None and seconds > limit:
                    sentence = f"At the {fault.kind} number {fault.number} ({', '.join(fault.targets)}) clients {what}"
                    gathered.add(
                        Finding(
                            "budget",
                            fault.kind,
                            fault.operations,
                            f"{sentence} {seconds:.1f} s; at most {limit:g} s are allowed.",
                        )
                    )
        whole = np.diff(acked_ns) / 1e9
        return gathered.verdict(
            {
                "longest gap": round(float(whole.max()), 3) if len(whole) else None,
                "gap by kind": {kind: _quantiles(seconds) for kind, seconds in gaps.items()},
                "recovery by kind": {kind: _quantiles(seconds) for kind, seconds in recoveries.items()},
                "faults": told,
            }
        )

    def _gap(self, fault: Fault, later: Sequence[Fault], acked_ns: Ints) -> float:
        """The longest time between two acknowledged writes that touches the fault's; up to the last one of all, since
        after it nobody may have asked for another."""
        until = later[0].began_ns if later else (fault.ended_ns or fault.began_ns) + AFTERMATH_NS
        low = max(0, int(np.searchsorted(acked_ns, fault.began_ns)) - 1)
        high = int(np.searchsorted(acked_ns, until)) + 1
        gaps = np.diff(acked_ns[low:high])
        return round(float(gaps.max()) / 1e9, 3) if len(gaps) else 0.0


def _recovery(fault: Fault, acked_ns: Ints) -> float | None:
    """From its end on; None if it has no end, or nothing was written after it."""
    if fault.ended_ns is None:
        return None
    place = int(np.searchsorted(acked_ns, fault.ended_ns))
    return round((int(acked_ns[place]) - fault.ended_ns) / 1e9, 3) if place < len(acked_ns) else None


def _acknowledged_ns(history: History) -> Ints:
    """When writes were acknowledged, in their order. Of workloads without micro-operations, when operations were."""
    operations, micro = history.operations, history.micro
    wrote = np.zeros(len(operations), dtype=np.bool_)
    sent = micro.operation[micro.kind == SEND]
    if len(sent):
        wrote[sent] = True
    else:
        wrote[:] = ~history.called("crash", "debug", "assign", "subscribe", "poll", "read")
    wrote &= operations.outcome == OK
    times: Ints = np.sort(history.lines.t_ns[operations.completed[wrote]])
    return times


def _quantiles(seconds: Sequence[float]) -> dict[str, float]:
    values = np.quantile(np.array(seconds), QUANTILES)
    return {f"{quantile:g}": round(float(value), 3) for quantile, value in zip(QUANTILES, values, strict=True)}
