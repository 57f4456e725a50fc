"""Dialling, calling, backing off and closing of connections."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import trio

from barnabas.client.cluster_settings import ClusterSettings
from barnabas.client.connections import IDLE_LOOKS, Caller, NodeConnection, in_turn
from barnabas.client.errors import SaslAuthenticationException, SslAuthenticationException, UnsupportedVersionException
from barnabas.client.metadata import Node
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeResponse
from barnabas.protocol.sasl.plain import PlainClient
from barnabas.runtime.backoff import Backoff
from barnabas.runtime.channel import CallTimedOut, NotSent
from barnabas.runtime.sasl.authenticator import SaslChannelSecurity
from barnabas.runtime.simulated import Universe, make_world, run_simulation
from barnabas.runtime.world import Connection
from tests.barnabas.client.plain_node import PORT, PlainNode, listen_badly, metadata

SETTINGS = ClusterSettings(
    request_timeout_ms=5_000,
    reconnect_backoff_ms=100,
    reconnect_backoff_max_ms=1_000,
    socket_connection_setup_timeout_ms=1_000,
    socket_connection_setup_timeout_max_ms=3_000,
)

Scenario = Callable[["Scene"], Awaitable[None]]


class Scene:
    """One node called `b1`, and a client's connection to it."""

    def __init__(self, universe: Universe, nursery: trio.Nursery, settings: ClusterSettings) -> None:
        self.universe = universe
        self.nursery = nursery
        self.node = PlainNode({ApiKey.METADATA: lambda _: metadata({1: "b1"})})
        self.caller = Caller(make_world("client", universe), nursery, "test", settings)
        self.connection = self.connect_as(self.caller)

    def connect_as(self, caller: Caller) -> NodeConnection:
        return NodeConnection(caller, Node(1, "b1", PORT))

    async def start(self) -> None:
        self.node.start(self.nursery, self.universe, "b1")
        await trio.sleep(0.01)

    async def ask(self, timeout_ms: int = 5_000) -> Any:
        return await self.connection.call(MetadataRequest(topics=[]), timeout_ms)

    def dials(self) -> int:
        return sum("client>b1 dial" in line for line in self.universe.trace_tail)


def stage(scenario: Scenario, settings: ClusterSettings = SETTINGS, seed: int = 1) -> None:
    async def story(universe: Universe) -> None:
        universe.host("b1")
        with trio.fail_after(3_600):
            async with trio.open_nursery() as nursery:
                await scenario(Scene(universe, nursery, settings))
                nursery.cancel_scope.cancel()

    run_simulation(seed, story)


@pytest.mark.feature("CL-01")
def test_a_node_that_refuses_is_left_alone_ever_longer_until_it_answers() -> None:
    async def scenario(scene: Scene) -> None:
        tried = []
        for _ in range(8):
            with pytest.raises(NotSent, match="connection refused"):
                await scene.connection.connect(5_000)
            tried.append(trio.current_time())
            with pytest.raises(NotSent, match=r"is not dialled for another .* connection refused"):
                await scene.ask()
            assert trio.current_time() == tried[-1]
        waits = [1000 * (after - before) for before, after in pairwise(tried)]
        for wait_ms, middle_ms in zip(waits, [100, 200, 400, 800, 1000, 1000, 1000], strict=True):
            assert 0.8 * middle_ms - 1 <= wait_ms <= 1.2 * middle_ms + 5
        await scene.start()
        await scene.connection.connect(5_000)
        await scene.ask()
        scene.universe.kill("b1")
        await trio.sleep(0.01)
        began = trio.current_time()
        for _ in range(2):
            with pytest.raises(NotSent):
                await scene.connection.connect(5_000)
        assert trio.current_time() - began < 0.4, "it begins with short waits again"

    stage(scenario)


@pytest.mark.feature("CL-01")
def test_all_who_wait_for_a_dial_share_it() -> None:
    async def scenario(scene: Scene) -> None:
        failures = []

        async def ask() -> None:
            try:
                await scene.ask()
            except NotSent as error:
                failures.append(error)

        async with trio.open_nursery() as askers:
            for _ in range(20):
                askers.start_soon(ask)
        assert len(failures) == 20
        assert scene.dials() == 1
        await scene.start()
        await trio.sleep(0.2)
        async with trio.open_nursery() as askers:
            for _ in range(20):
                askers.start_soon(ask)
        assert len(failures) == 20
        assert len(scene.node.handshakes) == 1

    stage(scenario)


