"""Topics are created, grown and deleted; each item of a request has its own answer."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from barnabas.kraft.controller.placement import UsableBroker, place_replicas
from barnabas.kraft.controller.state import ControllerResult
from barnabas.kraft.controller.topics import invalid_topic_name
from barnabas.kraft.metadata.image import UNASSIGNED_DIRECTORY
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from barnabas.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.metadata_log import ProducerIdsRecord
from barnabas.protocol.primitives import ZERO_UUID, uuid_to_string


@pytest.mark.feature("AD-01", "MB-08")
def test_a_topic_is_created_with_id_configs_and_partitions(cluster: Any) -> None:
    result = cluster.create_topic("orders", partitions=4, factor=2, configs={"retention.ms": "1000"})
    assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 4, 2)
    topic = cluster.image.topics.by_name["orders"]
    assert topic.id == result.topic_id
    assert len(uuid_to_string(topic.id)) == 22
    assert cluster.image.config(2, "orders") == {"retention.ms": "1000"}
    for partition in topic.partitions.values():
        assert partition.isr == partition.replicas
        assert partition.leader == partition.replicas[0]
        assert (partition.leader_epoch, partition.partition_epoch) == (0, 0)
        assert partition.directories == tuple(bytes([it, 1]) * 8 for it in partition.replicas)
    reported = {it.name: (it.value, it.config_source) for it in result.configs}
    assert reported["retention.ms"] == ("1000", 1)
    assert reported["min.insync.replicas"] == ("2", 3), "from the cluster's dynamic default"
    assert reported["segment.ms"] == ("604800000", 5)
    kinds = [type(record).__name__ for record in cluster.log[-6:]]
    assert kinds == ["TopicRecord", "ConfigRecord"] + ["PartitionRecord"] * 4


@pytest.mark.feature("AD-01")
def test_counts_left_out_are_the_clusters_own(make_cluster: Any) -> None:
    cluster = make_cluster(
        num_partitions=3,
        default_replication_factor=2,
        raw={"log.retention.hours": "2", "min.insync.replicas": "1"},
    )
    cluster.start(1, 2)
    result = cluster.create_topic("t")
    assert (result.num_partitions, result.replication_factor) == (3, 2)
    reported = {it.name: (it.value, it.config_source) for it in result.configs}
    assert reported["retention.ms"] == ("7200000", 4)


@pytest.mark.feature("AD-01", "MB-05")
def test_a_broker_that_was_stopped_takes_replicas_as_a_last_resort(make_cluster: Any) -> None:
    """A topic with as many replicas as there are brokers can be created during a rolling restart."""
    cluster = make_cluster()
    cluster.start(1, 2, 3)
    cluster.create_topic("before", [3, 1, 2])
    assert not cluster.heartbeat(3, want_shut_down=True).should_shut_down, "the others have not read of it yet"
    refused = cluster.create_topic("during", partitions=1, factor=3)
    assert refused.error_code == ErrorCode.INVALID_REPLICATION_FACTOR, "nobody places on a broker that is stopping"
    for broker_id in (1, 2):
        cluster.heartbeat(broker_id, current_metadata_offset=len(cluster.log) - 1)
    assert cluster.heartbeat(3, want_shut_down=True).should_shut_down
    assert cluster.image.cluster.brokers[3].fenced
    assert cluster.create_topic("after", partitions=1, factor=3).error_code == 0
    assert sorted(cluster.partition("after").replicas) == [1, 2, 3]
    assert sorted(cluster.partition("after").isr) == [1, 2]


@pytest.mark.feature("AD-01", "MB-08")
@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (CreatableTopic(name="", num_partitions=1, replication_factor=1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (
            CreatableTopic(name="..", num_partitions=1, replication_factor=1),
            ErrorCode.INVALID_TOPIC_EXCEPTION,
        ),
        (
            CreatableTopic(name="a b", num_partitions=1, replication_factor=1),
            ErrorCode.INVALID_TOPIC_EXCEPTION,
        ),
        (CreatableTopic(name="ä", num_partitions=1, replication_factor=1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (
            CreatableTopic(name="x" * 250, num_partitions=1, replication_factor=1),
            ErrorCode.INVALID_TOPIC_EXCEPTION,
        ),
        (
            CreatableTopic(name="a_b", num_partitions=1, replication_factor=1),
            ErrorCode.INVALID_TOPIC_EXCEPTION,
        ),
        (CreatableTopic(name="a.b", num_partitions=1, replication_factor=1), ErrorCode.TOPIC_ALREADY_EXISTS),
        (CreatableTopic(name="t", num_partitions=0, replication_factor=1), ErrorCode.INVALID_PARTITIONS),
        (CreatableTopic(name="t", num_partitions=-2, replication_factor=1), ErrorCode.INVALID_PARTITIONS),
        (
            CreatableTopic(name="t", num_partitions=1, replication_factor=0),
            ErrorCode.INVALID_REPLICATION_FACTOR,
        ),
        (
            CreatableTopic(name="t", num_partitions=1, replication_factor=4),
            ErrorCode.INVALID_REPLICATION_FACTOR,
        ),
        (
            CreatableTopic(name="__cluster_metadata", num_partitions=1, replication_factor=1),
            ErrorCode.INVALID_REQUEST,
        ),
    ],
)
def test_a_topic_that_cannot_be(cluster: Any, topic: CreatableTopic, code: ErrorCode) -> None:
    cluster.create_topic("a.b", partitions=1, factor=1)
    before = len(cluster.log)
    (result,) = cluster.send(CreateTopicsRequest(topics=[topic])).topics
    assert result.error_code == code
    assert result.error_message
    assert len(cluster.log) == before


@pytest.mark.feature("AD-01")
@pytest.mark.parametrize(
    ("assignments", "code"),
    [
        ([[1, 2], [2]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([[1, 1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([[1, 9]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([[]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([[4]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_an_assignment_by_hand_that_cannot_be(cluster: Any, assignments: Any, code: ErrorCode) -> None:
    cluster.register(4)
    assert cluster.create_topic("t", *assignments).error_code == code


@pytest.mark.feature("AD-01")
def test_assignments_by_hand_leave_counts_open_and_have_no_gaps(cluster: Any) -> None:
    assert cluster.create_topic("t", [1], partitions=1).error_code == ErrorCode.INVALID_REQUEST
    assert cluster.create_topic("t", [1], factor=1).error_code == ErrorCode.INVALID_REQUEST
    cluster.register(4)
    assert cluster.create_topic("t", [4, 2], [3, 4]).error_code == 0
    partition = cluster.partition("t")
    assert (partition.leader, partition.isr) == (2, (2,)), "a fenced broker is no member of a new ISR"
    request = CreateTopicsRequest(topics=[CreatableTopic(name="gap", num_partitions=-1, replication_factor=-1)])
    from barnabas.protocol.messages.create_topics import CreatableReplicaAssignment

    request.topics[0].assignments = [CreatableReplicaAssignment(partition_index=1, broker_ids=[1])]
    assert cluster.send(request).topics[0].error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


@pytest.mark.feature("AD-01")
def test_topics_of_one_request_succeed_or_fail_each_by_itself(cluster: Any) -> None:
    names = ["good", "bad name", "twice", "twice", "also.good", "also_good"]
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    )
    codes = {it.name: it.error_code for it in cluster.send(request).topics}
    assert codes == {
        "good": 0,
        "bad name": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "twice": ErrorCode.INVALID_REQUEST,
        "also.good": 0,
        "also_good": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    assert list(cluster.image.topics.by_name) == ["good", "also.good"]


@pytest.mark.feature("AD-01")
def test_validate_only_answers_and_changes_nothing(cluster: Any) -> None:
    before = len(cluster.log)
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)], validate_only=True
    )
    assert cluster.send(request).topics[0].error_code == 0
    grow = CreatePartitionsRequest(topics=[], validate_only=True)
    assert cluster.send(grow).results == []
    assert len(cluster.log) == before


@pytest.mark.feature("AD-01")
def test_a_request_for_too_much_is_refused_whole(cluster: Any) -> None:
    huge = CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=2**31 - 1, replication_factor=1)])
    assert cluster.send(huge).topics[0].error_code == ErrorCode.POLICY_VIOLATION
    cluster.create_topic("t", partitions=1, factor=1)
    grow = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=2**31 - 1, assignments=None)])
    assert cluster.send(grow).results[0].error_code == ErrorCode.POLICY_VIOLATION


@pytest.mark.feature("AD-01")
def test_a_request_that_names_too_many_topics_is_refused_before_any_is_looked_at(cluster: Any) -> None:
    names = [f"t{number}" for number in range(10_001)]
    # None of these would write a record, so that the number of records does not refuse them.
    topics = [CreatableTopic(name=name, num_partitions=0, replication_factor=1) for name in names]
    assert cluster.send(CreateTopicsRequest(topics=topics[:3])).topics[0].error_code == ErrorCode.INVALID_PARTITIONS
    assert {it.error_code for it in cluster.send(CreateTopicsRequest(topics=topics)).topics} == {
        ErrorCode.POLICY_VIOLATION
    }
    deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in names])
    assert {it.error_code for it in cluster.send(deletion).responses} == {ErrorCode.POLICY_VIOLATION}


@pytest.mark.feature("AD-01", "MB-20")
@pytest.mark.parametrize("configs", [{"no.such": "1"}, {"retention.ms": "soon"}, {"retention.ms": None}])
def test_a_topic_with_configs_that_cannot_be(cluster: Any, configs: Any) -> None:
    assert cluster.create_topic("t", [1], configs=configs).error_code == ErrorCode.INVALID_CONFIG


@pytest.mark.feature("AD-01")
def test_topics_grow_but_never_shrink(cluster: Any) -> None:
    cluster.create_topic("t", partitions=2, factor=2)

    def grow(count: int, assignments: list[list[int]] | None = None, name: str = "t") -> int:
        topic = CreatePartitionsTopic(
            name=name,
            count=count,
            assignments=None
            if assignments is None
            else [CreatePartitionsAssignment(broker_ids=it) for it in assignments],
        )
        return int(cluster.send(CreatePartitionsRequest(topics=[topic])).results[0].error_code)

    assert grow(2) == grow(1) == ErrorCode.INVALID_PARTITIONS
    assert grow(3, name="nowhere") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert grow(3, [[1, 2], [2, 3]]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert grow(3, [[1]]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert grow(3, [[3, 1]]) == 0
    assert cluster.partition("t", 2).replicas == (3, 1)
    assert grow(9) == 0
    assert all(len(it.replicas) == 2 for it in cluster.image.topics.by_name["t"].partitions.values())
    assert sorted(cluster.image.topics.by_name["t"].partitions) == list(range(9))
    twice = CreatePartitionsTopic(name="t", count=20, assignments=None)
    (result,) = cluster.send(CreatePartitionsRequest(topics=[twice, twice])).results
    assert result.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.feature("AD-01", "MB-08")
def test_topics_are_deleted_by_name_or_by_id(cluster: Any) -> None:
    ids = {name: cluster.create_topic(name, [1, 2]).topic_id for name in "abcd"}
    request = DeleteTopicsRequest(
        topics=[
            DeleteTopicState(name="a"),
            DeleteTopicState(topic_id=ids["b"]),
            DeleteTopicState(name="c", topic_id=ids["c"]),
            DeleteTopicState(),
            DeleteTopicState(name="nowhere"),
            DeleteTopicState(topic_id=b"?" * 16),
            DeleteTopicState(name="d"),
            DeleteTopicState(topic_id=ids["d"]),
        ]
    )
    answers = [(it.name, it.topic_id, it.error_code) for it in cluster.send(request).responses]
    assert sorted(answers, key=repr) == sorted(
        [
            ("a", ids["a"], 0),
            ("b", ids["b"], 0),
            ("c", ids["c"], ErrorCode.INVALID_REQUEST),
            (None, ZERO_UUID, ErrorCode.INVALID_REQUEST),
            ("nowhere", ZERO_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (None, b"?" * 16, ErrorCode.UNKNOWN_TOPIC_ID),
            ("d", ids["d"], ErrorCode.INVALID_REQUEST),
        ],
        key=repr,
    )
    assert list(cluster.image.topics.by_name) == ["c", "d"]
    old = DeleteTopicsRequest(topic_names=["c", "d", "d"])
    codes = [(it.name, it.error_code) for it in cluster.send(old, version=5).responses]
    assert sorted(codes) == [("c", 0), ("d", ErrorCode.INVALID_REQUEST)]
    again = cluster.create_topic("a", [1, 2])
    assert again.topic_id != ids["a"]


def test_deletion_can_be_disabled(make_cluster: Any) -> None:
    cluster = make_cluster(delete_topic_enable=False)
    cluster.start(1)
    cluster.create_topic("t", [1])
    request = DeleteTopicsRequest(topic_names=["t"])
    for version in range(1, 6):
        code = ErrorCode.INVALID_REQUEST if version < 3 else ErrorCode.TOPIC_DELETION_DISABLED
        assert cluster.send(request, version=version).responses[0].error_code == code


@pytest.mark.feature("MB-18")
def test_a_broker_with_several_directories_chooses_itself(cluster: Any) -> None:
    cluster.register(4, log_dirs=[b"x" * 16, b"y" * 16])
    cluster.heartbeat(4)
    cluster.create_topic("t", [4, 1])
    assert cluster.partition("t").directories[0] == UNASSIGNED_DIRECTORY


@pytest.mark.feature("MB-21")
def test_producer_ids_come_in_blocks_that_never_repeat(cluster: Any) -> None:
    ask = AllocateProducerIdsRequest(broker_id=1, broker_epoch=cluster.epochs[1])
    first = cluster.send(ask)
    assert (first.producer_id_start, first.producer_id_len) == (0, 1000)
    assert cluster.send(ask).producer_id_start == 1000
    cluster.fail_over(2)
    assert cluster.send(ask).producer_id_start == 2000
    ask.broker_epoch += 1
    assert cluster.send(ask).error_code == ErrorCode.STALE_BROKER_EPOCH


@pytest.mark.feature("MB-21")
def test_the_last_block_of_producer_ids_is_whole(cluster: Any) -> None:
    ask = AllocateProducerIdsRequest(broker_id=1, broker_epoch=cluster.epochs[1])
    last = (1 << 63) - 1 - 1000
    cluster.append(ControllerResult(None, [ProducerIdsRecord(broker_id=1, broker_epoch=0, next_producer_id=last)]))
    assert cluster.send(ask).producer_id_start == last
    assert cluster.send(ask).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert cluster.image.producer_ids.next_producer_id == last + 1000


# Placement


def seeded(seed: int = 1) -> Any:
    import random

    return random.Random(seed)


@pytest.mark.feature("MB-16")
def test_replicas_spread_evenly_over_brokers() -> None:
    brokers = [UsableBroker(it, None, False) for it in range(6)]
    for seed in range(20):
        placed = list(place_replicas(brokers, 10, 3, seeded(seed)))
        assert all(len(set(replicas)) == 3 for replicas in placed)
        assert sum(map(len, placed)) / 6 == 5
        leaders = Counter(replicas[0] for replicas in placed)
        assert set(leaders.values()) <= {1, 2, 3}
        whole_rounds = Counter(it for replicas in placed[:6] for it in replicas)
        assert set(whole_rounds.values()) == {3}
    starts = {next(place_replicas(brokers, 1, 1, seeded(seed))) for seed in range(50)}
    assert len(starts) == 6, "the start is random"


@pytest.mark.feature("MB-17")
def test_replicas_are_in_different_racks_where_there_are_enough() -> None:
    racks = {0: "a", 1: "a", 2: "b", 3: "b"}
    brokers = [UsableBroker(it, rack, False) for it, rack in racks.items()]
    for seed in range(20):
        placed = list(place_replicas(brokers, 8, 2, seeded(seed)))
        assert all(racks[first] != racks[second] for first, second in placed)
        assert set(Counter(replicas[0] for replicas in placed).values()) == {2}
        four = list(place_replicas(brokers, 3, 4, seeded(seed)))
        assert all(sorted(replicas) == [0, 1, 2, 3] for replicas in four)
        assert all(racks[it[0]] != racks[it[1]] for it in four)


@pytest.mark.feature("MB-16")
def test_fenced_brokers_follow_only_where_they_must() -> None:
    brokers = [UsableBroker(1, None, False), UsableBroker(2, None, True), UsableBroker(3, None, False)]
    for seed in range(10):
        assert all(2 not in it for it in place_replicas(brokers, 5, 2, seeded(seed)))
        placed = list(place_replicas(brokers, 5, 3, seeded(seed)))
        assert all(it[2] == 2 for it in placed)
    alone = [UsableBroker(1, "x", False), UsableBroker(2, "y", True)]
    assert list(place_replicas(alone, 4, 2, seeded())) == [(1, 2)] * 4


@pytest.mark.parametrize(("count", "fenced", "factor"), [(3, False, 4), (3, True, 1), (0, False, 1), (3, False, 0)])
def test_placement_that_is_impossible(count: int, fenced: bool, factor: int) -> None:
    brokers = [UsableBroker(it, None, fenced) for it in range(count)]
    with pytest.raises(KafkaError) as refused:
        place_replicas(brokers, 1, factor, seeded())
    assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


@pytest.mark.feature("MB-08")
@pytest.mark.parametrize("name", ["a", "A-1_2.3", "x" * 249, "...", "-"])
def test_legal_names(name: str) -> None:
    assert invalid_topic_name(name) is None
