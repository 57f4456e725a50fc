"""Calls to a node: versions, pipelining, and what each error means for the request."""

from __future__ import annotations

from functools import partial

import pytest
import trio

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.framing import response_prefix
from barnabas.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.protocol.schema import decode, encode_chunks
from barnabas.runtime.at_once import Stepwise
from barnabas.runtime.channel import (
    AuthenticationFailed,
    CallTimedOut,
    Channel,
    ConnectionFailed,
    NotSent,
    UnsupportedVersion,
)
from barnabas.runtime.link import FIRST_STEPS
from barnabas.runtime.server import Request, ResponseSlot, Server, ServerLimits
from barnabas.runtime.simulated import make_world, run_simulation
from tests.runtime.conftest import Two


class Node:
    """Serves ApiVersions, and Metadata when results."""

    def __init__(self, *, newest_api_versions: int = 4, metadata: tuple[int, int] = (0, 12)) -> None:
        self.newest_api_versions = newest_api_versions
        self.metadata = metadata
        self.handshakes = 0
        self.asked: list[Request] = []
        self.slots: list[ResponseSlot] = []
        self.answers_at_once = True

    def __call__(self, request: Request, slot: ResponseSlot) -> None:
        if request.api_key == ApiKey.API_VERSIONS:
            self._shake_hands(request, slot)
            return
        self.asked.append(request)
        self.slots.append(slot)
        if self.answers_at_once:
            self.answer(len(self.slots) - 1)

    def answer(self, number: int) -> None:
        request = self.asked[number]
        prefix = response_prefix(request.correlation_id, request.api_version >= 9)
        response = MetadataResponse(controller_id=number)
        self.slots[number].fill(encode_chunks(response, request.api_version, prefix))

    def _shake_hands(self, request: Request, slot: ResponseSlot) -> None:
        self.handshakes += 1
        prefix = response_prefix(request.correlation_id, False)
        if request.api_version > self.newest_api_versions:
            response = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
            slot.fill(encode_chunks(response, 0, prefix))
            return
        decode(ApiVersionsRequest, request.body, request.api_version)
        lowest, highest = self.metadata
        served = [ApiVersion(api_key=ApiKey.METADATA, min_version=lowest, max_version=highest)]
        slot.fill(encode_chunks(ApiVersionsResponse(api_keys=served), request.api_version, prefix))

    async def wait_for(self, count: int) -> None:
        while len(self.slots) < count:
            await trio.sleep(0.001)


class Scene:
    """One node, and a channel to it."""

    def __init__(self, two, node: Node) -> None:
        self.two = two
        self.node = node
        self.news: list[bool] = []

    async def start(self, nursery: trio.Nursery, port: int = 0) -> None:
        self.listener = await self.two.server.network.listen("", port)
        self.serving = trio.CancelScope()
        self.closed = trio.Event()
        nursery.start_soon(self._serve)

    async def _serve(self) -> None:
        with self.serving:
            await Server(self.two.server, self.node, ServerLimits()).serve(self.listener, "PLAINTEXT")
        self.closed.set()

    async def stop(self) -> None:
        self.serving.cancel()
        await self.closed.wait()

    def open(self, nursery: trio.Nursery) -> Channel:
        channel = Channel(self.two.client, nursery, self.two.host, self.listener.port, client_id="caller")
        channel.on_closed = self.news.append
        return channel


def stage(play, make_node, act) -> None:
    async def story(two) -> None:
        async with trio.open_nursery() as nursery:
            scene = Scene(two, make_node())
            await scene.start(nursery)
            await act(scene, scene.open(nursery), nursery)
            nursery.cancel_scope.cancel()

    play(story)


def test_a_call_is_answered_in_the_newest_common_version(play) -> None:
    async def act(scene, channel, nursery) -> None:
        for number in range(3):
            response = await channel.call(MetadataRequest(), timeout_ms=5000)
            assert response.controller_id == number
        assert [request.api_version for request in scene.node.asked] == [12, 12, 12]
        assert scene.node.asked[0].client_id == "caller"
        assert scene.node.handshakes == 1
        await channel.call(MetadataRequest(), timeout_ms=5000, version=5)
        assert scene.node.asked[-1].api_version == 5

    stage(play, Node, act)


