"""Times at which a partition may have lost acknowledged records, by the model of `loss_budget`, so that a loss is no
bug.

Views come once a second. If the ISR changed at about the time of a fault, the checker assumes the case that allows the
loss, so that whatever it calls a bug is one. There are no views of internal topics. The nemesis spares them like all
others, so they lose something only in a run beyond the budget, and there the checker assumes it at any loss.

A loss has consequences: offsets are assigned again, groups return to an older state, and producers are unknown.
Findings that may be such a consequence are legal, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from checkers.arrays import Bools, Ints
from checkers.verdict import Finding
from histories.history import History
from histories.views import Views
from loss_budget import records_may_be_gone
from nemeses.kinds import names
from operations import Place, place_of

LOSING = names(loses=True)
"""Kinds of faults that take records from a disk."""
ARMED = frozenset(("kill-at", "kill-at-write"))
"""Kinds that strike later, or never, and take records only if they cut the power."""
NEAR_NS = 3_000_000_000
"""A look so soon after a fault may show what was so before it."""

OF_ITS_PARTITION = frozenset(
    ("lost-write", "unseen", "inconsistent-offsets", "skipped-record", "duplicate", "torn-transaction")
)
"""Findings of objects of a workload that the loss of the partition explains in which they were found."""
OF_ANY_PARTITION = frozenset(
    (
        *("total-changed", "lost-output", "duplicate-output", "out-of-order", "untransformed", "unprocessed"),
        *("lost-offsets", "lost-commit", "commit-regress", "gap", "stale-generation", "generation-regress"),
    )
)
"""Those that come of several partitions, of a group's offsets and of what its coordinator knows, so that the loss of
any one explains them."""
BEYOND = "Every replica in sync had lost its tail or its disk: this is beyond the budget."


class Loss(NamedTuple):
    """A broker's disk lost something."""

    t_ns: int
    broker: int


def losses_of(history: History) -> list[Loss]:
    """In their order. The brokers' disks only: controllers sync what they promise."""
    losses = []
    for fault in history.faults:
        at_point = fault.kind in ARMED and fault.value.get("power_cut") and fault.value.get("struck") is not False
        if fault.kind in LOSING or at_point:
            t_ns = fault.acted_ns if fault.acted_ns is not None else fault.began_ns
            if at_point and fault.ended_ns is not None:
                # It struck at any time from then on.
                t_ns = fault.ended_ns
            losses += [Loss(t_ns, number) for name in fault.targets if (number := broker_number(name)) is not None]
    return sorted(losses)


def broker_number(node: str) -> int | None:
    """`broker-2` is 2; None for controllers."""
    digits = node[len(node.rstrip("0123456789")) :]
    return int(digits) if digits and "controller" not in node else None


def budget_of(history: History) -> BudgetOfLoss:
    """Worked out once for each history."""
    return history.once("budget of loss", BudgetOfLoss)


