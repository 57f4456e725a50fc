"""Nodes' views of their replicas: watermarks and epochs that went back, epochs with two leaders."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np

from checkers.budget_of_loss import budget_of
from checkers.gathering import Gathered
from checkers.verdict import Finding, Verdict
from histories.history import History
from histories.views import Views
from nemeses.kinds import names

ENDING = names(ends_nodes=True) | {"start", "all"}
"""Kinds of faults after which a node may be another life of itself; its high watermark then is what was written down
some seconds before."""


@dataclass(frozen=True)
class Replicas:
    """Compares the looks at each replica, as long as its node lived on."""

    name: str = "views"
    recreated: bool = False
    """Topics are deleted and made again under the same name: an epoch that goes back is another topic."""

    def check(self, history: History) -> Verdict:
        views = history.views
        gathered = Gathered()
        if not len(views):
            return gathered.verdict({"looks": 0})
        order = np.lexsort((views.look, views.node, views.place))
        then, now = order[:-1], order[1:]
        same = (views.place[then] == views.place[now]) & (views.node[then] == views.node[now])
        lower_epoch = views.leader_epoch[now] < views.leader_epoch[then]
        lower_mark = views.high_watermark[now] < views.high_watermark[then]
        lives = _Lives(history)
        found: dict[str, list[tuple[int, int]]] = {"epoch-regress": [], "high-watermark-regress": []}
        for earlier, later, epoch, mark in zip(
            then.tolist(), now.tolist(), lower_epoch.tolist(), lower_mark.tolist(), strict=True
        ):
            if not (epoch or mark) or views.place[earlier] != views.place[later]:
                continue
            if views.node[earlier] != views.node[later] or not lives.on(earlier, later):
                continue
            if epoch and self.recreated:
                continue
            if epoch:
                found["epoch-regress"].append((earlier, later))
            if mark:
                found["high-watermark-regress"].append((earlier, later))
        budget = budget_of(history)
        for anomaly, pairs in found.items():
            # A follower of a leader that lost its tail truncates its own log.
            excused = [
                pair
                for pair in pairs
                if anomaly == "high-watermark-regress"
                and 0 <= budget.spent_ns(views.places[views.place[pair[1]]]) < views.looked_ns[views.look[pair[1]]]
            ]
            for legal, chosen in ((False, [pair for pair in pairs if pair not in excused]), (True, excused)):

                def describe(pair: tuple[int, int], anomaly: str = anomaly, legal: bool = legal) -> Finding:
                    return _describe(views, anomaly, pair, legal)

                gathered.add_rows(anomaly, chosen, describe, legal=legal)
        if not self.recreated:
            self._two_leaders(views, gathered)
        return gathered.verdict({"looks": len(views.looked_ns), "replicas": int(same.size - same.sum()) + 1})

    def _two_leaders(self, views: Views, gathered: Gathered) -> None:
        led = np.flatnonzero(views.leader >= 0)
        order = led[np.lexsort((views.leader[led], views.leader_epoch[led], views.place[led]))]
        then, now = order[:-1], order[1:]
        two = (views.place[then] == views.place[now]) & (views.leader_epoch[then] == views.leader_epoch[now])
        two &= views.leader[then] != views.leader[now]

        def describe(pair: tuple[int, int]) -> Finding:
            place = views.places[views.place[pair[0]]]
            nodes = [views.nodes[views.node[row]] for row in pair]
            leaders = [int(views.leader[row]) for row in pair]
            return Finding(
                "two-leaders",
                str(place),
                (),
                f"In leader epoch {int(views.leader_epoch[pair[0]])} of {place} {nodes[0]} reports that {leaders[0]} "
                f"leads, and {nodes[1]} that {leaders[1]} does.",
            )

        pairs = list(zip(then[two].tolist(), now[two].tolist(), strict=True))
        gathered.add_rows("two-leaders", pairs, describe, legal=False)


def _describe(views: Views, anomaly: str, pair: tuple[int, int], legal: bool) -> Finding:
    earlier, later = pair
    place, node = views.places[views.place[later]], views.nodes[views.node[later]]
    column = views.leader_epoch if anomaly == "epoch-regress" else views.high_watermark
    what = "leader epoch" if anomaly == "epoch-regress" else "high watermark"
    times = [views.looked_ns[views.look[row]] / 1e9 for row in (earlier, later)]
    return Finding(
        anomaly,
        f"{place} on {node}",
        (),
        f"The {what} of {place} on {node} was {int(column[earlier])} at {times[0]:.1f} s and {int(column[later])} at "
        f"{times[1]:.1f} s, and the node lived on.",
        legal,
    )


class _Lives:
    """Whether a node surely did not restart between two samples."""

    def __init__(self, history: History) -> None:
        self._views = history.views
        self._ends: dict[str, list[tuple[int, int]]] = {}
        """Node to stretches of time in which it may have ended."""
        for fault in history.faults:
            if fault.kind in ENDING or fault.f in ENDING:
                ended_ns = fault.ended_ns if fault.ended_ns is not None else 1 << 62
                for target in fault.targets:
                    self._ends.setdefault(target, []).append((fault.began_ns, ended_ns))
        self._away: dict[str, list[int]] = {}
        """Node to looks in which it did not run."""
        for look, states in enumerate(self._views.states):
            for node, state in states.items():
                if state == "dead":
                    self._away.setdefault(node, []).append(look)

    def on(self, earlier: int, later: int) -> bool:
        views = self._views
        node = views.nodes[views.node[later]]
        looks = int(views.look[earlier]), int(views.look[later])
        away = self._away.get(node, [])
        place = bisect_right(away, looks[0])
        if place < len(away) and away[place] <= looks[1]:
            return False
        since, until = (int(views.looked_ns[look]) for look in looks)
        return all(ended < since or began > until for began, ended in self._ends.get(node, ()))
