"""Placements of replicas: what holds for each partition, and for many together."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.kraft.controller.placement import UsableBroker, place_replicas
from barnabas.protocol.errors import ErrorCode, KafkaError
from tests.examples import examples

RACKS = st.sampled_from(["a", "b", "c", None])
CLUSTERS = st.lists(st.tuples(RACKS, st.booleans()), min_size=1, max_size=8).map(
    lambda found: [UsableBroker(number, rack, fenced) for number, (rack, fenced) in enumerate(found)]
)


@pytest.mark.feature("MB-16", "MB-17")
@settings(max_examples=examples(150))
@given(CLUSTERS, st.integers(1, 8), st.integers(0, 99))
def test_the_replicas_of_a_partition_are_spread(brokers: list[UsableBroker], factor: int, seed: int) -> None:
    if all(it.fenced for it in brokers):
        brokers = [UsableBroker(it.id, it.rack, False) for it in brokers]
    factor = min(factor, len(brokers))
    known = {it.id: it for it in brokers}
    for replicas in place_replicas(brokers, 20, factor, random.Random(seed)):
        assert len(replicas) == len(set(replicas)) == factor
        assert not known[replicas[0]].fenced
        used = Counter(known[it].rack for it in replicas)
        size = Counter(it.rack for it in brokers)
        for rack in size:
            for other in size:
                assert used[rack] >= used[other] - 1 or used[rack] == size[rack], "racks take turns"
            unfenced = {it.id for it in brokers if it.rack == rack and not it.fenced}
            if any(known[it].fenced and known[it].rack == rack for it in replicas):
                assert unfenced <= {*replicas}, "a fenced broker only if its rack has no other"


@pytest.mark.feature("MB-16", "MB-17")
@pytest.mark.parametrize(("racks", "in_each"), [(1, 1), (1, 5), (2, 2), (2, 3), (3, 1), (3, 2), (4, 2), (3, 3)])
def test_every_broker_leads_once_in_each_round(racks: int, in_each: int) -> None:
    brokers = [UsableBroker(number, f"rack {number % racks}", False) for number in range(racks * in_each)]
    for seed in range(5):
        placed = [it[0] for it in place_replicas(brokers, 4 * len(brokers), 1, random.Random(seed))]
        for start in range(0, len(placed), len(brokers)):
            assert sorted(placed[start : start + len(brokers)]) == list(range(len(brokers)))


@pytest.mark.feature("MB-16")
@pytest.mark.parametrize("fenced", [False, True])
def test_each_round_has_another_order(fenced: bool) -> None:
    """Else the same brokers would share partitions again and again; a rotation alone has as many orders as brokers."""
    brokers = [UsableBroker(number, None, fenced and number >= 3) for number in range(6)]
    placed = list(place_replicas(brokers, 300, 6, random.Random(1)))
    assert len({it[3:] for it in placed if not fenced or {*it[3:]} == {3, 4, 5}}) > 3
    assert len({it[:3] for it in placed}) > 3


HOSTS = st.sampled_from(["h1", "h2", "h3", "h4", None])
HOSTED = st.lists(st.tuples(RACKS, st.booleans(), HOSTS), min_size=1, max_size=16).map(
    lambda found: [UsableBroker(number, rack, fenced, host) for number, (rack, fenced, host) in enumerate(found)]
)


@pytest.mark.feature("MB-16", "MB-17")
@settings(max_examples=examples(200))
@given(HOSTED, st.integers(1, 8), st.integers(0, 99))
def test_no_host_has_two_replicas_of_a_partition(brokers: list[UsableBroker], factor: int, seed: int) -> None:
    if all(it.fenced for it in brokers):
        brokers = [UsableBroker(it.id, it.rack, False, it.host) for it in brokers]
    hosts = {it.id: it.host or it.id for it in brokers}
    if factor > len(set(hosts.values())):
        with pytest.raises(KafkaError) as caught:
            place_replicas(brokers, 20, factor, random.Random(seed))
        assert caught.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
        return
    for replicas in place_replicas(brokers, 20, factor, random.Random(seed)):
        assert len({hosts[it] for it in replicas}) == len(replicas) == factor


@pytest.mark.feature("MB-16", "MB-17")
@pytest.mark.parametrize("racks", [1, 2, 4])
def test_cells_of_hosts_get_as_many_leaders_and_replicas(racks: int) -> None:
    """Four hosts with three brokers each, in racks of as many hosts."""
    brokers = [UsableBroker(it, f"rack {it // 3 % racks}", False, f"host {it // 3}") for it in range(12)]
    for seed in range(5):
        placed = list(place_replicas(brokers, 1200, 3, random.Random(seed)))
        leaders = Counter(it[0] for it in placed)
        held = Counter(broker for it in placed for broker in it)
        assert {*leaders.values()} == {100}
        assert max(held.values()) < 1.25 * min(held.values()), held
