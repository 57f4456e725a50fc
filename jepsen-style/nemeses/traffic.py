"""The requests of the recent past in a cluster, from which faults of messages are drawn, so that they meet some.

It counts what passes, so it needs no list of what each workload and library sends.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import trio

from barnabas.fault_proxy.rules import Way
from nemeses.shapes import CLIENT
from worlds.cluster import ClusterUnderTest

LEAST_LOOKS = 3
"""Requests that came both between the first two looks and between the next two are no burst."""
Kind = tuple[int, bool]
"""The key of an API, and whether clients ask."""


class Traffic:
    """The traffic of one cluster."""

    def __init__(self, cluster: ClusterUnderTest, seconds: float) -> None:
        """`seconds`: how far the recent past reaches; at least it has three looks."""
        self._cluster = cluster
        self._seconds = seconds
        self._looks: list[tuple[float, Mapping[Way, int]]] = []
        """(time, number of requests until then); the first one is the base."""

    async def look(self) -> None:
        """Counts; to be called two or three times in `seconds`. Raises ClusterError."""
        asked = await self._cluster.asked()
        now = trio.current_time()
        self._looks.append((now, asked))
        while len(self._looks) > LEAST_LOOKS and now - self._looks[1][0] >= self._seconds:
            del self._looks[0]

    def expected(self, seconds: float) -> dict[Way, float]:
        """Expected number of requests from each source to each target in this time. It leaves out requests that did
        not come between each two looks, because a burst will not come again, and links without requests since the last
        look, because leaders move. Empty before the third look."""
        if len(self._looks) < LEAST_LOOKS:
            return {}
        (began, before), (now, asked) = self._looks[0], self._looks[-1]
        steps = [_between(*step) for step in pairwise(each for _at, each in self._looks)]
        steady = set.intersection(*map(_kinds, steps))
        of_late = {way: count for way, count in _between(before, asked).items() if way in steps[-1]}
        return {way: count * seconds / (now - began) for way, count in of_late.items() if _kind(way) in steady}


def _between(before: Mapping[Way, int], after: Mapping[Way, int]) -> dict[Way, int]:
    return {way: count - before.get(way, 0) for way, count in after.items() if count > before.get(way, 0)}


def _kind(way: Way) -> Kind:
    return way.api_key, way.source == CLIENT


def _kinds(ways: Mapping[Way, int]) -> set[Kind]:
    return {_kind(way) for way in ways}
