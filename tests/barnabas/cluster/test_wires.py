"""Links between nodes that a test can cut: nothing passes, nothing is closed, and after the repair all goes on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

from barnabas.cluster.wires import SeverableNetwork, Wires
from barnabas.runtime.simulated import Universe, make_world, run_simulation
from barnabas.runtime.world import Connection, ConnectionLost

NAMES = ["a", "b", "c"]
PORT = 9092
Story = Callable[[Wires, Connection, Connection], Awaitable[None]]


def play(path: Path, story: Story) -> None:
    """Node a has dialled node b; the story has the wires, a's connection and b's."""

    async def main(universe: Universe) -> None:
        wires = Wires(path / "wires", NAMES)
        worlds = {name: make_world(name, universe) for name in NAMES}
        listener = await worlds["b"].network.listen("b", PORT)
        network = SeverableNetwork(worlds["a"].network, wires, "a", {PORT: "b"})
        dialled = await network.dial("b", PORT)
        await story(wires, dialled, await listener.accept())

    run_simulation(1, main)


async def receive(connection: Connection, count: int = 100) -> bytes:
    buffer = bytearray(count)
    with memoryview(buffer) as view:
        return bytes(buffer[: await connection.receive_into(view)])


def test_a_whole_wire_is_as_if_it_were_not_there(tmp_path: Path) -> None:
    async def story(wires: Wires, ours: Connection, theirs: Connection) -> None:
        assert ours.send_now([b"hello"]) == 5
        assert await receive(theirs) == b"hello"
        theirs.send_now([b"answer"])
        assert await receive(ours) == b"answer"
        assert (ours.peer_host, ours.peer_port) == ("b", PORT)

    play(tmp_path, story)


def test_bytes_sent_over_a_cut_link_arrive_after_its_repair(tmp_path: Path) -> None:
    async def story(wires: Wires, ours: Connection, theirs: Connection) -> None:
        wires.partition([["a"], ["b", "c"]])
        assert wires.is_cut("a", "b") and wires.is_cut("c", "a") and not wires.is_cut("b", "c")
        assert ours.send_now([b"hello"]) == 0
        theirs.send_now([b"answer"])
        with trio.move_on_after(10) as patience:
            await ours.wait_writable()
        assert patience.cancelled_caught
        got: list[bytes] = []
        async with trio.open_nursery() as nursery:

            async def read() -> None:
                got.append(await receive(ours))

            nursery.start_soon(read)
            await trio.sleep(10)
            assert got == []
            wires.heal()
        assert got == [b"answer"]
        await ours.wait_writable()
        assert ours.send_now([b"hello"]) == 5

    play(tmp_path, story)


def test_the_end_of_a_connection_is_no_news_over_a_cut_wire(tmp_path: Path) -> None:
    async def story(wires: Wires, ours: Connection, theirs: Connection) -> None:
        wires.cut("b", "a")
        assert ours.send_now([b"one way"]) == 7
        theirs.close()
        with trio.move_on_after(5) as patience:
            await receive(ours)
        assert patience.cancelled_caught
        async with trio.open_nursery() as nursery:

            async def receive_until_closed() -> None:
                with pytest.raises(ConnectionLost):
                    await receive(ours)

            nursery.start_soon(receive_until_closed)
            await trio.sleep(1)
            ours.close()

    play(tmp_path, story)


def test_a_dial_over_a_cut_link_waits(tmp_path: Path) -> None:
    async def main(universe: Universe) -> None:
        wires = Wires(tmp_path / "wires", NAMES)
        worlds = {name: make_world(name, universe) for name in NAMES}
        listener = await worlds["b"].network.listen("b", PORT)
        network = SeverableNetwork(worlds["a"].network, wires, "a", {PORT: "b", 1: "a"})
        wires.cut("b", "a")
        with trio.move_on_after(5) as patience:
            await network.dial("b", PORT)
        assert patience.cancelled_caught
        assert not Wires(tmp_path / "wires", NAMES).is_cut("a", "b")
        assert Wires(tmp_path / "wires", NAMES).is_cut("b", "a"), "all who open the file see the same"
        wires.heal()
        await network.dial("b", PORT)
        await listener.accept()

    run_simulation(1, main)