def test_a_node_that_does_not_know_our_handshake_is_asked_again(play) -> None:
    async def act(scene, channel, nursery) -> None:
        await channel.call(MetadataRequest(), timeout_ms=5000)
        assert scene.node.handshakes == 2
        assert scene.node.asked[0].api_version == 7

    stage(play, lambda: Node(newest_api_versions=2, metadata=(0, 7)), act)


def test_versions_that_do_not_meet(play) -> None:
    async def act(scene, channel, nursery) -> None:
        with pytest.raises(UnsupportedVersion, match=r"Metadata 90-91, wanted 0-"):
            await channel.call(MetadataRequest(), timeout_ms=5000)
        with pytest.raises(UnsupportedVersion, match="wanted 3-3"):
            await channel.call(MetadataRequest(), timeout_ms=5000, version=3)
        with pytest.raises(UnsupportedVersion):
            await channel.call(FetchRequest(), timeout_ms=5000)
        assert scene.node.asked == []

    stage(play, lambda: Node(metadata=(90, 91)), act)


def test_calls_share_a_connection(play) -> None:
    async def act(scene, channel, nursery) -> None:
        scene.node.answers_at_once = False
        numbers = []

        async def call() -> None:
            numbers.append((await channel.call(MetadataRequest(), timeout_ms=5000)).controller_id)

        async with trio.open_nursery() as calls:
            for _ in range(10):
                calls.start_soon(call)
            await scene.node.wait_for(10)
            for number in reversed(range(10)):
                scene.node.answer(number)
        assert sorted(numbers) == list(range(10))
        assert scene.node.handshakes == 1

    stage(play, Node, act)


def test_a_call_that_comes_during_the_handshake_waits_for_its_end(play) -> None:
    async def act(scene, channel, nursery) -> None:
        numbers = []

        async def call() -> None:
            numbers.append((await channel.call(MetadataRequest(), timeout_ms=5000)).controller_id)

        async with trio.open_nursery() as calls:
            while not numbers:
                calls.start_soon(call)
                await trio.sleep(0.000_1)
        assert len(numbers) > 3
        assert scene.node.handshakes == 1

    stage(play, Node, act)


def test_a_refused_dial(play) -> None:
    async def act(scene, channel, nursery) -> None:
        await scene.stop()
        with pytest.raises(NotSent) as failure:
            await channel.call(MetadataRequest(), timeout_ms=5000)
        assert failure.value.refused
        assert scene.news == [True]

    stage(play, Node, act)


def test_the_peer_goes_away_and_comes_back(play) -> None:
    async def act(scene, channel, nursery) -> None:
        scene.node.answers_at_once = False

        async def call() -> None:
            with pytest.raises(ConnectionFailed):
                await channel.call(MetadataRequest(), timeout_ms=5000)

        async with trio.open_nursery() as calls:
            calls.start_soon(call)
            await scene.node.wait_for(1)
            scene.serving.cancel()
        assert scene.news == [False]
        assert not channel.connected
        scene.node.answers_at_once = True
        await scene.start(nursery, scene.listener.port)
        assert (await channel.call(MetadataRequest(), timeout_ms=5000)).controller_id == 1
        assert scene.news == [False]

    stage(play, Node, act)


def test_the_loss_of_an_idle_connection_is_reported(play) -> None:
    async def act(scene, channel, nursery) -> None:
        await channel.connect(timeout_ms=5000)
        assert channel.connected
        scene.serving.cancel()
        while not scene.news:
            await trio.sleep(0.001)
        assert scene.news == [False]

    stage(play, Node, act)


def test_no_answer_in_time(play) -> None:
    async def act(scene, channel, nursery) -> None:
        scene.node.answers_at_once = False
        with pytest.raises(CallTimedOut):
            await channel.call(MetadataRequest(), timeout_ms=50)
        assert not channel.connected
        scene.node.answers_at_once = True
        assert (await channel.call(MetadataRequest(), timeout_ms=5000)).controller_id == 1

    stage(play, Node, act)


def test_a_cancelled_call_harms_no_other(play) -> None:
    async def act(scene, channel, nursery) -> None:
        scene.node.answers_at_once = False
        with trio.move_on_after(0.05):
            await channel.call(MetadataRequest(), timeout_ms=5000)
        scene.node.answers_at_once = True
        scene.node.answer(0)
        assert (await channel.call(MetadataRequest(), timeout_ms=5000)).controller_id == 1
        assert scene.node.handshakes == 1

    stage(play, Node, act)


