"""The server's side of connections: order, batching, limits, and ends."""

from __future__ import annotations

import gc
import logging
import struct
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import pytest
import trio

from barnabas.runtime.outgoing import Outgoing
from barnabas.runtime.real import real_world
from barnabas.runtime.server import Request, ResponseSlot, Server, ServerLimits, Steps
from barnabas.runtime.server_connection import BURST_REQUESTS
from barnabas.runtime.simulated import make_world, run_simulation
from barnabas.runtime.step_driver import STEPS_IN_A_TURN
from barnabas.runtime.world import Connection, ConnectionLost, FileRegion, World

METADATA = 3


def request_frame(correlation_id: int, body: bytes = b"", api_key: int = METADATA, version: int = 1) -> bytes:
    frame = struct.pack(">hhih", api_key, version, correlation_id, 2) + b"me" + body
    return len(frame).to_bytes(4, "big") + frame


class Peer:
    """A client that speaks frames."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._buffer = b""

    async def ask(self, *frames: bytes) -> None:
        view = memoryview(b"".join(frames))
        while view:
            view = view[self.connection.send_now([view]) :]
            if view:
                await self.connection.wait_writable()

    async def answer(self) -> bytes:
        """The next answer, without its size."""
        while True:
            if len(self._buffer) >= 4:
                end = 4 + int.from_bytes(self._buffer[:4], "big")
                if len(self._buffer) >= end:
                    frame, self._buffer = self._buffer[4:end], self._buffer[end:]
                    return frame
            piece = bytearray(65536)
            count = await self.connection.receive_into(memoryview(piece))
            self._buffer += piece[:count]

    async def closed(self) -> None:
        with pytest.raises(ConnectionLost):
            while True:
                await self.answer()


class Desk:
    """A handler that keeps every request; tests fill its slots."""

    def __init__(self, *, echo: bool = False) -> None:
        self.requests: list[Request] = []
        self.slots: list[ResponseSlot] = []
        self._echo = echo

    def __call__(self, request: Request, slot: ResponseSlot) -> None:
        self.requests.append(request)
        self.slots.append(slot)
        if self._echo:
            slot.fill([request.correlation_id.to_bytes(4, "big"), request.body])

    async def wait_for(self, count: int) -> None:
        while len(self.slots) < count:
            await trio.sleep(0.001)


class Scene:
    """A server with one listener, and peers that dial it."""

    def __init__(self, two, handle, limits: ServerLimits) -> None:
        self._two = two
        self.server = Server(two.server, handle, limits)

    async def start(self, nursery: trio.Nursery) -> None:
        self.listener = await self._two.server.network.listen("", 0)
        nursery.start_soon(self.server.serve, self.listener, "PLAINTEXT")

    async def peer(self) -> Peer:
        return Peer(await self._two.client.network.dial(self._two.host, self.listener.port))


def stage(play, handle, limits: ServerLimits, act) -> None:
    """Play `act(scene)` against a server that is cancelled afterwards."""

    async def story(two) -> None:
        async with trio.open_nursery() as nursery:
            scene = Scene(two, handle, limits)
            await scene.start(nursery)
            await act(scene)
            nursery.cancel_scope.cancel()

    play(story)


LIMITS = ServerLimits()


def test_a_request_arrives_in_full(play) -> None:
    async def act(scene: Scene) -> None:
        desk.__init__(echo=True)
        peer = await scene.peer()
        await peer.ask(request_frame(7, b"body", version=-3))
        assert await peer.answer() == b"\0\0\0\7body"
        (request,) = desk.requests
        assert (request.api_key, request.api_version, request.correlation_id) == (METADATA, -3, 7)
        assert (request.client_id, request.listener_name) == ("me", "PLAINTEXT")
        request.body[0:1] = b"B"
        assert bytes(request.body) == b"Body"

    desk = Desk()
    stage(play, desk, LIMITS, act)


def test_answers_keep_the_order_of_the_requests(play) -> None:
    async def act(scene: Scene) -> None:
        desk.__init__()
        peer = await scene.peer()
        await peer.ask(*[request_frame(n) for n in range(4)])
        await desk.wait_for(4)
        desk.slots[3].fill([b"three"])
        desk.slots[1].drop()
        desk.slots[2].fill([b"t", b"", b"wo"])
        await trio.sleep(0.02)
        desk.slots[0].fill([b"zero"])
        assert [await peer.answer() for _ in range(3)] == [b"zero", b"two", b"three"]

    desk = Desk()
    stage(play, desk, LIMITS, act)


def test_many_frames_of_many_sizes(play) -> None:
    async def act(scene: Scene) -> None:
        peer = await scene.peer()
        bodies = [bytes([n % 256]) * (n * n * 7 % 90_000) for n in range(200)] + [b"x" * 3_000_000]

        async def ask() -> None:
            await peer.ask(*[request_frame(n, body) for n, body in enumerate(bodies)])

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            for n, body in enumerate(bodies):
                assert await peer.answer() == n.to_bytes(4, "big") + body

    stage(play, Desk(echo=True), LIMITS, act)


def test_parts_of_files_are_answers(play, tmp_path) -> None:
    async def story(two) -> None:
        disk = two.server.disk
        disk.make_directories(str(tmp_path))
        file = disk.open(str(tmp_path / "log"), create=True)
        content = bytes(range(256)) * 4000
        file.pwrite(content, 0)

        def handle(request: Request, slot: ResponseSlot) -> None:
            slot.fill([b"head", FileRegion(file, 10, 900_000), b"between", FileRegion(file, 0, 5), b"tail"])

        async with trio.open_nursery() as nursery:
            scene = Scene(two, handle, LIMITS)
            await scene.start(nursery)
            peer = await scene.peer()
            await peer.ask(request_frame(1), request_frame(2))
            for _ in range(2):
                assert await peer.answer() == b"head" + content[10:900_010] + b"between" + content[:5] + b"tail"
            nursery.cancel_scope.cancel()

    play(story)


def test_a_file_that_ends_too_early_closes_the_connection(play, tmp_path) -> None:
    async def story(two) -> None:
        two.server.disk.make_directories(str(tmp_path))
        file = two.server.disk.open(str(tmp_path / "log"), create=True)
        file.truncate(10)

        async with trio.open_nursery() as nursery:
            scene = Scene(two, lambda request, slot: slot.fill([FileRegion(file, 0, 100)]), LIMITS)
            await scene.start(nursery)
            peer = await scene.peer()
            await peer.ask(request_frame(1))
            await peer.closed()
            nursery.cancel_scope.cancel()

    play(story)


def counting_world(world: World, sends: list[int]) -> World:
    """The same world, but every send of an accepted connection is counted."""

    class Counting:
        def __init__(self, connection) -> None:
            self._connection = connection

        def __getattr__(self, name: str):
            return getattr(self._connection, name)

        def send_now(self, views) -> int:
            sends.append(sum(map(len, views)))
            return self._connection.send_now(views)

    class CountingNetwork:
        async def listen(self, host: str, port: int):
            listener = await world.network.listen(host, port)
            accept = listener.accept

            async def counting_accept() -> Counting:
                return Counting(await accept())

            listener.accept = counting_accept
            return listener

    return replace(world, network=CountingNetwork())


def in_simulation(act, handle) -> None:
    """One simulated scene without short reads, so that a burst stays one."""

    async def story(universe) -> None:
        universe.fabric.habits.short_probability = 0
        sends: list[int] = []

        class Two:
            server = counting_world(make_world("server", universe), sends)
            client = make_world("client", universe)
            host = "server"

        async with trio.open_nursery() as nursery:
            scene = Scene(Two, handle, LIMITS)
            await scene.start(nursery)
            await act(scene, sends)
            nursery.cancel_scope.cancel()

    run_simulation(1, story)


def test_one_send_answers_a_burst() -> None:
    async def act(scene: Scene, sends: list[int]) -> None:
        peer = await scene.peer()
        await peer.ask(*[request_frame(n) for n in range(20)])
        for _ in range(20):
            await peer.answer()
        assert sends == [20 * 8]

    in_simulation(act, Desk(echo=True))


def test_one_send_for_all_that_another_connection_completes() -> None:
    """A fetch that moves the high watermark completes twenty produces of one producer."""
    waiting: list[ResponseSlot] = []

    def handle(request: Request, slot: ResponseSlot) -> None:
        if request.body:
            for produce in waiting:
                produce.fill([b"done"])
            slot.fill([b"fetched"])
        else:
            waiting.append(slot)

    async def act(scene: Scene, sends: list[int]) -> None:
        producer, follower = await scene.peer(), await scene.peer()
        await producer.ask(*[request_frame(n) for n in range(20)])
        while len(waiting) < 20:
            await trio.sleep(0.001)
        await follower.ask(request_frame(1, b"fetch"))
        for _ in range(20):
            assert await producer.answer() == b"done"
        assert await follower.answer() == b"fetched"
        assert sorted(sends) == [11, 20 * 8]

    in_simulation(act, handle)


def test_one_send_for_all_that_a_timer_completes() -> None:
    async def act(scene: Scene, sends: list[int]) -> None:
        peers = [await scene.peer() for _ in range(3)]
        for peer in peers:
            await peer.ask(*[request_frame(n) for n in range(5)])
        await desk.wait_for(15)
        for slot in reversed(desk.slots):
            slot.fill([b"late"])
        for peer in peers:
            for _ in range(5):
                assert await peer.answer() == b"late"
        assert sends == [5 * 8] * 3

    desk = Desk()
    in_simulation(act, desk)


def test_deferred_work_is_done_once_for_all_requests_that_came_together() -> None:
    """Several records go to a follower with one answer."""
    waiting: list[ResponseSlot] = []
    counts: list[int] = []
    appended = 0

    async def act(scene: Scene, sends: list[int]) -> None:
        def look() -> None:
            counts.append(appended)
            for slot in waiting:
                slot.fill([b"news"])
            waiting.clear()

        def append() -> None:
            if not appended:
                scene.server.afterwards(look)

        desk.append = append
        followers = [await scene.peer() for _ in range(2)]
        for follower in followers:
            await follower.ask(request_frame(1, b"fetch"))
        while len(waiting) < 2:
            await trio.sleep(0.001)
        producer = await scene.peer()
        await producer.ask(*[request_frame(n) for n in range(5)])
        for _ in range(5):
            assert await producer.answer() == b"taken"
        for follower in followers:
            assert await follower.answer() == b"news"
        assert counts == [5]
        assert sorted(sends) == [8, 8, 5 * 9]

    class Log:
        append = staticmethod(lambda: None)

        def __call__(self, request: Request, slot: ResponseSlot) -> None:
            nonlocal appended
            if request.body:
                waiting.append(slot)
            else:
                self.append()
                appended += 1
                slot.fill([b"taken"])

    desk = Log()
    in_simulation(act, desk)


def test_a_timer_may_flush_at_once() -> None:
    async def act(scene: Scene, sends: list[int]) -> None:
        peer = await scene.peer()
        await peer.ask(request_frame(1))
        await desk.wait_for(1)
        desk.slots[0].fill([b"now"])
        scene.server.flush()
        assert sends == [7]
        assert await peer.answer() == b"now"

    desk = Desk()
    in_simulation(act, desk)


def test_a_peer_that_asks_much_lets_others_have_their_turn() -> None:
    handled = 0
    begun = trio.Event()

    def handle(request: Request, slot: ResponseSlot) -> None:
        nonlocal handled
        handled += 1
        begun.set()
        slot.drop()

    async def act(scene: Scene, sends: list[int]) -> None:
        turns = 0

        async def count_turns() -> None:
            nonlocal turns
            await begun.wait()
            while handled < 4000:
                turns += 1
                await trio.lowlevel.checkpoint()

        peer = await scene.peer()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(count_turns)
            await peer.ask(*[request_frame(n) for n in range(4000)])
        assert turns >= 4000 // BURST_REQUESTS - 2

    in_simulation(act, handle)


def test_a_slot_is_filled_once(play) -> None:
    async def act(scene: Scene) -> None:
        desk.__init__()
        peer = await scene.peer()
        await peer.ask(request_frame(1))
        await desk.wait_for(1)
        desk.slots[0].fill([b"first"])
        with pytest.raises(AssertionError):
            desk.slots[0].fill([b"second"])
        assert await peer.answer() == b"first"

    desk = Desk()
    stage(play, desk, LIMITS, act)


def test_a_closed_connection_gets_no_answer(play) -> None:
    async def act(scene: Scene) -> None:
        desk.__init__()
        peer = await scene.peer()
        await peer.ask(request_frame(1), request_frame(2))
        await desk.wait_for(2)
        assert not desk.slots[0].connection_closed
        peer.connection.close()
        while not desk.slots[0].connection_closed:
            await trio.sleep(0.001)
        desk.slots[0].fill([b"too late"])
        desk.slots[1].drop()
        while scene.server.connections:
            await trio.sleep(0.001)

    desk = Desk()
    stage(play, desk, LIMITS, act)


def test_abort_closes_after_earlier_answers(play) -> None:
    async def act(scene: Scene) -> None:
        desk.__init__()
        peer, other = await scene.peer(), await scene.peer()
        await peer.ask(request_frame(1), request_frame(2))
        await desk.wait_for(2)
        desk.slots[0].fill([b"good"])
        desk.slots[1].abort("a test")
        assert await peer.answer() == b"good"
        await peer.closed()
        await other.ask(request_frame(3))
        await desk.wait_for(3)

    desk = Desk()
    stage(play, desk, LIMITS, act)


@pytest.mark.feature("PF-01")
@pytest.mark.parametrize(
    "frame",
    [
        (-5).to_bytes(4, "big", signed=True),
        (1001).to_bytes(4, "big"),
        b"\0\0\0\0",
        b"\0\0\0\3abc",
        struct.pack(">ihhih", 10, METADATA, 1, 1, 3000),
        struct.pack(">ihhih", 10, 9999, 1, 1, -1),
    ],
)
def test_malformed_frames_close_their_connection_only(play, frame: bytes, caplog) -> None:
    async def act(scene: Scene) -> None:
        good, bad = await scene.peer(), await scene.peer()
        await good.ask(request_frame(1, b"a"))
        await bad.ask(frame)
        await bad.closed()
        await good.ask(request_frame(2, b"b"))
        assert [await good.answer(), await good.answer()] == [b"\0\0\0\1a", b"\0\0\0\2b"]

    with caplog.at_level(logging.WARNING):
        stage(play, Desk(echo=True), replace(LIMITS, socket_request_max_bytes=1000), act)
    assert "closing the connection from" in caplog.text


def test_a_failing_handler_costs_its_connection_only(play, caplog) -> None:
    def handle(request: Request, slot: ResponseSlot) -> None:
        if request.body:
            raise ValueError("a mistake of ours")
        slot.fill([b"fine"])

    async def act(scene: Scene) -> None:
        good, bad = await scene.peer(), await scene.peer()
        await bad.ask(request_frame(1, b"x"))
        await bad.closed()
        await good.ask(request_frame(2))
        assert await good.answer() == b"fine"

    stage(play, handle, LIMITS, act)
    assert "a mistake of ours" in caplog.text


@pytest.mark.feature("RP-01", "RP-11")
def test_too_many_unanswered_requests_stop_the_reading(play) -> None:
    async def act(scene: Scene) -> None:
        desk.__init__()
        peer = await scene.peer()
        await peer.ask(*[request_frame(n) for n in range(25)])
        await desk.wait_for(10)
        await trio.sleep(0.05)
        assert len(desk.slots) == 10
        for n in range(25):
            await desk.wait_for(n + 1)
            desk.slots[n].fill([n.to_bytes(1, "big")])
            assert await peer.answer() == n.to_bytes(1, "big")
            assert len(desk.slots) <= n + 11

    desk = Desk()
    stage(play, desk, replace(LIMITS, max_pending_requests=10), act)


@pytest.mark.feature("RP-11")
def test_too_many_unanswered_bytes_stop_the_reading(play) -> None:
    async def act(scene: Scene) -> None:
        desk.__init__()
        peer = await scene.peer()
        await peer.ask(*[request_frame(n, bytes(1000)) for n in range(10)])
        await desk.wait_for(4)
        await trio.sleep(0.05)
        assert len(desk.slots) == 4
        desk.slots[0].fill([b"0"])
        await desk.wait_for(5)

    desk = Desk()
    stage(play, desk, replace(LIMITS, max_pending_request_bytes=3500), act)


@pytest.mark.feature("RP-11")
def test_a_peer_that_does_not_read_is_not_read_either(play) -> None:
    handled = 0

    def handle(request: Request, slot: ResponseSlot) -> None:
        nonlocal handled
        handled += 1
        slot.fill([request.correlation_id.to_bytes(4, "big"), bytes(100_000)])

    async def act(scene: Scene) -> None:
        nonlocal handled
        handled = 0
        peer = await scene.peer()

        async def ask() -> None:
            await peer.ask(*[request_frame(n) for n in range(1000)])

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            before = -1
            while handled != before:
                before = handled
                await trio.sleep(0.1)
            assert handled < 300
            for n in range(1000):
                assert (await peer.answer())[:4] == n.to_bytes(4, "big")

    stage(play, handle, replace(LIMITS, max_unsent_bytes=1_000_000), act)


@pytest.mark.feature("RP-11")
def test_connections_beyond_the_maximum_wait(play) -> None:
    async def act(scene: Scene) -> None:
        first, second, third = [await scene.peer() for _ in range(3)]
        for peer in (first, second, third):
            await peer.ask(request_frame(1, b"hi"))
        await first.answer()
        await second.answer()
        with trio.move_on_after(0.05) as waiting:
            await third.answer()
        assert waiting.cancelled_caught
        first.connection.close()
        assert await third.answer() == b"\0\0\0\1hi"

    stage(play, Desk(echo=True), replace(LIMITS, max_connections=2), act)


@pytest.mark.feature("RP-11")
def test_connections_of_one_address_are_counted(play) -> None:
    async def act(scene: Scene) -> None:
        first, second = await scene.peer(), await scene.peer()
        await first.ask(request_frame(1))
        await first.answer()
        await second.closed()
        first.connection.close()
        while scene.server.connections:
            await trio.sleep(0.001)
        third = await scene.peer()
        await third.ask(request_frame(3))
        await third.answer()

    overrides = {"client": 1, "127.0.0.1": 1}
    limits = replace(LIMITS, max_connections_per_ip=0, max_connections_per_ip_overrides=overrides)
    stage(play, Desk(echo=True), limits, act)


@pytest.mark.feature("QU-08")
def test_an_override_may_name_a_host_and_be_altered() -> None:
    """On the machine's network, where peers go by their addresses."""

    async def story() -> None:
        world = replace(real_world(), addresses_of=lambda name: {"home": ["127.0.0.1"]}[name])
        two = SimpleNamespace(server=world, client=world, host="127.0.0.1")
        async with trio.open_nursery() as nursery:
            scene = Scene(two, Desk(echo=True), replace(LIMITS, max_connections_per_ip=0))
            await scene.start(nursery)
            refused = await scene.peer()
            await refused.closed()
            scene.server.limits_changed(
                replace(LIMITS, max_connections_per_ip=0, max_connections_per_ip_overrides={"home": 1})
            )
            with trio.fail_after(10):
                while not scene.server.connection_quotas.names:
                    await trio.sleep(0.001)
            served = await scene.peer()
            await served.ask(request_frame(1))
            await served.answer()
            other = await scene.peer()
            await other.closed()
            nursery.cancel_scope.cancel()

    trio.run(story)


