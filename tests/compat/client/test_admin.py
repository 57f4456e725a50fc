"""The administrator on our cluster and on Apache Kafka: the same stories hold on both."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import trio

from barnabas.client.admin import (
    Admin,
    ClientQuotaEntity,
    ClientQuotaFilter,
    ConfigResource,
    Endpoint,
    FeatureUpdate,
    GroupType,
    KafkaPrincipal,
    Match,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    TopicPartitionReplica,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from barnabas.client.cluster import TopicPartition
from barnabas.client.errors import (
    GroupNotEmptyException,
    LogDirNotFoundException,
    ResourceNotFoundException,
    UnacceptableCredentialException,
    UnsupportedByAuthenticationException,
    UnsupportedVersionException,
)
from barnabas.client.session import open_cluster
from barnabas.client.settings import ClientSettings
from tests.barnabas.client.admin import stories
from tests.barnabas.client.admin.stage import Stage
from tests.barnabas.client.admin.stories import NO_SUCH_ID
from tests.compat.client.any_cluster import AnyCluster

STORIES = (
    stories.topics,
    stories.configs,
    stories.records,
    stories.brokers,
    stories.leaders_and_replicas,
    stories.classic_groups,
    stories.modern_groups,
    stories.group_offsets,
    stories.transactions,
    stories.a_hanging_transaction,
    stories.access_control,
)


@asynccontextmanager
async def stage_on(cluster: AnyCluster) -> AsyncIterator[Stage]:
    servers = cluster.bootstrap_servers
    async with (
        Admin(bootstrap_servers=servers, default_api_timeout_ms=20_000) as admin,
        open_cluster(ClientSettings.of({"bootstrap_servers": servers})) as view,
    ):
        scope = cluster.new_name("admin") + "-"
        yield Stage(admin, view, cluster.replication_factor, scope, int(time.time() * 1000))


@pytest.mark.feature("CL-04")
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
async def test_an_administrator(any_cluster: AnyCluster, story: Callable[[Stage], Awaitable[None]]) -> None:
    async with stage_on(any_cluster) as stage:
        await story(stage)


@pytest.mark.feature("CL-04")
async def test_quotas(any_cluster: AnyCluster) -> None:
    async with stage_on(any_cluster) as stage:
        entity = ClientQuotaEntity.of(client_id=stage.name("client"))
        everybody = ClientQuotaEntity.of(user=None)
        await stage.admin.alter_client_quotas(
            {entity: {"producer_byte_rate": 1e6}, everybody: {"request_percentage": 50}}
        )
        with trio.fail_after(10):
            while (await stage.admin.describe_client_quotas()).get(entity) != {"producer_byte_rate": 1e6}:
                await trio.sleep(0.05)
        only = ClientQuotaFilter((("user", Match.DEFAULT, None),), strict=True)
        assert await stage.admin.describe_client_quotas(only) == {everybody: {"request_percentage": 50}}
        await stage.admin.alter_client_quotas(
            {entity: {"producer_byte_rate": None}, everybody: {"request_percentage": None}}
        )
        with trio.fail_after(10):
            while entity in await stage.admin.describe_client_quotas():
                await trio.sleep(0.05)


@pytest.mark.feature("CL-04")
async def test_share_groups(any_cluster: AnyCluster) -> None:
    async with stage_on(any_cluster) as stage:
        group = stage.name("share")
        topic = await stage.topic("shared")
        member = await stage.join_share(group, topic)
        described = (await stage.admin.describe_share_groups(group))[group]
        assert described.group_epoch > 0
        assert [it.member_id for it in described.members] == [member.member_id]
        assert described.members[0].subscribed_topic_names == (topic,)
        assert group in [it.group_id for it in await stage.admin.list_groups(types=[GroupType.SHARE])]
        assert group not in [it.group_id for it in await stage.admin.list_consumer_groups()]

        partition = TopicPartition(topic, 0)
        with pytest.raises(GroupNotEmptyException):
            await stage.admin.alter_share_group_offsets(group, {partition: 0})
        await stage.leave_share(group, member)
        await stage.produce(partition, [b"%d" % number for number in range(5)], at_ms=stage.now_ms)
        await stage.admin.alter_share_group_offsets(group, {partition: 3})
        found = (await stage.admin.list_share_group_offsets([group]))[group][partition]
        assert found is not None
        assert (found.start_offset, found.lag) == (3, 2)
        await stage.admin.delete_share_group_offsets(group, topic)
        assert (await stage.admin.list_share_group_offsets({group: [partition]}))[group] == {partition: None}
        await stage.admin.delete_groups(group)


@pytest.mark.feature("CL-04")
async def test_streams_groups(any_cluster: AnyCluster) -> None:
    async with stage_on(any_cluster) as stage:
        group = stage.name("streams")
        await stage.admin.update_features({"streams.version": FeatureUpdate(1)})
        topic = await stage.topic("streamed", partitions=2)
        at_once = {"streams.initial.rebalance.delay.ms": "0"}
        await stage.admin.incremental_alter_configs({ConfigResource(ResourceType.GROUP, group): at_once})
        member = await stage.join_streams(group, topic)
        described = (await stage.admin.describe_streams_groups(group))[group]
        assert described.topology_epoch == 1
        assert [(it.subtopology_id, it.source_topics) for it in described.subtopologies] == [("only", (topic,))]
        [shown] = described.members
        assert (shown.member_id, shown.process_id, shown.client_tags) == (member.member_id, "process", {"zone": "a"})
        assert shown.target_assignment.active_tasks == {"only": (0, 1)}
        assert group in [it.group_id for it in await stage.admin.list_groups(types=[GroupType.STREAMS])]


@pytest.mark.feature("CL-04")
async def test_passwords(any_cluster: AnyCluster) -> None:
    async with stage_on(any_cluster) as stage:
        admin, user = stage.admin, stage.name("user")
        password = UserScramCredentialUpsertion(user, ScramMechanism.SCRAM_SHA_512, "pencil", iterations=5000)
        await admin.alter_user_scram_credentials([password])
        with trio.fail_after(10):
            while user not in await admin.describe_user_scram_credentials():
                await trio.sleep(0.05)
        described = await admin.describe_user_scram_credentials([user, stage.name("nobody")])
        assert described[user] == (ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 5000),)
        assert [type(error) for error in described.errors.values()] == [ResourceNotFoundException]
        with pytest.raises(UnacceptableCredentialException):
            await admin.alter_user_scram_credentials([replace(password, iterations=1)])
        await admin.alter_user_scram_credentials([UserScramCredentialDeletion(user, ScramMechanism.SCRAM_SHA_512)])


@pytest.mark.feature("CL-04")
async def test_moves_and_changes_of_voters_that_are_refused(any_cluster: AnyCluster) -> None:
    """A cluster with fixed voters refuses to change them; a replica cannot move from the only directory."""
    async with stage_on(any_cluster) as stage:
        topic = await stage.topic("moved")
        broker = (await stage.admin.describe_cluster()).nodes[0].node_id
        move = {TopicPartitionReplica(topic, 0, broker): "/nowhere"}
        with pytest.raises(LogDirNotFoundException):
            await stage.admin.alter_replica_log_dirs(move)
        with pytest.raises(UnsupportedVersionException):
            await stage.admin.add_raft_voter(104, NO_SUCH_ID, [Endpoint("CONTROLLER", "127.0.0.1", 1)])
        with pytest.raises(UnsupportedVersionException):
            await stage.admin.remove_raft_voter(104, NO_SUCH_ID)


@pytest.mark.feature("CL-04")
async def test_tokens_are_only_for_who_is_authenticated(any_cluster: AnyCluster) -> None:
    async with stage_on(any_cluster) as stage:
        admin, nobody = stage.admin, KafkaPrincipal("nobody")
        with pytest.raises(UnsupportedByAuthenticationException):
            await admin.create_delegation_token(renewers=[nobody], max_lifetime_ms=1000)
        with pytest.raises(UnsupportedByAuthenticationException):
            await admin.renew_delegation_token(b"hmac")
        with pytest.raises(UnsupportedByAuthenticationException):
            await admin.expire_delegation_token(b"hmac")
        with pytest.raises(UnsupportedByAuthenticationException):
            await admin.describe_delegation_token([nobody])