def test_a_closed_channel_fails_everything(play) -> None:
    async def act(scene, channel, nursery) -> None:
        scene.node.answers_at_once = False

        async def call() -> None:
            with pytest.raises(ConnectionFailed):
                await channel.call(MetadataRequest(), timeout_ms=5000)

        async with trio.open_nursery() as calls:
            calls.start_soon(call)
            await scene.node.wait_for(1)
            channel.close()
        with pytest.raises(NotSent):
            await channel.call(MetadataRequest(), timeout_ms=5000)
        assert scene.news == []

    stage(play, Node, act)


def test_an_answer_that_does_not_decode_ends_the_connection(play) -> None:
    async def act(scene, channel, nursery) -> None:
        scene.node.answers_at_once = False

        async def call() -> None:
            with pytest.raises(ConnectionFailed, match="malformed Metadata response"):
                await channel.call(MetadataRequest(), timeout_ms=5000)

        async with trio.open_nursery() as calls:
            calls.start_soon(call)
            await scene.node.wait_for(1)
            scene.node.slots[0].fill([scene.node.asked[0].correlation_id.to_bytes(4, "big"), b"\0\7nonsense"])
        assert not channel.connected

    stage(play, Node, act)


def test_an_answer_with_an_unknown_correlation_id_ends_the_connection(play) -> None:
    async def act(scene, channel, nursery) -> None:
        scene.node.answers_at_once = False

        async def call() -> None:
            with pytest.raises(ConnectionFailed):
                await channel.call(MetadataRequest(), timeout_ms=5000)

        async with trio.open_nursery() as calls:
            calls.start_soon(call)
            await scene.node.wait_for(1)
            scene.node.slots[0].fill([b"\x7f\0\0\0"])

    stage(play, Node, act)


def test_a_dial_that_hangs_is_not_sent() -> None:
    async def story(universe) -> None:
        class Two:
            server, client, host = make_world("server", universe), make_world("client", universe), "server"

        async with trio.open_nursery() as nursery:
            scene = Scene(Two, Node())
            await scene.start(nursery)
            channel = scene.open(nursery)
            universe.wires.cut("client", "server")
            with pytest.raises(NotSent) as failure:
                await channel.call(MetadataRequest(), timeout_ms=300)
            assert not failure.value.refused
            assert trio.current_time() == pytest.approx(0.3)
            universe.wires.heal()
            await channel.call(MetadataRequest(), timeout_ms=300)
            universe.wires.cut("server", "client")
            with pytest.raises(CallTimedOut):
                await channel.call(MetadataRequest(), timeout_ms=300)
            assert len(scene.node.asked) == 2
            nursery.cancel_scope.cancel()

    run_simulation(5, story)


def test_a_conversation_goes_on_in_the_turn_of_each_answer(play) -> None:
    async def act(scene, channel, nursery) -> None:
        numbers = []

        def answered(response) -> Stepwise[MetadataRequest | None]:
            yield from ()
            numbers.append(response.controller_id)
            return MetadataRequest() if len(numbers) < 5 else None

        await channel.converse(MetadataRequest(), answered, timeout_ms=5000)
        assert len(numbers) == len(set(numbers)) == 5
        # Others may call meanwhile and afterwards.
        assert (await channel.call(MetadataRequest(), timeout_ms=5000)).controller_id not in numbers
        assert scene.node.handshakes == 1

    stage(play, Node, act)


def test_others_run_between_the_steps_of_a_long_answer(play) -> None:
    async def act(scene, channel, nursery) -> None:
        turns, numbers = [], []
        begun = trio.Event()

        async def other() -> None:
            await begun.wait()
            while len(numbers) < 3 * FIRST_STEPS:
                turns.append(len(numbers))
                await trio.lowlevel.checkpoint()

        def answered(response) -> Stepwise[MetadataRequest | None]:
            for number in range(3 * FIRST_STEPS):
                numbers.append(number)
                if number == FIRST_STEPS:
                    begun.set()
                yield
            return MetadataRequest() if len(numbers) < 6 * FIRST_STEPS else None

        nursery.start_soon(other)
        await channel.converse(MetadataRequest(), answered, timeout_ms=5000)
        assert len(numbers) == 6 * FIRST_STEPS
        later = range(FIRST_STEPS + 3, 3 * FIRST_STEPS - 1)
        assert all({number, number + 1} & {*turns} for number in later), "one step in each pass, first or last"

        # The rest of a long answer is given up with its conversation.
        numbers.clear()
        begun = trio.Event()
        async with trio.open_nursery() as inner:
            inner.start_soon(partial(channel.converse, MetadataRequest(), answered, timeout_ms=5000))
            await begun.wait()
            inner.cancel_scope.cancel()
        assert len(numbers) < 3 * FIRST_STEPS
        assert channel.connected

    stage(play, Node, act)


