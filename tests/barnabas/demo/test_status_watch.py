"""Changes between two polls of a cluster."""

from __future__ import annotations

from dataclasses import replace

from barnabas.cluster.status import ClusterStatus, NodeStatus, PartitionStatus, QuorumStatus
from barnabas.demo.status_watch import changes, is_whole, newest


def partition(index: int, leader: int, epoch: int, isr: list[int]) -> PartitionStatus:
    return PartitionStatus("demo", index, leader, epoch, [1, 2, 3], isr, 70)


def status(*partitions: PartitionStatus, quorum: QuorumStatus | None = None) -> ClusterStatus:
    nodes = [NodeStatus(f"broker-{id_}", "broker", 9091 + id_, "running", 1) for id_ in (1, 2, 3)]
    return ClusterStatus("id", "", nodes, quorum or QuorumStatus(101, 4, 10), [1, 2, 3], list(partitions))


WHOLE = status(partition(0, 1, 5, [1, 2, 3]), partition(1, 2, 3, [2, 3, 1]))


def test_an_unchanged_cluster_causes_no_line() -> None:
    assert changes(WHOLE, WHOLE) == []
    assert is_whole(WHOLE)


def test_a_lost_broker_is_a_new_leader_and_smaller_isrs() -> None:
    after = status(partition(0, 3, 6, [3, 2]), partition(1, 2, 3, [2, 3]))
    assert changes(WHOLE, after) == ["broker-3 leads demo-0 (epoch 6)", "in sync: 2,3 everywhere"]
    assert not is_whole(after)


def test_isrs_that_differ_are_listed_by_partition() -> None:
    after = status(partition(0, 1, 5, [1]), partition(1, 2, 3, []))
    assert changes(WHOLE, after) == ["in sync: demo-0 1; demo-1 nobody"]


def test_partitions_without_a_leader_are_listed() -> None:
    assert changes(WHOLE, status(partition(0, -1, 6, [1, 2, 3]), WHOLE.partitions[1])) == ["nobody leads demo-0"]


def test_a_new_active_controller_is_reported_but_not_its_absence() -> None:
    assert changes(WHOLE, replace(WHOLE, quorum=QuorumStatus(103, 5, 11))) == ["controller-103 is active, epoch 5"]
    assert changes(WHOLE, replace(WHOLE, quorum=None)) == []


def test_a_broker_with_an_older_leader_epoch_is_not_believed() -> None:
    stale = status(partition(0, 2, 4, [2]), partition(1, 2, 3, [1, 2, 3]))
    assert newest(WHOLE, stale).partitions[0] == WHOLE.partitions[0]
    assert changes(WHOLE, stale) == []


def test_a_cluster_that_does_not_answer_is_not_whole() -> None:
    assert not is_whole(status())
    assert not is_whole(replace(WHOLE, quorum=None))
    dead = [replace(node, state="dead") for node in WHOLE.nodes[:1]]
    assert not is_whole(replace(WHOLE, nodes=[*dead, *WHOLE.nodes[1:]]))