class BudgetOfLoss:
    """The budget of one history."""

    def __init__(self, history: History) -> None:
        self._losses = losses_of(history)
        self._views = history.views
        self._t_ns = history.lines.t_ns
        self._known: dict[Place, int] = {}
        run = history.run
        more = (run.get("options") or {}).get("more") or {}
        self._prefix = more.get("prefix", "")
        self._spares_internal_topics = not run.get("beyond_budget")

    @property
    def any_loss(self) -> bool:
        """A disk lost something; without that nothing is excused."""
        return bool(self._losses)

    def place_of_key(self, key: int) -> Place:
        """Name of the partition in the cluster."""
        place = place_of(key)
        return Place(self._prefix + place.topic, place.partition)

    def excuses(self, place: Place, t_ns: int) -> bool:
        """Whether records of the partition from that time may be lost."""
        spent_ns = self.spent_ns(place)
        return spent_ns >= 0 and t_ns <= spent_ns + NEAR_NS

    def excuses_key(self, key: int, t_ns: int) -> bool:
        return bool(self._losses) and self.excuses(self.place_of_key(key), t_ns)

    def excuses_keys(self, keys: Ints, t_ns: Ints) -> Bools:
        """`excuses` for many keys."""
        if not self._losses or not len(keys):
            return np.zeros(len(keys), dtype=np.bool_)
        each, places = np.unique(keys, return_inverse=True)
        spent_ns = np.array([self.spent_ns(self.place_of_key(key)) for key in each.tolist()], dtype=np.int64)[places]
        found: Bools = (spent_ns >= 0) & (t_ns <= spent_ns + NEAR_NS)
        return found

    def excused(self, findings: Iterable[Finding]) -> list[Finding]:
        """The findings, with those made legal that a later loss explains."""
        return [self._excuse(each) if self._explains(each) else each for each in findings]

    @staticmethod
    def _excuse(finding: Finding) -> Finding:
        return replace(finding, legal=True, description=f"{finding.description.rstrip('.')}. {BEYOND}")

    def _explains(self, finding: Finding) -> bool:
        if finding.legal or not self._losses:
            return False
        if finding.anomaly in OF_ITS_PARTITION:
            topic, _, partition = finding.where.rpartition("-")
            spent_ns = self.spent_ns(Place(topic, int(partition))) if partition.isdecimal() else -1
        elif finding.anomaly in OF_ANY_PARTITION:
            spent_ns = max([self._internal_spent_ns(), *map(self.spent_ns, self._views.places)])
        else:
            return False
        known_ns = min((int(self._t_ns[i]) for i in finding.operations), default=0)
        return spent_ns >= 0 and known_ns <= spent_ns + NEAR_NS

    def _internal_spent_ns(self) -> int:
        return -1 if self._spares_internal_topics else self._losses[-1].t_ns

    def spent_ns(self, place: Place) -> int:
        """Last time at which every in-sync replica had lost something; -1: never. Records acknowledged before may be
        lost."""
        if not self._losses:
            return -1
        if place not in self._known:
            self._known[place] = self._work_out(place)
        return self._known[place]

    def _work_out(self, place: Place) -> int:
        views = self._views
        if place not in views.places:
            return -1
        rows = np.flatnonzero(views.place == views.places.index(place))
        looks = _looks(views, rows)
        spent = -1
        lost: set[int] = set()
        taken = 0
        isr: frozenset[int] = frozenset()
        for index, look in enumerate(looks):
            while taken < len(self._losses) and self._losses[taken].t_ns < look.t_ns:
                loss = self._losses[taken]
                lost.add(loss.broker)
                taken += 1
                near = [later.isr for later in looks[index:] if later.t_ns < loss.t_ns + NEAR_NS]
                if any(records_may_be_gone(each, lost) for each in (isr, *near)):
                    spent = loss.t_ns
            lost -= look.whole
            isr = look.isr
        for loss in self._losses[taken:]:
            lost.add(loss.broker)
            if records_may_be_gone(isr, lost):
                spent = loss.t_ns
        return spent


class _Look(NamedTuple):
    """At one partition."""

    t_ns: int
    isr: frozenset[int]
    """ISR as the node with the highest epoch sees it."""
    whole: frozenset[int]
    """Brokers that run and see themselves in sync: whatever they lost before they have again."""


def _looks(views: Views, rows: np.ndarray[tuple[int], np.dtype[np.intp]]) -> Sequence[_Look]:
    looks: list[_Look] = []
    for look in np.unique(views.look[rows]).tolist():
        of_look = rows[views.look[rows] == look]
        newest = of_look[np.argmax(views.leader_epoch[of_look])]
        whole = set()
        for row in of_look.tolist():
            node = views.nodes[views.node[row]]
            number = broker_number(node)
            if number in views.isrs[views.isr[row]] and views.states[look].get(node, "running") == "running":
                whole.add(number)
        isr = frozenset(views.isrs[views.isr[newest]])
        looks.append(_Look(int(views.looked_ns[look]), isr, frozenset(each for each in whole if each is not None)))
    return looks
