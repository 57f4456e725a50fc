"""The promises of every network, real and simulated."""

from __future__ import annotations

import errno
import socket

import pytest
import trio

import barnabas.runtime.network
from barnabas.runtime.network import RealNetwork, canonical_names
from barnabas.runtime.world import Connection, ConnectionLost, DialFailed, DialRefused


async def connect(two) -> tuple[Connection, Connection]:
    """(client's end, server's end)"""
    listener = await two.server.network.listen("", 0)
    near = await two.client.network.dial(two.host, listener.port)
    far = await listener.accept()
    listener.close()
    return near, far


async def send_all(connection: Connection, data: bytes) -> None:
    view = memoryview(data)
    while view:
        sent = connection.send_now([view[:70_000], view[70_000:100_000]] if len(view) > 70_000 else [view])
        assert 0 <= sent <= len(view)
        view = view[sent:]
        if view:
            await connection.wait_writable()


async def receive_exactly(connection: Connection, count: int) -> bytes:
    data = bytearray(count)
    filled = 0
    while filled < count:
        filled += await connection.receive_into(memoryview(data)[filled:])
    return bytes(data)


async def until_lost(connection: Connection) -> bytes:
    """Everything that comes until the end."""
    received = bytearray()
    buffer = bytearray(1000)
    try:
        while True:
            count = await connection.receive_into(memoryview(buffer))
            received += buffer[:count]
    except ConnectionLost:
        return bytes(received)


def test_bytes_arrive_in_order_both_ways(play) -> None:
    async def story(two) -> None:
        near, far = await connect(two)
        asked, answered = bytes(range(256)) * 20_000, b"answer" * 100_000

        async def serve() -> None:
            assert await receive_exactly(far, len(asked)) == asked
            await send_all(far, answered)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve)
            nursery.start_soon(send_all, near, asked)
            assert await receive_exactly(near, len(answered)) == answered

    play(story)


def test_a_sender_is_held_back_until_the_peer_reads(play) -> None:
    async def story(two) -> None:
        near, far = await connect(two)
        chunk = b"x" * 65536
        sent = 0
        while True:  # fill every buffer there is
            taken = near.send_now([chunk])
            sent += taken
            if taken == 0:
                with trio.move_on_after(0.2) as waiting:
                    await near.wait_writable()
                if waiting.cancelled_caught:
                    break
        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive_exactly, far, sent)
            await near.wait_writable()
            assert near.send_now([b"more"]) > 0
            near.close()

    play(story)


def test_the_end_comes_after_the_last_byte(play) -> None:
    async def story(two) -> None:
        near, far = await connect(two)
        await send_all(near, b"last words")
        near.close()
        assert await until_lost(far) == b"last words"
        with pytest.raises(ConnectionLost):
            await far.receive_into(memoryview(bytearray(1)))

    play(story)


def test_sending_to_a_closed_peer_fails_soon(play) -> None:
    async def story(two) -> None:
        near, far = await connect(two)
        far.close()
        await until_lost(near)
        with pytest.raises(ConnectionLost):
            while True:
                near.send_now([b"x" * 1000])
                await near.wait_writable()

    play(story)


def test_close_wakes_waiting_tasks(play) -> None:
    async def story(two) -> None:
        near, _far = await connect(two)
        async with trio.open_nursery() as nursery:

            async def wait() -> None:
                with pytest.raises(ConnectionLost):
                    await near.receive_into(memoryview(bytearray(1)))

            nursery.start_soon(wait)
            await trio.sleep(0.01)
            near.close()
        near.close()
        with pytest.raises(ConnectionLost):
            near.send_now([b"x"])
        with pytest.raises(ConnectionLost):
            await near.wait_writable()

    play(story)


def test_a_cancelled_receive_loses_nothing(play) -> None:
    async def story(two) -> None:
        near, far = await connect(two)
        for n in range(20):
            with trio.move_on_after(0.001):
                await far.receive_into(memoryview(bytearray(10)))
            near.send_now([bytes([n])])
            assert await receive_exactly(far, 1) == bytes([n])

    play(story)


def test_a_buffer_is_filled_in_the_turn_of_its_receiver(play) -> None:
    """Many connections may share one buffer, as long as nothing awaits between a receive and its use."""

    async def story(two) -> None:
        shared = memoryview(bytearray(4))
        pairs = [await connect(two) for _ in range(5)]

        async def echo(number: int, far: Connection) -> None:
            for _ in range(50):
                count = await far.receive_into(shared)
                assert bytes(shared[:count]) == bytes([number]) * count
                far.send_now([bytes(shared[:count])])

        async with trio.open_nursery() as nursery:
            for number, (near, far) in enumerate(pairs):
                nursery.start_soon(echo, number, far)
                near.send_now([bytes([number])])
            for _ in range(49):
                for number, (near, _) in enumerate(pairs):
                    assert await receive_exactly(near, 1) == bytes([number])
                    near.send_now([bytes([number])])

    play(story)


def test_a_flood_does_not_starve_other_tasks(play) -> None:
    async def story(two) -> None:
        near, far = await connect(two)
        turns = 0

        async def count_turns() -> None:
            nonlocal turns
            while True:
                await trio.lowlevel.checkpoint()
                turns += 1

        async with trio.open_nursery() as nursery:
            near.send_now([b"x" * 1000])
            await trio.sleep(0.05)
            nursery.start_soon(count_turns)
            for _ in range(1000):
                await far.receive_into(memoryview(bytearray(1)))
            assert turns >= 1000 // 16 - 2
            nursery.cancel_scope.cancel()

    play(story)


