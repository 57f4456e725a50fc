"""The administrator on three brokers and three controllers, under virtual time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from barnabas.client.admin import Admin, FeatureUpdate, OffsetSpec, UpgradeType
from barnabas.client.errors import UnsupportedVersionException
from barnabas.client.metadata import TopicPartition
from barnabas.client.offsets import OffsetAndMetadata
from barnabas.client.session import open_cluster
from barnabas.client.settings import ClientSettings
from barnabas.testing.simulated import SimulatedClusterForTests
from tests.barnabas.client.admin import stories
from tests.barnabas.client.admin.stage import Stage

OF_THREE_BROKERS = 3
ROWS = {
    stories.topics: ("CL-04", "AD-01"),
    stories.configs: ("CL-04", "AD-02"),
    stories.records: ("CL-04", "AD-03"),
    stories.brokers: ("CL-04", "MB-22"),
    stories.leaders_and_replicas: ("CL-04",),
    stories.classic_groups: ("CL-04", "AD-05"),
    stories.modern_groups: ("CL-04", "AD-05"),
    stories.group_offsets: ("CL-04", "AD-05"),
    stories.transactions: ("CL-04",),
    stories.a_hanging_transaction: ("CL-04",),
    stories.access_control: ("CL-04",),
}


@pytest.mark.parametrize(
    "story",
    [pytest.param(story, id=story.__name__, marks=pytest.mark.feature(*rows)) for story, rows in ROWS.items()],
)
def test_an_administrator(story: Callable[[Stage], Awaitable[None]]) -> None:
    play(story)


def play(story: Callable[[Stage], Awaitable[None]], simulated: SimulatedClusterForTests | None = None) -> None:
    simulated = simulated or SimulatedClusterForTests()

    async def test() -> None:
        servers, world = simulated.bootstrap_servers, simulated.world
        async with (
            Admin(bootstrap_servers=servers, world=world) as admin,
            open_cluster(ClientSettings.of({"bootstrap_servers": servers}), world) as cluster,
        ):
            await story(Stage(admin, cluster, OF_THREE_BROKERS))

    simulated.run(test)


@pytest.mark.feature("CL-04")
def test_requests_that_the_cluster_does_not_serve_are_refused_at_once() -> None:
    async def story(stage: Stage) -> None:
        lowered = {"streams.version": FeatureUpdate(0, UpgradeType.SAFE_DOWNGRADE)}
        (await stage.admin.update_features(lowered)).all()
        with pytest.raises(UnsupportedVersionException):
            (await stage.admin.describe_streams_groups("g")).all()

    play(story)


@pytest.mark.feature("CL-04")
def test_it_gets_its_answers_although_the_responsible_broker_dies() -> None:
    async def story(stage: Stage) -> None:
        admin = stage.admin
        topic, group = await stage.topic("kept", partitions=6), stage.name("group")
        partitions = [TopicPartition(topic, index) for index in range(6)]
        await admin.alter_consumer_group_offsets(group, dict.fromkeys(partitions, 3))
        described = (await admin.describe_consumer_groups(group))[group]
        assert described.coordinator is not None
        dead = [f"broker-{described.coordinator.node_id}", await simulated.active_controller()]
        simulated.kill(*dead)
        assert len((await admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.latest()))).all()) == 6
        assert (await admin.list_consumer_group_offsets(group))[group] == dict.fromkeys(
            partitions, OffsetAndMetadata(3)
        )
        assert [it.group_id for it in await admin.list_groups()] == [group]
        await admin.create_partitions({topic: 7})
        await admin.delete_groups(group)
        simulated.start(*dead)
        await simulated.wait_ready()
        assert len((await admin.describe_log_dirs()).all()) == OF_THREE_BROKERS

    simulated = SimulatedClusterForTests()
    play(story, simulated)
