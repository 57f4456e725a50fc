"""A producer that is cancelled, wherever: it goes on or ends in time, loses no memory, and writes nothing twice."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
import trio

from barnabas.client.producer import Producer
from barnabas.runtime.simulated import Universe, make_world
from barnabas.runtime.world import World
from tests.barnabas.client.cancel_points import Scene, cancel_each_call, cancel_each_life
from tests.barnabas.client.fake_cluster import FakeCluster

pytestmark = pytest.mark.feature("CL-02")


@dataclass
class Stage:
    fake: FakeCluster
    world: World


@asynccontextmanager
async def brokers(universe: Universe) -> AsyncIterator[Stage]:
    """Three brokers with the topic `t`."""
    fake = FakeCluster(universe)
    fake.create("t", 3)
    async with trio.open_nursery() as nursery:
        fake.start(nursery)
        await trio.sleep(0.1)
        yield Stage(fake, make_world("client", universe))
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def open_producer(stage: Stage) -> AsyncIterator[Producer]:
    producer = Producer(
        bootstrap_servers="b1:9092,b2:9092,b3:9092",
        world=stage.world,
        linger_ms=1,
        batch_size=200,
        buffer_memory=1000,
        max_block_ms=20_000,
    )
    async with producer:
        yield producer
    for partition in stage.fake.topics["t"].partitions:
        values = partition.values()
        assert len(set(values)) == len(values), "nothing is there twice"


async def works(producer: Producer) -> None:
    await producer.flush()
    assert producer.metrics()["buffer-available-bytes"] == 1000, "no memory is lost"
    await producer.send("t", b"it works", partition=0)


async def enqueue_many(producer: Producer) -> None:
    """More than there is memory for."""
    for number in range(12):
        await producer.enqueue("t", b"%d" % number + b"." * 100, partition=1)


async def send_to_a_topic_that_comes_late(producer: Producer) -> None:
    producer.send_nowait("t", b"first")
    await producer.enqueue("t", b"second")
    await producer.send("t", b"third")


async def close_soon(producer: Producer) -> None:
    producer.send_nowait("t", b"last")
    await producer.close(timeout_ms=5000)


async def flush_all(producer: Producer) -> None:
    for index in range(3):
        producer.send_nowait("t", b"flushed", partition=index)
    await producer.flush()


CALLS: dict[str, Callable[[Producer], Awaitable[object]]] = {
    "send": lambda producer: producer.send("t", b"sent", key=b"key"),
    "enqueue": enqueue_many,
    "enqueue behind others": send_to_a_topic_that_comes_late,
    "flush": flush_all,
    "partitions_for": lambda producer: producer.partitions_for("t"),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_is_cancelled(name: str) -> None:
    assert cancel_each_call(Scene(brokers, open_producer, CALLS[name], works)) > 1


def test_closing_is_cancelled() -> None:
    async def closed(producer: Producer) -> None:
        await producer.close()

    assert cancel_each_call(Scene(brokers, open_producer, close_soon, closed)) > 1


@pytest.mark.parametrize("name", ["send", "enqueue", "flush"])
def test_a_life_is_cancelled(name: str) -> None:
    async def last_words(producer: Producer) -> None:
        await producer.send("t", b"another life", partition=0)

    assert cancel_each_life(Scene(brokers, open_producer, CALLS[name], last_words), every=2) > 1
