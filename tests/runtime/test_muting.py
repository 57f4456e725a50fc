"""A quota mutes a connection (KIP-219): the answer leaves at once, the next request waits."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
import trio

from barnabas.runtime.server import Request, ResponseSlot, ServerLimits
from barnabas.runtime.simulated import make_world, run_simulation
from barnabas.runtime.world import ConnectionLost
from tests.runtime.test_server import LIMITS, Desk, Scene, request_frame

pytestmark = pytest.mark.feature("QU-06")


class Throttle:
    """Answers every request; mutes the connection for as long as the body says, in ms."""

    def __init__(self) -> None:
        self.still_held_back: Callable[[], int] | None = None
        self.begun: list[tuple[int, float]] = []
        """Correlation id and time of each request."""

    def __call__(self, request: Request, slot: ResponseSlot) -> None:
        self.begun.append((request.correlation_id, trio.current_time()))
        slot.mute(int(bytes(request.body) or 0), self.still_held_back)
        slot.fill([request.correlation_id.to_bytes(4, "big")])

    def pauses_ms(self) -> list[int]:
        """Time between each request and the one before."""
        times = [at for _, at in self.begun]
        return [round((after - before) * 1000) for before, after in pairwise(times)]


def simulate(act, handle, limits: ServerLimits = LIMITS) -> None:
    """Play `act(scene)` on the virtual clock."""

    class Two:
        def __init__(self, universe: object) -> None:
            self.server, self.client = make_world("server", universe), make_world("client", universe)
            self.host = "server"

    async def story(universe: object) -> None:
        async with trio.open_nursery() as nursery:
            scene = Scene(Two(universe), handle, limits)
            await scene.start(nursery)
            await act(scene)
            nursery.cancel_scope.cancel()

    run_simulation(3, story)


def test_the_answer_leaves_at_once_and_the_next_request_waits() -> None:
    throttle = Throttle()

    async def act(scene: Scene) -> None:
        peer = await scene.peer()
        began = trio.current_time()
        await peer.ask(request_frame(1, b"5000"))
        await peer.answer()
        assert trio.current_time() - began < 1
        await peer.ask(request_frame(2))
        await peer.answer()
        assert trio.current_time() - began >= 5

    simulate(act, throttle)
    (pause_ms,) = throttle.pauses_ms()
    assert 5_000 <= pause_ms <= 5_001


def test_requests_that_were_read_already_wait_too() -> None:
    throttle = Throttle()

    async def act(scene: Scene) -> None:
        peer = await scene.peer()
        await peer.ask(request_frame(1, b"3000"), request_frame(2, b"2000"), request_frame(3))
        for _ in range(3):
            await peer.answer()

    simulate(act, throttle)
    assert [correlation_id for correlation_id, _ in throttle.begun] == [1, 2, 3]
    first, second = throttle.pauses_ms()
    assert 3_000 <= first <= 3_001 and 2_000 <= second <= 2_001


def test_a_mute_goes_on_as_long_as_the_client_is_still_held_back() -> None:
    throttle = Throttle()
    more_ms = iter([500, 700, 0, 9_000])
    throttle.still_held_back = lambda: next(more_ms)

    async def act(scene: Scene) -> None:
        peer = await scene.peer()
        await peer.ask(request_frame(1, b"1000"), request_frame(2))
        for _ in range(2):
            await peer.answer()

    simulate(act, throttle)
    (pause_ms,) = throttle.pauses_ms()
    assert 2_200 <= pause_ms <= 2_202


def test_an_answer_that_comes_late_mutes_from_then_on_and_the_longest_time_counts() -> None:
    desk = Desk()

    async def act(scene: Scene) -> None:
        peer = await scene.peer()
        await peer.ask(request_frame(1), request_frame(2))
        await desk.wait_for(2)
        for slot, mute_ms in zip(list(desk.slots), (9_000, 4_000), strict=True):
            slot.mute(mute_ms)
            slot.fill([b"done"])
        began = trio.current_time()
        await peer.ask(request_frame(3))
        await desk.wait_for(3)
        assert 9 <= trio.current_time() - began < 9.1

    simulate(act, desk)


def test_other_connections_of_the_client_are_not_muted() -> None:
    throttle = Throttle()

    async def act(scene: Scene) -> None:
        muted, other = await scene.peer(), await scene.peer()
        await muted.ask(request_frame(1, b"60000"))
        await muted.answer()
        began = trio.current_time()
        for n in range(10):
            await other.ask(request_frame(n))
            await other.answer()
        assert trio.current_time() - began < 5

    simulate(act, throttle)


def test_a_muted_connection_that_is_idle_for_too_long_is_closed() -> None:
    async def act(scene: Scene) -> None:
        peer = await scene.peer()
        await peer.ask(request_frame(1, b"100000000"))
        await peer.answer()
        began = trio.current_time()
        await peer.closed()
        assert 59 < trio.current_time() - began <= 80
        while scene.server.connections:
            await trio.sleep(0.1)

    simulate(act, Throttle(), ServerLimits(connections_max_idle_ms=60_000))


def test_a_server_stops_without_waiting_for_muted_connections() -> None:
    async def act(scene: Scene) -> None:
        peer = await scene.peer()
        await peer.ask(request_frame(1, b"100000000"), request_frame(2))
        await peer.answer()
        began = trio.current_time()
        await scene.server.stop()
        assert trio.current_time() - began < 1

    throttle = Throttle()
    simulate(act, throttle)
    assert len(throttle.begun) == 1, "the request that waited is dropped"


def test_requests_of_muted_connections_count_as_memory() -> None:
    async def act(scene: Scene) -> None:
        peer = await scene.peer()
        await peer.ask(request_frame(1, b"100000"), request_frame(2, bytes(4_000)))
        await peer.answer()
        await trio.sleep(1)
        assert scene.server.memory.request_bytes >= 4_000
        peer.connection.close()
        with pytest.raises(ConnectionLost):
            await peer.answer()
        await scene.server.stop()
        assert scene.server.memory.request_bytes == 0

    simulate(act, Throttle())
