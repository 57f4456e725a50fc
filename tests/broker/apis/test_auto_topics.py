"""Topics that are created because somebody asked for them."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest
import trio

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.settings.broker import BrokerSettings
from tests.broker.apis.rig import Rig, on_cluster


async def restart_with(rig: Rig, node: int, **own: str) -> None:
    """Broker `node`'s file has only these of the keys that have to do with counts."""
    counts = {"num.partitions": 1, "default.replication.factor": 1}
    name = rig.name(node)
    await rig.cluster.stop(name)
    before = rig.cluster.nodes[name]
    assert isinstance(before.settings, BrokerSettings)
    raw = {key: value for key, value in before.settings.raw.items() if key not in counts}
    configured = {key.replace("__", "."): value for key, value in own.items()}
    values: dict[str, Any] = {key.replace(".", "_"): int(configured.get(key, value)) for key, value in counts.items()}
    before.settings = replace(before.settings, raw=raw | configured, **values)
    rig.cluster.start(name)
    await rig.until(lambda: rig.cluster.nodes[name].is_up)
    await rig.cluster.wait_ready()


@pytest.mark.feature("MB-09")
@on_cluster(brokers=3, num__partitions="4", default__replication__factor="2")
async def test_where_the_brokers_file_says_nothing_the_controllers_values_count(rig: Rig) -> None:
    await restart_with(rig, 1)
    await restart_with(rig, 2, num__partitions="3")
    for node, topic, partitions in ((1, "controllers", 4), (2, "mixed", 3)):
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=True)
        await rig.ask(node, asked, 12)
        topics = rig.broker(node).metadata
        await rig.until(lambda topic=topic, topics=topics: topic in topics.image.topics.by_name)
        made = topics.image.topics.by_name[topic].partitions
        assert (len(made), len(made[0].replicas)) == (partitions, 2), topic


@pytest.mark.feature("MB-09")
@on_cluster(offsets__topic__replication__factor="3")
async def test_a_topic_that_is_refused_is_not_asked_for_each_time(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """Members of a group ask for their coordinator again and again. Its topic cannot be created: it wants three
    replicas, and there is one broker."""
    with caplog.at_level(logging.INFO):
        for _ in range(2000):
            found = await rig.ask(1, FindCoordinatorRequest(coordinator_keys=["g"], key_type=0), 6)
            assert found.coordinators[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            await trio.sleep(0.005)
    refusals = [it for it in caplog.records if it.name == "barnabas.broker.auto_topics"]
    assert 2 <= len(refusals) <= 15, "in ten seconds"
    services = rig.broker(1)
    services.settings = replace(services.settings, offsets_topic_replication_factor=1)
    question = FindCoordinatorRequest(coordinator_keys=["g"], key_type=0)
    with trio.fail_after(5):
        while (await rig.ask(1, question, 6)).coordinators[0].error_code:
            await trio.sleep(0.01)
