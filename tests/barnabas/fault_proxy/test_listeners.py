"""The sockets of the proxy before a cluster: hostile clients, brokers that go away, clients that do not read."""

from __future__ import annotations

import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from barnabas.cluster.errors import ClusterError
from barnabas.dev.embedded import EmbeddedServers
from barnabas.fault_proxy.dialogue import sized
from barnabas.fault_proxy.fault_rule import parse_rule
from barnabas.fault_proxy.listeners import ClusterProxy
from barnabas.fault_proxy.pump import MOST_BUFFERED_BYTES
from barnabas.fault_proxy.setup import ProxySetup, running_proxy
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.framing import request_prefix
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest
from barnabas.protocol.schema import encode
from barnabas.runtime.network import RealNetwork
from barnabas.runtime.world import Connection, ConnectionLost, Listener

HELLO = sized(request_prefix(ApiKey.API_VERSIONS, 0, 5, "app") + encode(ApiVersionsRequest(), 0))


@asynccontextmanager
async def before(broker: str) -> AsyncIterator[ClusterProxy]:
    async with running_proxy(ProxySetup(broker)) as proxy:
        with trio.fail_after(60):
            yield proxy


async def connect(proxy: ClusterProxy) -> Connection:
    return await RealNetwork().dial("127.0.0.1", int(proxy.bootstrap_servers.rpartition(":")[2]))


async def is_answered(connection: Connection) -> bool:
    connection.send_now([HELLO])
    buffer = memoryview(bytearray(8))
    try:
        return bool(await connection.receive_into(buffer)) and struct.unpack(">ii", buffer)[1] == 5
    except ConnectionLost:
        return False


async def ends(connection: Connection) -> bool:
    """Waits for the end; False if bytes come first."""
    try:
        await connection.receive_into(memoryview(bytearray(1)))
    except ConnectionLost:
        return True
    return False


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\xff\xff\xff\xff",
        b"\x7f\xff\xff\xff",
        sized(b""),
        sized(struct.pack(">hhih", 18, 4, 1, -5)),
    ],
)
async def test_bytes_that_are_no_request_cost_their_own_connection(
    barnabas_broker: EmbeddedServers, data: bytes
) -> None:
    async with before(barnabas_broker) as proxy:
        good, bad = await connect(proxy), await connect(proxy)
        bad.send_now([data])
        assert await ends(bad)
        assert await is_answered(good)


async def test_a_request_that_never_ends_holds_up_nobody(barnabas_broker: EmbeddedServers) -> None:
    async with before(barnabas_broker) as proxy:
        slow, good = await connect(proxy), await connect(proxy)
        slow.send_now([struct.pack(">ihh", 1000, 18, 4)])
        assert await is_answered(good)


async def test_a_client_that_does_not_read_is_not_read(barnabas_broker: EmbeddedServers) -> None:
    async with before(barnabas_broker) as proxy:
        proxy.common.rules.add(parse_rule("DeleteTopics error=TOPIC_DELETION_DISABLED"))
        request = DeleteTopicsRequest(topic_names=["t" * 30_000] * 10)  # the answer repeats the names
        frame = sized(request_prefix(ApiKey.DELETE_TOPICS, 5, 1, "app") + encode(request, 5))
        greedy, good = await connect(proxy), await connect(proxy)
        sent = 0
        with trio.move_on_after(50) as patience:
            while True:
                count = greedy.send_now([frame[sent % len(frame) :]])
                sent += count
                if not count:
                    with trio.move_on_after(1) as stuck:
                        await greedy.wait_writable()
                    if stuck.cancelled_caught:
                        break
                await trio.lowlevel.checkpoint()
        assert not patience.cancelled_caught
        [held] = [each.back.stream.buffered for each in proxy.connected if each.back.stream.buffered]
        assert held < MOST_BUFFERED_BYTES + (4 << 20)
        assert await is_answered(good)


async def test_a_broker_that_goes_away_costs_its_connections(caplog: pytest.LogCaptureFixture) -> None:
    """A server that answers the first look as a controller would, by ApiVersions alone, and then dies."""
    listener = await RealNetwork().listen("127.0.0.1", 0)
    life = trio.CancelScope()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_serve_versions, listener, life)
        async with before(f"127.0.0.1:{listener.port}") as proxy:
            client = await connect(proxy)
            assert await is_answered(client)
            life.cancel()
            listener.close()
            while not await ends(client):
                pass
            late = await connect(proxy)
            assert await ends(late)
    assert "refused" in caplog.text


async def _serve_versions(listener: Listener, life: trio.CancelScope) -> None:
    with life:
        async with trio.open_nursery() as nursery:
            while True:
                nursery.start_soon(_answer_versions, await listener.accept())


async def _answer_versions(connection: Connection) -> None:
    """Answers every request with the versions of one API."""
    buffer = memoryview(bytearray(4096))
    try:
        while count := await connection.receive_into(buffer):
            _, _, version, number = struct.unpack(">ihhi", bytes(buffer[: min(count, 12)]))
            body = struct.pack(">h", 0)
            one = struct.pack(">hhh", ApiKey.API_VERSIONS, 0, 4)
            if version >= 3:
                body += b"\x02" + one + b"\0" + struct.pack(">i", 0) + b"\0"
            else:
                body += struct.pack(">i", 1) + one
            connection.send_now([sized(struct.pack(">i", number) + body)])
    except ConnectionLost:
        pass
    finally:
        connection.close()


async def test_one_bootstrap_server_is_enough(barnabas_broker: EmbeddedServers) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        away = f"127.0.0.1:{bound.getsockname()[1]}"
        async with before(f"{away},{barnabas_broker}") as proxy:
            assert len(proxy.bootstrap_servers.split(",")) == 2
            good = await RealNetwork().dial("127.0.0.1", int(proxy.bootstrap_servers.rpartition(":")[2]))
            assert await is_answered(good)


async def test_a_cluster_cannot_make_the_proxy_listen_without_end(barnabas_broker: EmbeddedServers) -> None:
    async with before(barnabas_broker) as proxy:
        with pytest.raises(ClusterError, match="more than 200 addresses"):
            for number in range(201):
                proxy.local_port(f"host-{number}", 9092)
