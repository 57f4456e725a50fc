"""Stories of an administrator, for any cluster."""

from __future__ import annotations

import pytest
import trio

from barnabas.client.admin import (
    AbortTransactionSpec,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclResourceType,
    AlterConfigOp,
    ConfigResource,
    ConfigSource,
    ConfigType,
    DeletedRecords,
    ElectionType,
    FeatureUpdate,
    GroupState,
    GroupType,
    MemberToRemove,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    OpType,
    ReplicaLogDirInfo,
    ResourceType,
    TopicPartitionReplica,
    TransactionState,
)
from barnabas.client.errors import (
    BrokerIdNotRegisteredException,
    GroupIdNotFoundException,
    GroupNotEmptyException,
    GroupSubscribedToTopicException,
    InvalidConfigurationException,
    InvalidPartitionsException,
    InvalidProducerEpochException,
    InvalidReplicationFactorException,
    InvalidTopicException,
    NoReassignmentInProgressException,
    OffsetOutOfRangeException,
    SecurityDisabledException,
    TopicExistsException,
    TransactionalIdNotFoundException,
    UnknownMemberIdException,
    UnknownTopicIdException,
    UnknownTopicOrPartitionException,
)
from barnabas.client.metadata import TopicPartition
from barnabas.client.offsets import OffsetAndMetadata
from barnabas.protocol.errors import KafkaError
from tests.barnabas.client.admin.stage import Stage

NO_SUCH_ID = "AAAAAAAAAAAAAAAAAAAAZg"


async def topics(stage: Stage) -> None:
    admin, factor = stage.admin, stage.replication_factor
    name, assigned, missing = stage.name("made"), stage.name("assigned"), stage.name("missing")
    brokers = [node.node_id for node in (await admin.describe_cluster()).nodes]
    made = await admin.create_topics(
        [
            NewTopic(name, 2, factor, configs={"retention.ms": "100000"}),
            NewTopic(assigned, replica_assignments={0: brokers[::-1], 1: brokers}),
        ]
    )
    assert (made[name].num_partitions, made[name].replication_factor) == (2, factor)
    configs = made[name].configs
    assert configs is not None
    assert configs["retention.ms"].value == "100000"

    described = (await admin.describe_topics([name, assigned], include_authorized_operations=True)).all()
    assert described[name].topic_id == made[name].topic_id
    assert [it.partition for it in described[name].partitions] == [0, 1]
    assert AclOperation.ALTER in (described[name].authorized_operations or ())
    first = described[assigned].partitions[0]
    assert first.replicas == tuple(brokers[::-1])
    assert sorted(first.isr) == sorted(brokers)
    assert first.leader in brokers
    assert first.offline_replicas == ()
    assert first.elr == ()
    topic_id = described[name].topic_id
    assert topic_id is not None
    by_id = await admin.describe_topics(topic_ids=[topic_id])
    assert by_id[topic_id].name == name
    listed = await admin.list_topics()
    assert listed[name].topic_id == topic_id
    assert all(not it.is_internal for it in listed.values())

    with pytest.raises(TopicExistsException, match=name):
        await admin.create_topics([NewTopic(name, 1, factor)])
    refused = await admin.create_topics(
        [NewTopic("bad/name", 1, factor), NewTopic(missing, 1, 7), NewTopic(stage.name("fine"), 1, factor)],
        validate_only=True,
        raise_errors=False,
    )
    assert [type(error) for error in refused.errors.values()] == [
        InvalidTopicException,
        InvalidReplicationFactorException,
    ]
    assert len(refused.succeeded) == 1
    with pytest.raises(UnknownTopicOrPartitionException):
        (await admin.describe_topics(missing)).all()
    assert missing not in await admin.list_topics()

    await admin.create_partitions({name: 4, assigned: NewPartitions(3, [brokers])})
    while len((await admin.describe_topics(name))[name].partitions) < 4:
        await trio.sleep(0.05)
    with pytest.raises(InvalidPartitionsException):
        await admin.create_partitions({name: 1})
    with pytest.raises(UnknownTopicOrPartitionException):
        await admin.create_partitions({missing: 2})

    await admin.delete_topics([name], topic_ids=[described[assigned].topic_id or ""])
    while set(await admin.list_topics()) & {name, assigned}:
        await trio.sleep(0.05)
    with pytest.raises(UnknownTopicOrPartitionException):
        await admin.delete_topics(name)
    gone = await admin.delete_topics(topic_ids=[NO_SUCH_ID], raise_errors=False)
    assert isinstance(gone.error(NO_SUCH_ID), UnknownTopicIdException)


