"""A step of a decision that is full ends: after each item, if one item fills it, whatever is decided."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from barnabas.kraft.controller import (
    acls,
    eligibility,
    leader_elections,
    partitions,
    request_limits,
    state,
    topics,
)
from barnabas.kraft.controller.state import Pace, Steps
from barnabas.kraft.full_directories import report_full
from barnabas.kraft.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE
from barnabas.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from barnabas.protocol.messages.alter_configs import AlterableConfig as LegacyConfig
from barnabas.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResource
from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from barnabas.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas.protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from barnabas.protocol.messages.incremental_alter_configs import AlterableConfig, IncrementalAlterConfigsRequest
from barnabas.protocol.messages.incremental_alter_configs import AlterConfigsResource as IncrementalResource
from barnabas.protocol.messages.unregister_broker import UnregisterBrokerRequest
from barnabas.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from barnabas.protocol.schema import Message
from tests.kraft.controller.conftest import Cluster, finish
from tests.kraft.controller.test_client_quotas import entry
from tests.kraft.controller.test_scram import deletion, upsertion

TOPICS = tuple(f"t{number}" for number in range(4))
CONFIGS = {"retention.ms": "1000", "segment.ms": "2000", "max.message.bytes": "3000"}
ELR = "eligible.leader.replicas.version"


class Watch:
    """Sees whether each full step ends before another item is counted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_full = False
        self.fulls = 0
        original = Pace.is_full

        def is_full(pace: Pace, items: int = 1, *, per_item: int = 1) -> bool:
            assert not self.is_full, "a full step went on"
            self.is_full = original(pace, items, per_item=per_item)
            self.fulls += self.is_full
            return self.is_full

        monkeypatch.setattr(Pace, "is_full", is_full)
        for module, name in (
            (state, "STEP_ITEMS"),
            (acls, "COUNTED_TOGETHER"),
            (partitions, "PARTITIONS_PER_ITEM"),
            (leader_elections, "TOPICS_PER_ITEM"),
            (topics, "NAMES_PER_ITEM"),
            (eligibility, "PARTITIONS_PER_ITEM"),
            (request_limits, "COUNTED_PER_ITEM"),
        ):
            monkeypatch.setattr(module, name, 1)

    def run(self, steps: Steps[Any]) -> Any:
        self.fulls = 0
        self.is_full = False

        def took() -> None:
            self.is_full = False

        result = finish(steps, took)
        assert not self.is_full
        return result


@pytest.fixture
def cluster() -> Cluster:
    """Four topics with three partitions each; broker 1 leads all."""
    cluster = Cluster(min_insync_replicas=2, delegation_token_secret_key="key")
    cluster.start(1, 2, 3)
    for name in TOPICS:
        assert cluster.create_topic(name, *[[1, 2, 3]] * 3).error_code == 0
    return cluster


def heartbeat(**fields: Any) -> Callable[[Cluster], Message]:
    def make(cluster: Cluster) -> Message:
        fields_of = {"broker_id": 1, "broker_epoch": cluster.epochs[1], "current_metadata_offset": 9_999}
        return BrokerHeartbeatRequest(**fields_of | fields)

    return make


def full_heartbeat(cluster: Cluster) -> Message:
    request = BrokerHeartbeatRequest(broker_id=1, broker_epoch=cluster.epochs[1], current_metadata_offset=9_999)
    report_full(request, cluster.image.cluster.brokers[1].log_directories)
    return request


def hand_made(name: str) -> CreatableTopic:
    assignments = [CreatableReplicaAssignment(partition_index=it, broker_ids=[3, 2]) for it in range(3)]
    return CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=assignments)


