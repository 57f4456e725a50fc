"""Keys of a run: integers that stand for partitions, and the values that are written to them.

A small pool lives at a time; one that was written often enough retires, and a new one takes its place. Values of a key
are 1, 2, 3, ... in the order of their invocations, so that each is written once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from barnabas.runtime.world import Chance
from operations import Place, key_of, place_of

PARTITIONS = 2
"""Partitions of each topic; see `operations.place_of`."""


class Keys:
    """The keys of one run."""

    def __init__(self, live: int, max_writes: int, prefix: str = "") -> None:
        """`prefix` begins the names of all topics: for runs that share a cluster."""
        self._max_writes = max_writes
        self._prefix = prefix
        self._live = list(range(live))
        self._next = live
        self._written: dict[int, int] = {}
        self._used: dict[int, None] = {}
        """In the order in which they were written last."""

    def draw(self, chance: Chance) -> int:
        """One that lives; some are drawn far more often than others."""
        count = len(self._live)
        return self._live[int(-math.log(1.0 - chance.random()) * count / 3.0) % count]

    def next_value(self, key: int) -> int:
        """To be written to it now."""
        value = self._written.get(key, 0) + 1
        self._written[key] = value
        self._used.pop(key, None)
        self._used[key] = None
        if value >= self._max_writes:
            self._live[self._live.index(key)] = self._next
            self._next += 1
        return value

    def recent(self) -> list[int]:
        """Those that live, and as many that did."""
        used = list(self._used)[-2 * len(self._live) :]
        return sorted(dict.fromkeys([*self._live, *used]))

    def written(self) -> list[int]:
        """All that were ever written to."""
        return sorted(self._written)

    def topic_of(self, key: int) -> str:
        return self.place_of(key).topic

    def place_of(self, key: int) -> Place:
        place = place_of(key)
        return Place(self._prefix + place.topic, place.partition)

    def key_of(self, place: Place) -> int:
        return key_of(Place(place.topic.removeprefix(self._prefix), place.partition))

    def topics_of(self, keys: Sequence[int]) -> list[str]:
        """Each once."""
        return list(dict.fromkeys(self.topic_of(key) for key in keys))


def some_of(keys: Sequence[int], chance: Chance) -> list[int]:
    """Each of them with an even chance, at least one."""
    chosen = [key for key in keys if chance.random() < 0.5]
    return chosen or ([keys[chance.randrange(0, len(keys))]] if keys else [])
