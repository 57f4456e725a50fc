"""Core: shapes of partitions, as the ordered pairs of nodes between which nothing passes. Knows names only.

A connection needs both ways, so one cut direction ends the work of all connections between two nodes after a while;
what differs is who finds out, and what was still carried out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from barnabas.runtime.world import Chance
from nemeses.choosing import happens, one_of, shuffled

CLIENT = "client"

Pair = tuple[str, str]
"""(source, target)"""


def between(some: Iterable[str], others: Sequence[str]) -> list[Pair]:
    """Both ways."""
    pairs = [(a, b) for a in some for b in others if a != b]
    return list(dict.fromkeys([*pairs, *((b, a) for a, b in pairs)]))


def one(chance: Chance, nodes: Sequence[str], victim: str) -> list[Pair]:
    """One node reaches no other; in half of the cases no client either."""
    others = [node for node in nodes if node != victim]
    return between([victim], [*others, CLIENT] if happens(chance, 0.5) else others)


def halves(chance: Chance, nodes: Sequence[str], victim: str) -> list[Pair]:
    """Two sides of about the same size; the victim's is the smaller one."""
    others = shuffled(chance, [node for node in nodes if node != victim])
    size = (len(nodes) - 1) // 2
    return between([victim, *others[:size]], others[size:])


def one_way(chance: Chance, nodes: Sequence[str], victim: str) -> list[Pair]:
    """Nothing from the victim arrives, or nothing arrives at the victim."""
    others = [node for node in nodes if node != victim]
    is_heard = happens(chance, 0.5)
    return [(other, victim) if is_heard else (victim, other) for other in others]


def bridge(chance: Chance, nodes: Sequence[str], victim: str) -> list[Pair]:
    """Two sides that do not see each other; the victim alone sees both."""
    others = shuffled(chance, [node for node in nodes if node != victim])
    size = len(others) // 2
    return between(others[:size], others[size:])


def ring(chance: Chance, nodes: Sequence[str], victim: str) -> list[Pair]:
    """Every node sees a majority, and each another one. With three nodes that would be everybody: then each sees the
    next one only, which for TCP is nobody."""
    order = shuffled(chance, nodes)
    count = len(order)
    if count <= 3:
        return [(order[(place + 1) % count], order[place]) for place in range(count)] if count > 1 else []
    reach = (count // 2 + 1) // 2
    return [
        (order[place], order[(place + away) % count])
        for place in range(count)
        for away in range(1, count)
        if min(away, count - away) > reach
    ]


Shape = Callable[[Chance, Sequence[str], str], list[Pair]]

SHAPES: dict[str, Shape] = {"one": one, "halves": halves, "one-way": one_way, "bridge": bridge, "ring": ring}


def groups_of(chance: Chance, brokers: Sequence[str], controllers: Sequence[str]) -> list[str]:
    """Among whom the partition is: mostly all nodes, else those of one kind."""
    return one_of(chance, [[*brokers, *controllers], [*brokers, *controllers], list(brokers), list(controllers)])