@pytest.mark.feature("RP-11")
def test_connections_come_at_a_rate() -> None:
    async def act(scene: Scene) -> None:
        started = trio.current_time()
        at = []
        while trio.current_time() - started < 60:
            peer = await scene.peer()
            await peer.ask(request_frame(1))
            await peer.answer()
            at.append(trio.current_time() - started)
        assert at[99] < 1, "as many at once as ten seconds allow"
        assert at[109] - at[99] > 0.7, "then each waits for the excess of all before it"
        assert max(after - before for before, after in pairwise(at)) < 1.1, "nobody waits longer than a window"
        assert 450 < len(at) < 700

    async def story(universe) -> None:
        class Two:
            server = make_world("server", universe)
            client = make_world("client", universe)
            host = "server"

        async with trio.open_nursery() as nursery:
            scene = Scene(Two, Desk(echo=True), replace(LIMITS, max_connection_creation_rate=10))
            await scene.start(nursery)
            await act(scene)
            nursery.cancel_scope.cancel()

    run_simulation(1, story)


@pytest.mark.feature("RP-11")
def test_idle_connections_end_but_not_waiting_ones(play) -> None:
    async def act(scene: Scene) -> None:
        desk.__init__()
        idle, waiting = await scene.peer(), await scene.peer()
        await waiting.ask(request_frame(1))
        await desk.wait_for(1)
        await idle.closed()
        desk.slots[0].fill([b"still there"])
        assert await waiting.answer() == b"still there"

    desk = Desk()
    stage(play, desk, replace(LIMITS, connections_max_idle_ms=100), act)


