"""Checks that a healed cluster converged: nodes agree about leaders, and all replicas are in sync.

A replica that leads in an old epoch, or follows no leader, loses nothing by itself, and readers of other replicas do
not notice. But it serves old data, and the next fault finds one copy less.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from checkers.gathering import Gathered
from checkers.verdict import Finding, Verdict
from histories.history import History
from histories.views import Views

ENOUGH_SECONDS = 15.0
"""Time after the final repair; a node whose last view is earlier is not judged."""


@dataclass(frozen=True)
class Convergence:
    """Judges the last look at all nodes."""

    name: str = "whole again"
    enough_seconds: float = ENOUGH_SECONDS

    def check(self, history: History) -> Verdict:
        views, gathered = history.views, Gathered()
        faults = history.faults
        mended_ns = max([max(each.began_ns, each.acted_ns or 0, each.ended_ns or 0) for each in faults], default=0)
        if not len(views):
            return gathered.verdict({})
        last = len(views.looked_ns) - 1
        seconds = (int(views.looked_ns[last]) - mended_ns) / 1e9
        figures: dict[str, Any] = {"seconds from the last fault to the last look": round(seconds, 1)}
        if seconds < self.enough_seconds or set(views.states[last].values()) - {"running"}:
            return gathered.verdict(figures)
        rows = np.flatnonzero(views.look == last)
        for place in sorted({int(index) for index in views.place[rows]}):
            of_place = [int(row) for row in rows if views.place[row] == place]
            text = _apart(views, of_place) or _out_of_sync(views, of_place)
            if text:
                where = str(views.places[place])
                sentence = f"{seconds:.0f} s after the last fault was mended {text}."
                gathered.add(Finding("not-whole", where, (), sentence))
        return gathered.verdict(figures)


def _apart(views: Views, rows: list[int]) -> str:
    """Leaders and epochs by node; empty if the nodes agree."""
    minds = {views.nodes[views.node[row]]: (int(views.leader[row]), int(views.leader_epoch[row])) for row in rows}
    if len(set(minds.values())) < 2:
        return ""
    return "; ".join(f"{node} follows {leader} in epoch {epoch}" for node, (leader, epoch) in sorted(minds.items()))


def _out_of_sync(views: Views, rows: list[int]) -> str:
    """Nodes with a replica that is not in every node's view of the ISR."""
    for row in rows:
        isr = views.isrs[views.isr[row]]
        if len(isr) < len(rows):
            return f"{views.nodes[views.node[row]]} knows only {list(isr)} in sync, of {len(rows)} replicas"
    return ""