def test_a_cancelled_dial_is_taken_over_by_who_waits() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.start()
        answered = trio.Event()

        async def ask() -> None:
            await scene.ask()
            answered.set()

        with trio.move_on_after(0.000_3):
            scene.nursery.start_soon(ask)
            await scene.ask()
        with trio.fail_after(1):
            await answered.wait()

    stage(scenario)


@pytest.mark.feature("CL-01")
def test_connect_waits_for_a_handshake_that_a_call_began() -> None:
    """A call that lost the connection opens it again by itself. A `connect` that returned before the handshake would be
    followed by a call that fails, another `connect`, and so on without a pause."""

    async def scenario(scene: Scene) -> None:
        await scene.start()

        async def call() -> None:
            await scene.connection.channel.connect(timeout_ms=1_000)

        scene.nursery.start_soon(call)
        while not scene.connection.connected:
            await trio.sleep(0.000_01)
        assert scene.connection.free_from_ms is None, "its handshake is under way"
        await scene.connection.connect(1_000)
        assert scene.connection.free_from_ms is not None
        assert scene.dials() == 1

    stage(scenario)


@pytest.mark.feature("CL-01")
def test_a_dial_that_hangs_is_given_up_ever_later() -> None:
    async def scenario(scene: Scene) -> None:
        scene.universe.wires.cut("client", "b1")
        took = []
        for _ in range(4):
            began = trio.current_time()
            with pytest.raises(NotSent):
                await scene.connection.connect(20_000)
            took.append(1000 * (trio.current_time() - began))
        for took_ms, setup_ms, wait_ms in zip(took, [1000, 2000, 3000, 3000], [0, 100, 200, 400], strict=True):
            assert 0.8 * (setup_ms + wait_ms) <= took_ms <= 1.2 * (setup_ms + wait_ms) + 5
        scene.universe.wires.heal()
        await scene.start()
        await scene.connection.connect(20_000)
        await scene.ask()

    stage(scenario)


@pytest.mark.feature("CL-01")
def test_a_connection_over_which_nothing_goes_is_closed_and_opened_again() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.start()
        await scene.ask()
        for _ in range(IDLE_LOOKS):
            assert not scene.connection.looks_idle()
        await scene.ask()
        for _ in range(IDLE_LOOKS):
            assert not scene.connection.looks_idle(), "somebody asked meanwhile"
        assert scene.connection.looks_idle()
        scene.connection.rest()
        assert not scene.connection.connected
        assert scene.connection.wait_ms() == 0, "it did nothing wrong"
        await scene.ask()
        assert len(scene.node.handshakes) == 2

    stage(scenario)


def test_a_connection_on_which_somebody_waits_is_not_idle() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.start()
        scene.node.answers[ApiKey.METADATA] = lambda _: None
        scene.nursery.start_soon(partial(scene.ask, 3_000_000))
        await trio.sleep(1)
        for _ in range(3 * IDLE_LOOKS):
            assert not scene.connection.looks_idle()

    stage(scenario)


@pytest.mark.feature("CL-01")
def test_a_node_that_throttles_is_not_asked_before_it_wants_to_be() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.start()
        slow = metadata({1: "b1"})
        slow.throttle_time_ms = 700
        scene.node.answers[ApiKey.METADATA] = lambda _: slow
        await scene.ask()
        assert scene.connection.throttled
        with pytest.raises(NotSent, match="throttles this client"):
            await scene.ask(200)
        await scene.ask()
        first, second = scene.node.times(ApiKey.METADATA)
        assert second - first >= 0.699

    stage(scenario)


@pytest.mark.feature("CL-01")
def test_a_node_that_does_not_answer_in_time_is_dialled_again_after_a_while() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.start()
        scene.node.answers[ApiKey.METADATA] = lambda _: None

        async def ask() -> None:
            with pytest.raises(CallTimedOut):
                await scene.ask(500)

        async with trio.open_nursery() as askers:
            for _ in range(5):
                askers.start_soon(ask)
        assert 70 <= scene.connection.wait_ms() <= 120, "five calls failed, and one connection"

    stage(scenario)