def test_stop_answers_requests_under_way(play) -> None:
    async def story(two) -> None:
        desk = Desk()
        async with trio.open_nursery() as nursery:
            scene = Scene(two, desk, LIMITS)
            await scene.start(nursery)
            idle, busy = await scene.peer(), await scene.peer()
            await busy.ask(request_frame(1), request_frame(2))
            await desk.wait_for(2)
            desk.slots[0].fill([b"one"])
            nursery.start_soon(scene.server.stop)
            await idle.closed()
            assert await busy.answer() == b"one"
            await busy.ask(request_frame(3))
            await trio.sleep(0.02)
            desk.slots[1].fill([b"two"])
            assert await busy.answer() == b"two"
            await busy.closed()
        # The nursery ended by itself: so did `serve` and `stop`.
        assert len(desk.slots) == 2
        assert scene.server.connections == 0

    play(story)


def test_cancelling_a_server_closes_its_connections(play) -> None:
    async def story(two) -> None:
        desk = Desk()
        async with trio.open_nursery() as nursery:
            scene = Scene(two, desk, LIMITS)
            await scene.start(nursery)
            peer = await scene.peer()
            await peer.ask(request_frame(1))
            await desk.wait_for(1)
            nursery.cancel_scope.cancel()
        assert desk.slots[0].connection_closed
        await peer.closed()

    play(story)


