"""Faults between simulated nodes, and which nodes notice them."""

from __future__ import annotations

import pytest
import trio

from barnabas.runtime.simulated import Universe, make_world, run_simulation
from barnabas.runtime.simulated.links import FIRST_RETRANSMISSION_MS, Badness
from barnabas.runtime.world import Connection, ConnectionLost, DialFailed, DialRefused, World

pytestmark = pytest.mark.feature("FI-05")


async def connect(universe: Universe) -> tuple[World, World, Connection, Connection]:
    """(world of a, world of b, a's end, b's end): b listens on 9092 for the whole story."""
    a, b = make_world("a", universe), make_world("b", universe)
    listener = await b.network.listen("", 9092)
    near = await a.network.dial("b", 9092)
    return a, b, near, await listener.accept()


async def receive(connection: Connection) -> bytes:
    buffer = bytearray(1000)
    return bytes(buffer[: await connection.receive_into(memoryview(buffer))])


async def silent(connection: Connection, seconds: float = 60) -> None:
    """Nothing comes, not even an end."""
    with trio.move_on_after(seconds) as waiting:
        await receive(connection)
    assert waiting.cancelled_caught


def simulate(story, seeds: int = 5) -> None:
    for seed in range(seeds):

        async def kind(universe: Universe) -> None:
            universe.fabric.habits.short_probability = 0
            await story(universe)

        run_simulation(seed, kind)


def test_a_cut_holds_bytes_back_until_it_heals() -> None:
    async def story(universe: Universe) -> None:
        _, _, near, far = await connect(universe)
        universe.wires.cut("a", "b")
        near.send_now([b"hello"])
        near.send_now([b" again"])
        far.send_now([b"the other way is open"])
        assert await receive(near) == b"the other way is open"
        await silent(far)
        universe.wires.heal()
        near.send_now([b"!"])
        received = b""
        while len(received) < 12:
            received += await receive(far)
        assert received == b"hello again!"

    simulate(story)


def test_a_dial_into_a_cut_hangs() -> None:
    async def story(universe: Universe) -> None:
        a, _, _, _ = await connect(universe)
        universe.wires.cut("b", "a")
        with trio.move_on_after(60) as waiting:
            await a.network.dial("b", 9092)
        assert waiting.cancelled_caught
        with trio.move_on_after(60) as waiting:
            await a.network.dial("b", 1)
        assert waiting.cancelled_caught

    simulate(story)


def test_a_dial_that_was_given_up_leaves_nothing_behind() -> None:
    async def story(universe: Universe) -> None:
        a, b = make_world("a", universe), make_world("b", universe)
        listener = await b.network.listen("", 9092)
        universe.wires.cut("b", "a")
        with trio.move_on_after(1):
            await a.network.dial("b", 9092)
        universe.wires.heal()
        far = await listener.accept()
        with pytest.raises(ConnectionLost):
            await receive(far)

    simulate(story)


def test_peers_notice_a_kill() -> None:
    async def story(universe: Universe) -> None:
        a, b, near, far = await connect(universe)
        far.send_now([b"last words"])
        universe.kill("b")
        assert await receive(near) == b"last words"
        with pytest.raises(ConnectionLost):
            await receive(near)
        with pytest.raises(DialRefused):
            await a.network.dial("b", 9092)
        with pytest.raises(ConnectionLost):
            far.send_now([b"from the grave"])
        with pytest.raises(OSError, match="killed"):
            await b.network.listen("", 9093)

    simulate(story)


def test_a_kill_behind_a_cut_is_unnoticed_until_the_next_send() -> None:
    async def story(universe: Universe) -> None:
        _, _, near, _ = await connect(universe)
        universe.wires.partition(["a"], ["b"])
        universe.kill("b")
        await silent(near)
        universe.wires.heal()
        await silent(near)
        near.send_now([b"anybody there?"])
        with pytest.raises(ConnectionLost):
            await receive(near)

    simulate(story)


def test_a_power_cut_leaves_silence_until_the_host_is_back() -> None:
    async def story(universe: Universe) -> None:
        a, _, near, _ = await connect(universe)
        universe.power_cut("b")
        near.send_now([b"anybody there?"])
        await silent(near)
        with trio.move_on_after(60) as waiting:
            await a.network.dial("b", 9092)
        assert waiting.cancelled_caught
        universe.boot("b")
        with pytest.raises(ConnectionLost):
            await receive(near)
        with pytest.raises(DialRefused):
            await a.network.dial("b", 9092)

    simulate(story)


def test_a_sender_whose_peer_cannot_answer_is_held_back() -> None:
    async def story(universe: Universe) -> None:
        universe.fabric.habits.buffer_bytes = 1000
        _, _, near, far = await connect(universe)
        universe.wires.cut("b", "a")
        assert near.send_now([bytes(5000)]) == 1000
        assert len(await receive(far)) == 1000
        assert near.send_now([b"more"]) == 0
        with trio.move_on_after(60) as waiting:
            await near.wait_writable()
        assert waiting.cancelled_caught
        async with trio.open_nursery() as nursery:
            nursery.start_soon(near.wait_writable)
            await trio.sleep(1)
            universe.wires.heal()
        assert near.send_now([b"more"]) == 4

    simulate(story)


def test_a_stall_loses_nothing_not_even_the_end() -> None:
    async def story(universe: Universe) -> None:
        _, _, near, far = await connect(universe)
        universe.wires.stall("b", "a")
        far.send_now([b"late"])
        universe.kill("b")
        await silent(near)
        universe.wires.heal()
        assert await receive(near) == b"late"
        with pytest.raises(ConnectionLost):
            await receive(near)

    simulate(story)