# Versions


@pytest.mark.feature("CL-01")
def test_a_broker_that_is_too_old_is_an_error_of_one_line() -> None:
    async def scenario(scene: Scene) -> None:
        scene.node.versions[ApiKey.METADATA] = (0, 3)
        await scene.start()
        assert (await scene.ask()).brokers
        with pytest.raises(UnsupportedVersionException, match="FindCoordinator at b1:9092") as failure:
            await scene.connection.call(FindCoordinatorRequest(key="g"), 1000)
        assert not failure.value.retriable
        scene.node.versions[ApiKey.METADATA] = (90, 91)
        scene.connection.channel.disconnect("to learn the versions again")
        with pytest.raises(UnsupportedVersionException, match="serves Metadata 90-91, wanted"):
            await scene.ask()

    stage(scenario)


@pytest.mark.feature("CL-01")
def test_a_field_that_an_old_broker_lacks_is_an_error_of_one_line() -> None:
    async def scenario(scene: Scene) -> None:
        scene.node.answers[ApiKey.FIND_COORDINATOR] = lambda _: None
        scene.node.versions[ApiKey.FIND_COORDINATOR] = (0, 3)
        await scene.start()
        with pytest.raises(UnsupportedVersionException, match="FindCoordinator at b1:9092"):
            await scene.connection.call(FindCoordinatorRequest(coordinator_keys=["g", "h"]), 1000)
        assert scene.node.asked == []

    stage(scenario)


# Those who are no brokers


async def _silence(connection: Connection) -> None:
    await trio.sleep_forever()


async def _hang_up(connection: Connection) -> None:
    await connection.receive_into(memoryview(bytearray(100)))


async def _half_an_answer(connection: Connection) -> None:
    await connection.receive_into(memoryview(bytearray(100)))
    connection.send_now([b"\0\0\0\x40\0\0\0\x01\0\0\0"])


async def _nothing_in_it(connection: Connection) -> None:
    await connection.receive_into(memoryview(bytearray(100)))
    connection.send_now([b"\0\0\0\0"])
    await trio.sleep_forever()


async def _noise(connection: Connection) -> None:
    chance = random.Random(7)
    while True:
        await connection.wait_writable()
        connection.send_now([chance.randbytes(1000)])
        await trio.sleep(0.01)


def _says(data: bytes) -> Callable[[Connection], Awaitable[None]]:
    async def treat(connection: Connection) -> None:
        connection.send_now([data])
        await trio.sleep_forever()

    return treat


@pytest.mark.feature("CL-01")
@pytest.mark.parametrize(
    ("treat", "seconds"),
    [
        (_silence, 1.25),
        (_hang_up, 0.1),
        (_half_an_answer, 0.1),
        (_nothing_in_it, 0.1),
        (_noise, 0.1),
        (_says(b"HTTP/1.1 400 Bad Request\r\n\r\n"), 0.1),
        (_says(b"SSH-2.0-OpenSSH_9.2\r\n"), 0.1),
        (_says(b"\x15\x03\x03\0\x02\x02\x46"), 0.1),
        (_says(b"\0\0\0\x06\0\0\0\x01\0\0"), 1.25),
        (_says(b"\xff\xff\xff\xff"), 0.1),
    ],
)
def test_no_listener_makes_a_call_hang(treat: Callable[[Connection], Any], seconds: float) -> None:
    async def scenario(scene: Scene) -> None:
        scene.nursery.start_soon(scene.universe.run_node, "b1", lambda world: listen_badly(world, "b1", treat))
        await trio.sleep(0.01)
        began = trio.current_time()
        with pytest.raises((NotSent, SslAuthenticationException)):
            await scene.ask()
        assert trio.current_time() - began <= seconds

    stage(scenario)


@pytest.mark.parametrize(
    ("first_bytes", "hint"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "the server answers in HTTP; use the port of a Kafka listener"),
        (b"\x15\x03\x03\x00\x02\x02\x16", "the server speaks TLS on this port; use security.protocol=SSL or SASL"),
    ],
)
def test_another_protocol_is_recognized(first_bytes: bytes, hint: str) -> None:
    async def scenario(scene: Scene) -> None:
        treat = _says(first_bytes)
        scene.nursery.start_soon(scene.universe.run_node, "b1", lambda world: listen_badly(world, "b1", treat))
        await trio.sleep(0.01)
        with pytest.raises((NotSent, SslAuthenticationException), match=hint):
            await scene.ask()

    stage(scenario)