async def configs(stage: Stage) -> None:
    admin = stage.admin
    name = await stage.topic("configured")
    topic = ConfigResource(ResourceType.TOPIC, name)
    await admin.incremental_alter_configs({topic: {"max.message.bytes": "7777", "delete.retention.ms": "5000"}})
    await admin.incremental_alter_configs(
        {topic: [AlterConfigOp("cleanup.policy", "compact", OpType.APPEND), AlterConfigOp("segment.ms", "60000")]}
    )
    await admin.incremental_alter_configs({topic: {"delete.retention.ms": None}})

    async def values() -> dict[str, str | None]:
        entries = (await admin.describe_configs(topic))[topic]
        return {key: entries[key].value for key in ("max.message.bytes", "cleanup.policy", "segment.ms")}

    # Brokers may learn of it after the controller's response.
    with trio.fail_after(10):
        while (await values()) != {
            "max.message.bytes": "7777",
            "cleanup.policy": "delete,compact",
            "segment.ms": "60000",
        }:
            await trio.sleep(0.05)
    entries = (await admin.describe_configs([topic], include_synonyms=True, include_documentation=True))[topic]
    assert entries["max.message.bytes"].source is ConfigSource.DYNAMIC_TOPIC_CONFIG
    assert not entries["max.message.bytes"].is_default
    assert entries["max.message.bytes"].type is ConfigType.INT
    assert entries["max.message.bytes"].synonyms[0].source is ConfigSource.DYNAMIC_TOPIC_CONFIG
    assert entries["delete.retention.ms"].is_default

    await admin.incremental_alter_configs({topic: {"delete.retention.ms": "1"}}, validate_only=True)
    with pytest.raises(InvalidConfigurationException):
        await admin.incremental_alter_configs({topic: {"delete.retention.ms": "soon"}})
    with pytest.raises(InvalidConfigurationException):
        await admin.incremental_alter_configs({topic: {"no.such.config": "1"}})
    assert (await admin.describe_configs(topic))[topic]["delete.retention.ms"].is_default

    await admin.alter_configs({topic: {"delete.retention.ms": "1"}}, validate_only=True)
    await admin.alter_configs({topic: {"segment.ms": "70000"}})
    with pytest.raises(InvalidConfigurationException):
        await admin.alter_configs({topic: {"segment.ms": "soon"}})
    with trio.fail_after(10):
        while (await values())["segment.ms"] != "70000":
            await trio.sleep(0.05)
    entries = (await admin.describe_configs(topic))[topic]
    assert entries["max.message.bytes"].is_default and entries["cleanup.policy"].value == "delete", "they are replaced"

    missing = ConfigResource(ResourceType.TOPIC, stage.name("missing"))
    with pytest.raises(UnknownTopicOrPartitionException):
        (await admin.describe_configs(missing)).all()

    brokers = [
        ConfigResource(ResourceType.BROKER, str(node.node_id)) for node in (await admin.describe_cluster()).nodes
    ]
    own = (await admin.describe_configs(brokers)).all()
    assert [own[broker]["node.id"].value for broker in brokers] == [broker.name for broker in brokers]
    assert own[brokers[0]]["node.id"].is_read_only

    group = ConfigResource(ResourceType.GROUP, stage.name("group"))
    await admin.incremental_alter_configs({group: {"consumer.heartbeat.interval.ms": "1000"}})
    with trio.fail_after(10):
        while group not in await admin.list_config_resources([ResourceType.GROUP]):
            await trio.sleep(0.05)
    assert topic in await admin.list_config_resources()
    await admin.incremental_alter_configs({group: {"consumer.heartbeat.interval.ms": None}})

    metrics = ConfigResource(ResourceType.CLIENT_METRICS, stage.name("metrics"))
    await admin.incremental_alter_configs({metrics: {"metrics": "*"}})
    with trio.fail_after(10):
        while metrics.name not in await admin.list_client_metrics_resources():
            await trio.sleep(0.05)
    await admin.incremental_alter_configs({metrics: {"metrics": None}})


