"""SIGTERM for every node at once, as at the shutdown of a machine."""

from __future__ import annotations

import pytest
import trio

from barnabas.client.admin import Admin, NewTopic
from barnabas.cluster.simulated import SimulatedCluster
from barnabas.runtime.simulated import Universe, make_world, run_simulation


@pytest.mark.feature("MB-05")
def test_brokers_do_not_wait_for_controllers_that_are_gone() -> None:
    async def story(universe: Universe) -> float:
        async with trio.open_nursery() as nursery:
            cluster = SimulatedCluster(universe, nursery)
            cluster.up()
            await cluster.wait_ready()
            began = trio.current_time()
            async with trio.open_nursery() as stopping:
                for name in cluster.nodes:
                    stopping.start_soon(cluster.stop, name)
            took = trio.current_time() - began
            # They stopped cleanly: nothing has to be recovered, and all come back.
            cluster.up()
            await cluster.wait_ready()
            nursery.cancel_scope.cancel()
        return took

    assert run_simulation(1, story) < 4


@pytest.mark.feature("MB-05", "OP-08")
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_cluster_that_was_stopped_as_a_whole_comes_back_in_sync_and_balanced(seed: int) -> None:
    """Each partition changes once for the stop and once for the start."""

    async def story(universe: Universe) -> None:
        async with trio.open_nursery() as nursery:
            cluster = SimulatedCluster(universe, nursery)
            cluster.up()
            await cluster.wait_ready()
            async with cluster.client(make_world("client", universe)) as client:
                await Admin.over(client).create_topics([NewTopic("t", 12, 3)])
            await cluster.down()
            for controller in cluster.controllers:
                cluster.start(controller.node.name)
            await trio.sleep(5)
            cluster.up()
            await cluster.wait_ready()
            broker = cluster.nodes["broker-1"].broker
            assert broker is not None
            for partition in broker.metadata.image.topics.by_name["t"].partitions.values():
                assert (partition.leader, partition.isr) == (partition.replicas[0], partition.replicas)
                assert (partition.leader_epoch, partition.partition_epoch) == (2, 2)
            nursery.cancel_scope.cancel()

    run_simulation(seed, story)


@pytest.mark.feature("MB-05")
def test_a_broker_waits_for_controllers_that_are_restarted_in_turn() -> None:
    async def story(universe: Universe) -> None:
        async with trio.open_nursery() as nursery:
            cluster = SimulatedCluster(universe, nursery)
            cluster.up()
            await cluster.wait_ready()
            broker = cluster.nodes["broker-1"].broker
            assert broker is not None
            for controller in cluster.controllers:
                if controller.node.id != broker.metadata_log.replica.leader_and_epoch.leader_id:
                    cluster.kill(controller.node.name)
            nursery.start_soon(cluster.stop, "broker-1")
            await trio.sleep(0.5)
            cluster.up()
            await cluster.nodes["broker-1"].ended.wait()
            assert broker.lifecycle.may_shut_down.is_set(), "the controller let it go"
            nursery.cancel_scope.cancel()

    run_simulation(2, story)