def test_parts_of_a_file_are_sent(play, tmp_path) -> None:
    async def story(two) -> None:
        near, far = await connect(two)
        disk = two.client.disk
        disk.make_directories(str(tmp_path))
        file = disk.open(str(tmp_path / "log"), create=True)
        content = bytes(range(250)) * 1000
        file.pwrite(content, 0)

        async def send() -> None:
            position = 100
            while position < 200_000:
                sent = near.send_file_now(file, position, 200_000 - position)
                position += sent
                if sent == 0:
                    await near.wait_writable()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            assert await receive_exactly(far, 199_900) == content[100:200_000]
        assert near.send_file_now(file, 0, 0) == 0
        with pytest.raises(EOFError):
            near.send_file_now(file, len(content), 10)

    play(story)


def test_a_dial_without_a_listener_is_refused(play) -> None:
    async def story(two) -> None:
        listener = await two.server.network.listen("", 0)
        listener.close()
        with pytest.raises(DialRefused):
            await two.client.network.dial(two.host, listener.port)
        with pytest.raises(DialFailed) as failure:
            await two.client.network.dial("no-such-host.invalid", 9092)
        assert not isinstance(failure.value, DialRefused)

    play(story)


def test_ports_are_taken_once(play) -> None:
    async def story(two) -> None:
        listener = await two.server.network.listen("127.0.0.1", 0)
        with pytest.raises(OSError, match="in use") as failure:
            await two.server.network.listen("127.0.0.1", listener.port)
        assert failure.value.errno == errno.EADDRINUSE
        listener.close()
        again = await two.server.network.listen("127.0.0.1", listener.port)
        assert again.port == listener.port
        with pytest.raises(OSError, match=r"assign|address"):
            await two.server.network.listen("192.0.2.1", 0)

    play(story)


def test_closing_a_listener_wakes_its_accept(play) -> None:
    async def story(two) -> None:
        listener = await two.server.network.listen("", 0)
        async with trio.open_nursery() as nursery:

            async def wait() -> None:
                with pytest.raises(ConnectionLost):
                    await listener.accept()

            nursery.start_soon(wait)
            await trio.sleep(0.01)
            listener.close()

    play(story)


def test_both_ends_know_each_other(play) -> None:
    async def story(two) -> None:
        listener = await two.server.network.listen("", 0)
        near = await two.client.network.dial(two.host, listener.port)
        far = await listener.accept()
        assert (near.peer_host, near.peer_port) == (two.host, listener.port)
        assert far.peer_host in ("127.0.0.1", "client")
        assert far.peer_port > 1024

    play(story)


# Names with many addresses: of the machine's network only, the simulated one has names for hosts


def resolving_to(monkeypatch: pytest.MonkeyPatch, *addresses: tuple[str, int]) -> None:
    async def getaddrinfo(*_: object, **__: object) -> list[tuple[object, ...]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in addresses]

    monkeypatch.setattr(trio.socket, "getaddrinfo", getaddrinfo)


@pytest.mark.feature("CL-01")
async def test_all_addresses_of_a_name_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    network = RealNetwork()
    closed = await network.listen("127.0.0.1", 0)
    closed.close()
    listener = await network.listen("127.0.0.1", 0)
    here, nowhere = ("127.0.0.1", listener.port), ("127.0.0.1", closed.port)
    resolving_to(monkeypatch, nowhere, nowhere, here)
    with trio.fail_after(5):
        connection = await network.dial("a-name", 1)
        assert connection.peer_port == listener.port
        await listener.accept()
        connection.close()
        resolving_to(monkeypatch, nowhere, nowhere)
        with pytest.raises(DialRefused, match=r"a-name:1: .*refused.*; .*refused"):
            await network.dial("a-name", 1)
        resolving_to(monkeypatch)
        with pytest.raises(DialFailed, match="no address"):
            await network.dial("a-name", 1)
    listener.close()


@pytest.mark.feature("CL-01")
async def test_an_address_that_says_nothing_does_not_hold_up_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    network = RealNetwork()
    listener = await network.listen("127.0.0.1", 0)
    silent, here = ("192.0.2.1", listener.port), ("127.0.0.1", listener.port)
    abandoned = []
    connect = barnabas.runtime.network._connect

    async def connect_unless_silent(family: int, address: tuple[str, int]) -> object:
        if address != silent:
            return await connect(family, address)
        try:
            await trio.sleep_forever()
        finally:
            abandoned.append(address)

    monkeypatch.setattr(barnabas.runtime.network, "_connect", connect_unless_silent)
    resolving_to(monkeypatch, silent, here)
    with trio.fail_after(5):
        connection = await network.dial("a-name", 1)
        assert connection.peer_host == "127.0.0.1"
        connection.close()
    assert abandoned == [silent]
    resolving_to(monkeypatch, silent, silent)
    with trio.move_on_after(0.4) as patience:
        await network.dial("a-name", 1)
    assert patience.cancelled_caught, "the caller bounds the time"
    assert len(abandoned) == 3
    listener.close()


async def test_a_name_that_cannot_be_one() -> None:
    with pytest.raises(DialFailed):
        await RealNetwork().dial("x" * 100, 9092)
    assert await canonical_names("x" * 100) == ["x" * 100]


async def test_the_names_that_addresses_have_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    async def getnameinfo(address: tuple[str, int], _: int) -> tuple[str, str]:
        return {"10.0.0.1": "b1", "10.0.0.2": "b2", "10.0.0.3": "b1"}[address[0]], "0"

    monkeypatch.setattr(trio.socket, "getnameinfo", getnameinfo)
    resolving_to(monkeypatch, ("10.0.0.1", 0), ("10.0.0.2", 0), ("10.0.0.3", 0))
    assert await canonical_names("brokers") == ["b1", "b2"]
