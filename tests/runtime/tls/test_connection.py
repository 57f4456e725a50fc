"""TLS keeps the promises of a connection: bytes arrive whole and in order, and nothing waits for ever."""

from __future__ import annotations

import ctypes
import ssl
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from math import ceil
from pathlib import Path

import pytest
import trio

from barnabas.runtime.network import EAGER_RECEIVES
from barnabas.runtime.outgoing import Outgoing
from barnabas.runtime.real import real_world
from barnabas.runtime.security import HandshakeFailed
from barnabas.runtime.tls.connection import (
    MOST_CONTROL_BYTES,
    PIECE_BYTES,
    SCRATCH_BYTES,
    TURN_RECORDS,
    TlsConnection,
)
from barnabas.runtime.world import Bytes, Connection, ConnectionLost, File, FileRegion, World
from tests.runtime.conftest import Two
from tests.runtime.tls.stage import client_security, server_security

pytestmark = pytest.mark.feature("SE-02")

Play = Callable[[Callable[[Two], Awaitable[None]]], None]

KEY_UPDATE_BYTES = 27
"""A whole record of TLS 1.3 with a message KeyUpdate."""


class Pair:
    """The two ends of a connection after the handshake."""

    server: Connection
    client: Connection
    below_server: Connection
    below_client: Connection

    async def open(self, two: Two, **options: str) -> None:
        listener = await two.server.network.listen("", 0)
        security = server_security(two.server, **options)
        channel = client_security(two.client, **options)

        async def accept() -> None:
            self.below_server = await listener.accept()
            self.server = (await security.secure(self.below_server)).connection

        async with trio.open_nursery() as nursery:
            nursery.start_soon(accept)
            self.below_client = await two.client.network.dial(two.host, listener.port)
            self.client = await channel.secure(self.below_client, two.host)
        listener.close()


async def send(connection: Connection, data: bytes) -> None:
    outgoing = Outgoing(connection)
    outgoing.send([data], len(data))
    if outgoing.unsent_bytes:
        await outgoing.drain()


async def receive(connection: Connection, count: int, room: int = 100_000) -> bytes:
    data = bytearray()
    while len(data) < count:
        piece = bytearray(min(room, count - len(data)))
        data += piece[: await connection.receive_into(memoryview(piece))]
    return bytes(data)


