"""Requests that name thousands of things, on all of which the active controller has to decide."""

from __future__ import annotations

from collections.abc import Iterator

from attacks.scene import Scene
from attacks.wire import frame
from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.schema import Message

BROKER_RESOURCE = 4
REPETITIONS = 3
DESCRIPTIONS = 20


def controller_commands(scene: Scene) -> None:
    """Topics, partitions and configs by the thousand, for the active controller to decide on."""
    frames = [frame(request, version) for _ in range(REPETITIONS) for request, version in _requests()]
    scene.begin()
    with scene.peer() as peer:
        for data in frames:
            scene.send(peer, data)
            peer.swallow()


def describe_many_configs(scene: Scene) -> None:
    """DescribeConfigs of a broker that has been given thousands of configs, 20 times."""
    asked = DescribeConfigsResource(resource_type=BROKER_RESOURCE, resource_name="1", configuration_keys=None)
    data = frame(DescribeConfigsRequest(resources=[asked], include_synonyms=True), 4)
    with scene.peer() as peer:
        peer.call(_many_configs(), 1)
        scene.begin()
        for _ in range(DESCRIPTIONS):
            scene.send(peer, data)
        for _ in range(DESCRIPTIONS):
            peer.swallow()


def _many_configs() -> IncrementalAlterConfigsRequest:
    configs = [AlterableConfig(name=f"unknown.{number}", config_operation=0, value="1") for number in range(5_000)]
    resource = AlterConfigsResource(resource_type=BROKER_RESOURCE, resource_name="1", configs=configs)
    return IncrementalAlterConfigsRequest(resources=[resource])


def _requests() -> Iterator[tuple[Message, int]]:
    """Requests and their versions. All are allowed, and few of them change anything."""
    many = [CreatableTopic(name=f"t{number}", num_partitions=2, replication_factor=3) for number in range(3_000)]
    yield CreateTopicsRequest(topics=many, validate_only=True), 7
    wide = CreatableTopic(name="wide", num_partitions=9_000, replication_factor=3)
    yield CreateTopicsRequest(topics=[wide], validate_only=True), 7
    partitions = [ReassignablePartition(partition_index=index, replicas=[3, 2, 1]) for index in range(9_000)]
    yield AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="none", partitions=partitions)]), 0
    yield _many_configs(), 1
    yield ElectLeadersRequest(election_type=0, topic_partitions=None), 2
    yield DeleteTopicsRequest(topics=[DeleteTopicState(name=f"none{number}") for number in range(9_000)]), 6
