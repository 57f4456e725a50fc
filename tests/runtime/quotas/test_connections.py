"""Rates and numbers of connections: of the node, of a listener, of an address (KIP-402, KIP-612)."""

from __future__ import annotations

from dataclasses import replace

import pytest
import trio

from barnabas.runtime.quotas.connections import MOST_ADDRESSES, ConnectionQuotas
from barnabas.runtime.server import ServerLimits
from barnabas.runtime.simulated import make_world, run_simulation
from tests.runtime.test_server import Desk, Scene, request_frame

pytestmark = pytest.mark.feature("QU-08")

CLIENTS, BROKERS, HOST = "CLIENTS", "BROKERS", "10.0.0.7"


class Clock:
    def __init__(self) -> None:
        self.ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms


def quotas_of(limits: ServerLimits, *listeners: str) -> tuple[ConnectionQuotas, Clock]:
    clock = Clock()
    quotas = ConnectionQuotas(limits, clock)
    for listener in listeners or (CLIENTS,):
        quotas.add_listener(listener)
    return quotas, clock


def test_the_node_and_the_listener_have_rates_and_the_longer_wait_counts() -> None:
    limits = ServerLimits(max_connection_creation_rate=10, listener_max_creation_rates={CLIENTS: 5})
    quotas, _ = quotas_of(limits, CLIENTS, BROKERS)
    assert [quotas.throttle_ms(CLIENTS) for _ in range(50)] == [0] * 50
    assert quotas.throttle_ms(CLIENTS) == 200, "(5.1 - 5) / 5 of ten seconds"
    assert [quotas.throttle_ms(BROKERS) for _ in range(49)] == [0] * 49
    assert quotas.throttle_ms(BROKERS) == 100, "(10.1 - 10) / 10 of ten seconds: the node's"
    for _ in range(50):
        longest = quotas.throttle_ms(CLIENTS)
    assert longest == 1_000, "no more than one window"


def test_the_listener_between_brokers_does_not_wait_for_the_node() -> None:
    limits = ServerLimits(max_connection_creation_rate=1, inter_broker_listener_name=BROKERS, max_connections=2)
    limits = replace(limits, listener_max_creation_rates={BROKERS: 100}, listener_max_connections={BROKERS: 3})
    quotas, _ = quotas_of(limits, CLIENTS, BROKERS)
    assert [quotas.throttle_ms(BROKERS) for _ in range(100)] == [0] * 100
    assert quotas.throttle_ms(CLIENTS) == 0, "those of brokers did not count"
    for _ in range(2):
        assert quotas.opened(CLIENTS, HOST)
    assert not quotas.has_room(CLIENTS) and quotas.has_room(BROKERS)
    quotas.opened(BROKERS, HOST)
    assert quotas.excess == 1 and quotas.may_go(CLIENTS) and not quotas.may_go(BROKERS)
    quotas.closed(CLIENTS, HOST)
    assert not quotas.excess
    for _ in range(2):
        quotas.opened(BROKERS, HOST)
    assert not quotas.has_room(BROKERS), "it has a limit of its own"


def test_the_only_listener_is_not_protected() -> None:
    quotas, _ = quotas_of(ServerLimits(max_connections=1, inter_broker_listener_name=CLIENTS))
    quotas.opened(CLIENTS, HOST)
    assert not quotas.has_room(CLIENTS)


def test_a_connection_that_its_address_may_not_open_counts_for_nobody() -> None:
    quotas, clock = quotas_of(ServerLimits(max_connection_creation_rate=1_000))
    quotas.ip_limit = {HOST: 2.0}.get
    for _ in range(20):
        assert quotas.throttle_ms(CLIENTS) == 0 and quotas.ip_throttle_ms(CLIENTS, HOST) == 0
    for _ in range(10):
        assert quotas.throttle_ms(CLIENTS) == 0
        assert quotas.ip_throttle_ms(CLIENTS, HOST) == 500, "(2.1 - 2) / 2 of ten seconds, each time"
    assert quotas.node_rate.total == quotas.listeners[CLIENTS].rate.total == 20
    assert quotas.ip_throttle_ms(CLIENTS, "10.0.0.8") == 0
    clock.ms += 11_000
    assert quotas.ip_throttle_ms(CLIENTS, HOST) == 0


@pytest.mark.parametrize(
    ("limit", "attempts", "served", "held"),
    [
        (10.0, 233, 124, [90, 99, 99, 99, 99, 99, 99, 99, 99, 99, 1000, 99, 99, 99, 99, 99, 99, 99, 99, 99, 90, 1000]),
        (18.0, 426, 228, [38, 54, 55, 54, 55, 54, 55, 54, 55, 55, 54, 55, 54, 55, 54, 55, 54, 55, 1000, 55, 54, 55]),
    ],
)
def test_a_client_that_dials_again_at_once_is_held_for_as_long_as_by_kafka(
    limit: float, attempts: int, served: int, held: list[int]
) -> None:
    """The numbers are those of Kafka's own classes (Sensor, Rate, Quota) with two samples: it dials for 13 seconds, and
    a connection that is served takes one millisecond."""
    quotas, clock = quotas_of(ServerLimits(quota_window_num=2))
    quotas.ip_limit = {HOST: limit}.get
    began, times = clock.ms, []
    while clock.ms < began + 13_000:
        assert quotas.throttle_ms(CLIENTS) == 0
        times.append(quotas.ip_throttle_ms(CLIENTS, HOST))
        clock.ms += times[-1] or 1
    throttles = [each for each in times if each]
    assert (len(times), len(times) - len(throttles)) == (attempts, served)
    assert throttles[: len(held)] == held
    assert quotas.node_rate.total <= 3 * limit, "those that were held count for nobody"