class Stubborn:
    """A connection that takes so many bytes at a time."""

    def __init__(self, takes: int) -> None:
        self.takes = takes
        self.taken = bytearray()

    def send_now(self, views) -> int:
        data = b"".join(views)[: self.takes]
        self.taken += data
        return len(data)

    def send_file_now(self, file, offset: int, count: int) -> int:
        data = file.pread(min(count, self.takes), offset)
        self.taken += data
        return len(data)

    async def wait_writable(self) -> None:
        await trio.lowlevel.checkpoint()


@pytest.mark.parametrize("takes", [1, 3, 7, 1000])
def test_partial_sends_lose_and_repeat_nothing(takes: int) -> None:
    async def story(universe) -> None:
        disk = make_world("node", universe).disk
        file = disk.open("/file", create=True)
        file.pwrite(b"0123456789", 0)
        connection = Stubborn(takes)
        outgoing = Outgoing(connection)
        for chunks, size in [
            ([b"ab", b"", b"cde"], 5),
            ([b"f", FileRegion(file, 2, 7), memoryview(b"gh"), FileRegion(file, 0, 0)], 10),
            ([bytes(70_000), b"end"], 70_003),
        ]:
            outgoing.send(chunks, size)
        await outgoing.drain()
        assert connection.taken == b"abcdef2345678gh" + bytes(70_000) + b"end"
        assert outgoing.unsent_bytes == 0

    run_simulation(1, story)


