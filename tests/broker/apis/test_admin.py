"""Topics, configs and the rest of what administrators ask: through a broker, decided by the controller."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import trio

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import alter_configs, elect_leaders
from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)
from barnabas.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from barnabas.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from barnabas.protocol.messages.describe_quorum import DescribeQuorumRequest, RequestPartitionData, RequestTopicData
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.list_config_resources import ListConfigResourcesRequest
from barnabas.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from barnabas.protocol.messages.unregister_broker import UnregisterBrokerRequest
from barnabas.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from barnabas.runtime.channel import ConnectionFailed
from barnabas.runtime.dispatch import MAX_ELEMENTS
from tests.broker.apis.rig import NOW_MS, Rig, batch_of, on_cluster, values_in

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


# Topics


async def create(rig: Rig, name: str, partitions: int = 1, replicas: int = 1, **fields: Any) -> Any:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas)
    response = await rig.ask(1, CreateTopicsRequest(topics=[topic], timeout_ms=5000, **fields))
    return response.topics[0]


@pytest.mark.feature("AD-01", "MB-08", "MB-22")
@on_cluster(brokers=3, num__partitions="4", default__replication__factor="2")
async def test_topics_are_created(rig: Rig) -> None:
    for name, partitions, replicas, expected in (
        ("t", 2, 3, 0),
        ("t", 2, 3, ErrorCode.TOPIC_ALREADY_EXISTS),
        ("t2", 0, 1, ErrorCode.INVALID_PARTITIONS),
        ("t2", 1, 4, ErrorCode.INVALID_REPLICATION_FACTOR),
        ("t2", 1, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
        ("no/name", 1, 1, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("x" * 250, 1, 1, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("with.dot", 1, 1, 0),
        ("with_dot", 1, 1, ErrorCode.INVALID_TOPIC_EXCEPTION),
    ):
        assert (await create(rig, name, partitions, replicas)).error_code == expected, name
    asked_only = await create(rig, "dry", validate_only=True)
    assert asked_only.error_code == 0
    default = await create(rig, "default", -1, -1)
    assert (default.num_partitions, default.replication_factor) == (4, 2)
    assert default.topic_id != bytes(16) and len(default.configs) > 20
    await trio.sleep(1)
    assert sorted(rig.broker(2).metadata.image.topics.by_name) == ["default", "t", "with.dot"]


@pytest.mark.feature("AD-01", "MB-08", "ST-19")
@on_cluster(file__delete__delay__ms="10000", log__segment__delete__delay__ms="10000")
async def test_a_topic_made_again_is_another(rig: Rig) -> None:
    old_id = new_id = await rig.create("t")
    await rig.produce("t", batch_of("old"))
    for version in (5, 6):
        gone = DeleteTopicsRequest(timeout_ms=5000)
        if version == 5:
            gone.topic_names = ["t"]
        else:
            gone.topics = [DeleteTopicState(topic_id=new_id, name=None)]
        (answer,) = (await rig.ask(1, gone, version)).responses
        assert (answer.error_code, answer.name) == (0, "t")
        await rig.until(lambda: not rig.broker(1).metadata.image.topics.by_name)
        new_id = await rig.create("t")
        assert new_id != old_id
        data = await rig.fetch("t")
        assert (data.error_code, data.high_watermark, values_in(data)) == (0, 0, [])
        assert (await rig.produce("t", batch_of("new"), version=13, topic_id=new_id)).base_offset == 0
        old = await rig.produce("t", batch_of("lost"), version=13, topic_id=old_id)
        assert old.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    condemned = [path for path, _ in rig.universe.disk("broker-1").files() if "-delete/" in path]
    assert condemned, "the old records wait for their end"
    await trio.sleep(20)
    assert not [path for path, _ in rig.universe.disk("broker-1").files() if "-delete/" in path]
    for wrong, code in ((("nowhere", bytes(16)), 3), ((None, old_id), ErrorCode.UNKNOWN_TOPIC_ID)):
        state = DeleteTopicState(name=wrong[0], topic_id=wrong[1])
        assert (await rig.ask(1, DeleteTopicsRequest(topics=[state]))).responses[0].error_code == code


@pytest.mark.feature("AD-01")
@on_cluster(brokers=3)
async def test_a_topic_grows(rig: Rig) -> None:
    await rig.create("t", partitions=2, replicas=2)

    async def grow(name: str, count: int, validate_only: bool = False) -> int:
        topic = CreatePartitionsTopic(name=name, count=count, assignments=None)
        request = CreatePartitionsRequest(topics=[topic], timeout_ms=5000, validate_only=validate_only)
        return int((await rig.ask(2, request)).results[0].error_code)

    assert await grow("t", 5, validate_only=True) == 0
    assert await grow("t", 2) == ErrorCode.INVALID_PARTITIONS
    assert await grow("t", 1) == ErrorCode.INVALID_PARTITIONS
    assert await grow("nowhere", 3) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await grow("t", 4) == 0
    await rig.until(lambda: len(rig.broker(1).metadata.image.topics.by_name["t"].partitions) == 4)
    assert (await rig.produce("t", index=3)).error_code == 0


@pytest.mark.feature("AD-05", "MB-13")
@on_cluster(brokers=3, auto__leader__rebalance__enable="false")
async def test_leaders_are_elected(rig: Rig) -> None:
    await rig.create("t", replicas=[1, 2])
    rig.cluster.kill("broker-1")
    await rig.until(lambda: rig.placed(2, "t").leader == 2)
    rig.cluster.start("broker-1")
    await rig.cluster.wait_ready()
    await rig.until(lambda: sorted(rig.placed(2, "t").isr) == [1, 2])

    async def elect(kind: int, partition: int = 0) -> int:
        topic = elect_leaders.TopicPartitions(topic="t", partitions=[partition])
        request = elect_leaders.ElectLeadersRequest(
            election_type=kind, topic_partitions=[topic], timeout_ms=5000
        )
        response = await rig.ask(3, request)
        return int(response.replica_election_results[0].partition_result[0].error_code)

    assert await elect(0) == 0
    await rig.until(lambda: rig.placed(2, "t").leader == 1)
    assert await elect(0) == ErrorCode.ELECTION_NOT_NEEDED
    assert await elect(1) == ErrorCode.ELECTION_NOT_NEEDED
    assert await elect(0, 9) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.feature("MB-19", "AD-05")
@on_cluster(brokers=3)
async def test_a_partition_moves_through_any_broker(rig: Rig) -> None:
    await rig.create("t", replicas=[1])
    await rig.produce("t", batch_of("moved"))
    move = ReassignableTopic(name="t", partitions=[ReassignablePartition(partition_index=0, replicas=[2, 3])])
    answer = await rig.ask(3, AlterPartitionReassignmentsRequest(topics=[move], timeout_ms=5000))
    assert answer.error_code == 0 and answer.responses[0].partitions[0].error_code == 0
    await rig.until(lambda: rig.placed(1, "t").replicas == (2, 3))
    await rig.until(lambda: rig.leader("t") in (2, 3) and rig.broker(1).partitions.find("t", 0) is None)
    assert values_in(await rig.fetch("t")) == ["moved"]
    assert (await rig.fetch("t", node=1)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    listed = await rig.ask(1, ListPartitionReassignmentsRequest(topics=None))
    assert (listed.error_code, listed.topics) == (0, [])


@pytest.mark.feature("MB-22", "PF-04")
@on_cluster()
async def test_without_a_controller_forwarded_requests_time_out(rig: Rig) -> None:
    rig.cluster.kill("controller-101")
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    began = trio.current_time()
    answer = await rig.ask(1, CreateTopicsRequest(topics=[topic], timeout_ms=5000), timeout_ms=90_000)
    assert answer.topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    assert 59 < trio.current_time() - began < 62
    # Requests sent before the controller came back are answered by it.
    answers: list[int] = []

    async def ask() -> None:
        response = await rig.ask(1, CreateTopicsRequest(topics=[topic], timeout_ms=5000))
        answers.append(response.topics[0].error_code)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.sleep(5)
        assert not answers
        rig.cluster.start("controller-101")
    assert answers == [0]


@pytest.mark.feature("MB-22", "RP-11")
@on_cluster(socket__request__max__bytes="10000")
async def test_a_request_larger_than_an_envelope_is_not_forwarded(rig: Rig) -> None:
    large = alter_configs.AlterableConfig(name="cleanup.policy", value="x" * 9900)
    resource = alter_configs.AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=[large])
    began = trio.current_time()
    with pytest.raises(ConnectionFailed):
        await rig.ask(1, alter_configs.AlterConfigsRequest(resources=[resource]))
    assert trio.current_time() - began < 1
    await rig.create("t")


@pytest.mark.feature("MB-22", "RP-02")
@on_cluster()
async def test_a_large_request_is_forwarded_as_it_came_and_refused_by_the_controller(rig: Rig) -> None:
    def deleting(count: int) -> DeleteTopicsRequest:
        return DeleteTopicsRequest(topics=[DeleteTopicState(name=f"x{number}") for number in range(count)])

    answer = await rig.ask(1, deleting(2_000))
    assert len(answer.responses) == 2_000
    assert {topic.error_code for topic in answer.responses} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    with pytest.raises(ConnectionFailed):
        await rig.ask(1, deleting(MAX_ELEMENTS + 1))
    await rig.create("t")


# Configs


async def described(
    rig: Rig, kind: int, name: str, *keys: str, node: int = 1
) -> tuple[int, dict[str, DescribeConfigsResourceResult]]:
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) if keys else None
    )
    response = await rig.ask(node, DescribeConfigsRequest(resources=[resource], include_synonyms=True))
    (result,) = response.results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result.error_code, {it.name: it for it in result.configs}


def layers(entry: DescribeConfigsResourceResult) -> list[tuple[str, str | None, int]]:
    return [(it.name, it.value, it.source) for it in entry.synonyms]


@pytest.mark.feature("AD-02", "MB-20")
@on_cluster(log__retention__ms="5000000")
async def test_where_a_value_comes_from(rig: Rig) -> None:
    await rig.create("t", segment_bytes="2000000")
    await rig.configure(BROKER, "", message_max_bytes="2000000")
    await rig.configure(BROKER, "1", message_max_bytes="3000000")
    await rig.configure(TOPIC, "t", max_message_bytes="4000000")
    _, found = await described(rig, TOPIC, "t")
    assert len(found) > 25
    assert (found["segment.bytes"].value, found["segment.bytes"].config_source) == ("2000000", 1)
    assert layers(found["max.message.bytes"]) == [
        ("max.message.bytes", "4000000", 1),
        ("message.max.bytes", "3000000", 2),
        ("message.max.bytes", "2000000", 3),
        ("message.max.bytes", "1048588", 5),
    ]
    assert (found["retention.ms"].value, found["retention.ms"].config_source) == ("5000000", 4)
    assert (found["cleanup.policy"].value, found["cleanup.policy"].config_source) == ("delete", 5)
    assert found["cleanup.policy"].config_type == 7 and not found["cleanup.policy"].read_only
    _, some = await described(rig, TOPIC, "t", "segment.bytes", "nonsense")
    assert list(some) == ["segment.bytes"]
    _, broker = await described(rig, BROKER, "1")
    assert (broker["message.max.bytes"].value, broker["message.max.bytes"].config_source) == ("3000000", 2)
    assert broker["node.id"].read_only and broker["node.id"].config_source == 4
    _, cluster = await described(rig, BROKER, "")
    assert cluster["message.max.bytes"].value == "2000000"
    assert {it.config_source for it in cluster.values()} == {3}
    for kind, name, code in (
        (TOPIC, "nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "no/name", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "x", ErrorCode.INVALID_REQUEST),
        (LOGGER, "", ErrorCode.INVALID_REQUEST),
        (CLIENT_METRICS, "", ErrorCode.INVALID_REQUEST),
        (99, "x", ErrorCode.INVALID_REQUEST),
    ):
        assert (await described(rig, kind, name)) == (code, {}), (kind, name)
    assert (await described(rig, 99, "x", node=101))[0] == ErrorCode.INVALID_REQUEST


@pytest.mark.feature("AD-02")
@on_cluster()
async def test_an_empty_list_of_keys_means_all(rig: Rig) -> None:
    await rig.create("t")
    for node in (1, 101):
        resource = DescribeConfigsResource(resource_type=TOPIC, resource_name="t", configuration_keys=[])
        (result,) = (await rig.ask(node, DescribeConfigsRequest(resources=[resource]))).results
        assert len(result.configs) > 25 and not result.configs[0].synonyms


async def alter(rig: Rig, kind: int, name: str, *changes: tuple[str, int, str | None], **fields: Any) -> int:
    configs = [AlterableConfig(name=key, config_operation=how, value=value) for key, how, value in changes]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    response = await rig.ask(1, IncrementalAlterConfigsRequest(resources=[resource], **fields))
    return int(response.responses[0].error_code)


@pytest.mark.feature("AD-02")
@on_cluster()
async def test_configs_change_one_by_one(rig: Rig) -> None:
    await rig.create("t", retention_ms="1000000")

    async def policy() -> str | None:
        await trio.sleep(0.1)
        return (await described(rig, TOPIC, "t"))[1]["cleanup.policy"].value

    assert await alter(rig, TOPIC, "t", ("cleanup.policy", APPEND, "compact")) == 0
    assert await policy() == "delete,compact"
    assert await alter(rig, TOPIC, "t", ("cleanup.policy", SUBTRACT, "delete")) == 0
    assert await policy() == "compact"
    assert await alter(rig, TOPIC, "t", ("cleanup.policy", DELETE, None)) == 0
    assert await policy() == "delete"
    assert await alter(rig, TOPIC, "t", ("retention.ms", SET, "77"), validate_only=True) == 0
    await trio.sleep(0.1)
    assert (await described(rig, TOPIC, "t"))[1]["retention.ms"].value == "1000000"
    for changes, code in (
        ([("retention.ms", SET, "soon")], ErrorCode.INVALID_CONFIG),
        ([("retention.days", SET, "1")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", APPEND, "1")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", 9, "1")], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", SET, "1"), ("retention.ms", SET, "2")], ErrorCode.INVALID_REQUEST),
    ):
        assert await alter(rig, TOPIC, "t", *changes) == code, changes
    assert await alter(rig, TOPIC, "nowhere", ("retention.ms", SET, "1")) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await alter(rig, BROKER, "1", ("node.id", SET, "5")) == ErrorCode.INVALID_REQUEST
    # The old request replaces everything.
    resource = alter_configs.AlterConfigsResource(
        resource_type=TOPIC,
        resource_name="t",
        configs=[alter_configs.AlterableConfig(name="segment.ms", value="99999")],
    )
    response = await rig.ask(1, alter_configs.AlterConfigsRequest(resources=[resource]))
    assert response.responses[0].error_code == 0
    await trio.sleep(0.1)
    assert dict(rig.broker(1).metadata.image.config(TOPIC, "t")) == {"segment.ms": "99999"}


@pytest.mark.feature("AD-02", "CR-14")
@on_cluster(log__retention__check__interval__ms="1000")
async def test_a_shorter_retention_takes_effect(rig: Rig) -> None:
    await rig.create("t", segment_ms="1000", retention_ms="-1")
    for age in (100_000, 90_000, 0):
        await rig.produce("t", batch_of("v", timestamp=NOW_MS - age))
        await trio.sleep(2)
    assert rig.partition(1, "t").log.log_start_offset == 0
    await rig.configure(TOPIC, "t", retention_ms="50000")
    await rig.until(lambda: rig.partition(1, "t").log.log_start_offset >= 1, 10)


@pytest.mark.feature("AD-02")
@on_cluster()
async def test_log_levels_belong_to_the_broker_itself(rig: Rig) -> None:
    logger = logging.getLogger("barnabas.broker.node")
    before = logger.level
    try:
        assert await alter(rig, LOGGER, "1", ("barnabas.broker.node", SET, "DEBUG")) == 0
        assert logger.level == logging.DEBUG
        _, found = await described(rig, LOGGER, "1", "barnabas.broker.node")
        assert (found["barnabas.broker.node"].value, found["barnabas.broker.node"].config_source) == ("DEBUG", 6)
        assert await alter(rig, LOGGER, "1", ("barnabas.broker.node", SET, "FATAL"), validate_only=True) == 0
        assert logger.level == logging.DEBUG
        assert await alter(rig, LOGGER, "1", ("barnabas.broker.node", DELETE, None)) == 0
        assert logger.level == logging.NOTSET
        assert await alter(rig, LOGGER, "1", ("barnabas.broker.node", SET, "LOUD")) == ErrorCode.INVALID_CONFIG
        assert await alter(rig, LOGGER, "1", ("no.such.logger", SET, "INFO")) == ErrorCode.INVALID_CONFIG
        assert await alter(rig, LOGGER, "1", ("barnabas.broker.node", APPEND, "INFO")) == ErrorCode.INVALID_REQUEST
        assert await alter(rig, LOGGER, "2", ("barnabas.broker.node", SET, "INFO")) == ErrorCode.INVALID_REQUEST
    finally:
        logger.setLevel(before)


@pytest.mark.feature("AD-02", "MB-20")
@on_cluster()
async def test_resources_with_configs_are_listed(rig: Rig) -> None:
    await rig.create("t")
    await rig.configure(CLIENT_METRICS, "all", interval_ms="100000")
    await rig.configure(BROKER, "", log_retention_ms="2000000")
    listed = await rig.ask(1, ListConfigResourcesRequest())
    found = {(it.resource_type, it.resource_name) for it in listed.config_resources}
    assert {(TOPIC, "t"), (BROKER, "1"), (LOGGER, "1"), (CLIENT_METRICS, "all")} <= found
    assert (BROKER, "") not in found, "what holds for all brokers is no resource of its own, as in Kafka"
    _, metrics = await described(rig, CLIENT_METRICS, "all")
    assert layers(metrics["interval.ms"]) == [("interval.ms", "100000", 7)]
    assert (metrics["match"].value, metrics["match"].config_source) == ("", 5)
    only = await rig.ask(1, ListConfigResourcesRequest(resource_types=[TOPIC]))
    assert [(it.resource_type, it.resource_name) for it in only.config_resources] == [(TOPIC, "t")]
    first = await rig.ask(1, ListConfigResourcesRequest(), 0)
    assert [it.resource_name for it in first.config_resources] == ["all"], "version 0 knows client metrics only"
    wrong = await rig.ask(1, ListConfigResourcesRequest(resource_types=[77]))
    assert wrong.error_code == ErrorCode.UNSUPPORTED_VERSION


# The rest


@pytest.mark.feature("AD-07", "MB-21")
@on_cluster()
async def test_producers_are_given_ids_and_described(rig: Rig) -> None:
    await rig.create("t")
    seen = set()
    for version in range(6):
        answer = await rig.ask(1, InitProducerIdRequest(transactional_id=None), version)
        assert (answer.error_code, answer.producer_epoch) == (0, 0)
        seen.add(answer.producer_id)
    assert len(seen) == 6 and min(seen) >= 0
    for producer_id, epoch in ((5, -1), (-1, 5)):
        request = InitProducerIdRequest(transactional_id=None, producer_id=producer_id, producer_epoch=epoch)
        assert (await rig.ask(1, request)).error_code == ErrorCode.INVALID_REQUEST
    refused = await rig.ask(1, InitProducerIdRequest(transactional_id=""))
    assert (refused.error_code, refused.producer_id) == (ErrorCode.INVALID_REQUEST, -1)
    await rig.produce("t", batch_of("a", "b", producer_id=3, producer_epoch=1, base_sequence=0))
    question = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0, 9])])
    known, unknown = (await rig.ask(1, question)).topics[0].partitions
    (state,) = known.active_producers
    assert (state.producer_id, state.producer_epoch, state.last_sequence) == (3, 1, 1)
    assert (state.last_timestamp, state.current_txn_start_offset, state.coordinator_epoch) == (NOW_MS, -1, -1)
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    nobody = await rig.ask(1, FindCoordinatorRequest(coordinator_keys=["g", "h"]))
    assert [(it.key, it.error_code) for it in nobody.coordinators] == [("g", 15), ("h", 15)]


@pytest.mark.feature("AD-05", "ST-17")
@on_cluster()
async def test_log_directories_are_described(rig: Rig) -> None:
    await rig.create("t", partitions=2)
    await rig.produce("t")
    for version in range(1, 6):
        (directory,) = (await rig.ask(1, DescribeLogDirsRequest(topics=None), version)).results
        assert (directory.error_code, directory.log_dir) == (0, "/broker-1/data")
        (topic,) = directory.topics
        sizes = {it.partition_index: it.partition_size for it in topic.partitions}
        assert sizes == {0: len(batch_of("value")), 1: 0}
        assert all(it.offset_lag == 0 and not it.is_future_key for it in topic.partitions)
        assert (directory.total_bytes > 0) == (version >= 4)
    some = DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic="t", partitions=[1, 9])])
    (directory,) = (await rig.ask(1, some)).results
    assert [it.partition_index for it in directory.topics[0].partitions] == [1]


@pytest.mark.feature("AD-06")
@on_cluster(brokers=3)
async def test_the_quorum_features_and_brokers(rig: Rig) -> None:
    partition = RequestPartitionData(partition_index=0)
    question = DescribeQuorumRequest(
        topics=[RequestTopicData(topic_name="__cluster_metadata", partitions=[partition])]
    )
    for version in range(3):
        answer = await rig.ask(2, question, version)
        (quorum,) = answer.topics[0].partitions
        assert (answer.error_code, quorum.error_code, quorum.leader_id) == (0, 0, 101)
        assert [it.replica_id for it in quorum.current_voters] == [101]
        assert sorted(it.replica_id for it in quorum.observers) == [1, 2, 3]
        assert quorum.high_watermark > 0
    wrong = DescribeQuorumRequest(topics=[RequestTopicData(topic_name="t", partitions=[partition])])
    assert (await rig.ask(2, wrong)).topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    async def update(feature: str, level: int, kind: int = 1) -> int:
        change = FeatureUpdateKey(feature=feature, max_version_level=level, upgrade_type=kind)
        return int((await rig.ask(1, UpdateFeaturesRequest(feature_updates=[change]))).error_code)

    current = rig.broker(1).metadata.image.features.metadata_version
    assert await update("metadata.version", current) == 0
    assert await update("metadata.version", 999) == ErrorCode.INVALID_UPDATE_VERSION
    assert await update("no.such.feature", 1) == ErrorCode.INVALID_UPDATE_VERSION
    assert await update("metadata.version", current - 1) == ErrorCode.INVALID_UPDATE_VERSION
    # A broker that is gone for good is forgotten; it stays in the replica lists.
    await rig.create("t", replicas=[1, 3])
    rig.cluster.kill("broker-3")
    await rig.until(lambda: list(rig.broker(1).metadata.alive_nodes("PLAINTEXT")) == [1, 2])
    assert (await rig.ask(1, UnregisterBrokerRequest(broker_id=3))).error_code == 0
    assert (await rig.ask(1, UnregisterBrokerRequest(broker_id=3))).error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    await rig.until(lambda: sorted(rig.broker(1).metadata.image.cluster.brokers) == [1, 2])
    assert rig.placed(1, "t").replicas == (1, 3)