def test_shapes_of_partitions() -> None:
    async def story(universe: Universe) -> None:
        worlds = {name: make_world(name, universe) for name in "abcde"}
        for world in worlds.values():
            await world.network.listen("", 9092)

        async def reaches(source: str, target: str) -> bool:
            with trio.move_on_after(1):
                (await worlds[source].network.dial(target, 9092)).close()
                return True
            return False

        async def pairs() -> str:
            return " ".join([s + t for s in "abcde" for t in "abcde" if s < t and await reaches(s, t)])

        wires = universe.wires
        everything = "ab ac ad ae bc bd be cd ce de"
        assert await pairs() == everything
        wires.isolate("c")
        assert await pairs() == "ab ad ae bd be de"
        wires.heal()
        wires.isolate("c", incoming=False)
        assert await pairs() == "ab ad ae bd be de"  # questions arrive, answers do not
        wires.heal()
        wires.partition("ab", "cde")
        assert await pairs() == "ab cd ce de"
        wires.heal()
        wires.bridge("c", "abc", "cde")
        assert await pairs() == "ab ac bc cd ce de"
        wires.heal()
        assert await pairs() == everything

    simulate(story, seeds=1)


def test_short_and_dribbling_reads_keep_the_order() -> None:
    async def story(universe: Universe) -> None:
        universe.fabric.habits.short_probability = 0.5
        universe.fabric.habits.dribble = True
        _, _, near, far = await connect(universe)
        data = bytes(range(256)) * 4

        async def send() -> None:
            view = memoryview(data)
            while view:
                view = view[near.send_now([view[:5], view[5:]]) :]

        received = b""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            while len(received) < len(data):
                piece = await receive(far)
                assert len(piece) <= 3
                received += piece
        assert received == data

    simulate(story)


def test_one_host_is_given_a_byte_at_a_time() -> None:
    async def story(universe: Universe) -> None:
        universe.fabric.habits.dribblers["b"] = None
        _, _, near, far = await connect(universe)
        near.send_now([b"abc"])
        far.send_now([b"xyz"])
        assert [await receive(far) for _ in range(3)] == [b"a", b"b", b"c"]
        assert len(await receive(near)) > 1, "to others all comes at once"

    simulate(story, seeds=1)


def test_a_name_that_cannot_be_looked_up() -> None:
    async def story(universe: Universe) -> None:
        a, _, near, far = await connect(universe)
        universe.fabric.unresolved["b"] = None
        with pytest.raises(DialFailed, match="unknown name"):
            await a.network.dial("b", 9092)
        near.send_now([b"x"])
        assert await receive(far) == b"x", "connections that are there stay"
        universe.fabric.unresolved.clear()
        await a.network.dial("b", 9092)
        assert universe.fabric.lookups_failed == 1

    simulate(story, seeds=1)


def test_a_slow_link_takes_its_time() -> None:
    async def story(universe: Universe) -> None:
        _, _, near, far = await connect(universe)
        universe.wires.slow("a", "b", (250, 0))
        started = trio.current_time()
        near.send_now([b"x"])
        await receive(far)
        assert trio.current_time() - started == pytest.approx(0.25)

    simulate(story)


async def seconds_for(near: Connection, far: Connection, bursts: int, size: int) -> float:
    """The time from one end to the other."""
    began = trio.current_time()
    for number in range(bursts):
        near.send_now([bytes([number]) * size])
    received = b""
    while len(received) < bursts * size:
        received += await receive(far)
    assert received == b"".join(bytes([number]) * size for number in range(bursts)), "late bytes keep their order"
    return trio.current_time() - began


def test_a_link_is_slow_narrow_or_lossy_and_loses_no_byte() -> None:
    async def story(universe: Universe) -> None:
        _, _, near, far = await connect(universe)
        link = universe.wires.link("a", "b")
        good = await seconds_for(near, far, 10, 100)
        link.worsen(Badness(latency_ms=300.0))
        assert 0.3 <= await seconds_for(near, far, 10, 100) < 0.3 + good + 0.01
        link.worsen(Badness(bytes_per_second=1_000))
        assert 1.0 <= await seconds_for(near, far, 10, 100) < 1.1
        link.worsen(Badness(loss=0.5))
        assert await seconds_for(near, far, 50, 10) >= FIRST_RETRANSMISSION_MS / 1000
        assert await seconds_for(far, near, 10, 100) < 0.1, "the other way is as it was"
        link.worsen(None)
        assert await seconds_for(near, far, 10, 100) < 0.1

    simulate(story)


def test_a_half_open_link_takes_dials_and_carries_nothing() -> None:
    async def story(universe: Universe) -> None:
        a, b, near, far = await connect(universe)
        for source, target in (("a", "b"), ("b", "a")):
            universe.wires.link(source, target).worsen(Badness(half_open=True))
        near.send_now([b"hello"])
        await silent(far)
        listener = await b.network.listen("", 9093)
        later = await a.network.dial("b", 9093)
        later.send_now([b"anybody?"])
        taken = await listener.accept()
        await silent(taken)
        later.close()
        await silent(taken)
        universe.wires.link("a", "b").worsen(None)
        assert await receive(far) == b"hello"
        assert await receive(taken) == b"anybody?"

    simulate(story)


def test_a_link_resets_connections_in_the_middle_of_their_bytes() -> None:
    async def story(universe: Universe) -> None:
        _, _, near, far = await connect(universe)
        universe.wires.link("a", "b").worsen(Badness(reset_after_bytes=7))
        assert near.send_now([b"hello"]) == 5
        assert near.send_now([b"again"]) == 2
        with pytest.raises(ConnectionLost):
            near.send_now([b"and again"])
        received = b""
        with pytest.raises(ConnectionLost):
            while True:
                received += await receive(far)
        assert b"helloag".startswith(received)

    simulate(story)
