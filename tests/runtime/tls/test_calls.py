"""A server and a channel over TLS, and the same run twice from one seed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
import trio

from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.runtime.channel import Channel, ConnectionFailed, NotSent
from barnabas.runtime.outgoing import Outgoing
from barnabas.runtime.server import Server, ServerLimits
from barnabas.runtime.simulated import make_world, run_simulation
from barnabas.runtime.simulated.universe import Universe
from tests.runtime.conftest import Two
from tests.runtime.test_channel import Node
from tests.runtime.tls.stage import authority, certificate, client_security, server_security

pytestmark = pytest.mark.feature("SE-02")

Play = Callable[[Callable[[Two], Awaitable[None]]], None]


async def call_often(two: Two, nursery: trio.Nursery, calls: int = 20) -> Node:
    """Serve over TLS, and call over it: one after the other, then many at once."""
    node = Node()
    listener = await two.server.network.listen("", 0)
    server = Server(two.server, node, ServerLimits())
    nursery.start_soon(server.serve, listener, "SSL", server_security(two.server, ssl_client_auth="required"))
    security = client_security(two.client, own=certificate("alice", key=2))
    channel = Channel(two.client, nursery, two.host, listener.port, client_id="me", security=security)

    async def call(topics: int) -> None:
        request = MetadataRequest(topics=[MetadataRequestTopic(name="t" * 100)] * topics)
        await channel.call(request, timeout_ms=10_000)

    for number in range(calls):
        await call(number)
    async with trio.open_nursery() as many:
        for number in range(calls):
            many.start_soon(call, number * 200)
    assert channel.requests_sent == 2 * calls + node.handshakes
    channel.close()
    return node


def test_a_channel_calls_over_tls(play: Play) -> None:
    async def story(two: Two) -> None:
        async with trio.open_nursery() as nursery:
            node = await call_often(two, nursery)
            assert {str(request.principal) for request in node.asked} == {"User:CN=alice"}
            nursery.cancel_scope.cancel()

    play(story)


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_a_channel_reports_why_the_handshake_failed(play: Play, version: str) -> None:
    async def story(two: Two) -> None:
        node = Node()
        listener = await two.server.network.listen("", 0)
        server = Server(two.server, node, ServerLimits())
        async with trio.open_nursery() as nursery:
            demanding = server_security(two.server, ssl_client_auth="required", ssl_enabled_protocols=version)
            nursery.start_soon(server.serve, listener, "SSL", demanding)

            async def refusal(**options: object) -> str:
                security = client_security(two.client, **options)  # type: ignore[arg-type]
                channel = Channel(two.client, nursery, two.host, listener.port, client_id="me", security=security)
                with pytest.raises(NotSent) as caught:
                    await channel.connect(timeout_ms=5_000)
                assert not isinstance(caught.value, ConnectionFailed)
                channel.close()
                return str(caught.value)

            assert "wants a certificate" in await refusal()
            assert "does not trust our certificate" in await refusal(own=certificate("x", signer="another authority"))
            assert "TLS handshake with" in await refusal(own=certificate("x"), trusted=authority("another authority"))
            assert not node.asked
            nursery.cancel_scope.cancel()

    play(story)


def trace_of(seed: int) -> str:
    async def story(universe: Universe) -> str:
        universe.fabric.habits.encrypted = True
        two = Two(make_world("server", universe), make_world("client", universe), "server")
        async with trio.open_nursery() as nursery:
            await call_often(two, nursery)
            nursery.cancel_scope.cancel()
        return universe.digest()

    return run_simulation(seed, story)


def test_two_runs_of_one_seed_are_the_same() -> None:
    """OpenSSL's chance decides the bytes, never their number or their time."""
    for seed in range(5):
        assert trace_of(seed) == trace_of(seed)
    assert trace_of(5) != trace_of(6)


@pytest.mark.parametrize("habits", [{"dribble": True}, {"short_probability": 0.7}, {"buffer_bytes": 1_000}])
def test_calls_go_through_a_bad_network(habits: dict[str, float]) -> None:
    """Three bytes at a time, pieces of any size, or a connection that holds little."""

    async def story(universe: Universe) -> None:
        for name, value in habits.items():
            setattr(universe.fabric.habits, name, value)
        two = Two(make_world("server", universe), make_world("client", universe), "server")
        async with trio.open_nursery() as nursery:
            node = await call_often(two, nursery, 8)
            assert len(node.asked) == 16
            nursery.cancel_scope.cancel()

    for seed in range(3):
        run_simulation(seed, story)


class Ticking:
    """A stopwatch on which each look takes a microsecond."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1e-6
        return self.now


@pytest.mark.parametrize("is_tls", [True, False])
def test_a_client_pays_for_decryption_before_its_first_request_is_whole(play: Play, is_tls: bool) -> None:
    async def story(two: Two) -> None:
        listener = await two.server.network.listen("", 0)
        node = Node()
        server = Server(replace(two.server, stopwatch=Ticking()), node, ServerLimits())
        async with trio.open_nursery() as nursery:
            security = server_security(two.server) if is_tls else None
            nursery.start_soon(server.serve, listener, "CLIENTS", security)
            connection = await two.client.network.dial(two.host, listener.port)
            if is_tls:
                connection = await client_security(two.client).secure(connection, two.host)
            outgoing = Outgoing(connection)
            half = (100_000).to_bytes(4, "big") + bytes(50_000)
            outgoing.send([half], len(half))
            if outgoing.unsent_bytes:
                await outgoing.drain()
            while server.memory.request_bytes < 50_000:
                await trio.sleep(0.01)
            assert bool(server.turns.spent) is is_tls
            assert not node.asked
            connection.close()
            nursery.cancel_scope.cancel()

    play(story)