async def records(stage: Stage) -> None:
    admin, at_ms = stage.admin, stage.now_ms
    name = await stage.topic("recorded", partitions=2)
    zero, one = TopicPartition(name, 0), TopicPartition(name, 1)
    await stage.produce(zero, [b"%d" % number for number in range(10)], at_ms=at_ms)

    async def offset(spec: OffsetSpec | int) -> tuple[int, int]:
        found = (await admin.list_offsets({zero: spec}))[zero]
        return found.offset, found.timestamp_ms

    assert await offset(OffsetSpec.earliest()) == (0, -1)
    assert await offset(OffsetSpec.latest()) == (10, -1)
    assert await offset(OffsetSpec.max_timestamp()) == (9, at_ms + 9)
    assert await offset(at_ms + 3) == (3, at_ms + 3)
    assert await offset(at_ms + 100) == (-1, -1)
    both = await admin.list_offsets({zero: -1, one: -1}, isolation_level="read_committed")
    assert [it.offset for it in both.all().values()] == [10, 0]

    deleted = await admin.delete_records({zero: 4, one: -1})
    assert deleted.all() == {zero: DeletedRecords(4), one: DeletedRecords(0)}
    assert await offset(OffsetSpec.earliest()) == (4, -1)
    with pytest.raises(OffsetOutOfRangeException):
        await admin.delete_records({zero: 11})
    assert (await admin.delete_records({zero: -1}))[zero].low_watermark == 10


async def brokers(stage: Stage) -> None:
    admin = stage.admin
    cluster = await admin.describe_cluster(include_authorized_operations=True)
    assert len(cluster.nodes) == stage.replication_factor
    assert cluster.cluster_id
    assert cluster.controller in cluster.nodes
    assert AclOperation.CREATE in (cluster.authorized_operations or ())
    assert not any(it.is_fenced for it in (await admin.describe_cluster(include_fenced_brokers=True)).nodes)

    quorum = await admin.describe_metadata_quorum()
    assert quorum.leader_id in {voter.replica_id for voter in quorum.voters}
    assert quorum.high_watermark > 0
    assert all(voter.log_end_offset > 0 for voter in quorum.voters)

    features = await admin.describe_features()
    level = features.finalized_features["metadata.version"]
    supported = features.supported_features["metadata.version"]
    assert supported.min_version <= level.max_version_level <= supported.max_version
    assert (features.finalized_features_epoch or 0) > 0
    with pytest.raises(KafkaError):
        await admin.update_features({"metadata.version": FeatureUpdate(supported.max_version + 9)}, validate_only=True)

    name = await stage.topic("weighed")
    partition = TopicPartition(name, 0)
    await stage.produce(partition, [b"1"], at_ms=stage.now_ms)
    ids = [node.node_id for node in cluster.nodes]
    for broker, directories in (await admin.describe_log_dirs()).all().items():
        assert broker in ids
        [directory] = [it for it in directories.values() if partition in it.replicas]
        assert directory.error is None
        assert (directory.total_bytes or 0) > 0
        assert not directory.replicas[partition].is_future
        replica, nowhere = TopicPartitionReplica(name, 0, broker), TopicPartitionReplica(name, 9, broker)
        lies = (await admin.describe_replica_log_dirs([replica, nowhere])).all()
        assert lies[replica].current_replica_log_dir in directories
        assert lies[replica].future_replica_log_dir is None
        assert lies[nowhere] == ReplicaLogDirInfo(None, -1, None, -1)
    assert list(await admin.describe_log_dirs([ids[0]])) == [ids[0]]
    with pytest.raises(BrokerIdNotRegisteredException):
        await admin.unregister_broker(77)


async def leaders_and_replicas(stage: Stage) -> None:
    admin = stage.admin
    name = await stage.topic("placed", partitions=2)
    keys = [TopicPartition(name, 0), TopicPartition(name, 1)]
    assert (await admin.elect_leaders(ElectionType.PREFERRED, keys)).all() == dict.fromkeys(keys, False)
    await admin.elect_leaders()
    nowhere = TopicPartition(stage.name("missing"), 0)
    outcome = await admin.elect_leaders(ElectionType.PREFERRED, [keys[0], nowhere], raise_errors=False)
    assert outcome[keys[0]] is False
    assert isinstance(outcome.error(nowhere), UnknownTopicOrPartitionException)

    with pytest.raises(NoReassignmentInProgressException):
        await admin.alter_partition_reassignments({keys[0]: None})
    with pytest.raises(UnknownTopicOrPartitionException):
        await admin.alter_partition_reassignments({nowhere: [1]})
    replicas = (await admin.describe_topics(name))[name].partitions[0].replicas
    await admin.alter_partition_reassignments({keys[0]: replicas[::-1]})
    with trio.fail_after(20):
        while (await admin.describe_topics(name))[name].partitions[0].replicas != replicas[::-1]:
            await trio.sleep(0.1)
        while await admin.list_partition_reassignments():
            await trio.sleep(0.1)
    assert await admin.list_partition_reassignments(keys) == {}
    if len(replicas) > 1:
        elected = await admin.elect_leaders(ElectionType.PREFERRED, keys[0])
        assert keys[0] in elected
        with trio.fail_after(20):
            while (await admin.describe_topics(name))[name].partitions[0].leader != replicas[-1]:
                await trio.sleep(0.1)


