"""Partitions move to other brokers, and back when somebody thinks better of it."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)


def reassign(cluster: Any, name: str, replicas: list[int] | None, **fields: Any) -> int:
    partition = ReassignablePartition(partition_index=fields.pop("partition", 0), replicas=replicas)
    topic = ReassignableTopic(name=name, partitions=[partition])
    response = cluster.send(AlterPartitionReassignmentsRequest(topics=[topic], **fields))
    assert response.error_code == 0
    return int(response.responses[0].partitions[0].error_code)


@pytest.fixture
def wide(cluster: Any) -> Any:
    """Five brokers; topic t on 1, 2 and 3."""
    cluster.start(4, 5)
    cluster.create_topic("t", [1, 2, 3])
    return cluster


@pytest.mark.feature("MB-19")
def test_a_reassignment_ends_when_all_new_replicas_are_in_sync(wide: Any) -> None:
    assert reassign(wide, "t", [4, 5, 3]) == 0
    moving = wide.partition("t")
    assert moving.replicas == (4, 5, 3, 1, 2)
    assert (moving.adding_replicas, moving.removing_replicas) == ((4, 5), (1, 2))
    assert (moving.leader, moving.isr) == (1, (1, 2, 3))
    assert len(moving.directories) == 5
    assert wide.propose_isr("t", [1, 2, 3, 4]).error_code == 0
    assert wide.partition("t").adding_replicas == (4, 5), "broker 5 still lacks records"
    assert wide.propose_isr("t", [1, 2, 3, 4, 5]).error_code == ErrorCode.NEW_LEADER_ELECTED
    moved = wide.partition("t")
    assert (moved.replicas, set(moved.isr), moved.leader) == ((4, 5, 3), {3, 4, 5}, 4)
    assert (moved.adding_replicas, moved.removing_replicas) == ((), ())
    assert moved.leader_epoch > moving.leader_epoch
    assert [it[0] for it in moved.directories] == [4, 5, 3]


@pytest.mark.feature("MB-19")
def test_another_order_of_the_same_replicas_holds_at_once(wide: Any) -> None:
    assert reassign(wide, "t", [3, 2, 1]) == 0
    partition = wide.partition("t")
    assert (partition.replicas, partition.leader, partition.adding_replicas) == ((3, 2, 1), 1, ())
    assert partition.directories == tuple(bytes([it, 1]) * 8 for it in (3, 2, 1))


@pytest.mark.feature("MB-19")
def test_a_smaller_replica_set_holds_at_once_and_no_dropped_replica_fetches_on(wide: Any) -> None:
    assert reassign(wide, "t", [1, 2]) == 0
    partition = wide.partition("t")
    assert (partition.replicas, partition.isr, partition.leader, partition.leader_epoch) == ((1, 2), (1, 2), 1, 1)


@pytest.mark.feature("MB-19")
def test_a_cancelled_reassignment_leaves_the_original_replicas(wide: Any) -> None:
    assert reassign(wide, "t", None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    reassign(wide, "t", [4, 5, 3])
    wide.propose_isr("t", [1, 2, 3, 4])
    assert reassign(wide, "t", None) == 0
    partition = wide.partition("t")
    assert (sorted(partition.replicas), set(partition.isr), partition.leader) == ([1, 2, 3], {1, 2, 3}, 1)
    assert (partition.adding_replicas, partition.removing_replicas) == ((), ())


@pytest.mark.feature("MB-19")
def test_a_cancellation_that_would_lose_records_is_refused(wide: Any) -> None:
    reassign(wide, "t", [4, 5])
    wide.propose_isr("t", [1, 4])
    wide.die(1)
    assert (wide.partition("t").leader, wide.partition("t").isr) == (4, (4,))
    assert reassign(wide, "t", None) == ErrorCode.INVALID_REPLICA_ASSIGNMENT


@pytest.mark.feature("MB-19")
def test_a_second_reassignment_takes_the_place_of_the_first(wide: Any) -> None:
    reassign(wide, "t", [4, 2, 3])
    assert reassign(wide, "t", [5, 2, 3]) == 0
    partition = wide.partition("t")
    assert (partition.adding_replicas, partition.removing_replicas) == ((5,), (1, 4))
    assert reassign(wide, "t", [1, 2, 3]) == 0
    assert wide.partition("t").replicas == (1, 2, 3)


@pytest.mark.feature("MB-19")
def test_reassignments_that_are_refused(wide: Any) -> None:
    before = len(wide.log)
    assert reassign(wide, "u", [1]) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert reassign(wide, "t", [1], partition=7) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert reassign(wide, "t", [1, 9]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert reassign(wide, "t", [1, 1]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert reassign(wide, "t", []) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    fixed = {"allow_replication_factor_change": False}
    assert reassign(wide, "t", [1, 2], **fixed) == ErrorCode.INVALID_REPLICATION_FACTOR
    assert len(wide.log) == before
    assert reassign(wide, "t", [4, 2, 3], **fixed) == 0
    assert reassign(wide, "t", [5, 2, 3], **fixed) == 0
