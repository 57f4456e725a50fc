"""Every API in every version that ApiVersions advertises is answered, and the response decodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from barnabas.kraft.metadata.features import SUPPORTED_FEATURES
from barnabas.kraft.principals import LOOPBACK, written_principal
from barnabas.protocol.api_keys import API_SPECS, ApiKey
from barnabas.protocol.messages import (
    add_raft_voter,
    allocate_producer_ids,
    alter_client_quotas,
    alter_configs,
    alter_partition,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    assign_replicas_to_dirs,
    begin_quorum_epoch,
    broker_heartbeat,
    broker_registration,
    controller_registration,
    create_acls,
    create_delegation_token,
    create_partitions,
    delete_acls,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_delegation_token,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    describe_user_scram_credentials,
    elect_leaders,
    end_quorum_epoch,
    envelope,
    expire_delegation_token,
    fetch_snapshot,
    find_coordinator,
    incremental_alter_configs,
    init_producer_id,
    list_config_resources,
    list_offsets,
    list_partition_reassignments,
    offset_for_leader_epoch,
    remove_raft_voter,
    renew_delegation_token,
    sasl_authenticate,
    sasl_handshake,
    unregister_broker,
    update_features,
    update_raft_voter,
    vote,
)
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.primitives import ZERO_UUID
from barnabas.protocol.schema import Message
from barnabas.runtime.identity import ANONYMOUS
from tests.broker.apis.coordinator_questions import OF_CONSUMER_GROUPS, OF_GROUPS, OF_TRANSACTIONS
from tests.broker.apis.rig import Rig, batch_of, fetch_request, frame_of, on_cluster, produce_request
from tests.broker.apis.share_questions import OF_SHARE_GROUPS
from tests.broker.apis.streams_questions import OF_STREAMS_GROUPS

TOPIC = "events"
METADATA_TOPIC = "__cluster_metadata"
METADATA_TOPIC_ID = bytes(15) + b"\x01"
CLUSTER = "c2ltdWxhdGVkLWNsdXN0ZQ"

Asking = Callable[[int, bytes], Message]
"""A request of a version, which may concern the topic with that id."""


def fresh(prefix: str, version: int) -> str:
    return f"{prefix}-{version}"


def produce(version: int, topic_id: bytes) -> Message:
    request = produce_request(TOPIC, batch_of("v"))
    request.topic_data[0].topic_id = topic_id
    return request


def fetch(version: int, topic_id: bytes) -> Message:
    return fetch_request(topic_id if version >= 13 else TOPIC)


def quorum_fetch(version: int, topic_id: bytes) -> Message:
    return fetch_request(METADATA_TOPIC_ID if version >= 13 else METADATA_TOPIC, cluster_id=CLUSTER)


def heartbeat(version: int, _: bytes) -> Message:
    return broker_heartbeat.BrokerHeartbeatRequest(broker_id=9, broker_epoch=1)


def registration(version: int, _: bytes) -> Message:
    directories = [bytes([9, version]) * 8]
    return broker_registration.BrokerRegistrationRequest(
        broker_id=90 + version,
        cluster_id=CLUSTER,
        incarnation_id=bytes([version + 1]) * 16,
        features=[
            broker_registration.Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in SUPPORTED_FEATURES.items()
        ],
        log_dirs=directories if version >= 2 else [],
        rack=None,
    )


def quorum_question(_version: int, _: bytes) -> Message:
    partition = describe_quorum.RequestPartitionData(partition_index=0)
    topic = describe_quorum.RequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    return describe_quorum.DescribeQuorumRequest(topics=[topic])


def a_vote(version: int, _: bytes) -> Message:
    partition = vote.RequestPartitionData(
        partition_index=0, replica_epoch=0, replica_id=101, last_offset_epoch=0, last_offset=0
    )
    return vote.VoteRequest(
        cluster_id=CLUSTER,
        voter_id=101 if version else -1,
        topics=[vote.RequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
    )


def begin_epoch(_version: int, _: bytes) -> Message:
    partition = begin_quorum_epoch.RequestPartitionData(partition_index=0, leader_id=101, leader_epoch=0)
    topic = begin_quorum_epoch.RequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    return begin_quorum_epoch.BeginQuorumEpochRequest(cluster_id=CLUSTER, topics=[topic])


def end_epoch(_version: int, _: bytes) -> Message:
    partition = end_quorum_epoch.RequestPartitionData(partition_index=0, leader_id=101, leader_epoch=0)
    topic = end_quorum_epoch.RequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    return end_quorum_epoch.EndQuorumEpochRequest(cluster_id=CLUSTER, topics=[topic])


def snapshot(_version: int, _: bytes) -> Message:
    partition = fetch_snapshot.RequestPartitionSnapshot(
        partition=0, current_leader_epoch=1, snapshot_id=fetch_snapshot.SnapshotId(end_offset=1, epoch=1)
    )
    topic = fetch_snapshot.RequestTopicSnapshot(name=METADATA_TOPIC, partitions=[partition])
    return fetch_snapshot.FetchSnapshotRequest(cluster_id=CLUSTER, topics=[topic])


def offsets(_version: int, _: bytes) -> Message:
    asked = list_offsets.ListOffsetsPartition(partition_index=0, timestamp=-1)
    topics = [list_offsets.ListOffsetsTopic(name=TOPIC, partitions=[asked])]
    return list_offsets.ListOffsetsRequest(replica_id=-1, topics=topics)


def epochs(_version: int, _: bytes) -> Message:
    asked = offset_for_leader_epoch.OffsetForLeaderPartition(partition=0, leader_epoch=0)
    topic = offset_for_leader_epoch.OffsetForLeaderTopic(topic=TOPIC, partitions=[asked])
    return offset_for_leader_epoch.OffsetForLeaderEpochRequest(topics=[topic])


def deletion(_version: int, _: bytes) -> Message:
    asked = delete_records.DeleteRecordsPartition(partition_index=0, offset=0)
    topic = delete_records.DeleteRecordsTopic(name=TOPIC, partitions=[asked])
    return delete_records.DeleteRecordsRequest(topics=[topic], timeout_ms=1000)


def new_topic(version: int, _: bytes) -> Message:
    topic = CreatableTopic(name=fresh("new", version), num_partitions=1, replication_factor=1)
    return CreateTopicsRequest(topics=[topic])


def old_topic(version: int, _: bytes) -> Message:
    request = delete_topics.DeleteTopicsRequest(timeout_ms=1000)
    if version >= 6:
        request.topics = [delete_topics.DeleteTopicState(name="nowhere", topic_id=ZERO_UUID)]
    else:
        request.topic_names = ["nowhere"]
    return request


def config_question(_version: int, _: bytes) -> Message:
    resource = describe_configs.DescribeConfigsResource(resource_type=2, resource_name=TOPIC, configuration_keys=None)
    return describe_configs.DescribeConfigsRequest(resources=[resource], include_synonyms=True)


def config_change(_version: int, _: bytes) -> Message:
    resource = alter_configs.AlterConfigsResource(
        resource_type=2,
        resource_name=TOPIC,
        configs=[alter_configs.AlterableConfig(name="retention.ms", value="100000")],
    )
    return alter_configs.AlterConfigsRequest(resources=[resource])


def config_increment(_version: int, _: bytes) -> Message:
    change = incremental_alter_configs.AlterableConfig(name="retention.ms", value="100000")
    resource = incremental_alter_configs.AlterConfigsResource(resource_type=2, resource_name=TOPIC, configs=[change])
    return incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource])


def growth(version: int, _: bytes) -> Message:
    topic = create_partitions.CreatePartitionsTopic(name=TOPIC, count=version + 2, assignments=None)
    return create_partitions.CreatePartitionsRequest(topics=[topic], timeout_ms=1000)


def election(_version: int, _: bytes) -> Message:
    topic = elect_leaders.TopicPartitions(topic=TOPIC, partitions=[0])
    return elect_leaders.ElectLeadersRequest(topic_partitions=[topic], timeout_ms=1000)


def reassignment(_version: int, _: bytes) -> Message:
    partition = alter_partition_reassignments.ReassignablePartition(partition_index=0, replicas=[1])
    topic = alter_partition_reassignments.ReassignableTopic(name=TOPIC, partitions=[partition])
    return alter_partition_reassignments.AlterPartitionReassignmentsRequest(topics=[topic])


def producers(_version: int, _: bytes) -> Message:
    topic = describe_producers.TopicRequest(name=TOPIC, partition_indexes=[0])
    return describe_producers.DescribeProducersRequest(topics=[topic])


def coordinator(version: int, _: bytes) -> Message:
    if version >= 4:
        return find_coordinator.FindCoordinatorRequest(coordinator_keys=["group"])
    return find_coordinator.FindCoordinatorRequest(key="group")


def isr(version: int, topic_id: bytes) -> Message:
    partition = alter_partition.RequestPartitionData(partition_index=0, leader_epoch=0, partition_epoch=0)
    topics = [alter_partition.RequestTopicData(topic_id=topic_id, partitions=[partition])]
    return alter_partition.AlterPartitionRequest(broker_id=9, broker_epoch=1, topics=topics)


def acl(_version: int, _: bytes) -> Message:
    return create_acls.CreateAclsRequest(
        creations=[
            create_acls.AclCreation(
                resource_type=2, resource_name="t", principal="User:a", host="*", operation=3, permission_type=3
            )
        ]
    )


def acl_filter(_version: int, _: bytes) -> Message:
    every = delete_acls.DeleteAclsFilter(
        resource_type_filter=1,
        resource_name_filter=None,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    return delete_acls.DeleteAclsRequest(filters=[every])


def enveloped(_version: int, topic_id: bytes) -> Message:
    inner = frame_of(config_change(2, topic_id), 2)
    return envelope.EnvelopeRequest(
        request_data=inner, request_principal=written_principal(ANONYMOUS), client_host_address=LOOPBACK
    )


def controller_joins(_version: int, _: bytes) -> Message:
    return controller_registration.ControllerRegistrationRequest(
        controller_id=101, incarnation_id=bytes(range(16)), zk_migration_ready=False
    )


def user_change(_version: int, _: bytes) -> Message:
    deletion = alter_user_scram_credentials.ScramCredentialDeletion(name="nobody", mechanism=1)
    return alter_user_scram_credentials.AlterUserScramCredentialsRequest(deletions=[deletion])


def quota_change(version: int, _: bytes) -> Message:
    entity = [alter_client_quotas.EntityData(entity_type="user", entity_name=None)]
    op = alter_client_quotas.OpData(key="request_percentage", value=100.0 + version)
    return alter_client_quotas.AlterClientQuotasRequest(
        entries=[alter_client_quotas.RequestEntryData(entity=entity, ops=[op])]
    )


def simply(request: Callable[[], Message]) -> Asking:
    return lambda _version, _topic_id: request()


ANYWHERE: dict[ApiKey, Asking] = {
    ApiKey.API_VERSIONS: simply(lambda: ApiVersionsRequest(client_software_name="story", client_software_version="1")),
    ApiKey.SASL_HANDSHAKE: simply(lambda: sasl_handshake.SaslHandshakeRequest(mechanism="PLAIN")),
    ApiKey.SASL_AUTHENTICATE: simply(sasl_authenticate.SaslAuthenticateRequest),
    ApiKey.CREATE_TOPICS: new_topic,
    ApiKey.DELETE_TOPICS: old_topic,
    ApiKey.DESCRIBE_ACLS: simply(
        lambda: describe_acls.DescribeAclsRequest(
            resource_type_filter=1,
            resource_name_filter=None,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        )
    ),
    ApiKey.CREATE_ACLS: acl,
    ApiKey.DELETE_ACLS: acl_filter,
    ApiKey.DESCRIBE_CONFIGS: config_question,
    ApiKey.ALTER_CONFIGS: config_change,
    ApiKey.CREATE_PARTITIONS: growth,
    ApiKey.ELECT_LEADERS: election,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: config_increment,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: reassignment,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: simply(
        lambda: list_partition_reassignments.ListPartitionReassignmentsRequest(topics=None)
    ),
    ApiKey.DESCRIBE_QUORUM: quorum_question,
    ApiKey.UPDATE_FEATURES: simply(update_features.UpdateFeaturesRequest),
    ApiKey.DESCRIBE_CLUSTER: simply(describe_cluster.DescribeClusterRequest),
    ApiKey.UNREGISTER_BROKER: simply(lambda: unregister_broker.UnregisterBrokerRequest(broker_id=77)),
    ApiKey.ADD_RAFT_VOTER: simply(lambda: add_raft_voter.AddRaftVoterRequest(cluster_id=None)),
    ApiKey.REMOVE_RAFT_VOTER: simply(lambda: remove_raft_voter.RemoveRaftVoterRequest(cluster_id=None)),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: user_change,
    ApiKey.ALTER_CLIENT_QUOTAS: quota_change,
    ApiKey.CREATE_DELEGATION_TOKEN: simply(create_delegation_token.CreateDelegationTokenRequest),
    ApiKey.RENEW_DELEGATION_TOKEN: simply(renew_delegation_token.RenewDelegationTokenRequest),
    ApiKey.EXPIRE_DELEGATION_TOKEN: simply(expire_delegation_token.ExpireDelegationTokenRequest),
}

OF_BROKERS: dict[ApiKey, Asking] = {
    **ANYWHERE,
    **OF_GROUPS,
    **OF_CONSUMER_GROUPS,
    **OF_TRANSACTIONS,
    **OF_SHARE_GROUPS,
    **OF_STREAMS_GROUPS,
    ApiKey.PRODUCE: produce,
    ApiKey.FETCH: fetch,
    ApiKey.LIST_OFFSETS: offsets,
    ApiKey.METADATA: simply(lambda: MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])),
    ApiKey.FIND_COORDINATOR: coordinator,
    ApiKey.DELETE_RECORDS: deletion,
    ApiKey.INIT_PRODUCER_ID: simply(
        lambda: init_producer_id.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: epochs,
    ApiKey.DESCRIBE_LOG_DIRS: simply(lambda: describe_log_dirs.DescribeLogDirsRequest(topics=None)),
    ApiKey.ALTER_REPLICA_LOG_DIRS: simply(lambda: alter_replica_log_dirs.AlterReplicaLogDirsRequest(dirs=[])),
    ApiKey.DESCRIBE_PRODUCERS: producers,
    ApiKey.LIST_CONFIG_RESOURCES: simply(list_config_resources.ListConfigResourcesRequest),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: simply(
        describe_user_scram_credentials.DescribeUserScramCredentialsRequest
    ),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: simply(describe_client_quotas.DescribeClientQuotasRequest),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: simply(describe_delegation_token.DescribeDelegationTokenRequest),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: simply(
        lambda: describe_topic_partitions.DescribeTopicPartitionsRequest(topics=[])
    ),
}

OF_CONTROLLERS: dict[ApiKey, Asking] = {
    **ANYWHERE,
    ApiKey.FETCH: quorum_fetch,
    ApiKey.VOTE: a_vote,
    ApiKey.BEGIN_QUORUM_EPOCH: begin_epoch,
    ApiKey.END_QUORUM_EPOCH: end_epoch,
    ApiKey.ALTER_PARTITION: isr,
    ApiKey.ENVELOPE: enveloped,
    ApiKey.UPDATE_RAFT_VOTER: simply(lambda: update_raft_voter.UpdateRaftVoterRequest(cluster_id=None)),
    ApiKey.FETCH_SNAPSHOT: snapshot,
    ApiKey.BROKER_REGISTRATION: registration,
    ApiKey.BROKER_HEARTBEAT: heartbeat,
    ApiKey.ALLOCATE_PRODUCER_IDS: simply(
        lambda: allocate_producer_ids.AllocateProducerIdsRequest(broker_id=9, broker_epoch=1)
    ),
    ApiKey.CONTROLLER_REGISTRATION: controller_joins,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: simply(
        lambda: assign_replicas_to_dirs.AssignReplicasToDirsRequest(broker_id=9, broker_epoch=1)
    ),
}


async def ask_everything(rig: Rig, node: int, questions: Mapping[ApiKey, Asking]) -> None:
    versions: ApiVersionsResponse = await rig.ask(
        node, ApiVersionsRequest(client_software_name="story", client_software_version="1")
    )
    served = {ApiKey(each.api_key): each for each in versions.api_keys}
    assert not [key.name for key in served if key not in questions], "an API without a question"
    assert not [key.name for key in questions if key not in served], "an API that is not served"
    topic_id = rig.broker(1).metadata.image.topics.by_name[TOPIC].id
    for key, asking in questions.items():
        spec = API_SPECS[key]
        assert served[key].max_version == spec.max_version
        assert served[key].min_version == spec.advertised_min_version
        for version in range(spec.min_version, spec.max_version + 1):
            response = await rig.ask(node, asking(version, topic_id), version)
            errors = errors_in(response)
            assert not errors & {-1, 35}, f"{spec.name} v{version}: {response}"


def errors_in(response: Any) -> set[int]:
    """The error codes anywhere in a message."""
    found: set[int] = set()
    for spec in getattr(response, "FIELDS", ()):
        value = getattr(response, spec.name)
        if spec.name == "error_code":
            found.add(value)
        for each in value if isinstance(value, list) else [value]:
            found |= errors_in(each)
    return found


@pytest.mark.feature("PF-04", "PF-05", "MB-22")
@on_cluster()
async def test_a_broker_answers_every_version_that_it_advertises(rig: Rig) -> None:
    await rig.create(TOPIC)
    await ask_everything(rig, 1, OF_BROKERS)


@pytest.mark.feature("PF-04", "PF-05")
@on_cluster()
async def test_a_controller_answers_every_version_that_it_advertises(rig: Rig) -> None:
    await rig.create(TOPIC)
    await ask_everything(rig, 101, OF_CONTROLLERS)