async def classic_groups(stage: Stage) -> None:
    admin = stage.admin
    topic, group = await stage.topic("read"), stage.name("classic")
    static = await stage.join(group, topic, instance="i-1")
    described = (await admin.describe_consumer_groups(group, include_authorized_operations=True))[group]
    assert (described.type, described.state) == (GroupType.CLASSIC, GroupState.STABLE)
    assert (described.protocol, described.partition_assignor) == ("consumer", "range")
    assert described.coordinator is not None
    assert described.coordinator.node_id in [node.node_id for node in (await admin.describe_cluster()).nodes]
    assert AclOperation.READ in (described.authorized_operations or ())
    [member] = described.members
    assert (member.member_id, member.group_instance_id) == (static.member_id, "i-1")
    assert member.assignment == (TopicPartition(topic, 0),)
    raw = (await admin.describe_classic_groups([group]))[group]
    assert raw.protocol_data == "range"
    assert raw.members[0].metadata
    [listed] = [it for it in await admin.list_groups() if it.group_id == group]
    assert (listed.type, listed.state, listed.protocol) == (GroupType.CLASSIC, GroupState.STABLE, "consumer")
    assert group in [it.group_id for it in await admin.list_consumer_groups(states=[GroupState.STABLE])]
    assert group not in [it.group_id for it in await admin.list_groups(states="Empty")]

    with pytest.raises(GroupNotEmptyException):
        await admin.delete_groups([group])
    with pytest.raises(UnknownMemberIdException):
        await admin.alter_consumer_group_offsets(group, {TopicPartition(topic, 0): 1})
    with pytest.raises(UnknownMemberIdException):
        await admin.remove_members_from_consumer_group(group, ["i-2"])
    removed = await admin.remove_members_from_consumer_group(group)
    assert list(removed) == [MemberToRemove("i-1", static.member_id)]
    assert (await admin.describe_consumer_groups(group))[group].members == ()

    dynamic = await stage.join(group, topic)
    await admin.remove_members_from_consumer_group(group, [MemberToRemove(member_id=dynamic.member_id)])
    await admin.delete_groups([group])
    missing = await admin.describe_consumer_groups([group, stage.name("missing")])
    assert [type(error) for error in missing.errors.values()] == [GroupIdNotFoundException] * 2


async def modern_groups(stage: Stage) -> None:
    admin = stage.admin
    topic, group = await stage.topic("read"), stage.name("modern")
    member = await stage.join_modern(group, topic)
    described = (await admin.describe_consumer_groups([group]))[group]
    assert (described.type, described.state) == (GroupType.CONSUMER, GroupState.STABLE)
    assert described.group_epoch == described.target_assignment_epoch == member.generation_or_epoch
    [described_member] = described.members
    assert described_member.member_id == member.member_id
    assert described_member.assignment == described_member.target_assignment == (TopicPartition(topic, 0),)
    assert described_member.subscribed_topic_names == (topic,)
    assert not described_member.is_classic
    listed = {it.group_id: it for it in await admin.list_groups(types=[GroupType.CONSUMER])}
    assert listed[group].protocol == "consumer"
    with pytest.raises(GroupSubscribedToTopicException):
        await admin.delete_consumer_group_offsets(group, TopicPartition(topic, 0))
    with pytest.raises(GroupNotEmptyException):
        await admin.delete_consumer_groups([group])


