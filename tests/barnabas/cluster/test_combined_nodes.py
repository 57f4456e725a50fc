"""Combined nodes: a broker and a controller in one process, over one replica of the metadata log."""

from __future__ import annotations

import pytest
import trio

from barnabas.cluster.layout import Node
from barnabas.cluster.simulated import BROKER_PORT, CONTROLLER_PORT, SimulatedCluster, SimulatedNode
from barnabas.kraft.metadata.image import MetadataImage
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.runtime.channel import Channel
from barnabas.runtime.simulated import Universe, make_world, run_simulation
from barnabas.settings.combined import load_combined_settings

FILE = """\
process.roles=broker,controller
node.id={id}
controller.quorum.voters={voters}
listeners=PLAINTEXT://node-{id}:9092,CONTROLLER://node-{id}:9093
controller.listener.names=CONTROLLER
log.dirs=/data
barnabas.http.listener=node-{id}:8080
"""


class Combined(SimulatedCluster):
    """Nodes `node-1`, `node-2`, …, each in both roles."""

    def __init__(self, universe: Universe, nursery: trio.Nursery, count: int) -> None:
        super().__init__(universe, nursery, size=(0, 0))
        voters = ",".join(f"{it}@node-{it}:{CONTROLLER_PORT}" for it in range(1, count + 1))
        for it in range(1, count + 1):
            both, _ = load_combined_settings(FILE.format(id=it, voters=voters), f"{it}.properties")
            name = f"node-{it}"
            node = SimulatedNode(Node(name, "broker", it, BROKER_PORT), both.broker, both.controller)
            node.ended.set()
            self.nodes[name] = node

    def image(self, name: str) -> MetadataImage:
        broker = self.nodes[name].broker
        assert broker is not None
        return broker.metadata.image


async def create(universe: Universe, nursery: trio.Nursery, host: str, topic: str, replicas: int) -> None:
    channel = Channel(make_world(f"client-{topic}", universe), nursery, host, BROKER_PORT, client_id="story")
    wanted = CreatableTopic(name=topic, num_partitions=3, replication_factor=replicas)
    response = await channel.call(CreateTopicsRequest(topics=[wanted], timeout_ms=30_000), timeout_ms=60_000)
    assert response.topics[0].error_code == 0, response
    channel.close()


@pytest.mark.feature("KR-18", "MB-01")
def test_one_node_is_a_cluster_and_comes_back_with_what_it_knew() -> None:
    async def story(universe: Universe) -> None:
        async with trio.open_nursery() as nursery:
            cluster = Combined(universe, nursery, 1)
            cluster.up()
            await cluster.wait_ready()
            await create(universe, nursery, "node-1", "kept", 1)
            image = cluster.image("node-1")
            assert set(image.cluster.brokers) == set(image.cluster.controllers) == {1}
            began = trio.current_time()
            await cluster.stop("node-1")
            assert trio.current_time() - began < 3, "nobody is left to take over"
            cluster.up()
            await cluster.wait_ready()
            assert "kept" in cluster.image("node-1").topics.by_name
            cluster.power_cut("node-1")
            await cluster.nodes["node-1"].ended.wait()
            cluster.up()
            await cluster.wait_ready()
            assert "kept" in cluster.image("node-1").topics.by_name
            names = {path.split("/")[2] for path, _ in universe.disk("node-1").files()}
            assert {"__cluster_metadata-0", "meta.properties", "kept-0"} <= names
            nursery.cancel_scope.cancel()

    run_simulation(1, story)


@pytest.mark.feature("KR-18", "MB-05")
@pytest.mark.parametrize("seed", range(3))
def test_three_nodes_survive_the_active_one(seed: int) -> None:
    async def story(universe: Universe) -> None:
        async with trio.open_nursery() as nursery:
            cluster = Combined(universe, nursery, 3)
            cluster.up()
            await cluster.wait_ready()
            await create(universe, nursery, "node-1", "kept", 3)
            broker = cluster.nodes["node-1"].broker
            assert broker is not None
            active = f"node-{broker.metadata_log.replica.leader_and_epoch.leader_id}"
            other = next(name for name in cluster.nodes if name != active)
            cluster.kill(active)
            await cluster.wait_until(lambda: missing(cluster, other, active), 60)
            await create(universe, nursery, other, "later", 2)
            cluster.start(active)
            await cluster.wait_ready()
            assert {"kept", "later"} <= set(cluster.image(active).topics.by_name)
            nursery.cancel_scope.cancel()

    def missing(cluster: Combined, other: str, active: str) -> str:
        killed = cluster.image(other).cluster.brokers[cluster.nodes[active].node.id]
        return "" if killed.fenced else f"{active} is not fenced"

    run_simulation(seed, story)


@pytest.mark.feature("KR-18", "MB-05")
def test_all_nodes_stop_together() -> None:
    async def story(universe: Universe) -> float:
        async with trio.open_nursery() as nursery:
            cluster = Combined(universe, nursery, 3)
            cluster.up()
            await cluster.wait_ready()
            await create(universe, nursery, "node-1", "kept", 3)
            began = trio.current_time()
            async with trio.open_nursery() as stopping:
                for name in cluster.nodes:
                    stopping.start_soon(cluster.stop, name)
            took = trio.current_time() - began
            nursery.cancel_scope.cancel()
        return took

    assert run_simulation(1, story) < 8