REQUESTS: dict[str, Callable[[Cluster], Message]] = {
    "topics": lambda _: CreateTopicsRequest(
        topics=[CreatableTopic(name=name, num_partitions=3, replication_factor=3) for name in ("a", "b", "c")]
    ),
    "topics placed by hand": lambda _: CreateTopicsRequest(topics=[hand_made(name) for name in ("a", "b")]),
    "partitions": lambda _: CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=name, count=6, assignments=None) for name in TOPICS]
    ),
    "partitions of topics that are named twice": lambda _: CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=name, count=6, assignments=None) for name in (*TOPICS, *TOPICS[1:])]
    ),
    "topics that are named twice": lambda _: CreateTopicsRequest(
        topics=[CreatableTopic(name=name, num_partitions=3, replication_factor=3) for name in ("a", "b", "c", "b", "c")]
    ),
    "deletions": lambda cluster: DeleteTopicsRequest(
        topics=[
            DeleteTopicState(name=None, topic_id=it.id) if place % 2 else DeleteTopicState(name=it.name)
            for place, it in enumerate(cluster.image.topics.by_name.values())
        ]
    ),
    "preferred elections of all": lambda _: ElectLeadersRequest(election_type=0, topic_partitions=None),
    "elections": lambda _: ElectLeadersRequest(
        election_type=1, topic_partitions=[TopicPartitions(topic=name, partitions=[0, 1, 7]) for name in TOPICS]
    ),
    "reassignments": lambda _: AlterPartitionReassignmentsRequest(
        topics=[
            ReassignableTopic(
                name=name, partitions=[ReassignablePartition(partition_index=it, replicas=[3, 2]) for it in range(3)]
            )
            for name in TOPICS
        ]
    ),
    "changes of configs": lambda _: IncrementalAlterConfigsRequest(
        resources=[
            IncrementalResource(
                resource_type=TOPIC_RESOURCE,
                resource_name=name,
                configs=[AlterableConfig(name=key, config_operation=0, value=it) for key, it in CONFIGS.items()],
            )
            for name in TOPICS
        ]
    ),
    "configs": lambda _: AlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=TOPIC_RESOURCE,
                resource_name=name,
                configs=[LegacyConfig(name=key, value=it) for key, it in CONFIGS.items()],
            )
            for name in TOPICS
        ]
    ),
    "min.insync.replicas of all": lambda _: IncrementalAlterConfigsRequest(
        resources=[
            IncrementalResource(
                resource_type=BROKER_RESOURCE,
                resource_name="",
                configs=[AlterableConfig(name="min.insync.replicas", config_operation=0, value="1")],
            )
        ]
    ),
    "quotas": lambda _: AlterClientQuotasRequest(
        entries=[entry((("user", name),), {"producer_byte_rate": 1.0, "consumer_byte_rate": 2.0}) for name in TOPICS]
    ),
    "credentials": lambda _: AlterUserScramCredentialsRequest(
        deletions=[deletion("x"), deletion("y")], upsertions=[upsertion(name) for name in TOPICS]
    ),
    "ACLs": lambda _: CreateAclsRequest(
        creations=[
            AclCreation(
                resource_type=2,
                resource_name=name,
                resource_pattern_type=3,
                principal="User:ann",
                host="*",
                operation=3,
                permission_type=3,
            )
            for name in TOPICS
        ]
    ),
    "deletions of ACLs": lambda _: DeleteAclsRequest(
        filters=[
            DeleteAclsFilter(
                resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1, resource_name_filter=name
            )
            for name in (None, *TOPICS)
        ]
    ),
    "no eligible replicas": lambda _: UpdateFeaturesRequest(
        feature_updates=[FeatureUpdateKey(feature=ELR, max_version_level=0, upgrade_type=2)]
    ),
    "a broker that leaves": lambda _: UnregisterBrokerRequest(broker_id=1),
    "a broker that wants to stop": heartbeat(want_shut_down=True),
    "a broker that wants to be fenced": heartbeat(want_fence=True),
    "a broker without a directory": heartbeat(offline_log_dirs=[bytes([1, 1]) * 8]),
    "a broker whose directory is full": full_heartbeat,
    "a broker that restarts": lambda cluster: cluster.registration(1, previous_broker_epoch=-1),
}


@pytest.mark.parametrize("lost", [(), (1,), (2, 3)])
@pytest.mark.parametrize("name", REQUESTS)
def test_a_full_step_of_a_request_ends(
    cluster: Cluster, name: str, lost: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.send(REQUESTS["ACLs"](cluster))
    for broker_id in lost:
        cluster.die(broker_id)
    if name == "a broker that restarts":
        cluster.controller.sessions.end(1)
    request = REQUESTS[name](cluster)
    watch = Watch(monkeypatch)
    decision = cluster.controller.decide(request, request.VERSIONS.highest, len(cluster.log), cluster.now_ms)
    result = watch.run(decision)
    is_fenced_already = lost == (1,) and "that wants" in name
    assert result.is_long == (watch.fulls > 0) == (not is_fenced_already)


@pytest.mark.parametrize("lost", [(), (1,), (2,), (1, 2, 3)])
def test_a_full_step_without_a_request_ends(
    cluster: Cluster, lost: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers are fenced, leaders are balanced and elected, tokens are swept."""
    for _ in range(3):
        cluster.send(CreateDelegationTokenRequest(max_lifetime_ms=1_000))
    for broker_id in lost:
        cluster.die(broker_id)
    controller = cluster.controller
    watch = Watch(monkeypatch)
    alive = next((it for it in (1, 2, 3) if it not in lost), None)
    if alive is not None:
        watch.run(controller.fence_broker(alive, cluster.epochs[alive], "it is gone", len(cluster.log), cluster.now_ms))
        assert watch.fulls > 0
    cluster.now_ms += 4_000_000
    for broker_id in (1, 2, 3):
        if broker_id not in lost:
            cluster.controller.sessions.touch(broker_id, cluster.epochs[broker_id], 9_999, cluster.now_ms)
    works = 0
    while True:
        result = watch.run(controller.run_periodic(len(cluster.log), cluster.now_ms, cluster.wall_ms + 10_000))
        works += watch.fulls > 0
        if not result.response:
            break
    assert works >= 3
