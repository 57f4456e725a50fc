"""Brokers come, live, leave and come back."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.kraft.controller.controller import QuorumController
from barnabas.kraft.metadata.image import NO_LEADER
from barnabas.kraft.quota_reports import report_use
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from barnabas.protocol.messages.broker_registration import Feature
from barnabas.protocol.messages.controller_registration import ControllerRegistrationRequest
from barnabas.protocol.messages.metadata_log import FenceBrokerRecord
from barnabas.protocol.messages.unregister_broker import UnregisterBrokerRequest
from barnabas.runtime.quotas.parts import LEAST_WINDOW_MS, ClientUse, UseReport
from tests.kraft.controller.conftest import finish


@pytest.mark.feature("MB-01", "MB-03")
def test_a_new_broker_is_fenced_until_it_has_applied_its_own_registration(make_cluster: Any) -> None:
    cluster = make_cluster()
    registered = cluster.register(1)
    assert registered.error_code == 0
    offset = registered.broker_epoch
    assert cluster.log[offset].broker_id == 1, "the epoch is the offset of the registration"
    behind = cluster.heartbeat(1, current_metadata_offset=offset - 1)
    assert (behind.is_caught_up, behind.is_fenced) == (False, True)
    waiting = cluster.heartbeat(1, want_fence=True)
    assert (waiting.is_caught_up, waiting.is_fenced) == (True, True)
    ready = cluster.heartbeat(1, current_metadata_offset=offset)
    assert (ready.is_caught_up, ready.is_fenced) == (True, False)
    assert cluster.image.cluster.brokers[1].active


@pytest.mark.feature("MB-01")
@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"cluster_id": "another"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"log_dirs": []}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": [b"d" * 16, b"d" * 16]}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": [(7).to_bytes(16, "big")]}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": [bytes([1, 1]) * 8]}, ErrorCode.INVALID_REGISTRATION),
        ({"is_migrating_zk_broker": True}, ErrorCode.BROKER_ID_NOT_REGISTERED),
        ({"features": []}, ErrorCode.INVALID_REGISTRATION),
        (
            {"features": [Feature(name="metadata.version", min_supported_version=7, max_supported_version=29)]},
            ErrorCode.UNSUPPORTED_VERSION,
        ),
        (
            {"features": [Feature(name="metadata.version", min_supported_version=7, max_supported_version=30)]},
            ErrorCode.UNSUPPORTED_VERSION,
        ),
    ],
)
def test_a_broker_that_does_not_fit_may_not_join(cluster: Any, wrong: dict[str, Any], code: ErrorCode) -> None:
    before = len(cluster.log)
    assert cluster.register(9, **wrong).error_code == code
    assert len(cluster.log) == before


@pytest.mark.feature("MB-01", "MB-02")
def test_an_id_belongs_to_one_live_process_at_a_time(cluster: Any) -> None:
    assert cluster.register(1).error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    again = cluster.register(1, incarnation_id=cluster.incarnations[1], rack="moved")
    assert again.error_code == 0
    assert again.broker_epoch == cluster.epochs[1], "the same process may amend its registration"
    assert cluster.image.cluster.brokers[1].rack == "moved"
    assert cluster.image.cluster.brokers[1].active
    cluster.now_ms += 9001
    other = cluster.register(1)
    assert other.error_code == 0
    assert other.broker_epoch > again.broker_epoch
    assert cluster.image.cluster.brokers[1].fenced


@pytest.mark.feature("MB-02", "MB-12")
def test_silence_of_a_session_timeout_fences(cluster: Any) -> None:
    cluster.create_topic("t", [1, 2, 3])
    cluster.now_ms += 8000
    cluster.heartbeat(2)
    cluster.heartbeat(3)
    assert cluster.controller.next_periodic_ms(cluster.now_ms) <= cluster.now_ms + 1001
    cluster.now_ms += 1000
    cluster.work()
    assert not cluster.image.cluster.brokers[1].fenced, "the timeout itself is still in time"
    cluster.now_ms += 1
    cluster.work()
    assert cluster.image.cluster.brokers[1].fenced
    partition = cluster.partition("t")
    assert (partition.leader, partition.isr, partition.leader_epoch) == (2, (2, 3), 1)
    assert cluster.heartbeat(1, broker_epoch=cluster.epochs[1] - 1).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert not cluster.heartbeat(1).is_fenced, "it was only slow: its next heartbeat unfences it"


@pytest.mark.feature("MB-12", "MB-15")
def test_brokers_whose_sessions_end_together_stay_eligible(cluster: Any) -> None:
    """Another controller takes over, and nobody finds it in time. Fenced one after the other the last would be the only
    one that counts as having all, and it may be the one that is dead."""
    cluster.create_topic("t", [1, 2, 3])
    cluster.fail_over(2)
    before = len(cluster.log)
    cluster.now_ms += 9001
    cluster.work()
    assert all(broker.fenced for broker in cluster.image.cluster.brokers.values())
    assert len(cluster.log) - before == 4, "the partition changes once"
    partition = cluster.partition("t")
    assert (partition.leader, partition.isr, partition.elr) == (-1, (), (1, 2, 3))
    assert cluster.story("t-0")[-1] == (
        "t-0 has no leader since epoch 1: brokers 1, 2, 3 are fenced, their sessions of 9000 ms expired together; "
        "no replica of [1, 2, 3] that has all that was committed may lead, ISR [] and ELR [1, 2, 3]"
    )
    cluster.heartbeat(2)
    partition = cluster.partition("t")
    assert (partition.leader, partition.isr, partition.elr) == (2, (2,), (1, 3))


@pytest.mark.feature("MB-12", "MB-15")
def test_a_leader_alone_in_its_isr_is_the_only_eligible_replica(cluster: Any) -> None:
    cluster.create_topic("t", [1, 2, 3], configs={"min.insync.replicas": "1"})
    cluster.now_ms += 9001
    cluster.work()
    assert cluster.partition("t").elr == (1, 2, 3)
    cluster.heartbeat(2)
    partition = cluster.partition("t")
    assert (partition.leader, partition.isr, partition.elr) == (2, (2,), ()), "what it commits now is on it alone"


@pytest.mark.feature("MB-12")
def test_without_elr_the_last_of_those_whose_sessions_end_together_stays_in_the_isr(make_cluster: Any) -> None:
    cluster = make_cluster(levels={"eligible.leader.replicas.version": 0})
    cluster.start(1, 2, 3)
    cluster.create_topic("t", [1, 2, 3])
    cluster.now_ms += 9001
    cluster.work()
    partition = cluster.partition("t")
    assert (partition.leader, partition.isr) == (-1, (3,))


@pytest.mark.feature("MB-12")
def test_a_heartbeat_that_waits_for_a_long_decision_keeps_its_session(cluster: Any) -> None:
    cluster.now_ms += 8_000
    cluster.controller.sessions.contact(1, cluster.epochs[1], cluster.now_ms)
    cluster.controller.sessions.contact(2, cluster.epochs[2] + 1, cluster.now_ms)
    cluster.now_ms += 5_000
    cluster.work()
    assert {broker.id for broker in cluster.image.cluster.brokers.values() if broker.fenced} == {2, 3}


@pytest.mark.feature("MB-12", "OB-07")
def test_a_process_that_is_known_to_be_gone_is_fenced_at_once(cluster: Any) -> None:
    for index in range(5):
        cluster.create_topic(f"t{index}", [1, 2, 3])
    before = len(cluster.log)
    cluster.die(1)
    assert len(cluster.log) - before == 6, "elections and fencing are one append"
    assert all(cluster.partition(f"t{index}").leader == 2 for index in range(5))
    assert "broker 1 is fenced: its port refuses" in cluster.story("broker 1")
    assert cluster.story("t0-0")[-1] == (
        "leader of t0-0 moved 1 -> 2 in epoch 1: broker 1 is fenced, its port refuses; "
        "2 was first in sync among replicas [1, 2, 3]"
    )
    assert isinstance(cluster.log[-1], FenceBrokerRecord), "brokers can distinguish it from the end of a session"
    assert cluster.register(1).error_code == 0, "its id is free at once"


def test_evidence_about_an_earlier_incarnation_is_no_evidence(cluster: Any) -> None:
    old = cluster.epochs[1]
    cluster.restart(1, clean=False)
    cluster.heartbeat(1)
    assert cluster.fence(1, old).records == []
    assert cluster.fence(8, old).records == []
    assert cluster.image.cluster.brokers[1].active


@pytest.mark.feature("MB-05")
def test_a_controlled_shutdown_moves_leaderships_and_waits_until_all_brokers_know(cluster: Any) -> None:
    cluster.create_topic("t", [1, 2, 3])
    asked = cluster.heartbeat(1, want_shut_down=True)
    assert (asked.should_shut_down, asked.is_fenced) == (False, False)
    assert cluster.image.cluster.brokers[1].in_controlled_shutdown
    partition = cluster.partition("t")
    assert (partition.leader, partition.isr) == (2, (2, 3))
    moved_at = len(cluster.log) - 1
    cluster.heartbeat(2, current_metadata_offset=moved_at)
    cluster.heartbeat(3, current_metadata_offset=moved_at - 1)
    assert not cluster.heartbeat(1, want_shut_down=True).should_shut_down, "broker 3 has not read of it yet"
    cluster.heartbeat(3, current_metadata_offset=moved_at)
    done = cluster.heartbeat(1, want_shut_down=True)
    assert (done.should_shut_down, done.is_fenced) == (True, True)
    assert cluster.image.cluster.brokers[1].fenced
    assert cluster.register(1, previous_broker_epoch=cluster.epochs[1]).error_code == 0


@pytest.mark.feature("MB-05")
def test_a_broker_that_leads_nothing_may_stop_at_once(cluster: Any) -> None:
    cluster.create_topic("t", [1, 2, 3])
    done = cluster.heartbeat(3, want_shut_down=True)
    assert done.should_shut_down
    assert cluster.partition("t").isr == (1, 2)
    cluster.register(4)
    assert cluster.heartbeat(4, want_fence=True, want_shut_down=True).should_shut_down, "a fenced one, too"


@pytest.mark.feature("MB-03")
def test_a_broker_may_ask_to_be_fenced(cluster: Any) -> None:
    cluster.create_topic("t", [1, 2])
    assert cluster.heartbeat(1, want_fence=True).is_fenced
    assert cluster.partition("t").isr == (2,)
    assert cluster.heartbeat(1, want_fence=True).is_fenced
    assert not cluster.heartbeat(1).is_fenced
    assert cluster.partition("t").isr == (2,), "back in the ISR only when the leader proposes it"


@pytest.mark.feature("MB-04")
def test_a_stopped_broker_stays_registered_until_it_is_unregistered(cluster: Any) -> None:
    cluster.create_topic("t", [1, 2, 3])
    cluster.die(1)
    assert cluster.partition("t").replicas == (1, 2, 3)
    assert 1 in cluster.image.cluster.brokers
    assert cluster.send(UnregisterBrokerRequest(broker_id=1)).error_code == 0
    assert 1 not in cluster.image.cluster.brokers
    assert cluster.partition("t").replicas == (1, 2, 3)
    gone = cluster.send(UnregisterBrokerRequest(broker_id=1))
    assert gone.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    live = cluster.send(UnregisterBrokerRequest(broker_id=2))
    assert live.error_code == 0
    assert cluster.partition("t").isr == (3,)


@pytest.mark.feature("MB-04")
def test_an_empty_broker_takes_over_the_replicas_of_an_old_id(cluster: Any) -> None:
    cluster.create_topic("t", [1, 2, 3])
    cluster.die(1)
    assert cluster.register(1, log_dirs=[b"new disk........"]).error_code == 0
    assert not cluster.heartbeat(1).is_fenced
    partition = cluster.partition("t")
    assert partition.replicas == (1, 2, 3)
    assert 1 not in partition.isr
    assert partition.leader == 2


@pytest.mark.feature("MB-18")
def test_replicas_of_a_failed_directory_leave_the_isr_and_the_others_stay(cluster: Any) -> None:
    good, bad = b"good............", b"bad............."
    cluster.register(4, log_dirs=[good, bad])
    cluster.heartbeat(4)
    for name in ("on-good", "on-bad"):
        cluster.create_topic(name, [4, 1, 2])
    from barnabas.protocol.messages import assign_replicas_to_dirs as assign

    def directory(name: str, directory_id: bytes) -> assign.RequestDirectoryData:
        topic = assign.RequestTopicData(
            topic_id=cluster.image.topics.by_name[name].id,
            partitions=[assign.RequestPartitionData(partition_index=0)],
        )
        return assign.RequestDirectoryData(id=directory_id, topics=[topic])

    response = cluster.send(
        assign.AssignReplicasToDirsRequest(
            broker_id=4,
            broker_epoch=cluster.epochs[4],
            directories=[directory("on-good", good), directory("on-bad", bad)],
        )
    )
    assert [it.topics[0].partitions[0].error_code for it in response.directories] == [0, 0]
    assert cluster.partition("on-bad").directories[0] == bad
    cluster.heartbeat(4, offline_log_dirs=[bad])
    assert cluster.image.cluster.brokers[4].log_directories == (good,)
    assert cluster.partition("on-good").leader == 4
    assert (cluster.partition("on-bad").leader, cluster.partition("on-bad").isr) == (1, (1, 2))
    before = len(cluster.log)
    cluster.heartbeat(4, offline_log_dirs=[bad])
    assert len(cluster.log) == before, "reported twice, recorded once"


@pytest.mark.feature("MB-18")
def test_a_replica_reported_in_an_offline_directory_leaves_the_isr(cluster: Any) -> None:
    from barnabas.protocol.messages import assign_replicas_to_dirs as assign

    cluster.create_topic("t", [1, 2])
    topic_id = cluster.image.topics.by_name["t"].id
    ask = assign.AssignReplicasToDirsRequest(
        broker_id=1,
        broker_epoch=cluster.epochs[1],
        directories=[
            assign.RequestDirectoryData(
                id=b"unheard of......",
                topics=[
                    assign.RequestTopicData(
                        topic_id=topic_id,
                        partitions=[assign.RequestPartitionData(partition_index=it) for it in (0, 7)],
                    ),
                    assign.RequestTopicData(
                        topic_id=b"?" * 16, partitions=[assign.RequestPartitionData(partition_index=0)]
                    ),
                ],
            )
        ],
    )
    (directory,) = cluster.send(ask).directories
    codes = [it.error_code for topic in directory.topics for it in topic.partitions]
    assert codes == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID]
    assert (cluster.partition("t").leader, cluster.partition("t").isr) == (2, (2,))
    ask.broker_id, ask.broker_epoch = 3, cluster.epochs[3]
    (directory,) = cluster.send(ask).directories
    assert directory.topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    ask.broker_epoch = 0
    assert cluster.send(ask).error_code == ErrorCode.STALE_BROKER_EPOCH


@pytest.mark.feature("MB-18")
def test_a_broker_whose_directories_are_all_cordoned_gets_no_new_replicas(cluster: Any) -> None:
    directories = cluster.image.cluster.brokers[3].log_directories
    cluster.heartbeat(3, cordoned_log_dirs=list(directories))
    assert cluster.image.cluster.brokers[3].cordoned_log_directories == directories
    assert cluster.create_topic("t", partitions=1, factor=3).error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert cluster.create_topic("t", partitions=6, factor=2).error_code == 0
    assert all(3 not in it.replicas for it in cluster.image.topics.by_name["t"].partitions.values())
    cluster.heartbeat(3, cordoned_log_dirs=[])
    assert cluster.create_topic("u", partitions=1, factor=3).error_code == 0


@pytest.mark.feature("MB-22")
def test_controllers_register_with_the_active_one(cluster: Any) -> None:
    answer = cluster.send(ControllerRegistrationRequest(controller_id=101, incarnation_id=b"c" * 16))
    assert answer.error_code == 0
    assert cluster.image.cluster.controllers[101].incarnation_id == b"c" * 16


@pytest.mark.feature("KR-16")
def test_a_new_active_controller_continues_from_the_committed_records(cluster: Any) -> None:
    cluster.create_topic("kept", [1, 2, 3])
    cluster.hold = True
    cluster.create_topic("lost", [1, 2, 3])
    cluster.die(1)
    assert "lost" in cluster.image.topics.by_name
    assert "lost" not in cluster.controller.committed.topics.by_name, "reads see what is committed"
    cluster.fail_over(2)
    assert list(cluster.image.topics.by_name) == ["kept"]
    assert cluster.image.cluster.brokers[1].active
    cluster.now_ms += 9000
    cluster.work()
    assert cluster.image.cluster.brokers[1].active, "every broker has a whole session for its next heartbeat"
    cluster.now_ms += 1
    cluster.work()
    assert all(broker.fenced for broker in cluster.image.cluster.brokers.values())
    assert cluster.partition("kept").leader == NO_LEADER


@pytest.mark.feature("KR-16")
def test_a_controller_that_is_not_active_decides_nothing(cluster: Any) -> None:
    controller = cluster.controller
    heartbeat = BrokerHeartbeatRequest(broker_id=1, broker_epoch=cluster.epochs[1], current_metadata_offset=9_999)
    report_use(heartbeat, UseReport(1, LEAST_WINDOW_MS, 0.5, (ClientUse(b"a" * 16, 0.5, 0.5, False),)))
    cluster.send(heartbeat)
    assert (controller.epoch, controller.quota_division.clients) == (1, 1)
    controller.resign()
    response = finish(controller.decide(UnregisterBrokerRequest(broker_id=1), 0, len(cluster.log), cluster.now_ms))
    assert response.response.error_code == ErrorCode.NOT_CONTROLLER
    assert response.response.error_message == "node 100 is not the active controller"
    assert response.records == [] and not response.is_long
    assert controller.next_periodic_ms(cluster.now_ms) is None
    fenced = cluster.fence(1, cluster.epochs[1])
    assert not fenced.response and fenced.records == []
    worked = finish(controller.run_periodic(len(cluster.log), cluster.now_ms + 1_000_000))
    assert not worked.response and worked.records == []
    assert (controller.epoch, controller.quota_division.clients, controller.sessions.get(1)) == (-1, 0, None)
    with pytest.raises(AssertionError):
        controller.pending  # noqa: B018
    controller.resign()
    controller.activate(7, len(cluster.log), cluster.now_ms)
    assert controller.is_active and controller.epoch == 7
    assert not QuorumController(controller.defaults, cluster.chance, []).is_active
    assert QuorumController(controller.defaults, cluster.chance, []).epoch == -1


@pytest.mark.feature("MB-05")
def test_a_broker_fenced_in_its_controlled_shutdown_comes_back_by_registration_only(cluster: Any) -> None:
    cluster.create_topic("t", [1])
    cluster.heartbeat(1, want_shut_down=True)
    cluster.die(1)
    assert cluster.heartbeat(1).is_fenced
    assert cluster.partition("t").leader == NO_LEADER
    cluster.now_ms += 10_000
    assert cluster.register(1).error_code == 0
    assert not cluster.heartbeat(1).is_fenced
    assert cluster.partition("t").leader == 1
