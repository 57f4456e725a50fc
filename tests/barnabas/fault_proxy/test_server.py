"""The proxy's sockets: what dials, refusals and ends look like through it, and that it leaves nothing behind."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from barnabas.cluster.errors import ClusterError
from barnabas.cluster.ports import is_free
from barnabas.cluster.proxied_network import ProxiedNetwork
from barnabas.fault_proxy.driver import ProxyProcess
from barnabas.fault_proxy.rules import CLIENT, LinkState, MessageRule
from barnabas.fault_proxy.server import Proxy
from barnabas.runtime.network import RealNetwork
from barnabas.runtime.world import Connection, ConnectionLost, DialRefused, Listener

END_TXN, FETCH = 26, 1


class Server:
    """Answers each request with its own correlation id."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._scope = trio.CancelScope()
        self._listener: Listener | None = None
        self.ended = trio.Event()

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        with self._scope:
            async with trio.open_nursery() as nursery:
                self._listener = await RealNetwork().listen("127.0.0.1", self.port)
                self.port = self._listener.port
                task_status.started()
                try:
                    while True:
                        nursery.start_soon(self._serve, await self._listener.accept())
                finally:
                    self._listener.close()
        self.ended.set()

    async def _serve(self, connection: Connection) -> None:
        try:
            while True:
                size, _key, _version, number = struct.unpack(">ihhi", await receive(connection, 12))
                await receive(connection, size - 8)
                connection.send_now([struct.pack(">ii", 4, number)])
        except ConnectionLost:
            pass
        finally:
            connection.close()

    async def kill(self) -> None:
        self._scope.cancel()
        await self.ended.wait()


async def receive(connection: Connection, count: int) -> bytes:
    found = bytearray()
    while len(found) < count:
        buffer = memoryview(bytearray(count - len(found)))
        found += buffer[: await connection.receive_into(buffer)]
    return bytes(found)


async def ask(connection: Connection, number: int, api_key: int = FETCH) -> int:
    connection.send_now([struct.pack(">ihhi", 8, api_key, 3, number)])
    _size, answered = struct.unpack(">ii", await receive(connection, 8))
    return int(answered)


