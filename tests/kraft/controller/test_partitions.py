"""Leaders, in-sync replicas, and replicas that may become leader."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.kraft.controller.controller import QuorumController
from barnabas.kraft.controller.state import ControllerResult
from barnabas.kraft.metadata.features import ELR_VERSION
from barnabas.kraft.metadata.image import LEADER_RECOVERED, LEADER_RECOVERING, NO_LEADER
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.alter_partition import AlterPartitionRequest
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from barnabas.protocol.messages.metadata_log import PartitionChangeRecord
from barnabas.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from barnabas.runtime.at_once import at_once


def set_config(cluster: Any, resource_type: int, name: str, key: str, value: str) -> int:
    resource = AlterConfigsResource(
        resource_type=resource_type,
        resource_name=name,
        configs=[AlterableConfig(name=key, config_operation=0, value=value)],
    )
    response = cluster.send(IncrementalAlterConfigsRequest(resources=[resource]))
    return int(response.responses[0].error_code)


# AlterPartition


@pytest.mark.feature("RE-08")
def test_a_leader_shrinks_and_grows_its_isr(cluster: Any) -> None:
    cluster.create_topic("t", [1, 2, 3])
    shrunk = cluster.propose_isr("t", [1, 3])
    assert (shrunk.error_code, shrunk.isr, shrunk.partition_epoch, shrunk.leader_epoch) == (0, [1, 3], 1, 0)
    grown = cluster.propose_isr("t", [1, 2, 3])
    assert (grown.error_code, grown.isr, grown.partition_epoch, grown.leader_epoch) == (0, [1, 2, 3], 2, 0)
    same = cluster.propose_isr("t", [1, 2, 3])
    assert (same.error_code, same.partition_epoch) == (0, 2)


@pytest.mark.feature("RE-08")
@pytest.mark.parametrize(
    ("isr", "fields", "code"),
    [
        ([1, 2], {"leader_epoch": 0}, ErrorCode.FENCED_LEADER_EPOCH),
        ([1, 2], {"leader_epoch": 2}, ErrorCode.NOT_CONTROLLER),
        ([1, 2], {"partition_epoch": 9}, ErrorCode.NOT_CONTROLLER),
        ([1, 2], {"partition_epoch": 0}, ErrorCode.INVALID_UPDATE_VERSION),
        ([2, 3], {"broker_id": 3}, ErrorCode.INVALID_REQUEST),
        ([3], {}, ErrorCode.INVALID_REQUEST),
        ([], {}, ErrorCode.INVALID_REQUEST),
        ([2, 2], {}, ErrorCode.INVALID_REQUEST),
        ([2, 9], {}, ErrorCode.INVALID_REQUEST),
        ([2, 1], {}, ErrorCode.INELIGIBLE_REPLICA),
        ([2, 3], {"leader_recovery_state": 1}, ErrorCode.INVALID_REQUEST),
        ([2], {"leader_recovery_state": 1}, ErrorCode.INVALID_REQUEST),
        ([2], {"leader_recovery_state": 5}, ErrorCode.INVALID_REQUEST),
        ([2], {"partition_index": 4}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_isr_proposals_that_are_refused(cluster: Any, isr: list[int], fields: Any, code: ErrorCode) -> None:
    cluster.create_topic("t", [1, 2, 3])
    cluster.die(1)
    before = cluster.partition("t")
    assert (before.leader, before.leader_epoch, before.partition_epoch) == (2, 1, 1)
    assert cluster.propose_isr("t", isr, **fields).error_code == code
    assert cluster.partition("t") is before


@pytest.mark.feature("RE-08")
def test_a_member_of_another_incarnation_is_not_eligible(cluster: Any) -> None:
    cluster.create_topic("t", [1, 2, 3])
    cluster.propose_isr("t", [1, 3])
    seen_by_leader = cluster.epochs[2]
    cluster.restart(2, clean=True)
    cluster.heartbeat(2)
    now, cluster.epochs[2] = cluster.epochs[2], seen_by_leader
    assert cluster.propose_isr("t", [1, 2, 3]).error_code == ErrorCode.INELIGIBLE_REPLICA
    cluster.epochs[2] = now
    assert cluster.propose_isr("t", [1, 2, 3]).error_code == 0


@pytest.mark.feature("RE-08")
def test_a_broker_that_shuts_down_cannot_join_an_isr(cluster: Any) -> None:
    cluster.create_topic("t", [1, 2, 3])
    cluster.create_topic("u", [3, 1])
    cluster.heartbeat(3, want_shut_down=True)
    assert cluster.partition("t").isr == (1, 2)
    assert cluster.propose_isr("t", [1, 2, 3]).error_code == ErrorCode.INELIGIBLE_REPLICA


@pytest.mark.feature("RE-08")
def test_older_brokers_name_the_isr_without_epochs(cluster: Any) -> None:
    cluster.create_topic("t", [1, 2, 3])
    topic_id = cluster.image.topics.by_name["t"].id
    from barnabas.protocol.messages.alter_partition import RequestPartitionData, RequestTopicData

    partition = RequestPartitionData(partition_index=0, new_isr=[1, 2])
    request = AlterPartitionRequest(
        broker_id=1,
        broker_epoch=cluster.epochs[1],
        topics=[
            RequestTopicData(topic_id=topic_id, partitions=[partition]),
            RequestTopicData(topic_id=b"?" * 16, partitions=[RequestPartitionData(partition_index=3)]),
        ],
    )
    response = cluster.send(request, version=2)
    assert response.topics[0].partitions[0].isr == [1, 2]
    assert response.topics[1].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    request.broker_epoch += 1
    assert cluster.send(request, version=2).error_code == ErrorCode.STALE_BROKER_EPOCH


# Losing and finding leaders


@pytest.mark.feature("MB-12", "MB-10")
def test_the_next_live_replica_of_the_isr_leads(cluster: Any) -> None:
    cluster.create_topic("t", [1, 2, 3])
    cluster.propose_isr("t", [1, 3])
    cluster.die(1)
    assert cluster.partition("t").leader == 3, "broker 2 is nearer, but not in sync"
    assert cluster.partition("t").leader_epoch == 1


@pytest.mark.feature("MB-10")
def test_a_partition_goes_offline_and_online_with_its_last_replica(make_cluster: Any) -> None:
    cluster = make_cluster(levels={"eligible.leader.replicas.version": 0})
    cluster.start(1, 2)
    cluster.create_topic("t", [1, 2])
    cluster.die(2)
    cluster.die(1)
    offline = cluster.partition("t")
    assert (offline.leader, offline.isr, offline.elr) == (NO_LEADER, (1,), ()), "the last one stays in the ISR"
    cluster.restart(2, clean=True)
    cluster.heartbeat(2)
    assert cluster.partition("t").leader == NO_LEADER, "broker 2 may lack records"
    cluster.restart(1, clean=True)
    cluster.heartbeat(1)
    online = cluster.partition("t")
    assert (online.leader, online.isr, online.leader_recovery_state) == (1, (1,), LEADER_RECOVERED)
    assert online.leader_epoch == 2


@pytest.mark.feature("MB-15")
def test_a_replica_that_leaves_the_isr_below_min_insync_replicas_stays_eligible(cluster: Any) -> None:
    cluster.create_topic("t", [1, 2, 3])
    cluster.die(3)
    assert cluster.partition("t").elr == (), "two are enough for an acknowledgement, so broker 3 may lack some"
    cluster.die(2)
    assert (cluster.partition("t").isr, cluster.partition("t").elr) == ((1,), (2,))
    cluster.die(1)
    offline = cluster.partition("t")
    assert (offline.leader, offline.isr, offline.elr, offline.last_known_elr) == (-1, (), (1, 2), (1,))
    cluster.restart(3, clean=True)
    cluster.heartbeat(3)
    assert cluster.partition("t").leader == NO_LEADER
    cluster.restart(2, clean=True)
    cluster.heartbeat(2)
    online = cluster.partition("t")
    assert (online.leader, online.isr, online.elr, online.last_known_elr) == (2, (2,), (1,), ())
    assert online.leader_recovery_state == LEADER_RECOVERED, "nothing is lost"
    assert cluster.propose_isr("t", [2, 3]).error_code == 0
    assert cluster.partition("t").elr == (), "enough in sync again: what broker 1 holds ages from here on"


@pytest.mark.feature("MB-15", "MB-05")
def test_an_unclean_restart_ends_eligibility(cluster: Any) -> None:
    cluster.create_topic("t", [1, 2, 3])
    cluster.die(3)
    cluster.die(2)
    assert cluster.partition("t").elr == (2,)
    cluster.restart(2, clean=False)
    assert cluster.partition("t").elr == ()
    cluster.die(1)
    cluster.heartbeat(2)
    assert cluster.partition("t").leader == NO_LEADER
    cluster.restart(1, clean=True)
    cluster.heartbeat(1)
    assert cluster.partition("t").leader == 1


@pytest.mark.feature("MB-15")
def test_a_broker_that_restarts_before_it_is_missed_leaves_the_isr_all_the_same(cluster: Any) -> None:
    cluster.create_topic("t", [1, 2])
    cluster.create_topic("alone", [1])
    cluster.restart(1, clean=False)
    partition = cluster.partition("t")
    assert (partition.leader, partition.isr, partition.elr) == (2, (2,), ()), "its log may lack its last records"
    alone = cluster.partition("alone")
    assert (alone.leader, alone.isr, alone.elr, alone.last_known_elr) == (NO_LEADER, (), (), (1,))
    cluster.heartbeat(1)
    alone = cluster.partition("alone")
    assert (alone.leader, alone.isr, alone.last_known_elr) == (1, (1,), ())
    assert alone.leader_recovery_state == LEADER_RECOVERING
    assert cluster.propose_isr("alone", [1]).error_code == 0, "the leader reports its recovery"
    assert cluster.partition("alone").leader_recovery_state == LEADER_RECOVERED


@pytest.mark.feature("MB-15")
def test_without_eligible_replicas_the_partition_waits_for_its_last_leader(cluster: Any) -> None:
    cluster.create_topic("t", [1, 2, 3])
    for broker_id in (3, 2, 1):
        cluster.die(broker_id)
    for broker_id in (3, 2, 1):
        cluster.restart(broker_id, clean=False)
    assert (cluster.partition("t").elr, cluster.partition("t").last_known_elr) == ((), (1,))
    cluster.heartbeat(2)
    cluster.heartbeat(3)
    assert cluster.partition("t").leader == NO_LEADER
    cluster.heartbeat(1)
    assert (cluster.partition("t").leader, cluster.partition("t").isr) == (1, (1,))


def last_leader_is_back_and_broker_2_alone_is_eligible(cluster: Any) -> None:
    cluster.create_topic("t", [1, 2])
    cluster.die(2)
    cluster.die(1)
    cluster.restart(1, clean=False)
    cluster.heartbeat(1)


@pytest.mark.feature("MB-15")
def test_the_last_eligible_replica_is_awaited_after_unclean_restarts(cluster: Any) -> None:
    """Broker 1 led last, but may lack records since its restart; broker 2 had all of them until its own restart."""
    last_leader_is_back_and_broker_2_alone_is_eligible(cluster)
    waiting = cluster.partition("t")
    assert (waiting.leader, waiting.elr, waiting.last_known_elr) == (NO_LEADER, (2,), (1,))
    cluster.restart(2, clean=False)
    restarted = cluster.partition("t")
    assert (restarted.leader, restarted.isr, restarted.elr) == (NO_LEADER, (), ()), "broker 1 may lack records"
    assert restarted.last_known_elr == (2,)
    cluster.heartbeat(2)
    online = cluster.partition("t")
    assert (online.leader, online.isr, online.leader_recovery_state) == (2, (2,), LEADER_RECOVERING)
    assert online.last_known_elr == ()


@pytest.mark.feature("MB-15")
def test_the_last_in_sync_replica_from_before_eligible_replicas_is_not_forgotten(make_cluster: Any) -> None:
    """Without ELR an offline partition keeps the last member of its ISR. Once ELR is enabled and that member restarts
    uncleanly, the ISR is empty, and the partition waits for this very replica."""
    cluster = make_cluster(levels={ELR_VERSION: 0})
    cluster.start(1, 2)
    cluster.create_topic("alone", [1])
    cluster.die(1)
    offline = cluster.partition("alone")
    assert (offline.leader, offline.isr, offline.last_known_elr) == (NO_LEADER, (1,), ())
    update = FeatureUpdateKey(feature=ELR_VERSION, max_version_level=1, upgrade_type=1)
    assert cluster.send(UpdateFeaturesRequest(feature_updates=[update])).error_code == ErrorCode.NONE
    cluster.restart(1, clean=False)
    waiting = cluster.partition("alone")
    assert (waiting.leader, waiting.isr, waiting.elr, waiting.last_known_elr) == (NO_LEADER, (), (), (1,))
    cluster.heartbeat(1)
    online = cluster.partition("alone")
    assert (online.leader, online.isr, online.last_known_elr) == (1, (1,), ())


@pytest.mark.feature("MB-15", "ST-17")
def test_a_partition_does_not_wait_for_a_replica_that_lost_its_disk(cluster: Any) -> None:
    last_leader_is_back_and_broker_2_alone_is_eligible(cluster)
    cluster.restart(2, clean=False, log_dirs=[b"another disk" + bytes(4)])
    online = cluster.partition("t")
    assert (online.leader, online.isr, online.elr) == (1, (1,), ()), "what broker 2 had is gone for certain"
    assert online.leader_recovery_state == LEADER_RECOVERING


@pytest.mark.feature("MB-15", "ST-17")
def test_a_clean_stop_does_not_speak_for_a_directory_that_is_gone(cluster: Any) -> None:
    """A directory removed from `log.dirs` between a stop and a start is replaced by empty replicas elsewhere."""
    cluster.create_topic("t", [1, 2])
    cluster.create_topic("led", [2, 1])
    cluster.die(2)
    assert cluster.partition("t").elr == (2,)
    cluster.restart(2, clean=True, log_dirs=[b"another disk" + bytes(4)])
    assert cluster.partition("t").elr == cluster.partition("led").elr == ()
    cluster.die(1)
    cluster.heartbeat(2)
    assert cluster.partition("t").leader == NO_LEADER
    cluster.restart(1, clean=True)
    cluster.heartbeat(1)
    assert cluster.partition("t").leader == cluster.partition("led").leader == 1


@pytest.mark.feature("MB-15", "MB-20")
def test_another_min_isr_makes_eligibility_void(cluster: Any) -> None:
    cluster.create_topic("t", [1, 2, 3], configs={"min.insync.replicas": "3"})
    cluster.create_topic("u", [1, 2, 3], configs={"min.insync.replicas": "3"})
    cluster.die(3)
    assert cluster.partition("t").elr == cluster.partition("u").elr == (3,)
    assert set_config(cluster, 2, "t", "min.insync.replicas", "2") == 0
    assert (cluster.partition("t").elr, cluster.partition("u").elr) == ((), (3,))
    assert set_config(cluster, 4, "", "min.insync.replicas", "1") == 0
    assert cluster.partition("u").elr == ()
    assert set_config(cluster, 4, "1", "min.insync.replicas", "1") == ErrorCode.INVALID_CONFIG


@pytest.mark.feature("MB-15", "MB-20")
@pytest.mark.parametrize("min_isr", [1, 2, 3])
@pytest.mark.parametrize("resource", [(2, "t"), (4, "")], ids=["topic", "cluster"])
def test_another_min_isr_leaves_a_partition_without_a_leader_its_eligible_replicas(
    cluster: Any, resource: tuple[int, str], min_isr: int
) -> None:
    """Nothing was committed without a leader, so that both replicas still have all that was."""
    cluster.create_topic("t", [1, 2])
    cluster.create_topic("alone", [1])
    cluster.die(2)
    cluster.die(1)
    assert set_config(cluster, *resource, "min.insync.replicas", str(min_isr)) == 0
    waiting = cluster.partition("t")
    assert (waiting.leader, waiting.isr, waiting.elr, waiting.last_known_elr) == (NO_LEADER, (), (1, 2), (1,))
    cluster.restart(2, clean=True)
    cluster.heartbeat(2)
    online = cluster.partition("t")
    assert (online.leader, online.isr, online.leader_recovery_state) == (2, (2,), LEADER_RECOVERED)
    assert online.elr == (() if min_isr == 1 else (1,)), "a leader that commits alone is ahead of broker 1"
    cluster.restart(1, clean=True)
    cluster.heartbeat(1)
    assert cluster.partition("alone").leader == 1


@pytest.mark.feature("MB-15", "MB-20")
def test_another_min_isr_leaves_a_partition_its_last_known_leader(cluster: Any) -> None:
    cluster.create_topic("t", [1])
    cluster.restart(1, clean=False)
    assert (cluster.partition("t").elr, cluster.partition("t").last_known_elr) == ((), (1,))
    assert set_config(cluster, 2, "t", "min.insync.replicas", "2") == 0
    cluster.heartbeat(1)
    online = cluster.partition("t")
    assert (online.leader, online.isr, online.leader_recovery_state) == (1, (1,), LEADER_RECOVERING)


def disable_elr(cluster: Any) -> None:
    update = FeatureUpdateKey(feature=ELR_VERSION, max_version_level=0, upgrade_type=2)
    assert cluster.send(UpdateFeaturesRequest(feature_updates=[update])).error_code == ErrorCode.NONE


@pytest.mark.feature("MB-15")
def test_a_partition_without_a_leader_waits_on_when_eligible_replicas_are_disabled(cluster: Any) -> None:
    """The last replica stays in the ISR, as in a cluster that never had eligible replicas."""
    cluster.create_topic("t", [2, 1])
    cluster.die(1)
    cluster.die(2)
    disable_elr(cluster)
    waiting = cluster.partition("t")
    assert (waiting.leader, waiting.isr, waiting.elr, waiting.last_known_elr) == (NO_LEADER, (2,), (), ())
    for broker_id in (1, 2):
        cluster.restart(broker_id, clean=True)
        cluster.heartbeat(broker_id)
    online = cluster.partition("t")
    assert (online.leader, online.isr, online.leader_recovery_state) == (2, (2,), LEADER_RECOVERED)


@pytest.mark.feature("MB-15")
def test_a_last_known_leader_still_leads_in_recovery_when_eligible_replicas_are_disabled(cluster: Any) -> None:
    cluster.create_topic("t", [1])
    cluster.restart(1, clean=False)
    disable_elr(cluster)
    cluster.heartbeat(1)
    online = cluster.partition("t")
    assert (online.leader, online.isr, online.leader_recovery_state) == (1, (1,), LEADER_RECOVERING)
    assert cluster.propose_isr("t", [1]).leader_recovery_state == LEADER_RECOVERED


@pytest.mark.feature("MB-14")
def test_an_unclean_election_takes_any_live_replica_if_the_topic_allows_it(make_cluster: Any) -> None:
    cluster = make_cluster(levels={"eligible.leader.replicas.version": 0})
    cluster.start(1, 2)
    cluster.create_topic("careful", [1, 2])
    cluster.create_topic("careless", [1, 2])
    for name in ("careful", "careless"):
        cluster.propose_isr(name, [1])
    cluster.die(1)
    assert cluster.partition("careless").leader == NO_LEADER
    assert set_config(cluster, 2, "careless", "unclean.leader.election.enable", "true") == 0
    cluster.now_ms += 300_000
    cluster.heartbeat(2)
    cluster.work()
    lossy = cluster.partition("careless")
    assert (lossy.leader, lossy.isr, lossy.leader_recovery_state) == (2, (2,), LEADER_RECOVERING)
    assert cluster.partition("careful").leader == NO_LEADER
    joining = cluster.propose_isr("careless", [2], leader_recovery_state=LEADER_RECOVERING)
    assert joining.error_code == 0
    assert cluster.propose_isr("careless", [2]).leader_recovery_state == LEADER_RECOVERED


@pytest.mark.feature("MB-14")
def test_an_operator_may_ask_for_an_unclean_election(make_cluster: Any) -> None:
    cluster = make_cluster(levels={"eligible.leader.replicas.version": 0})
    cluster.start(1, 2)
    cluster.create_topic("t", [1, 2])
    cluster.propose_isr("t", [1])
    ask = ElectLeadersRequest(election_type=1, topic_partitions=[TopicPartitions(topic="t", partitions=[0, 5])])

    def codes() -> list[int]:
        (topic,) = cluster.send(ask).replica_election_results
        return [it.error_code for it in topic.partition_result]

    assert codes() == [ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    cluster.die(1)
    assert codes()[0] == 0
    assert cluster.partition("t").leader == 2
    cluster.die(2)
    assert codes()[0] == ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    ask.election_type = 7
    assert cluster.send(ask).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.feature("MB-13")
def test_preferred_leaders_get_their_partitions_back(cluster: Any) -> None:
    cluster.create_topic("t", [1, 2, 3])
    cluster.create_topic("u", [2, 3])
    cluster.die(1)
    cluster.restart(1, clean=True)
    cluster.heartbeat(1)
    every = ElectLeadersRequest(election_type=0, topic_partitions=None)
    results = {it.topic: it.partition_result for it in cluster.send(every).replica_election_results}
    assert results["t"][0].error_code == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert results["u"] == [], "what needs no election is left out when all were asked for"
    cluster.propose_isr("t", [2, 3, 1])
    assert cluster.partition("t").leader == 2
    cluster.now_ms += 300_000
    for broker_id in (1, 2, 3):
        cluster.heartbeat(broker_id)
    cluster.work()
    assert cluster.partition("t").leader == 1
    assert cluster.partition("t").isr == (2, 3, 1)
    again = ElectLeadersRequest(election_type=0, topic_partitions=[TopicPartitions(topic="t", partitions=[0])])
    (topic,) = cluster.send(again).replica_election_results
    assert topic.partition_result[0].error_code == ErrorCode.ELECTION_NOT_NEEDED


@pytest.mark.feature("MB-13")
def test_leaders_are_left_alone_where_balancing_is_off(make_cluster: Any) -> None:
    cluster = make_cluster(auto_leader_rebalance_enable=False)
    cluster.start(1, 2)
    cluster.create_topic("t", [1, 2])
    cluster.die(1)
    cluster.restart(1, clean=True)
    cluster.heartbeat(1)
    cluster.propose_isr("t", [2, 1])
    cluster.now_ms += 400_000
    cluster.heartbeat(1)
    cluster.heartbeat(2)
    cluster.work()
    assert cluster.partition("t").leader == 2


@pytest.mark.feature("KR-16")
def test_an_idle_log_moves_on_every_half_second(cluster: Any) -> None:
    cluster.now_ms += 499
    before = len(cluster.log)
    cluster.work()
    assert len(cluster.log) == before
    assert cluster.controller.next_periodic_ms(cluster.now_ms) == cluster.now_ms + 1
    cluster.now_ms += 1
    cluster.work()
    cluster.work()
    assert len(cluster.log) == before + 1


@pytest.mark.feature("MB-19")
def test_reassignments_under_way_are_listed(cluster: Any) -> None:
    cluster.create_topic("t", [1, 2])

    def listed() -> Any:
        from barnabas.kraft.controller.partitions import list_partition_reassignments

        request = ListPartitionReassignmentsRequest(topics=None)
        return at_once(list_partition_reassignments(cluster.controller.committed, request)).topics

    assert listed() == []
    change = PartitionChangeRecord(
        partition_id=0,
        topic_id=cluster.image.topics.by_name["t"].id,
        replicas=[3, 1, 2],
        adding_replicas=[3],
        removing_replicas=[1],
        directories=[
            *cluster.image.cluster.brokers[3].log_directories,
            *cluster.partition("t").directories,
        ],
    )
    cluster.append(ControllerResult(None, [change]))
    (topic,) = listed()
    assert (topic.partitions[0].adding_replicas, topic.partitions[0].removing_replicas) == ([3], [1])
    finished = cluster.propose_isr("t", [1, 2, 3])
    assert finished.error_code == ErrorCode.NEW_LEADER_ELECTED, "the last step takes the leader away"
    done = cluster.partition("t")
    assert (done.replicas, done.leader, done.adding_replicas, done.removing_replicas) == ((3, 2), 3, (), ())
    assert set(done.isr) == {2, 3}
    assert listed() == []


def test_a_controller_is_not_activated_twice(cluster: Any) -> None:
    controller: QuorumController = cluster.controller
    with pytest.raises(AssertionError, match="active in epoch 1"):
        controller.activate(2, 0, 0)
