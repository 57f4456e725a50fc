"""Plans that balance a cluster."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.cli.balance_plan import Balance, Limits, PartitionLoad, balanced, imbalance, loads, rack_shortage
from barnabas.cli.offset_reset import Partition

RACKS = {1: "a", 2: "b", 3: "c", 4: "a"}


def numbered(*replicas: tuple[int, ...], size: int = 10) -> dict[Partition, PartitionLoad]:
    return {Partition("t", index): PartitionLoad(each, size, size / 10) for index, each in enumerate(replicas)}


@pytest.mark.feature("OP-05")
def test_a_new_broker_gets_its_share() -> None:
    partitions = numbered(*[(1, 2), (2, 3), (3, 1)] * 4)
    racks = {1: None, 2: None, 3: None, 4: None}
    result = balanced(partitions, racks)
    assert {it.replicas for it in result.after.values()} == {6}
    assert {it.leaders for it in result.after.values()} == {3}
    assert result.moved_replicas == 6 and result.moved_bytes == 60
    assert imbalance(result.after) == 0


@pytest.mark.feature("OP-05")
def test_replicas_in_one_rack_are_parted_first() -> None:
    result = balanced(numbered((1, 4)), RACKS, Limits(max_moves=1))
    (replicas,) = result.plan.values()
    assert rack_shortage(replicas, RACKS) == 0
    assert result.back == {Partition("t", 0): [1, 4]}


@pytest.mark.feature("OP-05")
def test_leaders_are_spread_without_moving_data() -> None:
    result = balanced(numbered(*[(1, 2, 3)] * 6), {1: "a", 2: "b", 3: "c"}, Limits(max_moves=0))
    assert {it.leaders for it in result.after.values()} == {2}
    assert (result.moved_replicas, result.moved_bytes) == (0, 0)
    assert all(sorted(replicas) == [1, 2, 3] for replicas in result.plan.values())


@pytest.mark.feature("OP-05")
def test_a_large_partition_moves_rather_than_many_small_ones() -> None:
    partitions = {Partition("large", index): PartitionLoad((1,), 1000) for index in range(2)}
    result = balanced(partitions, {1: None, 2: None})
    assert [it.size_bytes for it in result.after.values()] == [1000, 1000]
    assert result.moved_replicas == 1


@pytest.mark.feature("OP-05")
def test_a_plan_stays_within_its_limits_and_goes_back() -> None:
    partitions = numbered(*[(1, 2)] * 20)
    result = balanced(partitions, RACKS, Limits(max_moves=5, max_bytes=35))
    assert (result.moved_replicas, result.moved_bytes) == (3, 30)
    assert all(partitions[partition].replicas == tuple(replicas) for partition, replicas in result.back.items())


@pytest.mark.feature("OP-05")
def test_partitions_with_a_replica_out_of_service_are_left_alone() -> None:
    assert balanced(numbered((1, 9), (1, 9), (1, 9)), {1: None, 2: None}).plan == {}


@st.composite
def clusters(draw: st.DrawFn) -> tuple[dict[Partition, PartitionLoad], dict[int, str | None], Limits]:
    brokers = draw(st.integers(1, 6))
    names = st.sampled_from(["a", "b", "c", None])
    racks = {broker: draw(names) for broker in range(1, brokers + 1)}
    ids = st.lists(st.sampled_from(list(racks)), min_size=1, max_size=3, unique=True).map(tuple)
    sizes = st.one_of(st.just(0), st.integers(1, 1000))
    parts = st.builds(PartitionLoad, ids, sizes, sizes.map(float))
    partitions = {Partition("t", index): each for index, each in enumerate(draw(st.lists(parts, max_size=12)))}
    limits = Limits(draw(st.integers(0, 12)), draw(st.one_of(st.none(), st.integers(0, 3000))))
    return partitions, racks, limits


def applied(partitions: dict[Partition, PartitionLoad], result: Balance) -> dict[Partition, PartitionLoad]:
    return {
        partition: PartitionLoad(tuple(result.plan.get(partition, load.replicas)), load.size_bytes, load.rate)
        for partition, load in partitions.items()
    }


@pytest.mark.feature("OP-05")
@given(clusters())
def test_whatever_the_cluster(given: tuple[dict[Partition, PartitionLoad], dict[int, str | None], Limits]) -> None:
    partitions, racks, limits = given
    result = balanced(partitions, racks, limits)
    moved = 0
    for partition, replicas in result.plan.items():
        before = partitions[partition].replicas
        assert len(replicas) == len(before) == len(set(replicas)), "the replication factor is kept"
        assert set(replicas) <= set(racks), "only brokers in service"
        assert rack_shortage(replicas, racks) <= rack_shortage(before, racks), "no rack is worse"
        assert len(set(replicas) - set(before)) <= 1, "one replica of a partition at a time: the others serve it"
        moved += len(set(replicas) - set(before))
        assert list(before) == result.back[partition] != replicas
    assert moved == result.moved_replicas <= limits.max_moves
    assert limits.max_bytes is None or result.moved_bytes <= limits.max_bytes
    after = applied(partitions, result)
    assert result.before == loads(partitions, racks) and result.after == loads(after, racks)
    gained = sum(
        rack_shortage(load.replicas, racks) - rack_shortage(after[partition].replicas, racks)
        for partition, load in partitions.items()
    )
    assert gained > 0 or imbalance(result.after) <= imbalance(result.before) + 1e-9
    assert balanced(partitions, racks, limits) == result, "the same cluster, the same plan"