# Authentication


def by_plain(password: str) -> SaslChannelSecurity:
    return SaslChannelSecurity(lambda host: PlainClient("tim", password))


def _believes(password: str) -> dict[ApiKey, Callable[[Any], Any]]:
    def authenticate(request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
        if request.auth_bytes == f"\0tim\0{password}".encode():
            return SaslAuthenticateResponse()
        code = ErrorCode.SASL_AUTHENTICATION_FAILED
        return SaslAuthenticateResponse(error_code=code, error_message="wrong password")

    return {
        ApiKey.SASL_HANDSHAKE: lambda _: SaslHandshakeResponse(mechanisms=["PLAIN"]),
        ApiKey.SASL_AUTHENTICATE: authenticate,
    }


@pytest.mark.feature("CL-01")
def test_each_connection_is_authenticated_before_anything_else() -> None:
    async def scenario(scene: Scene) -> None:
        scene.node.answers |= _believes("secret")
        await scene.start()
        caller = Caller(scene.caller.world, scene.nursery, "test", SETTINGS, by_plain("secret"))
        connection = scene.connection = scene.connect_as(caller)
        async with trio.open_nursery() as askers:
            for _ in range(5):
                askers.start_soon(scene.ask)
        dialogue = [key for _, key, _ in scene.node.asked]
        assert dialogue == [ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, *[ApiKey.METADATA] * 5]
        connection.channel.disconnect("to see it again")
        await scene.ask()
        assert [key for _, key, _ in scene.node.asked[7:]] == [*dialogue[:2], ApiKey.METADATA]

    stage(scenario)


@pytest.mark.feature("CL-01")
def test_a_rejected_identity_is_reported_at_once() -> None:
    async def scenario(scene: Scene) -> None:
        scene.node.answers |= _believes("secret")
        await scene.start()
        caller = Caller(scene.caller.world, scene.nursery, "test", SETTINGS, by_plain("guess"))
        scene.connection = scene.connect_as(caller)
        with pytest.raises(SaslAuthenticationException, match="wrong password") as failure:
            await scene.ask()
        assert not failure.value.retriable
        assert not scene.connection.connected
        assert scene.connection.wait_ms() > 0, "a wrong password is not tried as fast as can be"

    stage(scenario)


# Choice of the node


def test_the_order_of_connections() -> None:
    class One:
        def __init__(self, name: str, **facts: Any) -> None:
            self.name = name
            self.connected = facts.get("connected", False)
            self.throttled = facts.get("throttled", False)
            self.tried_ms = facts.get("tried_ms", 0)
            self.channel = self
            self.in_flight = facts.get("in_flight", 0)
            self._wait_ms = facts.get("wait_ms", 0)

        def wait_ms(self) -> int:
            return int(self._wait_ms)

    everybody: list[Any] = [
        One("failed", wait_ms=70, tried_ms=9),
        One("failed long ago", tried_ms=5),
        One("never tried"),
        One("busy", connected=True, in_flight=3),
        One("throttles", connected=True, throttled=True),
        One("free", connected=True),
    ]
    wanted = ["free", "busy", "throttles", "never tried", "failed long ago", "failed"]
    for start in range(20):
        assert [one.name for one in in_turn(everybody, start)] == wanted
    alike: Any = [One(str(number)) for number in range(3)]
    assert [in_turn(alike, start)[0].channel.name for start in range(3)] == ["0", "1", "2"]
    assert in_turn([], 0) == []


def test_waits_grow_to_a_bound_and_differ() -> None:
    backoff = Backoff(100, 1000, random.Random(4))
    waits = [backoff.next_ms() for _ in range(50)]
    for wait, middle in zip(waits, [100, 200, 400, 800, *[1000] * 46], strict=True):
        assert 0.8 * middle - 1 <= wait <= 1.2 * middle
    assert len(set(waits[4:])) > 10
    backoff.reset()
    assert backoff.next_ms() <= 120
