"""Scenarios that lost acknowledged records somewhere once, played with the cores of three brokers."""

from __future__ import annotations

import pytest

from barnabas.kraft.metadata.image import NO_LEADER
from tests.broker.replication.model import LAG_MS, NODES, Cluster


def settle(cluster: Cluster, *nodes: int, rounds: int = 3) -> None:
    """Let these brokers learn, fetch and receive responses."""
    for _ in range(rounds):
        for node in nodes or NODES:
            cluster.learn(node)
            cluster.fetch(node)
        cluster.deliver_all()


def busy_cluster(min_isr: int = 2, records: int = 5) -> Cluster:
    """Broker 1 leads; everybody has the records and knows that they are committed."""
    cluster = Cluster(min_isr)
    for _ in range(records):
        assert cluster.produce(1)
    settle(cluster)
    assert len(cluster.committed) == records == len(cluster.acked)
    return cluster


def watermark(cluster: Cluster, node: int) -> int:
    return cluster.brokers[node].replica.high_watermark


def end(cluster: Cluster, node: int) -> int:
    return cluster.brokers[node].log.log_end_offset


@pytest.mark.feature("RE-03", "RE-04", "FI-07")
def test_a_record_is_committed_when_all_have_it_and_followers_learn_it_next() -> None:
    cluster = Cluster()
    cluster.produce(1)
    cluster.fetch(2)
    cluster.fetch(3)
    cluster.deliver_all()
    assert (end(cluster, 2), watermark(cluster, 1)) == (1, 0), "they have it; the leader does not know yet"
    cluster.fetch(2)
    cluster.deliver_all()
    assert watermark(cluster, 1) == 0
    cluster.fetch(3)
    cluster.deliver_all()
    assert (watermark(cluster, 1), watermark(cluster, 2), watermark(cluster, 3)) == (1, 0, 1)
    cluster.check()


@pytest.mark.feature("RE-13", "RE-10", "FI-07")
def test_kip_101_a_follower_that_restarts_keeps_what_was_acknowledged_above_its_watermark() -> None:
    """It restarts with an old watermark, and before it can ask the leader, the leader dies: it leads
    itself.
    """
    cluster = busy_cluster(min_isr=1)
    cluster.flush(2)
    cluster.fence(3)
    for node in (1, 2):
        cluster.learn(node)
    assert cluster.produce(1)
    settle(cluster, 2, rounds=1)
    settle(cluster, 2, rounds=1)
    assert (len(cluster.acked), watermark(cluster, 2)) == (6, 6)
    cluster.brokers[2].checkpoint = 5
    cluster.stop_cleanly(2)
    cluster.start(2, clean=True)
    cluster.unfence(2)
    settle(cluster, 1, 2)
    assert end(cluster, 2) == 6, "nothing was cut to the watermark"
    cluster.kill(1)
    cluster.fence(1)
    cluster.learn(2)
    assert cluster.controller.partition.leader == 2
    cluster.check()
    cluster.heal()
    assert len(cluster.committed) == 7


@pytest.mark.feature("RE-13", "RE-10", "FI-07")
def test_kip_101_logs_that_parted_at_the_same_offset_are_made_one() -> None:
    """All go down; one comes back first, leads, and writes where the old leader has a record that nobody
    got.
    """
    cluster = busy_cluster(min_isr=1)
    for node in NODES:
        cluster.flush(node)
    assert cluster.produce(1, acks=1)
    orphan = cluster.brokers[1].log.records[5]
    for node in NODES:
        cluster.kill(node)
        cluster.fence(node)
    assert (cluster.controller.partition.leader, cluster.controller.partition.elr) == (NO_LEADER, (3,))
    cluster.start(3)
    cluster.unfence(3)
    cluster.learn(3)
    assert cluster.produce(3)
    assert cluster.brokers[3].log.records[5] != orphan
    cluster.heal()
    assert orphan not in cluster.brokers[1].log.records
    assert len(cluster.committed) == 7


@pytest.mark.feature("RE-13", "RE-01", "FI-07")
def test_kip_279_fast_changes_of_leader_leave_no_divergence() -> None:
    """Each leads in turn and writes something that nobody fetches, then all have to agree."""
    cluster = busy_cluster(min_isr=1)
    for _ in range(3):
        for leader in NODES:
            for other in NODES:
                if other != leader:
                    cluster.fence(other)
                    cluster.unfence(other)
            cluster.learn(leader)
            cluster.produce(leader, acks=1)
            cluster.check()
    cluster.heal()
    epochs = [epoch for epoch, _ in cluster.committed]
    assert epochs == sorted(epochs)


@pytest.mark.feature("MB-15", "MB-05", "RE-10", "FI-07")
def test_kip_966_the_last_replica_standing_loses_power() -> None:
    """The ISR is down to one, which loses its tail: it must not lead, nor make the others cut to its log."""
    cluster = busy_cluster(min_isr=2)
    cluster.fence(2)
    cluster.fence(3)
    cluster.learn(1)
    assert (cluster.controller.partition.isr, cluster.controller.partition.elr) == ((1,), (3,))
    assert not cluster.produce(1, acks=-1), "not enough replicas"
    assert cluster.produce(1, acks=1)
    assert watermark(cluster, 1) == 5, "nothing is committed below the minimum"
    cluster.power_cut(1, keep=0)
    assert end(cluster, 1) == 0
    cluster.start(1)
    cluster.unfence(1)
    assert cluster.controller.partition.leader == NO_LEADER, "it lost its tail; the eligible one is fenced"
    cluster.unfence(2)
    assert cluster.controller.partition.leader == NO_LEADER, (
        "2 left while the ISR was large enough without it"
    )
    cluster.unfence(3)
    assert cluster.controller.partition.leader == 3
    cluster.check()
    cluster.heal()
    assert len(cluster.committed) == 6


