"""Placements of replicas beside a plain placer, which keeps a list of brokers for each rack and turns it."""

from __future__ import annotations

import random
from dataclasses import dataclass
from math import lcm
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.kraft.controller.placement import UsableBroker, place_replicas
from barnabas.protocol.errors import ErrorCode, KafkaError
from tests.examples import examples

RACKS = st.sampled_from(["a", "b", "c", None])
HOSTS = st.sampled_from(["h1", "h2", "h3", None, None, None])
MEMBERS = st.lists(st.tuples(RACKS, st.integers(0, 5), HOSTS), max_size=8)
CLUSTERS = st.tuples(MEMBERS, st.sampled_from([0, 1, 3, 4])).map(
    lambda drawn: [
        UsableBroker(number, rack, each < drawn[1], host) for number, (rack, each, host) in enumerate(drawn[0], start=1)
    ]
)
"""None, a few, or most of the brokers are fenced."""
PARTITIONS = 30


def shuffled(items: list[Any], chance: random.Random) -> list[Any]:
    """Each item from the last on changes places with one before it, or stays."""
    items = list(items)
    for last in reversed(range(1, len(items))):
        other = chance.randrange(0, last + 1)
        items[other], items[last] = items[last], items[other]
    return items


@dataclass
class Ring:
    """Brokers of a rack that are all fenced, or all not."""

    brokers: list[UsableBroker]
    start: int = 0
    turns: int = 1

    def parted(self) -> None:
        """Those of one host come as late after each other as they can: the first of each host, then the second."""
        seen: dict[object, int] = {}
        rounds = []
        for broker in self.brokers:
            host = broker.host or broker.id
            seen[host] = seen.get(host, -1) + 1
            rounds.append((seen[host], list(seen).index(host), broker))
        self.brokers = [broker for *_, broker in sorted(rounds, key=lambda it: it[:2])]

    def order(self, partition: int) -> list[UsableBroker]:
        """The order in which this partition takes them."""
        if not self.brokers:
            return []
        first = (self.start + partition + partition // self.turns) % len(self.brokers)
        return self.brokers[first:] + self.brokers[:first]


class PlainPlacer:
    """The same draws of chance in the same order."""

    def __init__(self, brokers: list[UsableBroker], chance: random.Random) -> None:
        self.chance = chance
        names = sorted({it.rack for it in brokers}, key=lambda rack: (rack is not None, rack or ""))
        self.racks: list[tuple[Ring, Ring]] = []
        for name in names:
            members = [it for it in brokers if it.rack == name]
            rings = []
            for fenced in (True, False):
                ring = Ring([it for it in members if it.fenced == fenced])
                if ring.brokers:
                    ring.parted()
                    ring.start = chance.randrange(0, len(ring.brokers))
                    ring.turns = lcm(len(names), len(ring.brokers))
                rings.append(ring)
            self.racks.append((rings[1], rings[0]))
        self.leaders = sum(not it.fenced for it in brokers)
        self.partition = 0
        self.first = chance.randrange(0, len(self.racks))

    def next(self, factor: int) -> tuple[int, ...]:
        if self.partition == self.leaders > 1:
            self.racks = shuffled(self.racks, self.chance)
            for rings in self.racks:
                for ring in reversed(rings):
                    ring.brokers = shuffled(ring.brokers, self.chance)
                    ring.parted()
            self.partition = 0
        count = len(self.racks)
        self.first %= count
        order = [self.racks[(self.first + place) % count] for place in range(count)]
        left = [[each for ring in rings for each in ring.order(self.partition)] for rings in order]
        used: list[UsableBroker] = []

        def take(place: int) -> None:
            """The next broker of a rack whose host has no replica yet."""
            hosts = {it.host for it in used if it.host is not None}
            found = next((it for it in left[place] if it.host not in hosts), None)
            if found is not None:
                left[place].remove(found)
                used.append(found)

        leading = next(place for place in range(count) if left[place] and not left[place][0].fenced)
        take(leading)
        turn = [place for place in range(count) if place != leading]
        while len(used) < factor:
            for place in turn:
                if len(used) < factor:
                    take(place)
            turn = list(range(count))
        self.partition += 1
        self.first += 1
        return tuple(it.id for it in used)


@pytest.mark.feature("MB-16", "MB-17")
@settings(max_examples=examples(200))
@given(CLUSTERS, st.integers(-1, 8), st.integers(0, 99))
def test_replicas_are_where_a_plain_placer_puts_them(brokers: list[UsableBroker], factor: int, seed: int) -> None:
    leaders = [it for it in brokers if not it.fenced]
    hosts = {it.host or it.id for it in brokers}
    if factor <= 0 or not leaders or factor > len(hosts):
        with pytest.raises(KafkaError) as refused:
            place_replicas(brokers, PARTITIONS, factor, random.Random(seed))
        assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
        return
    placer = PlainPlacer(brokers, random.Random(seed))
    expected = [placer.next(factor) for _ in range(PARTITIONS)]
    assert list(place_replicas(brokers, PARTITIONS, factor, random.Random(seed))) == expected
