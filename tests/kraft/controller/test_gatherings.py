"""Brokers that stop or start together: one decision for all of them."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.kraft.controller.gatherings import (
    LEAST_START_MS,
    STARTS_WITHIN_MS,
    STOPS_WITHIN_MS,
    is_awaited,
    note_wishes,
)
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from barnabas.protocol.messages.metadata_log import PartitionChangeRecord
from tests.kraft.controller.conftest import Cluster


def arrives(cluster: Cluster, broker_id: int, **fields: Any) -> int:
    """The heartbeat arrives, and is not decided on yet. Returns the time for which it is to be held back."""
    request = BrokerHeartbeatRequest(
        broker_id=broker_id, broker_epoch=cluster.epochs[broker_id], current_metadata_offset=len(cluster.log)
    )
    for name, value in fields.items():
        setattr(request, name, value)
    return note_wishes(cluster.image, cluster.controller.sessions, request)


def changes(cluster: Cluster, since: int) -> int:
    return sum(isinstance(record, PartitionChangeRecord) for record in cluster.log[since:])


def stop_all(cluster: Cluster) -> None:
    for broker_id in (1, 2, 3):
        arrives(cluster, broker_id, want_shut_down=True)
    for broker_id in (1, 2, 3, 1):
        cluster.heartbeat(broker_id, want_shut_down=True)


@pytest.mark.feature("MB-05", "OP-08")
def test_brokers_that_stop_together_change_each_partition_once_and_stay_eligible(cluster: Any) -> None:
    cluster.create_topic("t", [1, 2, 3], [2, 3, 1], [3, 1, 2])
    before = len(cluster.log)
    for broker_id in (1, 2, 3):
        assert arrives(cluster, broker_id, want_shut_down=True) == STOPS_WITHIN_MS
    assert not cluster.heartbeat(1, want_shut_down=True).should_shut_down
    assert changes(cluster, before) == 3
    for index in range(3):
        partition = cluster.partition("t", index)
        assert (partition.leader, partition.isr, partition.elr) == (-1, (), (1, 2, 3))
    for broker_id in (2, 3, 1):
        assert cluster.heartbeat(broker_id, want_shut_down=True).should_shut_down, "nobody is left to wait for"
    assert all(broker.fenced for broker in cluster.image.cluster.brokers.values())
    assert changes(cluster, before) == 3
    assert cluster.story("t-0")[-1].startswith(
        "t-0 has no leader since epoch 1: controlled shutdown of brokers 1, 2, 3; no replica"
    )


@pytest.mark.feature("MB-05")
def test_those_that_stay_take_over_from_those_that_stop_together(cluster: Any) -> None:
    cluster.create_topic("t", [1, 2, 3])
    arrives(cluster, 1, want_shut_down=True)
    arrives(cluster, 2, want_shut_down=True)
    arrives(cluster, 3)
    assert not cluster.heartbeat(1, want_shut_down=True).should_shut_down
    partition = cluster.partition("t")
    assert (partition.leader, partition.isr) == (3, (3,))
    moved_at = len(cluster.log) - 1
    assert not cluster.heartbeat(2, want_shut_down=True).should_shut_down, "broker 3 has not read of it yet"
    cluster.heartbeat(3, current_metadata_offset=moved_at)
    assert cluster.heartbeat(2, want_shut_down=True).should_shut_down
    assert cluster.heartbeat(1, want_shut_down=True).should_shut_down


@pytest.mark.feature("MB-05")
def test_without_elr_brokers_stop_one_by_one(make_cluster: Any) -> None:
    """An ISR keeps its last member then: that has to be one that is complete."""
    cluster = make_cluster(levels={"eligible.leader.replicas.version": 0})
    cluster.start(1, 2, 3)
    cluster.create_topic("t", [1, 2, 3])
    assert arrives(cluster, 1, want_shut_down=True) == 0
    stop_all(cluster)
    partition = cluster.partition("t")
    assert (partition.leader, partition.isr) == (-1, (3,))


@pytest.mark.feature("MB-05")
def test_a_broker_that_is_alone_waits_for_nobody(make_cluster: Any) -> None:
    cluster = make_cluster()
    cluster.start(1)
    assert arrives(cluster, 1, want_shut_down=True) == 0
    assert arrives(cluster, 1) == 0


@pytest.mark.feature("MB-03", "RE-08", "OP-08")
def test_brokers_that_start_together_share_the_leaderships_and_are_in_sync_at_once(cluster: Any) -> None:
    cluster.create_topic("t", [1, 2, 3], [2, 3, 1], [3, 1, 2])
    stop_all(cluster)
    for broker_id in (1, 2, 3):
        cluster.restart(broker_id, clean=True)
        assert arrives(cluster, broker_id, want_fence=True) == 0
    before = len(cluster.log)
    for broker_id in (2, 1, 3):
        assert is_awaited(cluster.image, cluster.controller.sessions, cluster.now_ms)
        assert arrives(cluster, broker_id) == LEAST_START_MS
    assert not is_awaited(cluster.image, cluster.controller.sessions, cluster.now_ms)
    assert not cluster.heartbeat(2).is_fenced
    assert all(broker.active for broker in cluster.image.cluster.brokers.values())
    assert changes(cluster, before) == 3
    for index in range(3):
        partition = cluster.partition("t", index)
        assert (partition.leader, partition.isr, partition.elr) == (index + 1, partition.replicas, ())
    assert [cluster.heartbeat(each).is_fenced for each in (1, 3)] == [False, False]


@pytest.mark.feature("MB-03", "RE-08")
def test_a_broker_that_comes_later_joins_by_its_leader(cluster: Any) -> None:
    cluster.create_topic("t", [1, 2, 3])
    stop_all(cluster)
    for broker_id in (1, 2, 3):
        cluster.restart(broker_id, clean=True)
    arrives(cluster, 2)
    arrives(cluster, 3)
    cluster.heartbeat(3)
    partition = cluster.partition("t")
    assert (partition.leader, partition.isr, partition.elr) == (2, (2, 3), ()), "what they commit now, 1 does not have"
    assert arrives(cluster, 1) == 0, "others serve already"
    cluster.heartbeat(1)
    assert cluster.partition("t").isr == (2, 3)


@pytest.mark.feature("MB-03", "RE-08")
def test_an_eligible_replica_that_lost_records_is_not_in_sync_after_the_start(cluster: Any) -> None:
    cluster.create_topic("t", [1, 2, 3])
    stop_all(cluster)
    cluster.restart(1, clean=True)
    cluster.restart(2, clean=False)
    cluster.restart(3, clean=True)
    for broker_id in (1, 2, 3):
        arrives(cluster, broker_id)
    cluster.heartbeat(1)
    assert cluster.partition("t").isr == (1, 3)


@pytest.mark.feature("MB-03")
def test_the_dead_are_not_awaited(cluster: Any) -> None:
    cluster.create_topic("t", [1, 2, 3])
    stop_all(cluster)
    cluster.restart(1, clean=True)
    cluster.restart(2, clean=True)
    assert arrives(cluster, 1) == LEAST_START_MS
    assert is_awaited(cluster.image, cluster.controller.sessions, cluster.now_ms), "broker 2 is starting"
    cluster.now_ms += cluster.controller.sessions.session_timeout_ms
    cluster.controller.sessions.contact(1, cluster.epochs[1], cluster.now_ms)
    assert is_awaited(cluster.image, cluster.controller.sessions, cluster.now_ms)
    assert not is_awaited(cluster.image, cluster.controller.sessions, cluster.now_ms + 1)


@pytest.mark.feature("MB-03", "OP-08")
@pytest.mark.parametrize(
    ("took_ms", "hold_ms"), [(40, LEAST_START_MS), (1_200, 1_200), (STARTS_WITHIN_MS + 1, STARTS_WITHIN_MS)]
)
def test_a_broker_waits_for_others_as_long_as_its_own_start_took(cluster: Any, took_ms: int, hold_ms: int) -> None:
    """Broker 2 recovers its logs after a crash, for minutes perhaps."""
    cluster.create_topic("t", [1, 2, 3])
    stop_all(cluster)
    cluster.restart(1, clean=True)
    cluster.restart(2, clean=False)
    cluster.now_ms += took_ms
    for broker_id in (1, 2):
        cluster.controller.sessions.contact(broker_id, cluster.epochs[broker_id], cluster.now_ms)
    assert arrives(cluster, 2, want_fence=True) == 0
    assert arrives(cluster, 1) == hold_ms


@pytest.mark.feature("MB-03")
def test_a_heartbeat_that_cannot_unfence_is_no_wish(cluster: Any) -> None:
    cluster.create_topic("t", [1, 2, 3])
    stop_all(cluster)
    cluster.restart(1, clean=True)
    epoch = cluster.epochs[1]
    assert arrives(cluster, 1, current_metadata_offset=epoch - 1) == 0
    assert arrives(cluster, 1, want_fence=True) == 0
    assert arrives(cluster, 1, want_shut_down=True) == 0
    assert is_awaited(cluster.image, cluster.controller.sessions, cluster.now_ms)