def test_addresses_are_forgotten_after_an_hour_and_their_number_is_bounded() -> None:
    quotas, clock = quotas_of(ServerLimits())
    quotas.ip_limit = lambda _host: 1.0
    for number in range(MOST_ADDRESSES + 10):
        quotas.ip_throttle_ms(CLIENTS, f"host-{number}")
    assert len(list(quotas.addresses())) == MOST_ADDRESSES
    clock.ms += 3_600_001
    quotas.ip_throttle_ms(CLIENTS, HOST)
    assert [host for host, _ in quotas.addresses()] == [HOST]


def simulate(limits: ServerLimits, act) -> None:
    async def story(universe: object) -> None:
        class Two:
            server, client, host = make_world("server", universe), make_world("client", universe), "server"

        async with trio.open_nursery() as nursery:
            scene = Scene(Two, Desk(echo=True), limits)
            scene.nursery = nursery
            await scene.start(nursery)
            await act(scene)
            nursery.cancel_scope.cancel()

    run_simulation(2, story)


def test_a_connection_above_the_rate_of_its_address_is_held_and_then_closed() -> None:
    async def act(scene: Scene) -> None:
        scene.server.connection_quotas.ip_limit = lambda _host: 1.0
        for _ in range(10):
            peer = await scene.peer()
            await peer.ask(request_frame(1))
            await peer.answer()
        began = trio.current_time()
        refused = await scene.peer()
        await refused.ask(request_frame(1))
        await refused.closed()
        assert trio.current_time() - began > 0.9
        assert scene.server.connections == 10

    simulate(ServerLimits(), act)


def test_a_broker_gets_the_place_of_the_client_that_was_idle_for_longest() -> None:
    async def act(scene: Scene) -> None:
        clients = []
        for _ in range(2):
            clients.append(await scene.peer())
            await clients[-1].ask(request_frame(1))
            await clients[-1].answer()
            await trio.sleep(1)
        await clients[0].ask(request_frame(2))
        await clients[0].answer()
        inner = await scene._two.server.network.listen("", 0)
        scene.nursery.start_soon(scene.server.serve, inner, BROKERS)
        await trio.sleep(0.01)
        broker = type(clients[0])(await scene._two.client.network.dial(scene._two.host, inner.port))
        await broker.ask(request_frame(3))
        await broker.answer()
        await clients[1].closed()
        await clients[0].ask(request_frame(4))
        await clients[0].answer()

    simulate(ServerLimits(max_connections=2, inter_broker_listener_name=BROKERS), act)


def test_a_lower_limit_closes_those_that_were_idle_for_longest() -> None:
    async def act(scene: Scene) -> None:
        peers = []
        for number in range(4):
            peers.append(await scene.peer())
            await peers[-1].ask(request_frame(number))
            await peers[-1].answer()
            await trio.sleep(1)
        scene.server.limits_changed(ServerLimits(max_connections=2))
        for peer in peers[:2]:
            await peer.closed()
        for peer in peers[2:]:
            await peer.ask(request_frame(9))
            await peer.answer()
        assert scene.server.connections == 2

    simulate(ServerLimits(), act)


def test_limits_may_change_while_clients_wait() -> None:
    async def act(scene: Scene) -> None:
        first = await scene.peer()
        await first.ask(request_frame(1))
        await first.answer()
        second = await scene.peer()
        await second.ask(request_frame(2))
        with trio.move_on_after(5) as waiting:
            await second.answer()
        assert waiting.cancelled_caught
        scene.server.limits_changed(ServerLimits(max_connections=2))
        await second.answer()

    simulate(ServerLimits(max_connections=1), act)


def test_a_connection_that_waited_for_its_rate_takes_no_place_that_another_listener_took_meanwhile() -> None:
    async def act(scene: Scene) -> None:
        clients = []
        for _ in range(10):
            clients.append(await scene.peer())
            await clients[-1].ask(request_frame(1))
            await clients[-1].answer()
        late = await scene.peer()
        await late.ask(request_frame(2))
        other = await scene._two.server.network.listen("", 0)
        scene.nursery.start_soon(scene.server.serve, other, CLIENTS)
        await trio.sleep(0.01)
        last = type(late)(await scene._two.client.network.dial(scene._two.host, other.port))
        await last.ask(request_frame(3))
        await last.answer()
        await trio.sleep(2)
        assert scene.server.connections == 11
        for peer in (*clients, last):
            await peer.ask(request_frame(4))
            await peer.answer()
        clients[0].connection.close()
        await late.answer()

    simulate(ServerLimits(max_connections=11, listener_max_creation_rates={"PLAINTEXT": 1}), act)
