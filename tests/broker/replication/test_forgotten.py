"""A replica that the others may have gone on without does not say that there is nothing more to read."""

from __future__ import annotations

import pytest

from barnabas.broker.replication.replica import FollowerFetch, Replica, ReplicaSettings
from barnabas.kraft.metadata.image import PartitionImage

pytestmark = pytest.mark.feature("RE-05", "FI-09")


def replica_of(leader: int, isr: tuple[int, ...], replicas: tuple[int, ...] = (1, 2, 3)) -> Replica:
    """The replica of broker 1."""
    replica = Replica(1, lambda _: None, ReplicaSettings(), 0, 0)
    image = PartitionImage(replicas, (b"",) * len(replicas), isr, leader=leader, leader_epoch=0, partition_epoch=0)
    replica.partition_changed(image, 0, 0)
    return replica


def test_a_leader_is_confirmed_by_any_follower_that_fetches() -> None:
    replica = replica_of(1, (1, 2, 3))
    assert not replica.is_forgotten(5_000, may_be_fenced=False)
    assert replica.is_forgotten(5_000, may_be_fenced=True)
    replica.follower_fetched(FollowerFetch(3, -1, 0, 0), 0, 6_000)
    assert not replica.is_forgotten(5_000, may_be_fenced=True)
    assert replica.is_forgotten(6_001, may_be_fenced=True)


def test_a_fetch_that_names_no_partition_confirms_it_too() -> None:
    replica = replica_of(1, (1, 2, 3))
    replica.last_fetch_ms = lambda node_id: 7_000 if node_id == 2 else 0
    assert not replica.is_forgotten(6_500, may_be_fenced=True)


def test_a_leader_without_followers_cannot_be_replaced() -> None:
    assert not replica_of(1, (1,), replicas=(1,)).is_forgotten(5_000, may_be_fenced=True)


def test_a_follower_says_so_when_it_lags() -> None:
    replica = replica_of(2, (1, 2, 3))
    assert not replica.is_forgotten(0, may_be_fenced=False)
    assert replica.is_forgotten(0, may_be_fenced=True)
    lags = PartitionImage((1, 2, 3), (b"",) * 3, (2, 3), leader=2, leader_epoch=0, partition_epoch=1)
    replica.partition_changed(lags, 0, 0)
    assert replica.is_forgotten(0, may_be_fenced=False)
    back = PartitionImage((1, 2, 3), (b"",) * 3, (1, 2, 3), leader=2, leader_epoch=0, partition_epoch=2)
    replica.partition_changed(back, 0, 0)
    assert not replica.is_forgotten(0, may_be_fenced=False)