async def group_offsets(stage: Stage) -> None:
    admin = stage.admin
    topic, group, other = await stage.topic("read", 3), stage.name("offsets"), stage.name("nobody")
    zero, one, two = (TopicPartition(topic, index) for index in range(3))
    await admin.alter_consumer_group_offsets(group, {zero: 5, one: OffsetAndMetadata(7, 0, "seven")})
    found = (await admin.list_consumer_group_offsets([group, other])).all()
    assert found[group] == {zero: OffsetAndMetadata(5, None, ""), one: OffsetAndMetadata(7, 0, "seven")}
    assert found[other] == {}
    some = await admin.list_consumer_group_offsets({group: [zero, two], other: [one]}, require_stable=True)
    assert some.all() == {group: {zero: OffsetAndMetadata(5), two: None}, other: {one: None}}
    assert (await admin.describe_consumer_groups(group))[group].is_simple_consumer_group
    assert [it.is_simple_consumer_group for it in await admin.list_consumer_groups() if it.group_id == group] == [True]

    nowhere = TopicPartition(stage.name("missing"), 0)
    refused = await admin.alter_consumer_group_offsets(group, {zero: 6, nowhere: 1}, raise_errors=False)
    assert refused.succeeded == {zero: None}
    assert isinstance(refused.error(nowhere), UnknownTopicOrPartitionException)
    await admin.delete_consumer_group_offsets(group, [zero])
    assert set((await admin.list_consumer_group_offsets(group))[group]) == {one}
    await admin.delete_groups(group)
    assert (await admin.list_consumer_group_offsets(group))[group] == {}
    with pytest.raises(GroupIdNotFoundException):
        await admin.delete_groups(group)
    with pytest.raises(GroupIdNotFoundException):
        await admin.delete_consumer_group_offsets(group, [one])


async def transactions(stage: Stage) -> None:
    admin = stage.admin
    topic, transactional_id = await stage.topic("written"), stage.name("transaction")
    partition = TopicPartition(topic, 0)
    producer = await stage.begin(transactional_id, partition)
    producer_id = int(producer.member_id)

    listed = {it.transactional_id: it for it in await admin.list_transactions(states=[TransactionState.ONGOING])}
    assert listed[transactional_id].producer_id == producer_id
    only = await admin.list_transactions(producer_ids=[producer_id], transactional_id_pattern=".*transaction.*")
    assert [it.transactional_id for it in only] == [transactional_id]
    assert await admin.list_transactions(producer_ids=[producer_id], duration_ms=3_600_000) == []
    described = (await admin.describe_transactions(transactional_id))[transactional_id]
    assert (described.state, described.producer_id) == (TransactionState.ONGOING, producer_id)
    assert described.topic_partitions == (partition,)
    assert (described.transaction_start_time_ms or 0) > 0
    [state] = (await admin.describe_producers(partition))[partition]
    assert (state.producer_id, state.producer_epoch, state.last_sequence) == (
        producer_id,
        producer.generation_or_epoch,
        0,
    )
    assert state.current_transaction_start_offset == 0
    leader = (await admin.describe_topics(topic))[topic].partitions[0].leader
    assert (await admin.describe_producers([partition], broker_id=leader))[partition] == (state,)

    fenced = (await admin.fence_producers([transactional_id]))[transactional_id]
    assert fenced.epoch > producer.generation_or_epoch or fenced.producer_id != producer_id
    with trio.fail_after(20):
        while (await admin.describe_transactions(transactional_id))[transactional_id].state in (
            TransactionState.ONGOING,
            TransactionState.PREPARE_ABORT,
        ):
            await trio.sleep(0.1)
    [state] = (await admin.describe_producers(partition))[partition]
    assert state.current_transaction_start_offset is None
    # The marker that ended it has a higher epoch.
    with pytest.raises(InvalidProducerEpochException):
        await admin.abort_transaction(
            AbortTransactionSpec(partition, producer_id, producer.generation_or_epoch, coordinator_epoch=0)
        )
    with pytest.raises(TransactionalIdNotFoundException):
        (await admin.describe_transactions(stage.name("missing"))).all()


async def a_hanging_transaction(stage: Stage) -> None:
    """One partition gets its marker, though its coordinator has not: the last stable offset moves."""
    admin = stage.admin
    topic, transactional_id = await stage.topic("written"), stage.name("transaction")
    partition = TopicPartition(topic, 0)
    producer = await stage.begin(transactional_id, partition)
    stable = {partition: OffsetSpec.latest()}
    assert (await admin.list_offsets(stable, isolation_level="read_committed"))[partition].offset == 0
    spec = AbortTransactionSpec(partition, int(producer.member_id), producer.generation_or_epoch, coordinator_epoch=0)
    await admin.abort_transaction(spec)
    with trio.fail_after(10):
        while (await admin.list_offsets(stable, isolation_level="read_committed"))[partition].offset != 2:
            await trio.sleep(0.05)


async def access_control(stage: Stage) -> None:
    """Neither cluster has an authorizer."""
    admin = stage.admin
    binding = AclBinding(AclResourceType.TOPIC, "t", "User:alice", AclOperation.READ)
    with pytest.raises(SecurityDisabledException):
        await admin.describe_acls()
    with pytest.raises(SecurityDisabledException):
        await admin.create_acls(binding)
    with pytest.raises(SecurityDisabledException):
        await admin.delete_acls(AclBindingFilter(principal="User:alice"))