def numbered(size: int) -> bytes:
    return b"".join(number.to_bytes(4, "big") for number in range(size // 4))


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_large_messages_arrive_both_ways_at_once(play: Play, version: str) -> None:
    async def story(two: Two) -> None:
        pair = Pair()
        await pair.open(two, ssl_enabled_protocols=version)
        there, back = numbered(3_000_000), numbered(2_000_000)[::-1]
        got: dict[str, bytes] = {}

        async def take(name: str, connection: Connection, count: int) -> None:
            got[name] = await receive(connection, count)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(take, "there", pair.server, len(there))
            nursery.start_soon(take, "back", pair.client, len(back))
            nursery.start_soon(send, pair.client, there)
            nursery.start_soon(send, pair.server, back)
        assert got == {"there": there, "back": back}
        for end in (pair.server, pair.client):
            end.close()

    play(story)


def test_a_reader_that_is_slow_loses_nothing_and_a_sender_holds_little(play: Play) -> None:
    async def story(two: Two) -> None:
        pair = Pair()
        await pair.open(two)
        data = numbered(8_000_000)
        outgoing = Outgoing(pair.server)
        outgoing.send([data], len(data))
        assert outgoing.unsent_bytes, "more than the system takes at once"
        tls = pair.server
        assert isinstance(tls, TlsConnection)
        assert 0 < len(tls._pending) < PIECE_BYTES + 1024
        async with trio.open_nursery() as nursery:
            nursery.start_soon(outgoing.drain)
            got = bytearray()
            while len(got) < len(data):
                got += await receive(pair.client, min(100_000, len(data) - len(got)))
                await trio.sleep(0.001)
        assert got == data
        assert not len(tls._pending)

    play(story)


def test_the_end_of_an_answer_leaves_without_a_further_one(play: Play) -> None:
    """The sender stops when all is reported as taken; by then its ciphertext has left, too."""

    async def story(two: Two) -> None:
        pair = Pair()
        await pair.open(two)
        for size in (1, 100, 16_384, 65_536, 65_537, 700_001, 3_333_333):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(send, pair.server, bytes(size))
                assert await receive(pair.client, size) == bytes(size)

    play(story)


def test_regions_of_files_arrive_between_other_bytes(play_on_disk: Callable[..., None]) -> None:
    async def story(world: World, directory: str) -> None:
        pair = Pair()
        await pair.open(Two(world, world, "localhost"))
        contents = numbered(4_000_000)
        file = world.disk.open(f"{directory}/segment", create=True)
        file.pwrite(contents, 0)
        outgoing = Outgoing(pair.server)
        chunks = [b"head", FileRegion(file, 100_000, 3_500_000), b"tail" * 20_000, FileRegion(file, 7, 9), b"end"]
        expected = b"head" + contents[100_000:3_600_000] + b"tail" * 20_000 + contents[7:16] + b"end"
        outgoing.send(chunks, sum(map(len, chunks)))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(outgoing.drain)
            assert await receive(pair.client, len(expected)) == expected
        with pytest.raises(EOFError, match="ends before byte 4000001"):
            pair.server.send_file_now(file, 4_000_000, 1)

    play_on_disk(story)


class Narrow:
    """A connection that takes a few bytes at a time, when it may."""

    peer_host, peer_port = "narrow", 1

    def __init__(self) -> None:
        self.room = 0
        self.taken = bytearray()
        self.arriving = b""
        self.closed = False

    def send_now(self, views: Sequence[Bytes]) -> int:
        data = bytes(views[0])[: self.room]
        self.room -= len(data)
        self.taken += data
        return len(data)

    def send_file_now(self, file: File, offset: int, count: int) -> int:
        raise AssertionError("plaintext of a file")

    async def receive_into(self, buffer: memoryview) -> int:
        while not self.arriving:
            await trio.sleep_forever()
        size = min(len(buffer), len(self.arriving))
        buffer[:size], self.arriving = self.arriving[:size], self.arriving[size:]
        return size

    async def wait_writable(self) -> None:
        await trio.lowlevel.checkpoint()

    def has_ended(self) -> bool:
        return False

    def close(self) -> None:
        self.closed = True


class Reader:
    """A client at the other end of a `Narrow` connection."""

    def __init__(self, narrow: Narrow) -> None:
        """The handshake is over then, and the server's end has no room any longer."""
        world = real_world()
        context = server_security(world)._holder.server_context().ssl
        trusting = client_security(world)._holder.client_context().ssl
        self._narrow = narrow
        self._incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = trusting.wrap_bio(self._incoming, self.outgoing, server_hostname="server")
        self.server = TlsConnection(narrow, context, memoryview(bytearray(SCRATCH_BYTES)), server_side=True)
        narrow.room = 1 << 20
        over = False
        while not over:
            with suppress(ssl.SSLWantReadError):
                self.tls.do_handshake()
            self.server.feed(self.outgoing.read())
            over = self.server.step()
            assert self.server._flushed()
            self._take()
        narrow.room = 0

    def read(self) -> bytes:
        """Everything that can be decrypted of what the connection took."""
        self._take()
        data = bytearray()
        with suppress(ssl.SSLWantReadError):
            while True:
                data += self.tls.read(1 << 20)
        return bytes(data)

    def _take(self) -> None:
        self._incoming.write(bytes(self._narrow.taken))
        self._narrow.taken.clear()


def test_taken_bytes_have_left_at_every_pace() -> None:
    """With any room below, the sum of what is reported is what the peer can decrypt, less than a piece apart."""
    narrow = Narrow()
    reader = Reader(narrow)
    data = memoryview(numbered(200_000))
    reported, decrypted = 0, b""
    for room in [0, 1, 4, 5, 100, 16_000, 1, 30_000, 0, 7, 50_000, 65_000, 3, 40_000, 20_000, 1 << 20, 0]:
        narrow.room = room
        reported += reader.server.send_now([data[reported : reported + 70_000], data[reported + 70_000 :]])
        decrypted += reader.read()
        assert decrypted == data[: len(decrypted)], "nothing twice, nothing left out"
        assert reported <= len(decrypted) + PIECE_BYTES
        assert len(decrypted) == len(data) or reported < len(data), "the end is reported when it has left"
    assert reported == len(data)
    assert reader.server.send_now([]) == 0


def test_a_file_is_not_encrypted_twice_either(tmp_path: Path) -> None:
    narrow = Narrow()
    reader = Reader(narrow)
    data = numbered(150_000)
    file = real_world().disk.open(str(tmp_path / "file"), create=True)
    file.pwrite(data, 0)
    reported, decrypted = 0, b""
    while reported < len(data):
        narrow.room = 9_999
        reported += reader.server.send_file_now(file, reported, len(data) - reported)
        decrypted += reader.read()
    assert decrypted == data
    file.close()


async def test_a_receiver_lets_others_run_however_much_has_arrived() -> None:
    reader = Reader(Narrow())
    reader.tls.write(bytes(1_000))
    reader.server.feed(reader.outgoing.read())
    passes = 0

    async def other() -> None:
        nonlocal passes
        while True:
            passes += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        one = bytearray(1)
        for _ in range(EAGER_RECEIVES * 10):
            assert await reader.server.receive_into(memoryview(one)) == 1
        assert passes >= 9
        nursery.cancel_scope.cancel()


def test_each_end_learns_that_the_other_closed(play: Play) -> None:
    async def story(two: Two) -> None:
        pair = Pair()
        await pair.open(two)
        await send(pair.client, b"last words")
        pair.client.close()
        assert await receive(pair.server, 10) == b"last words"
        with pytest.raises(ConnectionLost, match="closed by the peer"):
            await pair.server.receive_into(memoryview(bytearray(10)))
        assert pair.server.has_ended()
        for use in (lambda: pair.client.send_now([b"x"]), lambda: pair.client.send_now([])):
            with pytest.raises(ConnectionLost, match="closed here"):
                use()
        with pytest.raises(ConnectionLost, match="closed here"):
            await pair.client.receive_into(memoryview(bytearray(10)))
        with pytest.raises(ConnectionLost, match="closed here"):
            await pair.client.wait_writable()

    play(story)


def test_a_connection_that_is_cut_in_a_record_gives_no_part_of_it(play: Play) -> None:
    async def story(two: Two) -> None:
        pair = Pair()
        await pair.open(two)
        client = pair.client
        assert isinstance(client, TlsConnection)
        await send(client, b"whole")
        client._encrypt(bytes(5_000))
        ciphertext = client._outgoing.read()
        pair.below_client.send_now([ciphertext[:2_000]])
        pair.below_client.close()
        assert await receive(pair.server, 5) == b"whole"
        with pytest.raises(ConnectionLost):
            await pair.server.receive_into(memoryview(bytearray(10_000)))

    play(story)


def test_damaged_bytes_end_the_connection_with_a_reason(play: Play) -> None:
    async def story(two: Two) -> None:
        pair = Pair()
        await pair.open(two)
        client = pair.client
        assert isinstance(client, TlsConnection)
        client._encrypt(b"good")
        client._encrypt(b"to be damaged")
        ciphertext = bytearray(client._outgoing.read())
        ciphertext[-1] ^= 1
        pair.below_client.send_now([ciphertext])
        got = bytearray(100)
        assert bytes(got[: await pair.server.receive_into(memoryview(got))]) == b"good"
        with pytest.raises(ConnectionLost, match="a record was damaged on its way"):
            await pair.server.receive_into(memoryview(got))
        with pytest.raises(ConnectionLost, match="the peer sent the alert bad record mac"):
            await pair.client.receive_into(memoryview(got))

    play(story)


@pytest.mark.parametrize("room", [1_000, 16_384, 20_000, 1_000_000])
async def test_data_before_an_end_that_came_with_it_is_received(room: int) -> None:
    narrow = Narrow()
    reader = Reader(narrow)
    data = numbered(60_000)
    reader.tls.write(data)
    with suppress(ssl.SSLWantReadError):
        reader.tls.unwrap()
    narrow.arriving = reader.outgoing.read()
    assert len(narrow.arriving) <= SCRATCH_BYTES, "all of it is received at once"
    assert await receive(reader.server, len(data), room) == data
    with pytest.raises(ConnectionLost, match="closed by the peer"):
        await reader.server.receive_into(memoryview(bytearray(10)))
    assert reader.server.has_ended()


@pytest.mark.parametrize("size", [1, 5, 50, 16_384])
async def test_small_records_are_no_control_messages(size: int) -> None:
    """A megabyte of ciphertext, most of it overhead."""
    narrow = Narrow()
    reader = Reader(narrow)
    records = 1_000_000 // (size + 22)
    for _ in range(records):
        reader.tls.write(bytes(size))
    narrow.arriving = reader.outgoing.read()
    assert await receive(reader.server, size * records) == bytes(size * records)


def mapped_libssl() -> str | None:
    """The library that Python's own `ssl` uses, if it is a shared one."""
    lines = Path("/proc/self/maps").read_text().splitlines() if Path("/proc/self/maps").exists() else []
    return next((line.split()[-1] for line in lines if "/libssl.so" in line), None)


class Changing(Reader):
    """A client that changes its keys as often as it likes."""

    def change_keys(self, until_bytes: int) -> None:
        """Change them until so many bytes wait to be sent."""
        library = ctypes.CDLL(str(mapped_libssl()))
        # The object of Python has its header, a pointer, and then that to OpenSSL's object.
        place = id(self.tls._sslobj) + object.__basicsize__ + ctypes.sizeof(ctypes.c_void_p)  # type: ignore[attr-defined]
        connection = ctypes.c_void_p.from_address(place)
        while self.outgoing.pending < until_bytes:
            assert library.SSL_key_update(connection, 0) == 1
            assert library.SSL_do_handshake(connection) == 1


class Counting:
    """Pays one second for each piece of work, and counts the waits."""

    def __init__(self) -> None:
        self.now = 0.0
        self.paid = 0.0
        self.waits = 0

    def stopwatch(self) -> float:
        self.now += 1
        return self.now

    def pay(self, began: float, ended: float) -> None:
        self.paid += ended - began

    async def wait(self) -> None:
        self.waits += 1
        await trio.lowlevel.checkpoint()


needs_libssl = pytest.mark.skipif(mapped_libssl() is None, reason="needs a shared libssl")


@needs_libssl
async def test_a_flood_of_changed_keys_ends_the_connection() -> None:
    """They cost the receiver most, and a peer could send nothing else."""
    narrow = Narrow()
    reader = Changing(narrow)
    payer = Counting()
    reader.server.charge_to(payer)
    reader.tls.write(b"first")
    reader.change_keys(60_000)
    reader.tls.write(b"never")
    narrow.arriving = reader.outgoing.read()
    got = bytearray(100)
    assert got[: await reader.server.receive_into(memoryview(got))] == b"first"
    with pytest.raises(ConnectionLost, match="the peer sends too many messages without data"):
        await reader.server.receive_into(memoryview(got))
    turns = ceil(MOST_CONTROL_BYTES / (TURN_RECORDS * KEY_UPDATE_BYTES))
    assert payer.waits == turns, "others had turns meanwhile"
    assert payer.paid >= turns, "and the peer paid for its own"


@needs_libssl
async def test_data_between_changed_keys_arrives_and_the_turns_are_as_short() -> None:
    narrow = Narrow()
    reader = Changing(narrow)
    payer = Counting()
    reader.server.charge_to(payer)
    sent = bytearray()
    for number in range(12):
        reader.change_keys(reader.outgoing.pending + 100 * KEY_UPDATE_BYTES)
        data = bytes([number]) * 70
        reader.tls.write(data)
        sent += data
    narrow.arriving = reader.outgoing.read()
    assert await receive(reader.server, len(sent)) == sent
    assert payer.waits >= 12


@pytest.mark.parametrize("size", [1, 100, 16_384])
async def test_a_peer_pays_for_the_decryption_of_its_data(size: int) -> None:
    narrow = Narrow()
    reader = Reader(narrow)
    payer = Counting()
    reader.server.charge_to(payer)
    while len(narrow.arriving) < 2 * SCRATCH_BYTES:
        reader.tls.write(bytes(size))
        narrow.arriving += reader.outgoing.read()
    room, calls = bytearray(1_000_000), 0
    while narrow.arriving:
        await reader.server.receive_into(memoryview(room))
        calls += 1
        assert payer.paid >= calls


async def test_a_peer_that_causes_alerts_and_takes_none_is_closed() -> None:
    narrow = Narrow()
    reader = Reader(narrow)
    reader.server._pending = memoryview(bytes(200_000))
    reader.server._answer()
    with pytest.raises(ConnectionLost, match="causes alerts"):
        await reader.server.receive_into(memoryview(bytearray(10)))


@pytest.mark.parametrize("host", ["", "..", "a" * 70, "ho\0st"])
def test_a_name_that_no_host_can_have_is_refused(host: str) -> None:
    context = client_security(real_world())._holder.client_context().ssl
    with pytest.raises(HandshakeFailed, match="is no name of a host"):
        TlsConnection(Narrow(), context, memoryview(bytearray(1)), host=host)
