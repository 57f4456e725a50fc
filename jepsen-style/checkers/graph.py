"""Cycles in a graph of millions of edges: what can lie on one, strongly connected components, a shortest cycle.

Nodes and edges are integers in arrays. Nodes have a *time* near to which their edges stay, mostly forward; that is what
makes it fast, and nothing depends on it being right.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from checkers.arrays import Bools, Ints


@dataclass(frozen=True)
class Edges:
    """Edges from `source` to `target`; `label` is the index of the caller's edge."""

    source: Ints
    target: Ints
    label: Ints

    def __len__(self) -> int:
        return len(self.source)

    def where(self, chosen: Bools | Ints) -> Edges:
        return Edges(self.source[chosen], self.target[chosen], self.label[chosen])


def that_may_cycle(edges: Edges, time: Ints) -> Edges:
    """Without those that surely lie on no cycle.

    A cycle that crosses a moment forward crosses it backward, too. So it lies within one stretch of moments each of
    which some backward edge spans.
    """
    edges = edges.where(edges.source != edges.target)
    ranks = np.empty(len(time), dtype=np.int64)
    ranks[np.argsort(time, kind="stable")] = np.arange(len(time))
    source, target = ranks[edges.source], ranks[edges.target]
    back = target < source
    spans = np.zeros(len(time) + 1, dtype=np.int64)
    np.add.at(spans, target[back], 1)
    np.add.at(spans, source[back], -1)
    open_ahead = np.cumsum(spans) > 0
    stretch = np.zeros(len(time) + 1, dtype=np.int64)
    stretch[1:] = np.cumsum(~open_ahead)[: len(time)]
    edges = edges.where(stretch[source] == stretch[target])
    # A node without incoming or outgoing edges lies on no cycle; a few rounds remove most nodes.
    for _ in range(8):
        if not len(edges):
            break
        left = np.zeros(len(time), dtype=np.bool_)
        reached = np.zeros(len(time), dtype=np.bool_)
        left[edges.source] = True
        reached[edges.target] = True
        kept = reached[edges.source] & left[edges.target]
        if kept.all():
            break
        edges = edges.where(kept)
    return edges


class Graph:
    """Nodes renumbered from 0, with their edges as adjacent ranges of lists."""

    def __init__(self, edges: Edges, costs: Ints | None = None) -> None:
        """An edge costs 1 by default, and 0 if it is not a step of its own."""
        nodes, numbers = np.unique(np.concatenate((edges.source, edges.target)), return_inverse=True)
        source, target = numbers[: len(edges)], numbers[len(edges) :]
        order = np.argsort(source, kind="stable")
        self.nodes: list[int] = nodes.tolist()
        """The caller's numbers of the nodes."""
        self.targets: list[int] = target[order].tolist()
        self.labels: list[int] = edges.label[order].tolist()
        self.costs: list[int] = [1] * len(edges) if costs is None else costs[order].tolist()
        self.starts: list[int] = np.searchsorted(source[order], np.arange(len(nodes) + 1)).tolist()

    def components(self) -> list[list[int]]:
        """Strongly connected ones of two nodes or more: Tarjan's, without recursion."""
        starts, targets = self.starts, self.targets
        count = len(self.nodes)
        index = [0] * count
        low = [0] * count
        on_stack = bytearray(count)
        ahead = starts[:-1]
        stack: list[int] = []
        found: list[list[int]] = []
        number = 0
        for root in range(count):
            if index[root]:
                continue
            number += 1
            index[root] = low[root] = number
            stack.append(root)
            on_stack[root] = 1
            path = [root]
            while path:
                node = path[-1]
                place = ahead[node]
                if place < starts[node + 1]:
                    ahead[node] = place + 1
                    target = targets[place]
                    if not index[target]:
                        number += 1
                        index[target] = low[target] = number
                        stack.append(target)
                        on_stack[target] = 1
                        path.append(target)
                    elif on_stack[target] and index[target] < low[node]:
                        low[node] = index[target]
                    continue
                path.pop()
                if path and low[node] < low[path[-1]]:
                    low[path[-1]] = low[node]
                if low[node] == index[node]:
                    component = []
                    while True:
                        member = stack.pop()
                        on_stack[member] = 0
                        component.append(member)
                        if member == node:
                            break
                    if len(component) > 1:
                        found.append(sorted(component))
        return found

    def shortest_cycle(self, component: list[int], steps: int) -> list[int]:
        """Labels of its edges, in their order. Looks from one member after the other until `steps` edges were looked
        at, from one at least: in a large component it may not be the shortest of all."""
        members = set(component)
        best: list[int] = []
        best_cost = -1
        for start in component:
            cost, cycle, taken = self._cycle_through(start, members)
            steps -= taken
            if cycle and (best_cost < 0 or cost < best_cost):
                best, best_cost = cycle, cost
            if steps <= 0 or 0 <= best_cost <= 2:
                break
        return best

    def _cycle_through(self, start: int, members: set[int]) -> tuple[int, list[int], int]:
        starts, targets, edge_costs = self.starts, self.targets, self.costs
        costs = {start: 0}
        came: dict[int, tuple[int, int]] = {}
        line = deque([(0, start)])
        taken = 0
        closed: tuple[int, int, int] | None = None
        while line:
            cost, node = line.popleft()
            if cost > costs[node] or (closed is not None and cost >= closed[0]):
                continue
            for place in range(starts[node], starts[node + 1]):
                taken += 1
                target, next_cost = targets[place], cost + edge_costs[place]
                if target == start:
                    if closed is None or next_cost < closed[0]:
                        closed = (next_cost, node, place)
                elif target in members and next_cost < costs.get(target, 1 << 60):
                    costs[target] = next_cost
                    came[target] = (node, place)
                    if next_cost == cost:
                        line.appendleft((next_cost, target))
                    else:
                        line.append((next_cost, target))
        if closed is None:
            return 0, [], taken
        cost, node, place = closed
        cycle = [self.labels[place]]
        while node != start:
            node, place = came[node]
            cycle.append(self.labels[place])
        return cost, cycle[::-1], taken
