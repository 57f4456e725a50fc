"""Quotas of requests, from the frame to the muted connection, on a virtual clock (KIP-13, KIP-124, KIP-219)."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping

import pytest
import trio

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.framing import request_prefix
from barnabas.protocol.messages.fetch import FetchRequest, FetchResponse, ReplicaState
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.produce import ProduceRequest, ProduceResponse
from barnabas.protocol.schema import Message, decode, encode
from barnabas.runtime.background import Background
from barnabas.runtime.dispatch import Call, Dispatcher, Execution
from barnabas.runtime.quotas.levels import QuotaLevels
from barnabas.runtime.quotas.rate import QuotaWindows
from barnabas.runtime.quotas.requests import RequestQuotas
from barnabas.runtime.quotas.source import QuotaType
from barnabas.runtime.server import ServerLimits, Steps
from barnabas.runtime.simulated import make_world, run_simulation
from barnabas.runtime.worker import Worker
from tests.runtime.test_server import Peer, Scene

CLIENT_ID = "app"
VERSION = 9
HEARTBEAT_VERSION = 4


def framed(api_key: ApiKey, version: int, message: Message) -> bytes:
    body = request_prefix(api_key, version, 1, CLIENT_ID) + encode(message, version)
    return len(body).to_bytes(4, "big") + body


def produce(padding: int, *, acks: int = 1) -> bytes:
    return framed(ApiKey.PRODUCE, VERSION, ProduceRequest(transactional_id="x" * padding, acks=acks))


HEARTBEAT = framed(ApiKey.HEARTBEAT, HEARTBEAT_VERSION, HeartbeatRequest(group_id="g", member_id="m"))


class Stopwatch:
    """Moves by as much as a handler is said to take."""

    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


class Shop:
    """A server whose requests count for quotas. `work` is the time that each Heartbeat takes."""

    def __init__(self, quotas: Mapping[str, float]) -> None:
        self.levels = QuotaLevels({(("client-id", CLIENT_ID),): dict(quotas)})
        self.stopwatch = Stopwatch()
        self.work = 0.0
        self.fetched: list[tuple[int, bool]] = []
        self.fetch_bytes = 1_000
        self.calls: list[Call] = []
        self.dispatcher: Dispatcher

    def quotas_of(self, world) -> RequestQuotas:
        self.quotas = RequestQuotas(QuotaWindows(), QuotaWindows(), world.monotonic, self.levels)
        self.quotas.stopwatch = self.stopwatch
        return self.quotas

    def handlers(self) -> dict[ApiKey, Callable[[Call], Steps | None]]:
        def take_produce(call: Call) -> None:
            self.calls.append(call)
            if call.message.acks == 0:
                call.answer_nothing()
            else:
                call.answer(ProduceResponse())

        def take_heartbeat(call: Call) -> Steps:
            self.calls.append(call)
            for _ in range(2):
                self.stopwatch.now += self.work / 2
                yield None
            call.answer(HeartbeatResponse())

        def take_fetch(call: Call) -> None:
            self.fetched.append(call.fetch_throttle(self.fetch_bytes))
            call.answer(FetchResponse())

        return {ApiKey.PRODUCE: take_produce, ApiKey.HEARTBEAT: take_heartbeat, ApiKey.FETCH: take_fetch}


def run(shop: Shop, act: Callable[[Scene], Awaitable[None]]) -> None:
    """Play `act(scene)` with a server of the shop."""

    async def story(universe: object) -> None:
        class Two:
            server, client, host = make_world("server", universe), make_world("client", universe), "server"

        async with trio.open_nursery() as nursery:
            world = Two.server
            execution = Execution(
                Background(nursery), Worker(world.run_blocking), throttling=shop.quotas_of(world)
            )
            shop.dispatcher = Dispatcher(shop.handlers(), world.stopwatch, execution)
            scene = Scene(Two, shop.dispatcher, ServerLimits())
            await scene.start(nursery)
            await act(scene)
            nursery.cancel_scope.cancel()

    run_simulation(5, story)


async def answered(peer: Peer, frame: bytes, kind: type[Message], version: int, header_bytes: int = 5) -> Message:
    await peer.ask(frame)
    return decode(kind, (await peer.answer())[header_bytes:], version)


@pytest.mark.feature("QU-01", "QU-06")
def test_a_producer_gets_no_more_than_its_rate() -> None:
    """It sends as fast as it is read for a minute of virtual time, and ignores what the answers say."""
    frame = produce(5_000)
    shop = Shop({"producer_byte_rate": 10_000})

    async def act(scene: Scene) -> None:
        peer = await scene.peer()
        sent, throttles = 0, []
        began = trio.current_time()
        while trio.current_time() - began < 60:
            response = await answered(peer, frame, ProduceResponse, VERSION)
            sent += len(frame) - 4
            throttles.append(response.throttle_time_ms)
        rate = sent / (trio.current_time() - began)
        assert 9_000 <= rate <= 12_000, rate
        assert throttles[0] == 0 and max(throttles) > 0

    run(shop, act)


@pytest.mark.feature("QU-01")
def test_connections_of_one_client_share_its_rate() -> None:
    frame = produce(5_000)
    shop = Shop({"producer_byte_rate": 10_000})

    async def act(scene: Scene) -> None:
        async def send() -> None:
            nonlocal sent
            peer = await scene.peer()
            while True:
                await answered(peer, frame, ProduceResponse, VERSION)
                sent += len(frame) - 4

        sent = 0
        began = trio.current_time()
        with trio.move_on_after(120):
            async with trio.open_nursery() as nursery:
                for _ in range(5):
                    nursery.start_soon(send)
        rate = sent / (trio.current_time() - began)
        assert 9_000 <= rate <= 12_500, rate

    run(shop, act)


@pytest.mark.feature("QU-06", "QU-07")
def test_the_whole_request_counts_and_the_answer_says_for_how_long() -> None:
    frame = produce(30_000)
    shop = Shop({"producer_byte_rate": 1_000})

    async def act(scene: Scene) -> None:
        peer = await scene.peer()
        response = await answered(peer, frame, ProduceResponse, VERSION)
        size_bytes = len(frame) - 4
        assert response.throttle_time_ms == round((size_bytes / 10 - 1_000) / 1_000 * 10_000)

    run(shop, act)


@pytest.mark.feature("QU-06")
def test_a_producer_that_wants_no_answers_is_held_by_the_muted_connection_alone() -> None:
    frame = produce(20_000, acks=0)
    shop = Shop({"producer_byte_rate": 1_000, "request_percentage": 0.001})

    async def act(scene: Scene) -> None:
        peer = await scene.peer()
        began = trio.current_time()
        await peer.ask(frame, frame)
        while len(shop.calls) < 2:
            await trio.sleep(0.05)
        assert trio.current_time() - began >= 10
        assert shop.quotas.managers[QuotaType.REQUEST].sensors == 0, "its time is exempt"

    run(shop, act)


@pytest.mark.feature("QU-02")
def test_the_time_of_handlers_counts_with_all_their_steps() -> None:
    """One percent of the loop; each request takes 0.2 s of it, which is 0.2 % of ten seconds by itself."""
    shop = Shop({"request_percentage": 1})
    shop.work = 0.2

    async def act(scene: Scene) -> None:
        peer = await scene.peer()
        first = await answered(peer, HEARTBEAT, HeartbeatResponse, HEARTBEAT_VERSION)
        assert first.throttle_time_ms == 1_000, "(2 % - 1 %) / 1 % of 10 s, but at most one window"

    run(shop, act)


@pytest.mark.feature("QU-02")
def test_cheap_requests_are_not_held_back() -> None:
    shop = Shop({"request_percentage": 1})
    shop.work = 0.001

    async def act(scene: Scene) -> None:
        peer = await scene.peer()
        for _ in range(50):
            response = await answered(peer, HEARTBEAT, HeartbeatResponse, HEARTBEAT_VERSION)
            assert response.throttle_time_ms == 0
            await trio.sleep(0.2)

    run(shop, act)


@pytest.mark.feature("QU-06")
def test_a_fetch_above_the_rate_gets_no_records_and_does_not_count() -> None:
    shop = Shop({"consumer_byte_rate": 1_000})
    fetch = framed(ApiKey.FETCH, 12, FetchRequest())

    async def act(scene: Scene) -> None:
        peer = await scene.peer()
        shop.fetch_bytes = 9_000
        assert (await answered(peer, fetch, FetchResponse, 12)).throttle_time_ms == 0
        held = await answered(peer, fetch, FetchResponse, 12)
        assert held.throttle_time_ms == pytest.approx(8_000, abs=50)
        assert shop.fetched == [(0, False), (held.throttle_time_ms, False)]
        (sensor,) = shop.quotas.managers[QuotaType.FETCH].all()
        assert sensor.rate.total == 9_000

    run(shop, act)


@pytest.mark.feature("QU-06")
def test_a_batch_larger_than_all_windows_allow_is_sent_once_and_paid_for_afterwards() -> None:
    """Kafka holds such a consumer back for ever; here it goes on, at its rate."""
    shop = Shop({"consumer_byte_rate": 1_000})
    shop.fetch_bytes = 50_000
    fetch = framed(ApiKey.FETCH, 12, FetchRequest())

    async def act(scene: Scene) -> None:
        peer = await scene.peer()
        response = await answered(peer, fetch, FetchResponse, 12)
        assert response.throttle_time_ms == 40_000 and shop.fetched == [(40_000, True)]
        began = trio.current_time()
        await answered(peer, fetch, FetchResponse, 12)
        assert trio.current_time() - began > 39.9

    run(shop, act)


@pytest.mark.feature("QU-05")
def test_followers_are_not_held_back_but_their_time_is_counted() -> None:
    shop = Shop({"request_percentage": 0.0001, "consumer_byte_rate": 1})

    def take(call: Call) -> None:
        shop.stopwatch.now += 0.5
        call.answer(FetchResponse())

    handlers = shop.handlers() | {ApiKey.FETCH: take}
    shop.handlers = lambda: handlers  # type: ignore[method-assign]
    follower = framed(ApiKey.FETCH, 15, FetchRequest(replica_state=ReplicaState(replica_id=2)))

    async def act(scene: Scene) -> None:
        peer = await scene.peer()
        for _ in range(3):
            assert (await answered(peer, follower, FetchResponse, 15)).throttle_time_ms == 0
        assert shop.quotas.exempt.total == pytest.approx(150)

    run(shop, act)


@pytest.mark.feature("OB-01", "QU-06")
def test_the_log_and_the_times_of_requests_have_the_throttle(caplog: pytest.LogCaptureFixture) -> None:
    shop = Shop({"request_percentage": 1})
    shop.work = 0.2
    counted = []

    async def act(scene: Scene) -> None:
        peer = await scene.peer()
        await answered(peer, HEARTBEAT, HeartbeatResponse, HEARTBEAT_VERSION)
        counted.append(shop.dispatcher.counters["Heartbeat"].throttle)

    with caplog.at_level(logging.DEBUG, logger="kafka.request.logger"):
        run(shop, act)
    (line,) = [record.getMessage() for record in caplog.records if record.name == "kafka.request.logger"]
    assert "request=Heartbeat" in line and "throttle_ms=1000.000" in line
    assert counted == [1.0]


@pytest.mark.feature("QU-04")
def test_quotas_change_while_clients_are_connected() -> None:
    frame = produce(20_000)
    shop = Shop({})

    async def act(scene: Scene) -> None:
        peer = await scene.peer()
        assert not shop.quotas.is_active
        assert (await answered(peer, frame, ProduceResponse, VERSION)).throttle_time_ms == 0
        shop.levels.apply({(("client-id", None),): {"producer_byte_rate": 100.0}})
        shop.quotas.limits_changed()
        assert (await answered(peer, frame, ProduceResponse, VERSION)).throttle_time_ms > 100_000
        shop.levels.apply({(("client-id", None),): None})
        shop.quotas.limits_changed()
        other = await scene.peer()
        assert (await answered(other, frame, ProduceResponse, VERSION)).throttle_time_ms == 0

    run(shop, act)


@pytest.mark.feature("QU-06")
def test_an_answer_that_is_shared_keeps_its_own_value() -> None:
    shared = HeartbeatResponse()
    shop = Shop({"request_percentage": 1})

    def take(call: Call) -> None:
        shop.stopwatch.now += 0.2
        call.answer(shared)

    handlers = shop.handlers() | {ApiKey.HEARTBEAT: take}
    shop.handlers = lambda: handlers  # type: ignore[method-assign]

    async def act(scene: Scene) -> None:
        peer = await scene.peer()
        assert (await answered(peer, HEARTBEAT, HeartbeatResponse, HEARTBEAT_VERSION)).throttle_time_ms == 1_000
        assert shared.throttle_time_ms == 0

    run(shop, act)
