"""Decision notes of the active controller: each with its true cause, once its records are in the log."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.kraft.controller import eligibility, partitions
from barnabas.kraft.controller.partitions import MAX_CHANGES_NOTED
from barnabas.kraft.controller.refused_registrations import MAX_KEPT
from barnabas.kraft.controller.standby_notes import note_replayed
from barnabas.kraft.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.protocol.messages.broker_registration import Feature, Listener
from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.messages.unregister_broker import UnregisterBrokerRequest
from barnabas.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from barnabas.protocol.primitives import ZERO_UUID
from barnabas.runtime.decisions import RING_SIZE, DecisionKind, Decisions
from tests.kraft.controller.conftest import Cluster, finish

pytestmark = pytest.mark.feature("OB-07")


def last(cluster: Any, subject: str) -> Any:
    return cluster.decisions.since(0, subject)[-1]


def kinds(cluster: Any, subject: str) -> list[str]:
    return [it.kind.value for it in cluster.decisions.since(0, subject)]


def reassign(cluster: Any, name: str, replicas: list[int] | None) -> None:
    partition = ReassignablePartition(partition_index=0, replicas=replicas)
    topics = [ReassignableTopic(name=name, partitions=[partition])]
    response = cluster.send(AlterPartitionReassignmentsRequest(topics=topics))
    assert response.responses[0].partitions[0].error_code == 0


def elect(cluster: Any, name: str, election_type: int) -> int:
    wanted = [TopicPartitions(topic=name, partitions=[0])]
    response = cluster.send(ElectLeadersRequest(election_type=election_type, topic_partitions=wanted))
    return int(response.replica_election_results[0].partition_result[0].error_code)


def test_a_killed_broker_is_fenced_on_evidence_and_the_next_in_sync_leads(cluster: Any) -> None:
    cluster.create_topic("flights", [2, 3, 1])
    cluster.die(2)
    decision = last(cluster, "flights-0")
    assert decision.sentence == (
        "leader of flights-0 moved 2 -> 3 in epoch 1: broker 2 is fenced, its port refuses; "
        "3 was first in sync among replicas [2, 3, 1]"
    )
    assert decision.kind is DecisionKind.ELECTION and decision.also == ("broker 2",)
    assert {name: decision.facts[name] for name in ("leader", "leader_before", "leader_epoch", "isr")} == {
        "leader": 3,
        "leader_before": 2,
        "leader_epoch": 1,
        "isr": (3, 1),
    }
    assert decision.facts["metadata_offset"] == len(cluster.log) - 1, "the step that was committed"
    assert cluster.story("broker 2")[-2:] == ["broker 2 is fenced: its port refuses", decision.sentence]


def test_a_session_that_expired_is_noted_with_the_time_since_the_last_heartbeat(cluster: Any) -> None:
    cluster.create_topic("flights", [2, 3, 1])
    for _ in range(3):
        cluster.now_ms += 4_000
        cluster.heartbeat(1)
        cluster.heartbeat(3)
        cluster.work()
    silent = "its session of 9000 ms expired, no heartbeat for 12000 ms"
    assert last(cluster, "flights-0").cause == (
        f"broker 2 is fenced, {silent}; 3 was first in sync among replicas [2, 3, 1]"
    )
    assert f"broker 2 is fenced: {silent}" in cluster.story("broker 2")
    cluster.heartbeat(2)
    unfenced = "broker 2 is unfenced: it asked for it, and has applied the metadata log"
    assert last(cluster, "broker 2").sentence.startswith(unfenced)


def test_a_controlled_shutdown_moves_leaders_first(cluster: Any) -> None:
    cluster.create_topic("flights", [2, 3, 1])
    cluster.heartbeat(2, want_shut_down=True)
    assert last(cluster, "flights-0").cause.startswith("controlled shutdown of broker 2; 3 was first in sync")
    assert "broker 2 begins its controlled shutdown" in last_but_one(cluster, "broker 2").sentence
    for broker_id in (1, 3):
        cluster.heartbeat(broker_id)
    cluster.heartbeat(2, want_shut_down=True)
    assert last(cluster, "broker 2").sentence == "broker 2 is fenced: its controlled shutdown is complete"


def last_but_one(cluster: Any, subject: str) -> Any:
    return cluster.decisions.since(0, subject)[-2]


def test_an_isr_change_names_the_leader_that_asked_for_it(cluster: Any) -> None:
    cluster.create_topic("flights", [2, 3, 1])
    cluster.propose_isr("flights", [2, 3])
    decision = last(cluster, "flights-0")
    assert (decision.kind, decision.sentence) == (
        DecisionKind.ISR,
        "ISR of flights-0 changed [2, 3, 1] -> [2, 3] in leader epoch 0: its leader, broker 2, asked for it",
    )
    assert (decision.facts["partition_epoch"], decision.facts["isr"]) == (1, (2, 3))
    count = len(cluster.decisions.since(0))
    cluster.propose_isr("flights", [2, 3, 1], partition_epoch=0)
    assert len(cluster.decisions.since(0)) == count, "what is refused was not decided"


def test_the_loss_of_the_last_leader_and_its_return_are_noted_with_their_causes(cluster: Any) -> None:
    cluster.create_topic("flights", [2])
    cluster.die(2)
    assert last(cluster, "flights-0").sentence == (
        "flights-0 has no leader since epoch 1: broker 2 is fenced, its port refuses; "
        "no replica of [2] that has all that was committed may lead, ISR [] and ELR [2]"
    )
    cluster.restart(2, clean=True)
    cluster.heartbeat(2)
    assert last(cluster, "flights-0").sentence == (
        "leader of flights-0 is 2 in epoch 2, after there was none: broker 2 is unfenced; "
        "nobody in sync was left; 2 was in the ELR [2], it has all that was committed"
    )


def test_an_unclean_election_is_called_so(make_cluster: Any) -> None:
    cluster = make_cluster(levels={"metadata.version": 25}, min_insync_replicas=1)
    cluster.start(1, 2)
    cluster.create_topic("flights", [1, 2])
    cluster.propose_isr("flights", [1])
    cluster.die(1)
    assert elect(cluster, "flights", 1) == 0
    assert last(cluster, "flights-0").cause == (
        "an unclean election, a client asked for it; 2 was not in sync and is taken all the same: records may be lost"
    )


def test_preferred_leaders_come_back_by_the_clock_or_because_somebody_asks(make_cluster: Any) -> None:
    cluster = make_cluster(leader_imbalance_check_interval_ms=60_000)
    cluster.start(1, 2)
    cluster.create_topic("flights", [1, 2])
    cluster.create_topic("clocks", [1, 2])
    cluster.die(1)
    cluster.restart(1, clean=True)
    cluster.heartbeat(1)
    for name in ("flights", "clocks"):
        cluster.propose_isr(name, [1, 2])
    assert elect(cluster, "flights", 0) == 0
    assert last(cluster, "flights-0").sentence == (
        "leader of flights-0 moved 2 -> 1 in epoch 2: a preferred election, a client asked for it; "
        "1 was first in sync among replicas [1, 2]"
    )
    for _ in range(10):
        cluster.now_ms += 6_000
        cluster.heartbeat(1)
        cluster.heartbeat(2)
    cluster.work()
    assert last(cluster, "clocks-0").cause == (
        "leaders are balanced, and the preferred leader, broker 1, is in sync; "
        "1 was first in sync among replicas [1, 2]"
    )


def test_a_reassignment_is_noted_from_its_begin_to_its_end(make_cluster: Any) -> None:
    cluster = make_cluster()
    cluster.start(1, 2, 3, 4)
    cluster.create_topic("flights", [1, 2])
    reassign(cluster, "flights", [3, 4])
    assert last(cluster, "flights-0").sentence == (
        "flights-0 begins to move from brokers [1, 2] to [3, 4]: a client asked for it"
    )
    cluster.propose_isr("flights", [1, 2, 3])
    cluster.propose_isr("flights", [1, 2, 3, 4])
    *_, elected, moved = cluster.story("flights-0")
    assert elected.startswith("leader of flights-0 moved 1 -> 3 in epoch 1: its leader, broker 1, asked for it; 3 was")
    assert moved == (
        "the move of flights-0 is complete, it is on [3, 4]: all of them are in sync; "
        "its leader, broker 1, asked for it"
    )
    assert kinds(cluster, "flights-0")[-2:] == ["election", "reassignment"]


def test_a_move_that_is_given_up(make_cluster: Any) -> None:
    cluster = make_cluster()
    cluster.start(1, 2, 3)
    cluster.create_topic("flights", [1, 2])
    reassign(cluster, "flights", [2, 3])
    reassign(cluster, "flights", None)
    assert last(cluster, "flights-0").sentence == (
        "the move of flights-0 was given up, it stays on [2, 1]: a client cancelled it"
    )


def test_a_restart_is_noted_with_how_the_last_process_ended(cluster: Any) -> None:
    epoch = cluster.epochs[1]
    assert cluster.story("broker 1")[0] == (
        f"broker 1 is registered in epoch {epoch}, fenced until it has caught up: it was not known before"
    )
    cluster.restart(1, clean=False)
    assert last(cluster, "broker 1").cause == f"it restarted; its process of epoch {epoch} ended uncleanly"
    cluster.die(3)
    cluster.send(UnregisterBrokerRequest(broker_id=3))
    assert last(cluster, "broker 3").sentence == "broker 3 is unregistered: UnregisterBroker asked for it"


def test_topics_are_made_grown_and_deleted(cluster: Any) -> None:
    cluster.create_topic("flights", [1, 2], [2, 3])
    wanted = CreatePartitionsTopic(name="flights", count=5, assignments=None)
    cluster.send(CreatePartitionsRequest(topics=[wanted], timeout_ms=1))
    cluster.send(DeleteTopicsRequest(topics=[DeleteTopicState(name="flights", topic_id=ZERO_UUID)]))
    assert cluster.story("topic flights") == [
        "topic flights is created with 2 partitions of 2 replicas: CreateTopics asked for it",
        "topic flights grows from 2 to 5 partitions: CreatePartitions asked for it",
        "topic flights is deleted: DeleteTopics asked for it",
    ]


def test_validated_and_refused_requests_are_not_noted(cluster: Any) -> None:
    before = len(cluster.decisions.since(0))
    topic = CreatableTopic(name="flights", num_partitions=1, replication_factor=3)
    cluster.send(CreateTopicsRequest(topics=[topic], validate_only=True))
    cluster.send(CreateTopicsRequest(topics=[CreatableTopic(name="no/name", num_partitions=1)]))
    cluster.send(UnregisterBrokerRequest(broker_id=77))
    assert len(cluster.decisions.since(0)) == before


def test_very_many_changed_partitions_are_noted_as_a_number(make_cluster: Any) -> None:
    cluster = make_cluster()
    cluster.start(1, 2)
    many = MAX_CHANGES_NOTED + 7
    cluster.create_topic("many", *[[1, 2]] * many)
    cluster.die(1)
    noted = [it for it in cluster.decisions.since(0, "broker 1") if it.kind is DecisionKind.ELECTION]
    assert len(noted) == MAX_CHANGES_NOTED + 1
    assert noted[-1].sentence == "7 more partitions change: broker 1 is fenced, its port refuses"


@pytest.mark.parametrize("count", range(5))
def test_changed_partitions_are_noted_one_by_one_up_to_a_number(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions, "MAX_CHANGES_NOTED", 2)
    cluster = Cluster()
    cluster.start(1, 2)
    if count:
        cluster.create_topic("t", *[[1, 2]] * count)
    result = cluster.fence(1, cluster.epochs[1])
    changed = [it for it in result.notes if it.subject.startswith("t-")]
    assert [it.subject for it in changed] == ["t-0", "t-1"][:count]
    assert all(it.also == ("broker 1",) for it in changed)
    more = [(it.subject, it.text, it.facts) for it in result.notes if it.kind is DecisionKind.ELECTION][len(changed) :]
    said = ("broker 1", f"{count - 2} more partitions change", {"partitions": count})
    assert more == ([said] if count > 2 else [])


def test_a_standby_controller_notes_the_decisions_that_it_reads(cluster: Any) -> None:
    """For the active controller may be gone when somebody asks."""
    cluster.create_topic("flights", [2, 3, 1])
    standby = Decisions("controller-102", lambda: 0)
    cluster.hold = True
    cluster.die(2)
    cluster.hold = False
    start, records = cluster.committed, cluster.log[cluster.committed :]
    for delta in finish(cluster.controller.handle_commit(start, 1, cluster.now_ms, records)):
        finish(note_replayed(standby, 102, delta))
    fenced, elected = standby.since(0)
    assert fenced.sentence == (
        "broker 2 is fenced: its process was seen to be gone; controller 102 read it in the metadata log"
    )
    assert elected.sentence == (
        "leader of flights-0 moved 2 -> 3 in epoch 1: broker 2 is fenced, its process was seen to be gone; "
        "controller 102 read it in the metadata log"
    )
    assert elected.facts["hearsay"] == 1 and elected.also == ("broker 2",)
    assert dict(fenced.facts) == {"broker_epoch": cluster.epochs[2], "fenced": 1, "hearsay": 1}


def test_a_standby_controller_notes_who_is_back(cluster: Any) -> None:
    cluster.die(2)
    cluster.restart(2, clean=True)
    standby = Decisions("controller-102", lambda: 0)
    cluster.hold = True
    cluster.heartbeat(2)
    cluster.hold = False
    start, records = cluster.committed, cluster.log[cluster.committed :]
    for delta in finish(cluster.controller.handle_commit(start, 1, cluster.now_ms, records)):
        finish(note_replayed(standby, 102, delta))
    (unfenced,) = standby.since(0)
    assert unfenced.sentence == "broker 2 is unfenced: controller 102 read it in the metadata log"
    assert dict(unfenced.facts) == {"broker_epoch": cluster.epochs[2], "fenced": 0, "hearsay": 1}


def test_an_offline_partition_and_an_unclean_leader_are_alarming(make_cluster: Any) -> None:
    cluster = make_cluster(levels={"eligible.leader.replicas.version": 0})
    cluster.start(1, 2, 3)
    cluster.create_topic("clean", [1, 2])
    cluster.create_topic("behind", [1, 2])
    cluster.create_topic("many", *[[1, 3]] * (MAX_CHANGES_NOTED + 1))
    cluster.propose_isr("behind", [1])
    assert cluster.alarms == []
    cluster.die(1)
    assert "clean-0" not in cluster.alarms and "broker 1" not in cluster.alarms
    assert cluster.alarms == ["behind-0"], "it has no leader"
    assert elect(cluster, "behind", 1) == ErrorCode.NONE
    assert cluster.alarms == ["behind-0", "behind-0"], "its leader was not in sync"


def test_a_leader_that_was_an_eligible_replica_is_no_alarm(cluster: Any) -> None:
    cluster.create_topic("flights", [1, 2])
    cluster.propose_isr("flights", [1])
    assert cluster.partition("flights").elr == (2,)
    cluster.die(1)
    assert cluster.partition("flights").leader == 2
    assert cluster.alarms == []


def alter_min_insync_replicas(cluster: Any, resource: tuple[int, str], value: str) -> int:
    config = AlterableConfig(name="min.insync.replicas", config_operation=0, value=value)
    wanted = AlterConfigsResource(resource_type=resource[0], resource_name=resource[1], configs=[config])
    return int(cluster.send(IncrementalAlterConfigsRequest(resources=[wanted])).responses[0].error_code)


def test_a_changed_config_that_clears_eligible_replicas_is_noted(cluster: Any) -> None:
    for name in ("flights", "clocks", "untouched"):
        cluster.create_topic(name, [1, 2])
    cluster.create_topic("offline", [2])
    cluster.die(2)
    cluster.create_topic("healthy", [1, 3])
    assert alter_min_insync_replicas(cluster, (TOPIC_RESOURCE, "flights"), "2") == 0
    decision = last(cluster, "flights-0")
    assert decision.sentence == (
        "eligible leader replicas of flights-0 changed [2] -> []: "
        "min.insync.replicas of topic flights is 2 now, and eligibility depends on it"
    )
    assert (decision.facts["elr"], decision.facts["elr_before"], decision.also) == ((), (2,), ("broker 2",))
    assert last(cluster, "clocks-0").cause == "broker 2 is fenced, its port refuses"
    assert alter_min_insync_replicas(cluster, (BROKER_RESOURCE, ""), "3") == 0
    for name in ("clocks-0", "untouched-0"):
        assert last(cluster, name).cause.startswith("min.insync.replicas of all brokers is 3 now")
    assert len(cluster.decisions.since(0, "healthy-0")) == 0, "it had nobody to lose"
    assert cluster.partition("clocks").elr == ()
    assert "no leader" in last(cluster, "offline-0").sentence, "its last replica stays eligible"


@pytest.mark.parametrize("more", [0, 3])
def test_many_partitions_that_lose_their_eligible_replicas_are_noted_as_a_number(
    make_cluster: Any, monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    monkeypatch.setattr(eligibility, "MAX_CHANGES_NOTED", 4)
    cluster = make_cluster(min_insync_replicas=2)
    cluster.start(1, 2)
    cluster.create_topic("many", *[[1, 2]] * (4 + more))
    cluster.die(2)
    assert alter_min_insync_replicas(cluster, (TOPIC_RESOURCE, "many"), "1") == 0
    noted = [it for it in cluster.decisions.since(0, "topic many") if "no longer have" in it.what]
    assert [it.what for it in noted] == ["3 more partitions no longer have eligible leader replicas"] * bool(more)
    changed = [it for index in range(4 + more) for it in cluster.decisions.since(0, f"many-{index}")]
    assert len([it for it in changed if "changed [2] -> []" in it.what]) == 4


def test_eligible_replicas_go_with_their_feature(cluster: Any) -> None:
    cluster.create_topic("flights", [2])
    cluster.die(2)
    update = FeatureUpdateKey(feature="eligible.leader.replicas.version", max_version_level=0, upgrade_type=2)
    before = len(cluster.decisions.since(0))
    cluster.send(UpdateFeaturesRequest(feature_updates=[update], validate_only=True))
    assert len(cluster.decisions.since(0)) == before
    assert cluster.send(UpdateFeaturesRequest(feature_updates=[update])).error_code == 0
    assert last(cluster, "flights-0").cause.startswith("eligible.leader.replicas.version is 0 now")


def test_a_second_process_with_the_id_of_a_live_broker_is_noted(cluster: Any) -> None:
    epoch = cluster.epochs[2]
    assert cluster.register(2).error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    decision = last(cluster, "broker 2")
    assert decision.sentence == (
        "a process at broker2:9092 may not be broker 2: "
        "DUPLICATE_BROKER_REGISTRATION, another broker 2 sent a heartbeat within 9000 ms"
    )
    assert decision.kind is DecisionKind.FENCING and decision.concerns("quorum")
    assert "metadata_offset" not in decision.facts, "it is nowhere in the log"
    assert cluster.epochs[2] == epoch


def test_brokers_of_another_cluster_or_an_old_version_are_noted(cluster: Any) -> None:
    cluster.register(4, cluster_id="another")
    assert (
        last(cluster, "broker 4").cause
        == "INCONSISTENT_CLUSTER_ID, this is cluster kraft-cluster-id-00001, not another"
    )
    cluster.register(5, features=[Feature(name="metadata.version", min_supported_version=1, max_supported_version=2)])
    assert last(cluster, "broker 5").cause == (
        "UNSUPPORTED_VERSION, Unable to register because the broker does not support finalized version 30 of"
        " metadata.version. The broker wants a version between 1 and 2, inclusive."
    )


def test_repeated_refusals_of_one_broker_are_noted_ever_more_rarely(cluster: Any) -> None:
    mine = cluster.registration(2)
    for _ in range(40):
        cluster.send(mine)
    noted = [it for it in cluster.decisions.since(0, "broker 2") if "may not be" in it.sentence]
    assert [it.facts["times"] for it in noted] == [1, 2, 4, 8, 16, 32]
    assert noted[2].sentence.startswith("a process at broker2:9092 may not be broker 2, its attempt 4: ")


def test_many_refused_registrations_push_out_no_other_decisions(cluster: Any) -> None:
    cluster.create_topic("flights", [2, 3, 1])
    cluster.die(2)
    before = [it for it in cluster.decisions.since(0) if not it.sentence.startswith("a process")]
    for _ in range(2 * RING_SIZE):
        cluster.register(1, listeners=[Listener(name="x" * 9, host="h" * 10_000, port=1)] * 3)
    after = cluster.decisions.since(0)
    assert [it for it in after if not it.sentence.startswith("a process")] == before
    assert len(after) <= RING_SIZE
    assert all(len(it.sentence) < 2_000 for it in after)


def test_only_the_latest_refused_registrations_are_remembered(cluster: Any) -> None:
    mine = cluster.registration(2)
    cluster.send(mine)
    for _ in range(MAX_KEPT):
        cluster.register(1)
    cluster.send(mine)
    assert [it.facts["times"] for it in cluster.decisions.since(0, "broker 2") if "may not be" in it.sentence] == [1, 1]