# Effects of one peer on others


def test_requests_that_have_not_begun_when_their_connection_closes_are_dropped(play) -> None:
    """A client that gave up and came back must not be overtaken by what it had sent before."""

    async def act(scene: Scene) -> None:
        desk.__init__()
        peer = await scene.peer()
        await peer.ask(*[request_frame(n) for n in range(LIMITS.max_pending_requests + 500)])
        await desk.wait_for(LIMITS.max_pending_requests)
        begun = len(desk.requests)
        peer.connection.close()
        await trio.sleep(0.1)
        for slot in list(desk.slots):
            if not slot.connection_closed:
                slot.fill([b"an unread answer"])
                await trio.sleep(0.001)
        with trio.fail_after(30):
            while scene.server.connections:
                await trio.sleep(0.001)
        assert len(desk.requests) == begun

    desk = Desk()
    stage(play, desk, LIMITS, act)


def test_others_have_their_turn_between_the_requests_of_a_closed_connection() -> None:
    """One read held six thousand requests, and their connection closed itself: the loop never went round again."""
    turns_of_others: list[int] = []

    async def act(scene: Scene, sends: list[int]) -> None:
        def handle(request: Request, slot: ResponseSlot) -> None:
            handled.append(request.correlation_id)
            slot.abort("enough")

        desk.handle = handle
        peer = await scene.peer()
        await peer.ask(*[request_frame(n) for n in range(2000)])
        await peer.closed()
        turns_of_others.append(len(handled))

    handled: list[int] = []

    class Closing:
        handle: object = None

        def __call__(self, request: Request, slot: ResponseSlot) -> None:
            self.handle(request, slot)

    desk = Closing()
    in_simulation(act, desk)
    assert turns_of_others == [1]