def test_ends_of_a_conversation(play) -> None:
    async def act(scene, channel, nursery) -> None:
        def mistaken(response) -> Stepwise[None]:
            yield from ()
            raise RuntimeError("mine")

        with pytest.raises(RuntimeError, match="mine"):
            await channel.converse(MetadataRequest(), mistaken, timeout_ms=5000)
        assert channel.connected, "a mistake of the caller's is none of the connection's"

        scene.node.answers_at_once = False
        asked = len(scene.node.asked)
        with trio.move_on_after(0.1) as scope:
            await channel.converse(MetadataRequest(), mistaken, timeout_ms=5000)
        assert scope.cancelled_caught
        await scene.node.wait_for(asked + 1)
        scene.node.answer(asked)
        await trio.sleep(0.1)
        assert channel.connected, "the answer came too late for anybody to look at it"

        with pytest.raises(CallTimedOut):
            await channel.converse(MetadataRequest(), mistaken, timeout_ms=50)
        assert not channel.connected

    stage(play, Node, act)


def test_each_request_of_a_conversation_has_its_time(play) -> None:
    async def act(scene, channel, nursery) -> None:
        scene.node.answers_at_once = False
        turns = []

        def answered(response) -> Stepwise[MetadataRequest | None]:
            yield from ()
            turns.append(trio.current_time())
            return MetadataRequest() if len(turns) < 4 else None

        async def answer_late() -> None:
            for number in range(4):
                await scene.node.wait_for(number + 1)
                await trio.sleep(0.3)
                scene.node.answer(number)

        nursery.start_soon(answer_late)
        await channel.converse(MetadataRequest(), answered, timeout_ms=800)
        assert turns[-1] - turns[0] > 0.8

    stage(play, Node, act)


def test_a_request_sent_now_gets_its_answer_in_the_turn_of_its_arrival(play) -> None:
    async def act(scene, channel, nursery) -> None:
        results = []
        with pytest.raises(NotSent, match="there is no connection"):
            channel.send_now(MetadataRequest(), results.append, timeout_ms=5000)
        await channel.connect(timeout_ms=5000)
        scene.node.answers_at_once = False
        for _ in range(3):
            channel.send_now(MetadataRequest(), results.append, timeout_ms=5000)
        assert channel.in_flight == 3
        await scene.node.wait_for(3)
        for number in (0, 1, 2):
            scene.node.answer(number)
        assert (await answer_to_a_call(scene, channel, 3)).controller_id == 3
        assert [response.controller_id for response in results] == [0, 1, 2]
        channel.send_now(MetadataRequest(), results.append, timeout_ms=5000, at_most=5)
        await scene.node.wait_for(5)
        assert scene.node.asked[4].api_version == 5

    async def answer_to_a_call(scene, channel, number) -> MetadataResponse:
        async def answer() -> None:
            await scene.node.wait_for(number + 1)
            scene.node.answer(number)

        async with trio.open_nursery() as answering:
            answering.start_soon(answer)
            return await channel.call(MetadataRequest(), timeout_ms=5000)

    stage(play, Node, act)


def test_a_request_sent_now_gets_an_error_for_every_end(play) -> None:
    async def act(scene, channel, nursery) -> None:
        async def next_result() -> object:
            with trio.fail_after(60):
                while not results:
                    await trio.sleep(0.01)
            return results.pop(0)

        results: list[object] = []
        scene.node.answers_at_once = False
        await channel.connect(timeout_ms=5000)
        channel.send_now(MetadataRequest(), results.append, timeout_ms=60_000)
        channel.send_now(MetadataRequest(), results.append, timeout_ms=300)
        late = await next_result()
        # Answers keep their order, so the connection is of no use to the patient one either.
        assert isinstance(late, ConnectionFailed)
        late = await next_result()
        assert isinstance(late, CallTimedOut)
        assert "Metadata" in str(late) and "no answer within 300 ms" in str(late)
        assert not channel.connected
        assert scene.news == [], "we closed it"

        await channel.connect(timeout_ms=5000)
        channel.send_now(MetadataRequest(), results.append, timeout_ms=60_000)
        channel.disconnect("enough")
        assert isinstance(results.pop(), ConnectionFailed)

        await channel.connect(timeout_ms=5000)
        asked = len(scene.node.asked)
        channel.send_now(MetadataRequest(), results.append, timeout_ms=60_000)
        await scene.node.wait_for(asked + 1)
        scene.node.slots[-1].fill([response_prefix(scene.node.asked[-1].correlation_id, True), b"\xff"])
        malformed = await next_result()
        assert isinstance(malformed, ConnectionFailed)
        assert "malformed Metadata response" in str(malformed)
        assert not channel.connected
        assert results == []

    stage(play, Node, act)


