"""Placements and plans on brokers that share hosts: a partition never gets two replicas on one."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.cli.balance_plan import Limits, PartitionLoad, balanced
from barnabas.cli.drain_plan import drained
from barnabas.cli.offset_reset import Partition
from barnabas.cli.replica_plan import spread
from barnabas.cli.shared_hosts import Hosts, shares_host
from barnabas.cluster.errors import ClusterError
from barnabas.kraft.controller.placement import UsableBroker, place_replicas
from tests.examples import examples

pytestmark = pytest.mark.feature("MB-16", "OP-05")

CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("grow"), st.integers(1, 5), st.sampled_from(["a", "b", None])),
        st.tuples(st.just("shrink"), st.integers(0, 30), st.none()),
        st.tuples(st.just("balance"), st.integers(0, 9), st.none()),
        st.tuples(st.just("spread"), st.just(0), st.none()),
    ),
    max_size=8,
)


class Cluster:
    """Brokers, and the replicas of one topic."""

    def __init__(self, hosts: int, cells: int, factor: int, seed: int) -> None:
        self.hosts: dict[int, str] = {host * cells + cell: f"h{host}" for host in range(hosts) for cell in range(cells)}
        self.racks: dict[int, str | None] = dict.fromkeys(self.hosts)
        usable = [UsableBroker(broker, None, False, host) for broker, host in self.hosts.items()]
        placed = place_replicas(usable, 12, factor, random.Random(seed))
        self.replicas = {Partition("t", index): list(each) for index, each in enumerate(placed)}

    def grow(self, host: int, rack: str | None) -> None:
        broker = max(self.racks) + 1
        self.racks[broker] = rack
        self.hosts[broker] = f"h{host}"

    def shrink(self, place: int) -> None:
        """Removes a broker, if its replicas can go elsewhere."""
        broker = sorted(self.racks)[place % len(self.racks)]
        try:
            self.replicas |= drained(self.replicas, self.racks, broker, self.hosts)
        except ClusterError:
            return
        assert all(broker not in each for each in self.replicas.values())
        del self.racks[broker], self.hosts[broker]

    def balance(self, moves: int) -> None:
        loads = {each: PartitionLoad(tuple(replicas), 10, 1.0) for each, replicas in self.replicas.items()}
        self.replicas |= balanced(loads, self.racks, Limits(max_moves=moves), self.hosts).plan

    def spread(self) -> None:
        counts = {each: len(replicas) for each, replicas in self.replicas.items()}
        self.replicas = spread(counts, self.racks, self.hosts)


@settings(max_examples=examples(100))
@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 4), st.integers(0, 9), CHANGES)
def test_hosts_grow_and_shrink(
    hosts: int, cells: int, factor: int, seed: int, changes: Sequence[tuple[str, int, str | None]]
) -> None:
    factor = min(factor, hosts)
    cluster = Cluster(hosts, cells, factor, seed)
    for change, number, rack in changes:
        if change == "grow":
            cluster.grow(number, rack)
        elif change == "shrink":
            cluster.shrink(number)
        elif change == "balance":
            cluster.balance(number)
        else:
            cluster.spread()
        for replicas in cluster.replicas.values():
            assert len(set(replicas)) == len(replicas) == factor
            assert len({cluster.hosts[each] for each in replicas}) == factor


def test_plans_are_even_over_cells() -> None:
    hosts: Hosts = {broker: f"h{broker // 4}" for broker in range(12)}
    plan = spread({Partition("t", index): 3 for index in range(120)}, dict.fromkeys(range(12)), hosts)
    held = [sum(broker in each for each in plan.values()) for broker in range(12)]
    assert held == [30] * 12


def test_brokers_without_a_host_are_alone() -> None:
    assert not shares_host(1, [2, 3], {})
    assert not shares_host(1, [2, 3], {2: "h", 3: "h"})
    assert shares_host(1, [2, 3], {1: "h", 3: "h"})

