"""Settings that differ between the nodes of one cluster are reported with both values."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest
import trio

from barnabas.cluster.simulated import SimulatedCluster
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.runtime.channel import Channel
from barnabas.runtime.simulated import Universe, make_world, run_simulation


def set_to(cluster: SimulatedCluster, name: str, key: str, value: int) -> None:
    node = cluster.nodes[name]
    changed: dict[str, Any] = {key.replace(".", "_"): value, "raw": {**node.settings.raw, key: str(value)}}
    node.settings = replace(node.settings, **changed)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.message for each in caplog.records if each.levelno == logging.WARNING]


@pytest.mark.feature("OP-02")
def test_another_number_of_coordinator_partitions_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    async def story(universe: Universe) -> None:
        async with trio.open_nursery() as nursery:
            cluster = SimulatedCluster(universe, nursery)
            set_to(cluster, "broker-1", "offsets.topic.num.partitions", 4)
            set_to(cluster, "broker-2", "offsets.topic.num.partitions", 7)
            set_to(cluster, "broker-3", "offsets.topic.num.partitions", 4)
            cluster.up()
            await cluster.wait_ready()
            channel = Channel(make_world("client", universe), nursery, "broker-1", 9092, client_id="story")
            request = FindCoordinatorRequest(key_type=0, coordinator_keys=["group"])
            await channel.call(request, timeout_ms=30_000)
            await cluster.wait_until(lambda: "" if created(cluster) else "no __consumer_offsets", 60)
            nursery.cancel_scope.cancel()

    def created(cluster: SimulatedCluster) -> bool:
        brokers = [node.broker for node in cluster.brokers]
        return all(each and "__consumer_offsets" in each.metadata.image.topics.by_name for each in brokers)

    run_simulation(1, story)
    found = [line for line in warnings(caplog) if "offsets.topic.num.partitions" in line]
    assert len(found) == 1
    assert found[0].startswith("__consumer_offsets has 4 partitions, but offsets.topic.num.partitions is 7 here")


@pytest.mark.feature("OP-02")
def test_a_default_that_only_brokers_have_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    async def story(universe: Universe) -> None:
        async with trio.open_nursery() as nursery:
            cluster = SimulatedCluster(universe, nursery)
            for name in ("controller-101", "controller-102", "controller-103"):
                set_to(cluster, name, "default.replication.factor", 1)
            cluster.up()
            await cluster.wait_ready()
            await trio.sleep(5)
            nursery.cancel_scope.cancel()

    run_simulation(1, story)
    found = [line for line in warnings(caplog) if "default.replication.factor" in line]
    assert len(found) == 3
    assert found[0].startswith("default.replication.factor is 3 here and 1 on controller 10")
