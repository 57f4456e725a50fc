"""Cycles between operations: write before write (ww), write before read (wr), read before the next write (rw) and, if
wanted, order in time or of a process.

In Kafka open transactions interleave, so that cycles with ww edges are legal; a cycle of wr edges alone is a bug under
read_committed, because a reader's own commit follows the commit of what it read. So the search runs both with and
without ww. An rw edge leads from a poll of a key up to some value to the writer of the next one, for consumers by
assignment only, whose positions do not move. Cycles with such edges are reported and legal: a poll may end before the
log does, and each partition gets a transaction's marker by itself. The order of a process and of time may be added to
ww and wr. The order of time goes over a frontier: one node for each completion, in their order, instead of an edge for
each pair of operations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from checkers.arrays import Bools, Ints, pair_codes, starts_of_runs
from checkers.gathering import Gathered, in_order
from checkers.graph import Edges, Graph, that_may_cycle
from checkers.legality import Conditions, is_legal
from checkers.verdict import Finding, Verdict
from checkers.versions import Versions, versions_of
from histories.history import OK, UNKNOWN, History
from operations import place_of

Order = Literal["", "process", "realtime"]

STEPS = 3_000_000
"""Edges that the search for short cycles may look at, over all components of one kind."""
COMPONENTS = 40
"""Components for which a cycle is shown."""

WW, WR, RW, PROCESS, BEFORE, FRONTIER = range(6)
_NAMES = {WW: "ww", WR: "wr", RW: "rw", PROCESS: "process", BEFORE: "time"}


@dataclass(frozen=True)
class Cycles:
    """Finds G0, G1c, G-single and G2; with `order` G0 and G1c only, as `G1c-process`, `G1c-realtime`."""

    order: Order = ""
    name: str = "cycles"

    def check(self, history: History) -> Verdict:
        versions = versions_of(history)
        conditions = Conditions.of_run(history.run)
        gathered = Gathered()
        figures: dict[str, int] = {}
        suffix = f"-{self.order}" if self.order else ""
        parts = _Parts(history, versions)
        for anomaly, kinds, ww in (("G0", (WW,), True), ("G1c", (WW, WR), True), ("G1c", (WR,), False)):
            found = parts.cycles(kinds, self.order)
            legal = is_legal(anomaly + suffix, conditions._replace(ww=ww))
            how = " and ".join(_NAMES[kind] for kind in kinds)
            figures[f"{anomaly}{suffix} by {how}: components"] = found.components
            for cycle in found.cycles:
                kinds_of_it = {kind for kind, _row in cycle}
                if anomaly == "G1c" and WR not in kinds_of_it:
                    # One of the writers alone, or no anomaly of reading.
                    continue
                if ww and anomaly == "G1c" and WW not in kinds_of_it:
                    # The search without ww edges reports it.
                    continue
                if self.order and not kinds_of_it & {PROCESS, BEFORE}:
                    continue
                gathered.add(parts.describe(anomaly + suffix, cycle, how, legal))
        if not self.order:
            found = parts.cycles((WW, WR, RW), self.order)
            figures["G2 by ww and wr and rw: components"] = found.components
            for cycle in found.cycles:
                count = sum(kind == RW for kind, _row in cycle)
                if count:
                    anomaly = "G-single" if count == 1 else "G2"
                    gathered.add(parts.describe(anomaly, cycle, "ww and wr and rw", is_legal(anomaly, conditions)))
        return gathered.verdict(figures)


@dataclass(frozen=True)
class _Found:
    components: int
    cycles: list[list[tuple[int, int]]]
    """Each a list of (kind of edge, its row in that kind's columns)."""


class _Parts:
    """Edges of each kind, between rows of the operations."""

    def __init__(self, history: History, versions: Versions) -> None:
        self._history, self._versions = history, versions
        operations = history.operations
        self._shown = operations.shown_by
        self._count = len(operations)
        self._committed = versions.committed
        self._sources: dict[int, Ints] = {}
        self._targets: dict[int, Ints] = {}
        self._why: dict[int, Ints] = {}
        """For ww, wr and rw edges: the value that comes first."""
        self._ww()
        self._wr()
        self._rw()
        self._process()

    def cycles(self, kinds: tuple[int, ...], order: Order) -> _Found:
        used = [*kinds, *([PROCESS] if order else [])]
        sources = [self._sources[kind] for kind in used]
        targets = [self._targets[kind] for kind in used]
        # A label is kind + 8 * row.
        labels = [kind + 8 * np.arange(len(self._sources[kind])) for kind in used]
        times = [self._shown * 2]
        if order == "realtime":
            self._add_frontier(sources, targets, labels, times)
        edges = Edges(np.concatenate(sources), np.concatenate(targets), np.concatenate(labels))
        edges = that_may_cycle(edges, np.concatenate(times))
        if not len(edges):
            return _Found(0, [])
        # Along the frontier nothing is a step; leaving an operation for it is one.
        graph = Graph(edges, (edges.label % 8 != FRONTIER).astype(np.int64))
        components = sorted(graph.components(), key=len)
        steps = STEPS // max(1, min(len(components), COMPONENTS))
        cycles = [graph.shortest_cycle(component, steps) for component in components[:COMPONENTS]]
        return _Found(len(components), [[(label % 8, label // 8) for label in cycle] for cycle in cycles if cycle])

    def describe(self, anomaly: str, cycle: list[tuple[int, int]], how: str, legal: bool) -> Finding:
        versions = self._versions
        operations, steps, where = [], [], ""
        for kind, row in cycle:
            if kind == FRONTIER:
                continue
            if kind == BEFORE:
                operations.append(int(self._shown[row]))
                steps.append(f"{int(self._shown[row])} was over before")
                continue
            source = int(self._shown[self._sources[kind][row]])
            operations.append(source)
            if kind == PROCESS:
                steps.append(f"{source} is of the same process and before")
                continue
            value = int(self._why[kind][row])
            place = place_of(int(versions.value_key[value]))
            where = where or str(place)
            if kind == RW:
                last = int(versions.value[value])
                steps.append(f"{source} polled {place} up to {last}, which was followed by that of")
                continue
            verb = "was followed in the log by" if kind == WW else "was read by"
            steps.append(f"{source} wrote {int(versions.value[value])} to {place}, which {verb}")
        # It may begin in the middle of the frontier; the earliest operation is shown first.
        first = operations.index(min(operations))
        operations, steps = operations[first:] + operations[:first], steps[first:] + steps[:first]
        text = " ".join(f"{step} operation {after};" for step, after in zip(steps, _next(operations), strict=True))
        return Finding(anomaly, where, in_order(operations), f"A cycle of {how}: {text[:-1]}.", legal)

    def _ww(self) -> None:
        versions = self._versions
        alone = np.bincount(versions.held_slot, minlength=len(versions.slot_key))[versions.held_slot] == 1
        value, slot = versions.held_value[alone], versions.held_slot[alone]
        follows = (slot[1:] == slot[:-1] + 1) & (versions.slot_key[slot[1:]] == versions.slot_key[slot[:-1]])
        before, after = value[:-1][follows], value[1:][follows]
        self._add(WW, versions.writer[before], versions.writer[after], before)

    def _wr(self) -> None:
        versions = self._versions
        value = versions.read_value[versions.read_ok]
        reader = versions.read_operation[versions.read_ok]
        # A value is often polled in one operation only once; doubles do no harm.
        self._add(WR, versions.writer[value], reader, value)

    def _rw(self) -> None:
        versions = self._versions
        rows = np.flatnonzero(versions.read_ok & self._assigned()[versions.read_operation])
        key = versions.value_key[versions.read_value[rows]]
        order = np.lexsort((versions.read_index[rows], key, versions.read_operation[rows]))
        # The last that an operation was given of a key, and what stands behind it.
        ends = np.append(starts_of_runs(pair_codes(versions.read_operation[rows], key)[order]), True)[1:]
        last = rows[order[ends]]
        next_slot = np.searchsorted(versions.slot_key, versions.value_key[versions.read_value[last]])
        next_slot += versions.read_index[last] + 1
        held = np.searchsorted(versions.held_slot, next_slot)
        there = next_slot < len(versions.slot_key)
        there[there] = versions.slot_key[next_slot[there]] == versions.value_key[versions.read_value[last[there]]]
        # Keep those that are alone in their slot.
        there[there] = np.searchsorted(versions.held_slot, next_slot[there], "right") == held[there] + 1
        last, writer = last[there], versions.writer[versions.held_value[held[there]]]
        self._add(RW, versions.read_operation[last], writer, versions.read_value[last])

    def _assigned(self) -> Bools:
        """Over operations: their process got its partitions by hand, if it ever asked for any."""
        operations = self._history.operations
        order = np.argsort(operations.process, kind="stable")
        changes = self._history.called("assign", "subscribe")[order] | starts_of_runs(operations.process[order])
        latest = np.maximum.accumulate(np.where(changes, np.arange(len(order)), 0))
        found = np.zeros(len(order), dtype=np.bool_)
        found[order] = ~self._history.called("subscribe")[order][latest]
        return found

    def _process(self) -> None:
        rows = np.flatnonzero(self._history.operations.outcome == OK)
        process = self._history.operations.process[rows]
        ordered = rows[np.argsort(process, kind="stable")]
        same = ~starts_of_runs(self._history.operations.process[ordered])[1:]
        self._add(PROCESS, ordered[:-1][same], ordered[1:][same], np.zeros(int(same.sum()), dtype=np.int64))

    def _add(self, kind: int, source: Ints, target: Ints, why: Ints) -> None:
        """Between operations that took place, and not from one to itself."""
        real = (source != UNKNOWN) & (target != UNKNOWN) & (source != target)
        real[real] = self._committed[source[real]] & self._committed[target[real]]
        source, target, why = source[real], target[real], why[real]
        if len(source):
            _, once = np.unique(pair_codes(source, target), return_index=True)
            source, target, why = source[once], target[once], why[once]
        self._sources[kind], self._targets[kind], self._why[kind] = source, target, why

    def _add_frontier(self, sources: list[Ints], targets: list[Ints], labels: list[Ints], times: list[Ints]) -> None:
        operations = self._history.operations
        done = np.flatnonzero((operations.outcome == OK) & self._committed)
        done = done[np.argsort(operations.completed[done])]
        moments = operations.completed[done]
        nodes = self._count + np.arange(len(done))
        # An operation leads to the moment of its completion, that one to the next, and the last one before an
        # invocation to what was invoked.
        took_place = np.flatnonzero(self._committed)
        last = np.searchsorted(moments, operations.invoked[took_place]) - 1
        invoked, last = took_place[last >= 0], last[last >= 0]
        inside = max(0, len(nodes) - 1)
        sources += [done, nodes[:-1], nodes[last] if len(nodes) else nodes]
        targets += [nodes, nodes[1:], invoked]
        labels += [
            BEFORE + 8 * done,
            FRONTIER + 8 * np.arange(inside),
            FRONTIER + 8 * (inside + np.arange(len(invoked))),
        ]
        times.append(moments * 2 + 1)


def _next(operations: list[int]) -> list[int]:
    return operations[1:] + operations[:1]
