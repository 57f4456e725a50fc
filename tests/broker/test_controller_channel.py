"""A broker finds the active controller, and does not wait for one that is gone."""

from __future__ import annotations

import pytest
import trio

from barnabas.broker.controller_channel import ControllerChannel
from barnabas.kraft.node_address import NodeAddress
from barnabas.kraft.quorum_endpoints import QuorumEndpoints
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.messages.api_versions import ApiVersionsResponse
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from barnabas.runtime.dispatch import Call, Dispatcher
from barnabas.runtime.server import Server, ServerLimits
from barnabas.runtime.simulated import Universe, make_world, run_simulation

PORT = 9093


class Quorum:
    """Controllers 1, 2, … on hosts of these names; 1 leads."""

    def __init__(self, *hosts: str) -> None:
        self.hosts = hosts
        self.leader_id = 1

    def quorum_endpoints(self) -> QuorumEndpoints:
        address = NodeAddress(self.hosts[self.leader_id - 1], PORT)
        return QuorumEndpoints(leader_id=self.leader_id, leader=address)


async def controller(universe: Universe, name: str, nursery: trio.Nursery, *, answers: bool) -> None:
    world = make_world(name, universe)
    dispatcher: Dispatcher

    def versions(call: Call) -> None:
        call.answer(ApiVersionsResponse(api_keys=dispatcher.advertised()))

    def heartbeat(call: Call) -> None:
        if answers:
            call.answer(BrokerHeartbeatResponse(is_fenced=False))

    dispatcher = Dispatcher({ApiKey.API_VERSIONS: versions, ApiKey.BROKER_HEARTBEAT: heartbeat})
    socket = await world.network.listen(name, PORT)
    nursery.start_soon(Server(world, dispatcher, ServerLimits()).serve, socket, "CONTROLLER")


def test_a_call_leaves_a_silent_leader_for_the_next_one() -> None:
    async def story(universe: Universe) -> float:
        async with trio.open_nursery() as nursery:
            await controller(universe, "old", nursery, answers=False)
            await controller(universe, "new", nursery, answers=True)
            world = make_world("broker", universe)
            quorum = Quorum("old", "new")
            channel = ControllerChannel(world, nursery, quorum, "broker")
            channel.leader_is(1)

            async def elect() -> None:
                await trio.sleep(2)
                quorum.leader_id = 2
                channel.leader_is(2)

            nursery.start_soon(elect)
            response = await channel.call(BrokerHeartbeatRequest(broker_id=1), timeout_ms=60_000)
            assert response.is_fenced is False
            took = trio.current_time()
            nursery.cancel_scope.cancel()
        return took

    assert 2 <= run_simulation(1, story) < 3


def test_a_connection_without_answers_is_given_up() -> None:
    """A broker that receives nothing must not stay unfenced by heartbeats that still arrive."""

    async def story(universe: Universe) -> int:
        async with trio.open_nursery() as nursery:
            await controller(universe, "leader", nursery, answers=True)
            channel = ControllerChannel(make_world("broker", universe), nursery, Quorum("leader"), "broker")
            channel.leader_is(1)
            await channel.call(BrokerHeartbeatRequest(broker_id=1), timeout_ms=1_000)
            universe.wires.cut("leader", "broker")
            for _ in range(3):
                with pytest.raises(KafkaError, match="no answer"):
                    await channel.call(BrokerHeartbeatRequest(broker_id=1), timeout_ms=1_000)
            nursery.cancel_scope.cancel()
        return sum("broker>leader dial" in line for line in universe.trace_tail)

    assert run_simulation(1, story) == 3, "one dial that is answered, and one for each call after the first lost one"
