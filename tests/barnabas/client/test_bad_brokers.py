"""Faulty peers at a broker's address: one clear exception in time, never a hang."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from barnabas.client.admin import Admin
from barnabas.client.cluster import NoBrokerAvailable
from barnabas.client.consumer.consumer import Consumer
from barnabas.client.errors import KafkaError, UnsupportedVersionException
from barnabas.client.metadata import TopicPartition
from barnabas.client.producer.producer import Producer
from barnabas.protocol.api_keys import API_SPECS, ApiKey
from barnabas.runtime.simulated import Universe, make_world, run_simulation
from barnabas.runtime.world import Connection, World
from tests.barnabas.client.plain_node import PlainNode, listen_badly, metadata

T0 = TopicPartition("t", 0)
PATIENCE_MS = 3_000
WHERE: dict[str, Any] = {"bootstrap_servers": "b1:9092", "request_timeout_ms": 1_000}

Do = Callable[[World], Awaitable[object]]


async def produce(world: World) -> None:
    times = {"max_block_ms": PATIENCE_MS, "delivery_timeout_ms": PATIENCE_MS, "linger_ms": 0}
    async with Producer(world=world, **WHERE, **times) as producer:
        await producer.send("t", b"x")


async def transact(world: World) -> None:
    times = {"max_block_ms": PATIENCE_MS, "delivery_timeout_ms": PATIENCE_MS, "linger_ms": 0}
    async with Producer(world=world, transactional_id="etl", **WHERE, **times) as producer, producer.transaction():
        await producer.send("t", b"x")


async def look_where_a_log_ends(world: World) -> None:
    async with Consumer(world=world, default_api_timeout_ms=PATIENCE_MS, **WHERE) as consumer:
        await consumer.end_offsets([T0])


async def list_topics(world: World) -> None:
    async with Consumer(world=world, default_api_timeout_ms=PATIENCE_MS, **WHERE) as consumer:
        await consumer.list_topics()


async def administer(world: World) -> None:
    async with Admin(world=world, default_api_timeout_ms=PATIENCE_MS, **WHERE) as admin:
        await admin.list_topics()


CLIENTS: list[Do] = [produce, transact, look_where_a_log_ends, list_topics, administer]


def _says(data: bytes) -> Callable[[Connection], Awaitable[None]]:
    async def treat(connection: Connection) -> None:
        connection.send_now([data])
        await trio.sleep_forever()

    return treat


async def _silent(connection: Connection) -> None:
    await trio.sleep_forever()


async def _rude(connection: Connection) -> None:
    await connection.receive_into(memoryview(bytearray(10)))


def play(start: Callable[[Universe, trio.Nursery], None], scenario: Do) -> None:
    async def story(universe: Universe) -> None:
        universe.host("b1")
        async with trio.open_nursery() as nursery:
            start(universe, nursery)
            await trio.sleep(0.01)
            with trio.fail_after(60):
                await scenario(make_world("client", universe))
            nursery.cancel_scope.cancel()

    run_simulation(1, story)


@pytest.mark.feature("CL-01")
@pytest.mark.parametrize("treat", [_silent, _rude, _says(b"HTTP/1.1 400 Bad Request\r\n"), _says(b"\0\0\0\1\0" * 99)])
@pytest.mark.parametrize("do", CLIENTS)
def test_it_is_no_broker(do: Do, treat: Callable[[Connection], Any]) -> None:
    def start(universe: Universe, nursery: trio.Nursery) -> None:
        nursery.start_soon(universe.run_node, "b1", lambda world: listen_badly(world, "b1", treat))

    async def scenario(world: World) -> None:
        began = trio.current_time()
        with pytest.raises((KafkaError, NoBrokerAvailable)) as failure:
            await do(world)
        assert trio.current_time() - began < 2 * PATIENCE_MS / 1000
        assert not isinstance(failure.value, KafkaError) or failure.value.retriable, "it may be a broker later"

    play(start, scenario)


@pytest.mark.parametrize(
    ("treat", "reason"),
    [
        (None, "b1:9092: connection refused"),
        (_says(b"HTTP/1.1 400 Bad Request\r\n"), "the server answers in HTTP; use the port of a Kafka listener"),
        (_silent, "b1:9092"),
    ],
)
@pytest.mark.parametrize("do", CLIENTS)
def test_the_error_names_the_address_and_the_reason(
    do: Do, treat: Callable[[Connection], Any] | None, reason: str
) -> None:
    def start(universe: Universe, nursery: trio.Nursery) -> None:
        if treat is not None:
            nursery.start_soon(universe.run_node, "b1", lambda world: listen_badly(world, "b1", treat))

    async def scenario(world: World) -> None:
        with pytest.raises((KafkaError, NoBrokerAvailable)) as failure:
            await do(world)
        assert reason in str(failure.value)

    play(start, scenario)


def _old_broker() -> PlainNode:
    """Knows `t`, and serves nothing but Metadata."""
    return PlainNode({ApiKey.METADATA: lambda _: metadata({1: "b1"}, {"t": 1})})


async def read_as_a_member(world: World, protocol: str = "classic") -> None:
    async with Consumer("t", group_id="g", group_protocol=protocol, world=world, **WHERE) as consumer:
        while not await consumer.poll(10_000):
            pass


async def read_as_a_modern_member(world: World) -> None:
    await read_as_a_member(world, "consumer")


async def read_by_hand(world: World) -> None:
    async with Consumer(world=world, auto_offset_reset="earliest", **WHERE) as consumer:
        consumer.assign([T0])
        while not await consumer.poll(10_000):
            pass


READERS: list[Do] = [read_as_a_member, read_as_a_modern_member, read_by_hand]


@pytest.mark.feature("CL-01")
@pytest.mark.parametrize("do", [produce, transact, look_where_a_log_ends, *READERS])
def test_it_is_a_broker_without_that_api(do: Do) -> None:
    node = _old_broker()

    async def scenario(world: World) -> None:
        began = trio.current_time()
        with pytest.raises(UnsupportedVersionException) as failure:
            await do(world)
        assert not failure.value.retriable
        assert trio.current_time() - began < 1, "waiting makes no broker newer"

    play(lambda universe, nursery: node.start(nursery, universe, "b1"), scenario)


@pytest.mark.feature("CL-01")
@pytest.mark.parametrize("do", [*CLIENTS, *READERS])
def test_it_is_a_broker_that_speaks_a_later_metadata_only(do: Do) -> None:
    node = _old_broker()
    node.versions[ApiKey.METADATA] = (API_SPECS[ApiKey.METADATA].max_version + 1, 99)

    async def scenario(world: World) -> None:
        began = trio.current_time()
        with pytest.raises(UnsupportedVersionException, match=r"Metadata|InitProducerId|FindCoordinator"):
            await do(world)
        assert trio.current_time() - began < 1

    play(lambda universe, nursery: node.start(nursery, universe, "b1"), scenario)