def test_a_request_in_steps_lets_others_have_their_turn(play) -> None:
    """Its own connection waits for it: the answers, and the effects, stay in order."""
    served: list[str] = []

    def handle(request: Request, slot: ResponseSlot) -> Steps | None:
        if request.body != b"long":
            served.append(f"short {request.correlation_id}")
            slot.fill([b"short"])
            return None
        return steps(slot)

    def steps(slot: ResponseSlot) -> Steps:
        for _ in range(100_000):
            for _ in range(STEPS_IN_A_TURN):
                yield None
            yield lambda: None  # takes time in simulation, where nothing else does
            if served:
                break
        served.append("long")
        slot.fill([b"long"])

    async def act(scene: Scene) -> None:
        served.clear()
        greedy, modest = await scene.peer(), await scene.peer()
        await greedy.ask(request_frame(1, b"long"), request_frame(2))
        await modest.ask(request_frame(3))
        assert await modest.answer() == b"short"
        assert await greedy.answer() == b"long"
        assert await greedy.answer() == b"short"
        assert served == ["short 3", "long", "short 2"]

    stage(play, handle, LIMITS, act)


def test_work_of_a_step_is_done_in_the_worker_and_its_result_returned() -> None:
    def handle(request: Request, slot: ResponseSlot) -> Steps:
        doubled = yield lambda: 2 * request.correlation_id
        try:
            yield lambda: 1 // 0
        except ZeroDivisionError:
            slot.fill([b"%d" % doubled])

    async def act(scene: Scene, sends: list[int]) -> None:
        peer = await scene.peer()
        await peer.ask(request_frame(21))
        assert await peer.answer() == b"42"

    in_simulation(act, handle)


