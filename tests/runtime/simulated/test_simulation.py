"""A seed is a story: the same one every time, in every process."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import trio

from barnabas.runtime.simulated import NodeKilled, Universe, make_world, run_simulation
from barnabas.runtime.simulated.determinism import RealWorldTouched, SimulationStuck
from barnabas.runtime.world import ConnectionLost, DialFailed, World

pytestmark = pytest.mark.feature("FI-05")

ROOT = Path(__file__).resolve().parent.parent.parent.parent


async def eventful(universe: Universe) -> str:
    """Five nodes that gossip, write, crash, and part; gives the digest of all that happened."""
    names = [f"node-{n}" for n in range(5)]

    async def node(world: World, name: str) -> None:
        listener = await world.network.listen("", 9092)
        world.disk.make_directories("/data")
        log = world.disk.open("/data/log", create=True)

        async def serve(connection) -> None:
            buffer = memoryview(bytearray(1000))
            try:
                while True:
                    count = await connection.receive_into(buffer)
                    log.pwrite(bytes(buffer[:count]), log.size())
                    world.fault_point("written")
                    connection.send_now([buffer[:count]])
            except ConnectionLost:
                connection.close()

        async def accept(nursery: trio.Nursery) -> None:
            while True:
                nursery.start_soon(serve, await listener.accept())

        async def gossip(peer: str) -> None:
            buffer = memoryview(bytearray(1000))
            while True:
                await trio.sleep(world.chance.random())
                with trio.move_on_after(2):
                    try:
                        connection = await world.network.dial(peer, 9092)
                        for _ in range(5):
                            connection.send_now([f"{name} at {world.wall_clock.now_ms()}".encode()])
                            await connection.receive_into(buffer)
                            await world.run_blocking(log.sync)
                        connection.close()
                    except (ConnectionLost, DialFailed):
                        universe.trace(f"{name} lost {peer} at {world.monotonic.now_ms()}")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(accept, nursery)
            for peer in names:
                if peer != name:
                    nursery.start_soon(gossip, peer)

    async def lives(name: str) -> None:
        for _ in range(4):
            await universe.run_node(name, lambda world: node(world, name))
            await trio.sleep(0.5)

    with trio.move_on_after(20):
        async with trio.open_nursery() as nursery:
            for name in names:
                nursery.start_soon(lives, name)
            await trio.sleep(3)
            universe.kill("node-1")
            universe.wires.partition(names[:2], names[2:])
            await trio.sleep(3)
            universe.wires.heal()
            universe.power_cut("node-2")
            universe.kill_at("node-3", "written", occurrence=3, power_cut=True)
            await trio.sleep(1)
            if universe.is_alive("node-4"):
                universe.kill_at_change("node-4", 10)
            await trio.sleep_forever()
    assert universe.coverage["written"] > 100
    return universe.digest()


def test_a_seed_repeats_exactly_in_every_process() -> None:
    here = run_simulation(11, eventful)
    assert run_simulation(11, eventful) == here
    assert run_simulation(12, eventful) != here
    program = (
        "import sys; sys.path[:0] = ['tests/runtime/simulated']\n"
        "from test_simulation import eventful\n"
        "from barnabas.runtime.simulated import run_simulation\n"
        "print(run_simulation(11, eventful))"
    )
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
        ran = subprocess.run(
            [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
        )
        assert ran.stdout.strip() == here


def test_trio_still_has_the_names_that_make_it_repeatable() -> None:
    """Guards `determinism`: without them a seed would mean nothing."""
    scheduler = trio._core._run
    assert scheduler._ALLOW_DETERMINISTIC_SCHEDULING in (True, False)
    before = scheduler._ALLOW_DETERMINISTIC_SCHEDULING, scheduler._r.getstate()

    async def order(universe: Universe) -> list[int]:
        assert scheduler._ALLOW_DETERMINISTIC_SCHEDULING is True
        ran: list[int] = []

        async def note(number: int) -> None:
            await trio.lowlevel.checkpoint()
            ran.append(number)

        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(note, number)
        return ran

    orders = [run_simulation(seed, order) for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]
    assert (scheduler._ALLOW_DETERMINISTIC_SCHEDULING, scheduler._r.getstate()) == before


def test_the_real_world_is_refused() -> None:
    async def story(universe: Universe) -> None:
        with pytest.raises(RealWorldTouched):
            await trio.to_thread.run_sync(threading.get_ident)
        with pytest.raises(RealWorldTouched):
            await trio.socket.getaddrinfo("localhost", 80)
        with socket.socket() as real:
            with pytest.raises(RealWorldTouched):
                real.bind(("127.0.0.1", 0))
            with pytest.raises(RealWorldTouched):
                real.connect(("127.0.0.1", 9))

    run_simulation(1, story)
    with socket.socket() as real:
        real.bind(("127.0.0.1", 0))
    assert trio.run(trio.to_thread.run_sync, threading.get_ident) != threading.get_ident()


def test_a_story_that_waits_for_ever_is_an_error() -> None:
    async def story(universe: Universe) -> None:
        await trio.sleep(5)
        await trio.sleep_forever()

    with pytest.raises(SimulationStuck, match="seed 3: at 5"):
        run_simulation(3, story)


def test_tasks_that_run_for_ever_without_time_passing_are_an_error() -> None:
    async def story(universe: Universe) -> None:
        async def whirl() -> None:
            while True:
                await trio.lowlevel.checkpoint()

        await trio.sleep(5)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep, 1)
            nursery.start_soon(whirl)

    with pytest.raises(SimulationStuck, match=r"seed 3: at 5.* stands still: .*whirl never come to rest"):
        run_simulation(3, story)


def test_clocks_run_each_at_its_own_rate() -> None:
    async def story(universe: Universe) -> None:
        worlds = [make_world(f"node-{n}", universe) for n in range(10)]
        walls = [world.wall_clock.now_ms() for world in worlds]
        monotonics = [world.monotonic.now_ms() for world in worlds]
        await trio.sleep(100_000)
        elapsed = [world.monotonic.now_ms() - start for world, start in zip(worlds, monotonics, strict=True)]
        assert len(set(elapsed)) == 10
        assert all(abs(ms - 100_000_000) <= 100_000_000 * 200e-6 + 1 for ms in elapsed)
        assert max(walls) - min(walls) > 10
        clock = universe.host("node-0").wall_clock
        before = worlds[0].wall_clock.now_ms()
        clock.jump(-3_600_000)
        assert worlds[0].wall_clock.now_ms() == before - 3_600_000
        clock.set_rate(1_000_000)
        await trio.sleep(1)
        assert worlds[0].wall_clock.now_ms() == pytest.approx(before - 3_598_000, abs=2)

    run_simulation(4, story)


def test_blocking_work_lets_others_run() -> None:
    async def story(universe: Universe) -> None:
        world = make_world("node", universe)
        started = trio.current_time()
        assert await world.run_blocking(lambda: trio.current_time() > started)
        assert trio.current_time() - started >= 0.0002
        with pytest.raises(ZeroDivisionError):
            await world.run_blocking(lambda: 1 // 0)

        done = []
        with trio.move_on_after(0.0001):
            await world.run_blocking(lambda: done.append("work"))
        assert done == ["work"]  # as with a thread, the caller waits for it to end

    run_simulation(4, story)


def test_a_kill_falls_before_in_or_after_blocking_work() -> None:
    async def story(universe: Universe, after_ms: float) -> str:
        universe.slow_disk("node", (10, 0))
        progress = []

        async def main(world: World) -> None:
            progress.append("before")
            await world.run_blocking(lambda: progress.append("during"))
            progress.append("after")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(universe.run_node, "node", main)
            await trio.sleep(after_ms / 1000)
            universe.kill("node")
        return " ".join(progress)

    assert run_simulation(1, story, 3) == "before"
    assert run_simulation(1, story, 8) == "before during"
    assert run_simulation(1, story, 12) == "before during after"


def test_a_node_is_killed_at_a_fault_point_and_touches_nothing_afterwards() -> None:
    async def story(universe: Universe) -> None:
        reached = []

        async def main(world: World) -> None:
            file = world.disk.open("/log", create=True)
            try:
                for number in range(10):
                    file.pwrite(b"x", number)
                    world.fault_point("log.append.written")
                    reached.append(number)
            finally:
                file.close()
                world.disk.remove("/log")  # a tidy node would; a dead one cannot

        universe.kill_at("node", "log.append.written", occurrence=4)
        assert await universe.run_node("node", main) is False
        assert reached == [0, 1, 2]
        assert universe.coverage == {"log.append.written": 4}
        assert make_world("node", universe).disk.read_bytes("/log") == b"xxxx"

    run_simulation(1, story)


def test_a_kill_passes_every_handler_in_the_node() -> None:
    async def story(universe: Universe) -> None:
        world = make_world("node", universe)
        universe.kill("node")
        with pytest.raises(NodeKilled):
            world.fault_point("anywhere")
        with pytest.raises(NodeKilled):
            await world.run_blocking(lambda: None)

        async def child(world: World) -> None:
            while True:
                try:
                    await trio.sleep(0.1)
                    world.fault_point("child")
                except Exception:
                    pytest.fail("a kill is no exception")

        async def main(world: World) -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(child, world)
                nursery.start_soon(child, world)

        universe.kill_at("node", "child", occurrence=7)
        assert await universe.run_node("node", main) is False

    run_simulation(1, story)


def test_a_living_node_ends_by_itself_and_its_errors_are_ours() -> None:
    async def story(universe: Universe) -> None:
        async def main(world: World) -> None:
            await world.network.listen("", 9092)

        assert await universe.run_node("node", main) is True
        assert await universe.run_node("node", main) is True  # its port is free again

        async def fails(world: World) -> None:
            raise ValueError("a mistake")

        with pytest.raises(ValueError, match="a mistake"):
            await universe.run_node("node", fails)
        assert not universe.is_alive("node")

    run_simulation(1, story)