class Stage:
    """Two servers, the proxy between them, and the ways to `b`."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.nursery = nursery
        self.server = Server(0)

    async def begin(self) -> None:
        await self.nursery.start(self.server.run)
        self.proxy = Proxy({"a": 1, "b": self.server.port}, {"b": self.server.port}, seed=1)
        self.nursery.start_soon(self.proxy.run)
        ports = self.proxy.ports
        self.client_port = ports[CLIENT, "b"]
        # Node `a` dials with this: it knows the port that b listens on.
        self.of_a = ProxiedNetwork(RealNetwork(), {self.server.port: ports["a", "b"]})

    async def from_client(self) -> Connection:
        return await until_it_listens(lambda: RealNetwork().dial("127.0.0.1", self.client_port))

    async def from_a(self) -> Connection:
        return await until_it_listens(lambda: self.of_a.dial("127.0.0.1", self.server.port))

    async def restart(self) -> None:
        self.server = Server(self.server.port)
        await self.nursery.start(self.server.run)


async def until_it_listens(dial):  # type: ignore[no-untyped-def]
    with trio.fail_after(5):
        while True:
            try:
                return await dial()
            except DialRefused:
                await trio.sleep(0.005)


@asynccontextmanager
async def a_stage() -> AsyncIterator[Stage]:
    async with trio.open_nursery() as nursery:
        stage = Stage(nursery)
        await stage.begin()
        with trio.fail_after(20):
            yield stage
        nursery.cancel_scope.cancel()


@pytest.mark.feature("FI-04")
async def test_requests_and_answers_pass() -> None:
    async with a_stage() as stage:
        for connection in (await stage.from_client(), await stage.from_a()):
            assert [await ask(connection, number) for number in (1, 2)] == [1, 2]


@pytest.mark.feature("FI-04")
async def test_the_proxy_refuses_as_long_as_its_target_does() -> None:
    async with a_stage() as stage:
        client, node = await stage.from_client(), await stage.from_a()
        assert await ask(client, 1) == await ask(node, 1) == 1
        await stage.server.kill()
        for connection in (client, node):
            with pytest.raises(ConnectionLost):
                await ask(connection, 2)
        with pytest.raises(DialRefused):
            await stage.of_a.dial("127.0.0.1", stage.server.port)
        while stage.proxy._targets["b", stage.server.port].listens:
            await trio.sleep(0.005)
        for _ in range(3):
            with pytest.raises(DialRefused):
                await RealNetwork().dial("127.0.0.1", stage.client_port)
        await stage.restart()
        assert await ask(await stage.from_client(), 3) == 3
        assert await ask(await stage.from_a(), 4) == 4


@pytest.mark.feature("FI-04")
async def test_nothing_arrives_over_a_cut_link() -> None:
    async with a_stage() as stage:
        node = await stage.from_a()
        assert await ask(node, 1) == 1
        stage.proxy.faults.set_link("b", "a", LinkState(cut=True))
        with trio.move_on_after(0.1) as asking:
            await ask(node, 2)
        with trio.move_on_after(0.1) as dialling:
            await stage.of_a.dial("127.0.0.1", stage.server.port)
        assert asking.cancelled_caught and dialling.cancelled_caught
        # Not even of a death.
        await stage.server.kill()
        with trio.move_on_after(0.1) as dialling:
            await stage.of_a.dial("127.0.0.1", stage.server.port)
        assert dialling.cancelled_caught
        assert stage.proxy.connections == 1
        stage.proxy.faults.heal()
        with pytest.raises(ConnectionLost):
            # The answer of before comes, then the end.
            await receive(node, 9)
        with pytest.raises(DialRefused):
            await stage.of_a.dial("127.0.0.1", stage.server.port)


@pytest.mark.feature("FI-04")
async def test_a_half_open_way_takes_connections_and_says_nothing() -> None:
    async with a_stage() as stage:
        await (await stage.from_a()).wait_writable()
        stage.proxy.faults.set_link("a", "b", LinkState(half_open=True))
        node = await stage.from_a()
        with trio.move_on_after(0.1) as asking:
            await ask(node, 1)
        assert asking.cancelled_caught
        stage.proxy.faults.heal()
        assert struct.unpack(">ii", await receive(node, 8)) == (4, 1)


@pytest.mark.feature("FI-04")
async def test_one_message_is_held_while_others_pass() -> None:
    async with a_stage() as stage:
        held, other = await stage.from_client(), await stage.from_client()
        number = stage.proxy.faults.add_rule(MessageRule(END_TXN, "request", "hold"))
        with trio.move_on_after(0.1) as asking:
            await ask(held, 1, END_TXN)
        assert asking.cancelled_caught and await ask(other, 2) == 2
        assert stage.proxy.faults.clear_rule(number) == 1
        assert struct.unpack(">ii", await receive(held, 8)) == (4, 1)


@pytest.mark.feature("FI-04")
async def test_a_connection_is_reset_where_the_rule_says() -> None:
    async with a_stage() as stage:
        client = await stage.from_client()
        stage.proxy.faults.add_rule(MessageRule(END_TXN, "response", "reset"))
        assert await ask(client, 1) == 1
        with pytest.raises(ConnectionLost, match="reset"):
            await ask(client, 2, END_TXN)


@pytest.mark.feature("FI-04")
async def test_slow_ways_are_slow() -> None:
    async with a_stage() as stage:
        client = await stage.from_client()
        stage.proxy.faults.set_link(CLIENT, "b", LinkState(latency_ms=80))
        began = trio.current_time()
        assert await ask(client, 1) == 1
        assert trio.current_time() - began >= 0.08


@pytest.mark.feature("FI-04")
async def test_a_process_that_ends_with_its_input() -> None:
    process = await trio.to_thread.run_sync(lambda: ProxyProcess({"a": 1, "b": 2}, {"b": 2}))
    ports = process.ports
    assert set(ports) == {("a", "b"), ("b", "a"), (CLIENT, "b")}
    process.set_link("a", "b", LinkState(cut=True))
    assert process.link("a", "b").cut and not process.link("b", "a").cut
    with pytest.raises(ClusterError, match="nothing goes from a to z"):
        process.set_link("a", "z", LinkState(cut=True))
    with pytest.raises(ClusterError, match="wobble"):
        process._call("add_rule", wobble=1)
    assert process.clear_rule(process.add_rule(MessageRule(FETCH, "request", "drop"))) == 0
    assert process.asked() == {}
    process.heal()
    assert not process.link("a", "b").cut and process.status() == {"connections": 0, "struck": {}}
    with pytest.raises(DialRefused):
        await RealNetwork().dial("127.0.0.1", ports["a", "b"])
    process.close()
    assert process._process.returncode == 0 and all(is_free(port) for port in ports.values())
    with pytest.raises(ClusterError, match="has ended"):
        process.heal()