def test_steps_in_a_background_task_are_taken_as_those_of_a_new_request() -> None:
    """Their work is done in the worker too, and an error of it is thrown into the handler."""
    nurseries: list[trio.Nursery] = []

    def handle(request: Request, slot: ResponseSlot) -> None:
        nurseries[0].start_soon(slot.take_steps, steps(request, slot))

    def steps(request: Request, slot: ResponseSlot) -> Steps:
        doubled = yield lambda: 2 * request.correlation_id
        try:
            yield lambda: 1 // 0
        except ZeroDivisionError:
            for _ in range(2 * STEPS_IN_A_TURN):
                yield None
            slot.fill([b"%d" % doubled])

    async def act(scene: Scene, sends: list[int]) -> None:
        async with trio.open_nursery() as nursery:
            nurseries.append(nursery)
            peer = await scene.peer()
            await peer.ask(request_frame(21))
            assert await peer.answer() == b"42"

    in_simulation(act, handle)


def test_a_peer_that_never_takes_its_answers_is_idle(play) -> None:
    async def act(scene: Scene) -> None:
        reader, silent = await scene.peer(), await scene.peer()
        await silent.ask(*[request_frame(n, bytes(100_000)) for n in range(60)])
        with trio.fail_after(30):
            while scene.server.connections > 1:
                await reader.ask(request_frame(1))
                await reader.answer()
                await trio.sleep(0.05)
        await reader.ask(request_frame(2))
        assert await reader.answer() == (2).to_bytes(4, "big")

    stage(play, Desk(echo=True), replace(LIMITS, connections_max_idle_ms=400), act)


def test_unread_answers_hold_a_bounded_amount_of_memory(play) -> None:
    """Each of many connections stays below its own limit; the largest are closed at the limit of all."""
    limits = replace(LIMITS, memory_limit_bytes=64 << 20)

    async def act(scene: Scene) -> None:
        reader = await scene.peer()
        for _ in range(12):
            silent = await scene.peer()
            await silent.ask(*[request_frame(n) for n in range(12)])
        with trio.fail_after(30):
            while not scene.server.memory.closed:
                await trio.sleep(0.01)
        assert scene.server.memory.answer_bytes <= scene.server.memory.most_answer_bytes == 4 << 20
        await reader.ask(request_frame(1, api_key=1))
        assert await reader.answer() == b"small"

    def handle(request: Request, slot: ResponseSlot) -> None:
        slot.fill([b"small" if request.api_key == 1 else bytes(500_000)])

    stage(play, handle, limits, act)