def test_a_connection_outlives_the_deadlines_of_answered_requests() -> None:
    async def story(universe) -> None:
        two = Two(make_world("server", universe), make_world("client", universe), "server")
        async with trio.open_nursery() as nursery:
            scene = Scene(two, Node())
            await scene.start(nursery)
            channel = scene.open(nursery)
            results = []
            await channel.connect(timeout_ms=5000)
            channel.send_now(MetadataRequest(), results.append, timeout_ms=500)
            await trio.sleep(0.4)
            channel.send_now(MetadataRequest(), results.append, timeout_ms=500)
            await trio.sleep(0.8)
            channel.send_now(MetadataRequest(), results.append, timeout_ms=500)
            await trio.sleep(0.4)
            assert [response.controller_id for response in results] == [0, 1, 2]
            assert scene.node.handshakes == 1
            # The reader that looked at the clock in between still looks.
            scene.node.answers_at_once = False
            channel.send_now(MetadataRequest(), results.append, timeout_ms=500)
            await trio.sleep(0.6)
            assert isinstance(results[-1], CallTimedOut)
            nursery.cancel_scope.cancel()

    run_simulation(5, story)


def test_a_server_of_another_protocol_is_reported_at_once(play) -> None:
    async def story(two) -> None:
        async def speak_http(connection) -> None:
            connection.send_now([b"HTTP/1.1 400 Bad Request\r\n\r\n"])
            await trio.sleep(60)

        async with trio.open_nursery() as nursery:
            listener = await two.server.network.listen("", 0)
            channel = Channel(two.client, nursery, two.host, listener.port, client_id="caller")
            with trio.fail_after(5):
                async with trio.open_nursery() as calls:

                    async def call() -> None:
                        with pytest.raises(NotSent, match="the server answers in HTTP"):
                            await channel.call(MetadataRequest(), timeout_ms=30_000)

                    calls.start_soon(call)
                    nursery.start_soon(speak_http, await listener.accept())
            nursery.cancel_scope.cancel()

    play(story)


def test_authentication_comes_before_all_other_calls(play) -> None:
    class Doorman:
        """Blocks other calls until it has finished with the peer."""

        def __init__(self) -> None:
            self.error: KafkaError | None = None
            self.asked = 0

        async def authenticate(self, peer) -> None:
            self.asked += 1
            await peer.call(MetadataRequest(), version=7)
            if self.error is not None:
                raise self.error

    async def act(scene, channel, nursery) -> None:
        channel.authenticator = doorman = Doorman()
        async with trio.open_nursery() as calls:
            for _ in range(3):
                calls.start_soon(partial(channel.call, MetadataRequest(), timeout_ms=5000))
        assert [request.api_version for request in scene.node.asked] == [7, 12, 12, 12]
        assert doorman.asked == 1
        channel.disconnect("for a new connection")
        doorman.error = KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, "not you")
        with pytest.raises(AuthenticationFailed, match="not you") as failure:
            await channel.call(MetadataRequest(), timeout_ms=5000)
        assert failure.value.error is doorman.error
        assert not channel.connected

    stage(play, Node, act)


def test_the_state_of_a_channel(play) -> None:
    async def act(scene, channel, nursery) -> None:
        assert (channel.in_flight, channel.requests_sent, channel.features.epoch) == (0, 0, -1)
        scene.node.answers_at_once = False
        nursery.start_soon(partial(channel.call, MetadataRequest(), timeout_ms=5000))
        await scene.node.wait_for(1)
        assert (channel.in_flight, channel.requests_sent) == (1, 2)
        scene.node.answer(0)
        while channel.in_flight:
            await trio.sleep(0.001)

    stage(play, Node, act)
