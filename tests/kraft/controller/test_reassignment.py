"""Partitions move to other brokers, and back when somebody thinks better of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.kraft.metadata.image import PartitionImage
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tests.examples import examples
from tests.kraft.controller.conftest import Cluster

BROKERS = (1, 2, 3, 4, 5)


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


class Moving:
    """A partition that is moved to and fro, beside what clients asked for."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self.draw = draw
        self.cluster = Cluster(min_insync_replicas=1)
        self.cluster.start(*BROKERS)
        self.cluster.create_topic("t", [1, 2, 3])
        self.holders: tuple[int, ...] = (1, 2, 3)
        """Where the partition is, apart from a move."""
        self.wanted: tuple[int, ...] | None = None

    @property
    def image(self) -> PartitionImage:
        return self.cluster.partition("t")

    def reassign(self) -> None:
        wanted = self.draw(st.lists(st.sampled_from([*BROKERS, *BROKERS, 9]), max_size=4))
        same_factor = self.draw(st.booleans())
        request = AlterPartitionReassignmentsRequest(allow_replication_factor_change=not same_factor)
        partition = ReassignablePartition(partition_index=0, replicas=list(wanted))
        request.topics = [ReassignableTopic(name="t", partitions=[partition])]
        before = self.image
        error = self.cluster.send(request).responses[0].partitions[0].error_code
        factor = len(self.holders if self.wanted is None else self.wanted)
        if same_factor and len(wanted) != factor:
            assert (error, self.image) == (ErrorCode.INVALID_REPLICATION_FACTOR, before)
        elif not wanted or len({*wanted}) < len(wanted) or 9 in wanted:
            assert (error, self.image) == (ErrorCode.INVALID_REPLICA_ASSIGNMENT, before)
        else:
            assert error == ErrorCode.NONE
            # Replicas that the replaced move was adding may have caught up: as in Kafka, they stay until the end.
            self.holders += tuple(it for it in before.adding_replicas if it not in wanted)
            self.wanted = tuple(wanted)
            self.settle(before)

    def cancel(self) -> None:
        request = AlterPartitionReassignmentsRequest()
        partition = ReassignablePartition(partition_index=0, replicas=None)
        request.topics = [ReassignableTopic(name="t", partitions=[partition])]
        before = self.image
        error = self.cluster.send(request).responses[0].partitions[0].error_code
        moves = bool(before.adding_replicas or before.removing_replicas)
        if not moves:
            assert (error, self.image) == (ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, before)
        elif not {*before.isr} & {*self.holders}:
            assert (error, self.image) == (ErrorCode.INVALID_REPLICA_ASSIGNMENT, before)
        else:
            assert error == ErrorCode.NONE
            self.wanted = None
            assert {*self.image.replicas} == {*self.holders}
            assert {*self.image.isr} == {*before.isr} & {*self.holders}
            assert self.image.adding_replicas == self.image.removing_replicas == ()
            self.holders = self.image.replicas

    def sync(self) -> None:
        """The leader proposes another ISR, with itself."""
        before = self.image
        others = [it for it in before.replicas if it != before.leader]
        isr = [before.leader, *self.draw(st.lists(st.sampled_from(others), unique=True))] if others else [before.leader]
        answer = self.cluster.propose_isr("t", isr)
        assert answer.error_code in (ErrorCode.NONE, ErrorCode.NEW_LEADER_ELECTED)
        self.settle(before)

    def settle(self, before: PartitionImage) -> None:
        """A move is over when all whom the client wants are in sync."""
        image = self.image
        assert image.leader in image.isr and {*image.isr} <= {*image.replicas}
        if self.wanted is None:
            assert image.replicas == self.holders
        elif image.adding_replicas or image.removing_replicas:
            assert not {*self.wanted} <= {*image.isr}
            assert image.replicas[: len(self.wanted)] == self.wanted
            assert {*image.adding_replicas} == {*self.wanted} - {*self.holders}
            assert {*image.removing_replicas} == {*image.replicas} - {*self.wanted}
            assert {*self.holders} <= {*image.replicas}, "the present ones hold it until the end"
        else:
            assert image.replicas == self.wanted
            self.holders, self.wanted = self.wanted, None


@pytest.mark.feature("MB-19")
@settings(max_examples=examples(60))
@given(st.data())
def test_a_partition_is_where_the_last_request_wanted_it_or_on_its_way(data: st.DataObject) -> None:
    moving = Moving(data.draw)
    for _ in range(data.draw(st.integers(1, 12))):
        getattr(moving, data.draw(st.sampled_from(["reassign", "reassign", "sync", "sync", "cancel"])))()
