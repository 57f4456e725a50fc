"""Unclean elections are counted from committed metadata, clean ones are not; after a restore operators ask for them."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.kraft.controller.state import ControllerResult
from barnabas.kraft.controller.unclean_elections import unclean_elections
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from barnabas.protocol.messages.metadata_log import PartitionChangeRecord
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


@pytest.mark.feature("RE-13", "OP-07")
@pytest.mark.parametrize("elr", [0, 1])
def test_a_partition_that_waits_for_a_decision_is_left_alone_by_the_config(make_cluster: Any, elr: int) -> None:
    cluster = make_cluster(levels={"eligible.leader.replicas.version": elr})
    cluster.start(1, 2)
    cluster.create_topic("restored", [1, 2], configs={"unclean.leader.election.enable": "true"})
    topic_id = cluster.image.topics.by_name["restored"].id
    nobody = PartitionChangeRecord(topic_id=topic_id, partition_id=0, isr=[], leader=-1, leader_recovery_state=1)
    cluster.append(ControllerResult(None, [nobody]))
    assert cluster.partition("restored").awaits_decision
    for broker in (1, 2):
        cluster.restart(broker, clean=True)
        cluster.heartbeat(broker)
    cluster.now_ms += 3_600_000
    for broker in (1, 2):
        cluster.controller.sessions.touch(broker, cluster.epochs[broker], len(cluster.log), cluster.now_ms)
    cluster.work()
    assert cluster.partition("restored").awaits_decision
    wanted = [TopicPartitions(topic="restored", partitions=[0])]
    cluster.send(ElectLeadersRequest(election_type=1, topic_partitions=wanted))
    assert (cluster.partition("restored").leader, cluster.partition("restored").isr) == (1, (1,))
