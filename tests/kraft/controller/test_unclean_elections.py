"""Unclean elections are counted from committed metadata, clean ones are not."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.kraft.controller.unclean_elections import unclean_elections
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tests.kraft.controller.conftest import finish


def commit(cluster: Any) -> int:
    """Commits what was appended; returns the unclean elections in it."""
    cluster.hold = False
    records = cluster.log[cluster.committed :]
    deltas = finish(cluster.controller.handle_commit(cluster.committed, 1, cluster.now_ms, records))
    cluster.committed = len(cluster.log)
    return sum(map(unclean_elections, deltas))


@pytest.mark.feature("OB-04")
def test_only_the_election_of_an_out_of_sync_replica_counts(make_cluster: Any) -> None:
    cluster = make_cluster(levels={"eligible.leader.replicas.version": 0})
    cluster.start(1, 2)
    cluster.create_topic("in-sync", [1, 2])
    cluster.create_topic("behind", [1, 2])
    cluster.propose_isr("behind", [1])
    cluster.hold = True
    cluster.die(1)
    assert commit(cluster) == 0, "`in-sync` elects a replica of its ISR, `behind` has no leader"
    assert cluster.partition("in-sync").leader == 2
    cluster.hold = True
    cluster.send(
        ElectLeadersRequest(election_type=1, topic_partitions=[TopicPartitions(topic="behind", partitions=[0])])
    )
    assert cluster.partition("behind").leader == 2
    assert commit(cluster) == 1
