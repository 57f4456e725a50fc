"""Plans that take all replicas off a broker, and the check before a broker is restarted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.cli.drain_plan import PartitionHealth, drained, harmed, not_in_sync
from barnabas.cli.offset_reset import Partition
from barnabas.cluster.errors import ClusterError

pytestmark = pytest.mark.feature("MB-19", "AD-05")


def test_another_broker_takes_the_place_of_the_drained_one() -> None:
    racks = {1: "a", 2: "b", 3: "c", 4: "b"}
    assignment = {Partition("t", 0): [2, 1], Partition("t", 1): [1, 3], Partition("t", 2): [3, 2, 1]}
    assert drained(assignment, racks, 2) == {Partition("t", 0): [4, 1], Partition("t", 2): [3, 4, 1]}
    assert drained({Partition("t", 0): [1, 2]}, racks, 1) == {Partition("t", 0): [3, 2]}, "not both in rack b"


def test_too_few_brokers_remain() -> None:
    with pytest.raises(ClusterError, match=r"t:0 has 3 replicas, and without broker 1 only 2 brokers are in service"):
        drained({Partition("t", 0): [1, 2, 3]}, {1: None, 2: None, 3: None}, 1)


@given(
    st.integers(4, 7).flatmap(
        lambda count: st.tuples(
            st.just(count), st.lists(st.permutations(range(1, count + 1)).map(lambda ids: list(ids[:3])), max_size=20)
        )
    )
)
def test_a_drained_broker_has_no_replica_and_nothing_else_moves(found: tuple[int, list[list[int]]]) -> None:
    count, replicas = found
    assignment = {Partition("t", index): ids for index, ids in enumerate(replicas)}
    plan = drained(assignment, dict.fromkeys(range(1, count + 1)), 1)
    assert plan.keys() == {each for each, ids in assignment.items() if 1 in ids}
    for each, ids in plan.items():
        assert 1 not in ids and len(set(ids)) == 3
        assert [new for new, old in zip(ids, assignment[each], strict=True) if old != 1] == [
            old for old in assignment[each] if old != 1
        ]


def test_partitions_that_a_restart_would_harm() -> None:
    health = [
        PartitionHealth(Partition("safe", 0), [1, 2, 3], [1, 2, 3], 2),
        PartitionHealth(Partition("single", 0), [1], [1], 1),
        PartitionHealth(Partition("thin", 0), [1, 2, 3], [1, 2], 2),
        PartitionHealth(Partition("elsewhere", 0), [2, 3], [2], 1),
    ]
    assert harmed(health, 1) == [
        "single:0 would have no leader: broker 1 has its only replica in sync",
        "thin:0 could not be written: 1 of min.insync.replicas=2 would remain",
    ]
    assert not_in_sync(health) == [
        "thin:0 has 2 of 3 replicas in sync",
        "elsewhere:0 has 1 of 2 replicas in sync",
    ]