@pytest.mark.feature("RE-14", "RE-08", "FI-07")
def test_a_zombie_leader_commits_nothing_and_cuts_what_it_wrote() -> None:
    """Regression 19: it was paused across an election, and wakes with produces in its hands."""
    cluster = busy_cluster()
    cluster.fence(1)
    cluster.learn(2)
    cluster.learn(3)
    assert cluster.controller.partition.leader == 2
    settle(cluster, 2, 3)
    assert cluster.produce(1), "it does not know yet"
    cluster.wait(2 * LAG_MS)
    assert any("AlterPartition of 1" in message.text for message in cluster.messages)
    cluster.deliver_all()
    assert len(cluster.acked) == 5
    assert cluster.controller.partition.leader == 2, "its proposal was fenced"
    assert cluster.produce(2)
    settle(cluster, 2, 3)
    assert len(cluster.acked) == 6
    cluster.learn(1)
    settle(cluster)
    assert cluster.brokers[1].log.records == cluster.brokers[2].log.records
    cluster.check()


@pytest.mark.feature("RE-08", "RE-03", "FI-07")
def test_the_watermark_waits_until_the_controller_has_agreed_to_a_shrink() -> None:
    """Regression 20: 3 is silent and shall leave; meanwhile the controller may still make it leader."""
    cluster = busy_cluster(min_isr=1)
    cluster.produce(1)
    settle(cluster, 2)
    cluster.wait(LAG_MS)
    settle(cluster, 2)
    cluster.wait(1)
    assert len(cluster.acked) == 5
    cluster.kill(1)
    for message in list(cluster.messages):
        cluster.messages.remove(message)
        message.lost()
    cluster.fence(1)
    cluster.fence(2)
    cluster.learn(3)
    assert cluster.controller.partition.leader == 3
    cluster.check()
    cluster.heal()


@pytest.mark.feature("RE-07", "RE-10", "FI-07")
def test_no_replica_joins_a_new_leader_before_its_epochs_start() -> None:
    """2 leads with a watermark older than what was acknowledged: who has that much may still lack records."""
    cluster = busy_cluster(min_isr=1)
    cluster.fence(3)
    cluster.learn(1)
    cluster.learn(2)
    for _ in range(3):
        cluster.produce(1)
    settle(cluster, 2, rounds=1)
    cluster.fetch(2)
    cluster.messages.pop(0).deliver()
    cluster.drop(0)
    assert (len(cluster.acked), watermark(cluster, 2), end(cluster, 3)) == (8, 5, 5)
    cluster.controller.elect(2)
    cluster.unfence(3)
    for node in (2, 3):
        cluster.learn(node)
    assert cluster.brokers[2].replica.describe().startswith("leading epoch 2/3 hw 5 end 8 isr [1, 2]")
    cluster.fetch(3)
    cluster.messages.pop(0).deliver()
    assert not any("AlterPartition" in message.text for message in cluster.messages)
    settle(cluster, 2, 3)
    cluster.check()
    assert set(cluster.controller.partition.isr) == {1, 2, 3}, "once it has what 2 began with"


@pytest.mark.feature("RE-07", "MB-05", "RE-11", "FI-07")
def test_kip_903_a_fetch_from_before_the_power_cut_brings_no_replica_into_the_isr() -> None:
    cluster = busy_cluster(min_isr=1)
    cluster.fetch(3)
    late = cluster.messages.pop()
    assert "fetch of 3" in late.text
    cluster.power_cut(3, keep=0)
    cluster.start(3)
    cluster.unfence(3)
    cluster.learn(1)
    assert cluster.controller.partition.isr == (1, 2)
    late.deliver()
    cluster.deliver_all()
    assert cluster.controller.partition.isr == (1, 2)
    cluster.check()
    settle(cluster)
    assert set(cluster.controller.partition.isr) == {1, 2, 3}, "after it fetched what it lacked"
    cluster.check()


@pytest.mark.feature("RE-08", "RE-07", "FI-07")
def test_a_replica_that_restarts_while_it_is_proposed_is_not_taken_in() -> None:
    """Its epoch is in the proposal; the controller knows a newer one, whose log may be shorter."""
    cluster = busy_cluster(min_isr=1)
    cluster.fence(3)
    cluster.unfence(3)
    cluster.learn(1)
    cluster.learn(3)
    cluster.fetch(3)
    cluster.messages.pop(0).deliver()
    proposal = next(message for message in cluster.messages if "AlterPartition" in message.text)
    cluster.power_cut(3, keep=0)
    cluster.start(3)
    cluster.controller.unfence(3)
    cluster.messages.remove(proposal)
    proposal.deliver()
    assert cluster.controller.partition.isr == (1, 2)
    cluster.check()
    cluster.heal()


@pytest.mark.feature("RE-10", "RE-11", "FI-07")
def test_nothing_is_synced_and_all_but_one_lose_power() -> None:
    cluster = busy_cluster(min_isr=2, records=20)
    cluster.power_cut(1, keep=0)
    cluster.power_cut(3, keep=2)
    cluster.check()
    for node in (1, 3):
        cluster.fence(node)
    cluster.learn(2)
    assert cluster.controller.partition.leader == 2
    cluster.check()
    cluster.heal()
    assert len(cluster.committed) == 21