def test_requests_that_are_answered_later_make_room_for_others(play) -> None:
    """Their answers leave in no turn of their own connection."""
    limits = replace(LIMITS, queued_max_request_bytes=300_000)

    async def act(scene: Scene) -> None:
        desk.__init__()
        large, other = await scene.peer(), await scene.peer()
        await large.ask(request_frame(1, bytes(400_000)))
        await desk.wait_for(1)
        assert scene.server.memory.is_full
        await other.ask(request_frame(2))
        desk.slots[0].fill([b"late"])
        assert await large.answer() == b"late"
        assert not scene.server.memory.is_full
        await desk.wait_for(2)

    desk = Desk()
    stage(play, desk, limits, act)


def test_requests_that_grow_while_they_are_served_hold_a_bounded_amount_of_memory(play) -> None:
    """Each of many requests is small on the wire, and is decoded to, or answered with, megabytes."""
    limits = replace(LIMITS, memory_limit_bytes=64 << 20)

    async def act(scene: Scene) -> None:
        desk.__init__()
        memory = scene.server.memory
        peers = [await scene.peer() for _ in range(12)]
        for number, peer in enumerate(peers):
            await peer.ask(request_frame(number))
            await desk.wait_for(number + 1)
            desk.slots[-1].grow((4 << 20) + number)
            assert memory.request_bytes <= memory.most_grown_bytes == 32 << 20
        assert memory.closed == 5
        for slot in desk.slots:
            if not slot.connection_closed:
                slot.fill([b"done"])
        with trio.fail_after(30):
            while memory.request_bytes:
                await trio.sleep(0.001)

    desk = Desk()
    stage(play, desk, limits, act)


def test_announced_frames_take_memory_only_as_they_arrive(play) -> None:
    async def act(scene: Scene) -> None:
        for _ in range(20):
            peer = await scene.peer()
            await peer.ask((100_000_000).to_bytes(4, "big") + b"\0\3")
        await trio.sleep(0.05)
        assert 0 < scene.server.memory.request_bytes < 20 * 100_000

    stage(play, Desk(echo=True), LIMITS, act)


def test_frames_that_never_arrive_whole_do_not_keep_others_waiting(play) -> None:
    """`queued.max.request.bytes` is used up by a peer that stops in the middle of a request."""
    limits = replace(LIMITS, queued_max_request_bytes=300_000)

    async def act(scene: Scene) -> None:
        stuck = await scene.peer()
        await stuck.ask((100_000_000).to_bytes(4, "big") + bytes(400_000))
        with trio.fail_after(30):
            while not scene.server.memory.is_full:
                await trio.sleep(0.01)
            waiting = await scene.peer()
            await waiting.ask(request_frame(5, b"later"))
            assert await waiting.answer() == (5).to_bytes(4, "big") + b"later"
        assert scene.server.memory.closed == 1

    stage(play, Desk(echo=True), limits, act)


def test_a_closed_connection_lets_go_of_its_answers_at_once() -> None:
    """Answers that waited for an earlier one are not kept until the next garbage collection."""
    released: list[int] = []

    class Large(bytes):
        def __del__(self) -> None:
            released.append(1)

    slots: list[ResponseSlot] = []

    class Kept:
        def __init__(self, slot: ResponseSlot) -> None:
            self.slot = slot

        def sent(self, size_bytes: int, began: float, ended: float) -> None:
            raise AssertionError("nothing was sent")

    def handle(request: Request, slot: ResponseSlot) -> None:
        slots.append(slot)
        slot.timed = Kept(slot)
        if request.correlation_id:
            slot.fill([Large(1000)])

    async def act(scene: Scene, sends: list[int]) -> None:
        gc.disable()
        try:
            peer = await scene.peer()
            await peer.ask(*[request_frame(n) for n in range(5)])
            while len(slots) < 5:
                await trio.sleep(0.001)
            slots.clear()
            assert not released
            peer.connection.close()
            while scene.server.connections:
                await trio.sleep(0.001)
            assert len(released) == 4
        finally:
            gc.enable()

    in_simulation(act, handle)
