"""Requests with many elements: decoded, answered and freed in steps, counted as memory, refused above a limit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection

import pytest
import trio

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.framing import request_prefix
from barnabas.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from barnabas.protocol.schema import decode, encode
from barnabas.runtime.background import Background
from barnabas.runtime.dispatch import ELEMENT_BYTES, MAX_ELEMENTS, Call, Dispatcher, Execution, Handler
from barnabas.runtime.meter import Meter
from barnabas.runtime.server import Server, ServerLimits, Steps
from barnabas.runtime.simulated import make_world, run_simulation
from barnabas.runtime.simulated.work import WorkCounter
from barnabas.runtime.worker import Worker
from barnabas.runtime.world import CountWork
from tests.runtime.test_server import Peer

Act = Callable[[Server, Peer], Awaitable[None]]


def metadata_of(count: int) -> bytes:
    """A frame with a Metadata of so many topics."""
    topics = [MetadataRequestTopic(name=f"t{number}") for number in range(count)]
    frame = request_prefix(ApiKey.METADATA, 12, 7, "me") + encode(MetadataRequest(topics=topics), 12)
    return len(frame).to_bytes(4, "big") + frame


def play(
    handler: Handler, act: Act, count_work: CountWork | None = None, passed_on: Collection[ApiKey] = ()
) -> None:
    """A server that answers Metadata by `handler`, in a simulation."""

    async def story(universe) -> None:
        server_world, client_world = make_world("server", universe), make_world("client", universe)
        async with trio.open_nursery() as nursery:
            worker = Worker(server_world.run_blocking)
            execution = Execution(Background(nursery), worker, count_work)
            dispatcher = Dispatcher({ApiKey.METADATA: handler}, execution=execution, passed_on=passed_on)
            server = Server(server_world, dispatcher, ServerLimits(), worker)
            listener = await server_world.network.listen("", 0)
            nursery.start_soon(server.serve, listener, "PLAINTEXT")
            await act(server, Peer(await client_world.network.dial("server", listener.port)))
            nursery.cancel_scope.cancel()

    run_simulation(11, story)


def test_a_large_request_and_its_answer_are_counted_until_the_answer_leaves() -> None:
    counted: list[int] = []
    servers: list[Server] = []

    def describe(call: Call) -> Steps:
        counted.append(servers[0].memory.request_bytes)
        response, meter = MetadataResponse(), Meter(call)
        for topic in call.message.topics:
            response.topics.append(MetadataResponseTopic(name=topic.name))
            meter.answer_grows()
            if meter.step_ends():
                yield None
        counted.append(servers[0].memory.request_bytes)
        call.answer(response)

    async def act(server: Server, peer: Peer) -> None:
        servers.append(server)
        await peer.ask(metadata_of(20_000))
        answer = await peer.answer()
        assert len(decode(MetadataResponse, memoryview(answer)[5:], 12).topics) == 20_000
        decoded, answered = counted
        assert decoded > 20_000 * ELEMENT_BYTES
        assert answered > decoded + 19_000 * ELEMENT_BYTES
        while server.memory.request_bytes:
            await trio.sleep(0.001)

    play(describe, act)


def test_a_large_request_is_decoded_answered_and_freed_in_short_steps() -> None:
    calls: list[int] = []
    counter = WorkCounter(lambda _, made: calls.append(made))

    def describe(call: Call) -> Steps:
        response, meter = MetadataResponse(), Meter(call)
        for topic in call.message.topics:
            response.topics.append(MetadataResponseTopic(error_code=3, name=topic.name))
            meter.answer_grows()
            if meter.step_ends():
                yield None
        call.answer(response)

    async def act(server: Server, peer: Peer) -> None:
        await peer.ask(metadata_of(20_000))
        answer = await peer.answer()
        assert len(decode(MetadataResponse, memoryview(answer)[5:], 12).topics) == 20_000

    play(describe, act, counter)
    assert max(calls) < 2_500
    assert len(calls) > 3 * 20_000 / 512


def test_a_large_request_that_is_passed_on_is_not_decoded() -> None:
    bodies: list[bytes] = []

    def pass_on(call: Call) -> None:
        assert call.message is None
        bodies.append(bytes(call.request.body))
        call.answer_bytes(b"answer of another node")

    async def act(server: Server, peer: Peer) -> None:
        frame = metadata_of(20_000)
        await peer.ask(frame)
        assert await peer.answer() == b"answer of another node"
        assert frame.endswith(bodies[0]) and len(bodies[0]) > 20_000
        assert server.memory.request_bytes == 0

    play(pass_on, act, passed_on=[ApiKey.METADATA])


@pytest.mark.parametrize("count", [MAX_ELEMENTS + 1, 4 * MAX_ELEMENTS])
def test_a_request_with_too_many_elements_is_refused(count: int) -> None:
    served: list[Call] = []

    def describe(call: Call) -> Steps:
        served.append(call)
        yield None

    async def act(server: Server, peer: Peer) -> None:
        await peer.ask(metadata_of(count))
        await peer.closed()
        assert not served
        assert server.memory.request_bytes == 0

    play(describe, act)
