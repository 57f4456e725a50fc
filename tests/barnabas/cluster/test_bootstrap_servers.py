"""Brokers whose file names no voters: controller.quorum.bootstrap.servers alone, as in Kafka 4's example files."""

from __future__ import annotations

import pytest
import trio

from barnabas.cluster.simulated import CONTROLLER_PORT, SimulatedCluster
from barnabas.runtime.simulated import Universe, run_simulation
from barnabas.settings.listeners import Endpoint


def cluster_of(universe: Universe, nursery: trio.Nursery, *servers: str) -> SimulatedCluster:
    """Three controllers, and three brokers that know only these servers."""
    cluster = SimulatedCluster(universe, nursery)
    for node in cluster.brokers:
        node.settings = node.settings.model_copy(
            update={
                "controller_quorum_voters": [],
                "controller_quorum_bootstrap_servers": [Endpoint(server, CONTROLLER_PORT) for server in servers],
            }
        )
    return cluster


@pytest.mark.feature("MB-01", "KR-06")
@pytest.mark.parametrize("servers", [("controller-101", "controller-102", "controller-103"), ("controller-102",)])
def test_brokers_register_with_a_leader_that_their_file_does_not_name(servers: tuple[str, ...]) -> None:
    async def story(universe: Universe) -> None:
        async with trio.open_nursery() as nursery:
            cluster = cluster_of(universe, nursery, *servers)
            cluster.up()
            await cluster.wait_ready()
            nursery.cancel_scope.cancel()

    run_simulation(1, story)


@pytest.mark.feature("MB-01")
def test_a_broker_without_voters_follows_the_next_active_controller() -> None:
    async def story(universe: Universe) -> None:
        async with trio.open_nursery() as nursery:
            cluster = cluster_of(universe, nursery, "controller-101", "controller-102", "controller-103")
            cluster.up()
            await cluster.wait_ready()
            broker = cluster.brokers[0].broker
            assert broker is not None
            leader_id = broker.metadata_log.replica.leader_and_epoch.leader_id
            assert leader_id is not None
            cluster.kill(f"controller-{leader_id}")
            # A broker that is restarted has to register: with the new leader.
            await cluster.stop("broker-2")
            cluster.start("broker-2")
            await cluster.wait_until(lambda: "" if cluster.nodes["broker-2"].is_up else "broker-2 is not up", 60)
            nursery.cancel_scope.cancel()

    run_simulation(2, story)
