"""The administrator on our cluster and on Apache Kafka: the same stories hold on both."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trio

from barnabas.client.admin import Admin, ClientQuotaEntity, ClientQuotaFilter, FeatureUpdate, GroupType, Match
from barnabas.client.errors import UnsupportedVersionException
from barnabas.client.session import open_cluster
from barnabas.client.settings import ClientSettings
from tests.barnabas.client.admin import stories
from tests.barnabas.client.admin.stage import Stage
from tests.compat.client.any_cluster import APACHE_KAFKA, AnyCluster

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
        if any_cluster.name != APACHE_KAFKA:
            with pytest.raises(UnsupportedVersionException):
                await stage.admin.describe_client_quotas()
            return
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
        if any_cluster.name != APACHE_KAFKA:
            with pytest.raises(UnsupportedVersionException):
                (await stage.admin.describe_share_groups(group)).all()
            return
        # Our formatter leaves the feature out.
        await stage.admin.update_features({"share.version": FeatureUpdate(1)})
        topic = await stage.topic("shared")
        member = await stage.join_share(group, topic)
        described = (await stage.admin.describe_share_groups(group))[group]
        assert described.group_epoch > 0
        assert [it.member_id for it in described.members] == [member.member_id]
        assert described.members[0].subscribed_topic_names == (topic,)
        assert group in [it.group_id for it in await stage.admin.list_groups(types=[GroupType.SHARE])]
        assert group not in [it.group_id for it in await stage.admin.list_consumer_groups()]
