"""Replicas without room: who leads instead, who waits for them, and what stays as it is."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.kraft.full_directories import FULL_DIRECTORIES_TAG, report_full, reported_full
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from barnabas.protocol.schema import decode, encode

pytestmark = pytest.mark.feature("OP-06")


def report(cluster: Any, broker_id: int, *, full: bool) -> None:
    """A heartbeat of a broker whose only log directory is full, or has room again."""
    ids = cluster.image.cluster.brokers[broker_id].log_directories if full else ()
    tagged = {FULL_DIRECTORIES_TAG: b"".join(ids)} if full else None
    assert cluster.heartbeat(broker_id, unknown_tagged_fields=tagged).error_code == 0


def state_of(cluster: Any) -> tuple[int, tuple[int, ...]]:
    partition = cluster.partition("t")
    return partition.leader, partition.isr


@pytest.fixture
def started(cluster: Any) -> Any:
    cluster.create_topic("t", [1, 2, 3], configs={"min.insync.replicas": "2"})
    return cluster


def test_a_full_leader_hands_over_and_leaves_the_isr(started: Any) -> None:
    report(started, 1, full=True)
    assert state_of(started) == (2, (2, 3))
    assert "is full" in started.decisions.since(0, "t-0")[-1].cause


def test_a_full_follower_leaves_the_isr_and_the_leader_stays(started: Any) -> None:
    report(started, 3, full=True)
    assert state_of(started) == (1, (1, 2))


def test_it_comes_back_when_it_has_room_and_not_before(started: Any) -> None:
    report(started, 1, full=True)
    assert started.propose_isr("t", [1, 2, 3]).error_code == ErrorCode.INELIGIBLE_REPLICA
    report(started, 1, full=False)
    assert started.propose_isr("t", [1, 2, 3]).error_code == ErrorCode.NONE
    started.now_ms += 300_000
    for broker_id in (1, 2, 3):
        report(started, broker_id, full=False)
    started.work()
    assert state_of(started) == (1, (1, 2, 3))


def test_a_full_preferred_leader_is_not_elected(started: Any) -> None:
    report(started, 2, full=True)
    report(started, 1, full=True)
    assert state_of(started) == (3, (1, 3)), "one alone is not enough for min.insync.replicas, so 1 stays in the ISR"
    started.now_ms += 300_000
    for broker_id in (1, 2, 3):
        report(started, broker_id, full=broker_id != 3)
    started.work()
    assert state_of(started) == (3, (1, 3))


def test_nothing_changes_if_no_replica_has_room(started: Any) -> None:
    for broker_id in (3, 2, 1):
        report(started, broker_id, full=True)
    leader, isr = state_of(started)
    for broker_id in (1, 2, 3):
        report(started, broker_id, full=True)
    assert state_of(started) == (leader, isr)
    assert leader in isr
    assert len(isr) == 2


def test_a_replica_that_has_just_joined_leads_from_the_next_heartbeat_on(cluster: Any) -> None:
    cluster.create_topic("t", [1, 2, 3], configs={"min.insync.replicas": "1"})
    assert cluster.propose_isr("t", [1]).error_code == ErrorCode.NONE
    report(cluster, 1, full=True)
    assert state_of(cluster) == (1, (1,)), "there is nobody else"
    assert cluster.propose_isr("t", [1, 2]).error_code == ErrorCode.NONE
    assert state_of(cluster) == (1, (1, 2))
    report(cluster, 1, full=True)
    assert state_of(cluster) == (2, (2,))


def test_when_the_one_with_room_dies_a_full_one_leads(started: Any) -> None:
    report(started, 2, full=True)
    report(started, 1, full=True)
    started.die(3)
    assert state_of(started)[0] == 1


def test_another_controller_learns_it_from_the_next_heartbeat(started: Any) -> None:
    report(started, 1, full=True)
    started.fail_over(2)
    report(started, 1, full=True)
    assert started.propose_isr("t", [1, 2, 3]).error_code == ErrorCode.INELIGIBLE_REPLICA


def test_full_directories_are_encoded_and_malformed_fields_are_ignored() -> None:
    request = BrokerHeartbeatRequest(broker_id=1)
    report_full(request, [b"b" * 16, b"a" * 16])
    version = BrokerHeartbeatRequest.VERSIONS.highest
    arrived = decode(BrokerHeartbeatRequest, encode(request, version), version)
    assert reported_full(arrived) == (b"a" * 16, b"b" * 16)
    for wrong in (b"", b"x", bytes(17), bytes(16 * 1001)):
        request.unknown_tagged_fields = {FULL_DIRECTORIES_TAG: wrong}
        assert reported_full(request) == ()
    quiet = BrokerHeartbeatRequest(broker_id=1)
    report_full(quiet, [])
    assert not quiet.unknown_tagged_fields
