"""Waiting times of clients: the longest time without an acknowledged write for each fault, the time to recover after
it, and whether both are within the run's budgets.

A fault's time goes from its beginning to the beginning of the next one, or to the end of what was asked of the cluster.
A client whose requests failed to the end waited until then: a cluster that never accepted a write again has a gap.
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
        acked_ns, asked_ns = _writes_ns(history)
        faults = [fault for fault in history.faults if fault.number != EVERYTHING]
        if not len(asked_ns):
            return gathered.verdict({"longest gap": None})
        waits_ns = _waits_ns(acked_ns, asked_ns)
        gaps: dict[str, list[float]] = {}
        recoveries: dict[str, list[float]] = {}
        measured: list[dict[str, Any]] = []
        for index, fault in enumerate(faults):
            gap = self._gap(fault, faults[index + 1 :], waits_ns)
            recovery = _recovery(fault, waits_ns)
            gaps.setdefault(fault.kind, []).append(gap)
            if recovery is not None:
                recoveries.setdefault(fault.kind, []).append(recovery)
            measured.append({"number": fault.number, "kind": fault.kind, "gap": gap, "recovery": recovery})
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
        whole = np.diff(waits_ns) / 1e9
        return gathered.verdict(
            {
                "longest gap": round(float(whole.max()), 3) if len(whole) else None,
                "gap by kind": {kind: _quantiles(seconds) for kind, seconds in gaps.items()},
                "recovery by kind": {kind: _quantiles(seconds) for kind, seconds in recoveries.items()},
                "faults": measured,
            }
        )

    def _gap(self, fault: Fault, later: Sequence[Fault], waits_ns: Ints) -> float:
        """The longest time between two acknowledged writes that touches the fault's; up to the last one of all, or to
        the last that was asked for in vain."""
        until = later[0].began_ns if later else (fault.ended_ns or fault.began_ns) + AFTERMATH_NS
        low = max(0, int(np.searchsorted(waits_ns, fault.began_ns)) - 1)
        high = int(np.searchsorted(waits_ns, until)) + 1
        gaps = np.diff(waits_ns[low:high])
        return round(float(gaps.max()) / 1e9, 3) if len(gaps) else 0.0


def _recovery(fault: Fault, waits_ns: Ints) -> float | None:
    """From its end on, at least; None if it has no end, or no write was asked for after it."""
    if fault.ended_ns is None:
        return None
    place = int(np.searchsorted(waits_ns, fault.ended_ns))
    return round((int(waits_ns[place]) - fault.ended_ns) / 1e9, 3) if place < len(waits_ns) else None


def _waits_ns(acked_ns: Ints, asked_ns: Ints) -> Ints:
    """Times between which clients waited: the first requested write, all acknowledged ones, and the last request that
    failed. (The duration of that one means nothing: there may be no request after it.)"""
    first, last = asked_ns[:1], asked_ns[-1:]
    if not len(acked_ns):
        return np.concatenate((first, last))
    waits: Ints = np.concatenate((first, acked_ns, last[last > acked_ns[-1]]))
    return waits


def _writes_ns(history: History) -> tuple[Ints, Ints]:
    """Times of acknowledgements and of requests of writes, each in order. In workloads without micro-operations,
    operations count."""
    operations, micro = history.operations, history.micro
    wrote = np.zeros(len(operations), dtype=np.bool_)
    sent = micro.operation[micro.kind == SEND]
    if len(sent):
        wrote[sent] = True
    else:
        wrote[:] = ~history.called("crash", "debug", "assign", "subscribe", "poll", "read")
    t_ns, acked = history.lines.t_ns, wrote & (operations.outcome == OK)
    return np.sort(t_ns[operations.completed[acked]]), np.sort(t_ns[operations.invoked[wrote]])


def _quantiles(seconds: Sequence[float]) -> dict[str, float]:
    values = np.quantile(np.array(seconds), QUANTILES)
    return {f"{quantile:g}": round(float(value), 3) for quantile, value in zip(QUANTILES, values, strict=True)}
