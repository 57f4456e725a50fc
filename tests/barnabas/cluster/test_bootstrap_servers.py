"""Brokers whose file names no voters: controller.quorum.bootstrap.servers alone, as in Kafka 4's example files."""

from __future__ import annotations

from dataclasses import replace

import pytest
import trio

from barnabas.cluster.layout import Node
from barnabas.cluster.simulated import CONTROLLER_PORT, SimulatedCluster, SimulatedNode
from barnabas.runtime.simulated import Universe, run_simulation
from barnabas.settings.controller import load_controller_settings
from barnabas.settings.listeners import Endpoint

OBSERVER = f"""\
process.roles=controller
node.id=104
listeners=CONTROLLER://controller-104:{CONTROLLER_PORT}
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers={{servers}}
log.dirs=/controller-104/data
"""


def cluster_of(universe: Universe, nursery: trio.Nursery, *servers: str) -> SimulatedCluster:
    """Three controllers, and three brokers that know only these servers."""
    cluster = SimulatedCluster(universe, nursery)
    for node in cluster.brokers:
        node.settings = replace(
            node.settings,
            controller_quorum_voters=[],
            controller_quorum_bootstrap_servers=[Endpoint(server, CONTROLLER_PORT) for server in servers],
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


@pytest.mark.feature("KR-06")
def test_a_controller_that_only_observes_registers() -> None:
    """Such a controller is to be added to the voters, or to replace one of them."""

    async def story(universe: Universe) -> None:
        async with trio.open_nursery() as nursery:
            cluster = SimulatedCluster(universe, nursery, size=(1, 3))
            text = OBSERVER.format(servers=f"controller-101:{CONTROLLER_PORT},controller-102:{CONTROLLER_PORT}")
            settings, _ = load_controller_settings(text, "controller-104.properties")
            observer = SimulatedNode(Node("controller-104", "controller", 104, CONTROLLER_PORT), settings)
            observer.ended.set()
            cluster.nodes["controller-104"] = observer
            cluster.up()
            await cluster.wait_ready()
            broker = cluster.brokers[0].broker
            assert broker is not None
            await cluster.wait_until(
                lambda: "" if 104 in broker.metadata.image.cluster.controllers else "104 is not registered", 30
            )
            assert 104 not in broker.metadata_log.replica.quorum_endpoints().voters
            nursery.cancel_scope.cancel()

    run_simulation(3, story)


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
