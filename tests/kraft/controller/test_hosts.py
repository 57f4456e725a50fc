"""Brokers that share hosts: two replicas of a partition are never on one."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.kraft.metadata.snapshot import broker_record
from barnabas.protocol.broker_hosts import HOST_TAG, MOST_HOST_BYTES, named_host
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.broker_registration import BrokerRegistrationRequest
from tests.kraft.controller.conftest import Cluster
from tests.kraft.controller.test_reassignment import reassign

pytestmark = pytest.mark.feature("MB-16", "MB-19")
HOSTS = {1: "west", 2: "west", 3: "east", 4: "east", 5: "north", 6: "north"}


@pytest.fixture
def hosted(cluster: Any) -> Cluster:
    """Brokers 1 to 6 on three hosts, two on each."""
    found: Cluster = cluster
    for broker, host in HOSTS.items():
        fields: dict[str, Any] = {"unknown_tagged_fields": {HOST_TAG: host.encode()}}
        if broker in found.epochs:
            found.restart(broker, clean=True, **fields)
        else:
            assert found.register(broker, **fields).error_code == 0
        assert not found.heartbeat(broker).is_fenced
    return found


def test_the_host_of_a_broker_is_kept_in_the_log_and_in_snapshots(hosted: Cluster) -> None:
    brokers = hosted.image.cluster.brokers
    assert {broker: brokers[broker].host for broker in HOSTS} == HOSTS
    assert {broker: named_host(broker_record(brokers[broker])) for broker in HOSTS} == HOSTS


def test_new_partitions_have_replicas_on_different_hosts(hosted: Cluster) -> None:
    assert hosted.create_topic("t", partitions=40, factor=3).error_code == 0
    for index in range(40):
        assert {HOSTS[it] for it in hosted.partition("t", index).replicas} == {"west", "east", "north"}
    refused = hosted.create_topic("u", partitions=1, factor=4)
    assert refused.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert refused.error_message == "brokers on only 3 host(s) can take replicas, not 4"


def test_assignments_with_two_replicas_on_one_host_are_refused(hosted: Cluster) -> None:
    refused = hosted.create_topic("t", [1, 3, 4])
    assert refused.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert refused.error_message == (
        "brokers 3 and 4 are both on host east; replicas of a partition must be on different hosts"
    )
    assert hosted.create_topic("t", [1, 3, 5]).error_code == 0
    assert reassign(hosted, "t", [1, 2, 5]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert reassign(hosted, "t", [2, 4, 6]) == 0, "a replica may move to another broker of its host"


@pytest.mark.parametrize("packed", [b"", b"\xff", b"x" * (MOST_HOST_BYTES + 1)])
def test_other_bytes_are_no_host(packed: bytes) -> None:
    request = BrokerRegistrationRequest()
    request.unknown_tagged_fields = {HOST_TAG: packed}
    assert named_host(request) is None
