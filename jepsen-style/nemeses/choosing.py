"""Core: random choices by the caller's chance, reproducible from its seed. Knows no cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from barnabas.runtime.world import Chance

T = TypeVar("T")


def one_of(chance: Chance, items: Sequence[T]) -> T:
    """Any of them; there must be one."""
    return items[chance.randrange(0, len(items))]


def weighted(chance: Chance, items: Mapping[T, float]) -> T:
    """One of them, by their weights."""
    left = chance.random() * sum(items.values())
    for item, weight in items.items():
        left -= weight
        if left < 0:
            return item
    return list(items)[-1]


def shuffled(chance: Chance, items: Sequence[T]) -> list[T]:
    found = list(items)
    for last in range(len(found) - 1, 0, -1):
        other = chance.randrange(0, last + 1)
        found[last], found[other] = found[other], found[last]
    return found


def some_of(chance: Chance, items: Sequence[T], count: int) -> list[T]:
    """`count` of them, in their own order; all if there are fewer."""
    chosen = shuffled(chance, range(len(items)))[:count]
    return [items[index] for index in sorted(chosen)]


def between(chance: Chance, least: float, most: float) -> float:
    return least + (most - least) * chance.random()


def happens(chance: Chance, probability: float) -> bool:
    return chance.random() < probability
