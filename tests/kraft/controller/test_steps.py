"""Every decision is made in short steps, whatever a request names: other tasks run in between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from barnabas.kraft.controller.controller import LARGE, QuorumController
from barnabas.kraft.controller.partitions import PREFERRED_ELECTION
from barnabas.kraft.controller.standby_notes import note_replayed
from barnabas.kraft.controller.state import MAX_RECORDS_PER_OPERATION, Steps
from barnabas.kraft.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.alter_configs import AlterableConfig as LegacyConfig
from barnabas.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResource
from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource as IncrementalResource,
)
from barnabas.protocol.messages.unregister_broker import UnregisterBrokerRequest
from barnabas.protocol.schema import Message
from barnabas.runtime.decisions import Decisions
from barnabas.runtime.simulated.work import WorkCounter
from tests.kraft.controller.conftest import Cluster, finish

MOST_CALLS = 30_000
"""Calls that a step may make: about 20 ms."""

MANY = 2_000


class Steplength:
    """Counts the calls of each step."""

    def __init__(self) -> None:
        self.calls: list[int] = []
        self._count = WorkCounter(lambda _name, calls: self.calls.append(calls))

    def run(self, steps: Steps[Any]) -> Any:
        """Runs a decision and counts its steps; returns its result."""
        result = None
        while True:
            try:
                work = self._count("", lambda: steps.send(result))  # noqa: B023 - called at once
            except StopIteration as finished:
                return finished.value
            result = None if work is None else work()


def topics(count: int, partitions: int = 1, **configs: str) -> list[CreatableTopic]:
    return [
        CreatableTopic(
            name=f"t{index}",
            num_partitions=partitions,
            replication_factor=3,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        )
        for index in range(count)
    ]


@pytest.fixture(scope="module")
def large() -> Cluster:
    """A cluster of many topics, whose leaders are brokers 1 to 3. Stories must not append to it."""
    cluster = Cluster(min_insync_replicas=2)
    cluster.start(1, 2, 3)
    assert cluster.send(CreateTopicsRequest(topics=topics(MANY, 3))).topics[-1].error_code == ErrorCode.NONE
    return cluster


def decide(cluster: Cluster, request: Message) -> tuple[Any, list[int]]:
    """The result of a request, and the calls of each step of its decision and its preview."""
    length = Steplength()
    version = request.VERSIONS.highest
    result = length.run(cluster.controller.decide(request, version, len(cluster.log), cluster.now_ms))
    records = result.records[:MAX_RECORDS_PER_OPERATION]
    length.run(cluster.controller.preview(records, len(cluster.log) + len(records) - 1, cluster.now_ms))
    return result, length.calls


def changes(operation: int) -> list[AlterableConfig]:
    return [AlterableConfig(name="retention.ms", config_operation=operation, value="1000")]


REQUESTS: dict[str, Callable[[Cluster], Message]] = {
    "many topics": lambda _: CreateTopicsRequest(topics=[it for it in topics(2 * MANY) if int(it.name[1:]) >= MANY]),
    "one topic of many partitions": lambda _: CreateTopicsRequest(
        topics=[CreatableTopic(name="wide", num_partitions=9_000, replication_factor=3)]
    ),
    "topics with configs of their own": lambda _: CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=f"of-its-own.{index}",
                num_partitions=1,
                replication_factor=3,
                configs=[CreatableTopicConfig(name="retention.ms", value=str(index))],
            )
            for index in range(500)
        ]
    ),
    "topics that exist": lambda _: CreateTopicsRequest(topics=topics(MANY)),
    "more partitions": lambda _: CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=f"t{index}", count=5, assignments=None) for index in range(MANY)]
    ),
    "deletion": lambda cluster: DeleteTopicsRequest(
        topics=[
            DeleteTopicState(name=None, topic_id=it.id) if index % 2 else DeleteTopicState(name=it.name)
            for index, it in enumerate(cluster.image.topics.by_name.values())
        ]
    ),
    "preferred elections of all": lambda _: ElectLeadersRequest(
        election_type=PREFERRED_ELECTION, topic_partitions=None
    ),
    "reassignments": lambda _: AlterPartitionReassignmentsRequest(
        topics=[
            ReassignableTopic(
                name=f"t{index}",
                partitions=[ReassignablePartition(partition_index=it, replicas=[3, 2, 1]) for it in range(3)],
            )
            for index in range(MANY)
        ]
    ),
    "configs of many topics": lambda _: IncrementalAlterConfigsRequest(
        resources=[
            IncrementalResource(resource_type=TOPIC_RESOURCE, resource_name=f"t{index}", configs=changes(0))
            for index in range(MANY)
        ]
    ),
    "all configs of many topics": lambda _: AlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=TOPIC_RESOURCE,
                resource_name=f"t{index}",
                configs=[LegacyConfig(name="retention.ms", value="1000")],
            )
            for index in range(MANY)
        ]
    ),
    "many configs of one broker": lambda _: IncrementalAlterConfigsRequest(
        resources=[
            IncrementalResource(
                resource_type=BROKER_RESOURCE,
                resource_name="1",
                configs=[AlterableConfig(name=f"x{it}", config_operation=0, value="1") for it in range(MANY)],
            )
        ]
    ),
    "a broker that leaves": lambda _: UnregisterBrokerRequest(broker_id=1),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_no_step_of_a_large_request_is_long(large: Cluster, name: str) -> None:
    result, calls = decide(large, REQUESTS[name](large))
    assert len(calls) > 20, "the decision is large"
    assert result.records or name in {"preferred elections of all", "topics that exist"}
    assert result.is_long
    assert max(calls) <= MOST_CALLS


def test_no_step_is_long_when_a_broker_with_many_leaderships_is_fenced(large: Cluster) -> None:
    length = Steplength()
    decision = large.controller.fence_broker(1, large.epochs[1], "its port refuses", len(large.log), large.now_ms)
    result = length.run(decision)
    assert len(result.records) == 3 * MANY + 1
    assert max(length.calls) <= MOST_CALLS


def test_no_step_is_long_when_a_standby_controller_notes_what_it_reads(large: Cluster) -> None:
    standby = QuorumController(large.controller.defaults, large.chance, [])
    length = Steplength()
    length.run(standby.handle_commit(0, 1, 0, large.log))
    decision = large.controller.fence_broker(1, large.epochs[1], "its port refuses", len(large.log), large.now_ms)
    for delta in length.run(standby.handle_commit(len(large.log), 1, 0, finish(decision).records)):
        length.run(note_replayed(Decisions("controller-101", lambda: 0), 101, delta))
    assert standby.committed.cluster.brokers[1].fenced
    assert len(length.calls) > 20 and max(length.calls) <= MOST_CALLS


@pytest.mark.parametrize(("named", "is_long"), [(1, False), (LARGE, False), (LARGE + 1, True), (20 * MANY, True)])
def test_the_refusal_of_a_large_request_is_long(large: Cluster, named: int, is_long: bool) -> None:
    """It repeats what the request names, so it is encoded in steps, too."""
    wanted = [CreatePartitionsTopic(name=f"t{index % MANY}", count=5, assignments=None) for index in range(named)]
    request = CreatePartitionsRequest(topics=wanted)
    idle = QuorumController(large.controller.defaults, large.chance, [])
    assert not finish(idle.decide(request, 3, 0, 0)).is_long, "it is not active, and looks at nothing"
    assert not finish(idle.fence_broker(1, 1, "it is gone", 0, 0)).response
    assert not finish(idle.run_periodic(0, 0)).response and idle.next_periodic_ms(0) is None
    too_long = CreateTopicsRequest(topics=topics(MANY + named)[MANY:], validate_only=False)
    too_long.topics[0].num_partitions = 1_000_000
    refused, calls = decide(large, too_long)
    assert refused.response.topics[0].error_code != ErrorCode.NONE and not refused.records
    assert refused.is_long == is_long
    assert max(calls) <= MOST_CALLS


def test_a_request_for_too_much_is_refused_before_it_is_worked_on(large: Cluster) -> None:
    wanted = [CreatePartitionsTopic(name=f"t{index}", count=1_000_000, assignments=None) for index in range(MANY)]
    result, calls = decide(large, CreatePartitionsRequest(topics=wanted))
    assert {it.error_code for it in result.response.results} == {ErrorCode.POLICY_VIOLATION}
    assert sum(calls) <= 10 * MOST_CALLS
