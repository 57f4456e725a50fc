"""A reader, cancelled at each checkpoint of each thing it does, and in the middle of its life."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from barnabas import client
from barnabas.client.cluster import Cluster
from barnabas.client.consumer import FROM_EARLIEST, LATEST, PartitionReader, open_reader
from barnabas.client.metadata import TopicPartition
from barnabas.runtime.simulated import Universe, make_world
from barnabas.runtime.world import World
from tests.barnabas.client.cancel_points import Scene, cancel_each_call, cancel_each_life
from tests.barnabas.client.consumer.scripted_brokers import ReadingBrokers, fill
from tests.barnabas.client.fake_cluster import PORT, SETTINGS

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
RECORDS = 30
CLIENT_CODE = (str(Path(client.__file__).parent),)

pytestmark = [pytest.mark.feature("CL-02"), pytest.mark.feature("CG-22")]


@asynccontextmanager
async def brokers_with_records(universe: Universe) -> AsyncIterator[World]:
    brokers = ReadingBrokers(universe)
    async with trio.open_nursery() as nursery:
        brokers.start(nursery)
        for partition in brokers.create("t", 2):
            fill(partition, *[b"%d" % n for n in range(RECORDS)])
        await trio.sleep(0.1)
        yield make_world("client", universe)
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def reader_of_both(world: World) -> AsyncIterator[PartitionReader]:
    async with trio.open_nursery() as nursery:
        addresses = [(f"b{broker}", PORT) for broker in (1, 2, 3)]
        cluster = Cluster(world, nursery, addresses, client_id="test", settings=SETTINGS)
        async with open_reader(cluster) as reader:
            reader.assign({T0: 0, T1: None})
            yield reader
        nursery.cancel_scope.cancel()


async def reads_the_rest(reader: PartitionReader) -> None:
    """No record is missing, none comes twice."""
    reader.reset([T1], FROM_EARLIEST)
    next_offset = {T0: reader.position(T0), T1: 0}
    while min(next_offset.values()) < RECORDS:
        for record in await reader.poll(1000, 7):
            partition = TopicPartition(record.topic, record.partition)
            assert record.offset == next_offset[partition]
            next_offset[partition] += 1


async def polls(reader: PartitionReader) -> None:
    assert len(await reader.poll(5000, 4)) == 4
    assert len(await reader.poll(5000, 4)) == 4


async def waits_for_a_position(reader: PartitionReader) -> None:
    reader.reset([T1], FROM_EARLIEST)
    assert await reader.wait_for_position(T1, 5000) == 0


async def looks_for_offsets(reader: PartitionReader) -> None:
    assert await reader.offsets_at({T0: LATEST, T1: LATEST}) == {T0: RECORDS, T1: RECORDS}


@pytest.mark.parametrize("act", [polls, waits_for_a_position, looks_for_offsets])
def test_calls_of_a_reader_are_cancelled(act: Callable[[PartitionReader], Awaitable[None]]) -> None:
    assert (
        cancel_each_call(
            Scene(brokers_with_records, reader_of_both, act, reads_the_rest, close_seconds=1, code=CLIENT_CODE)
        )
        > 1
    )


def test_a_readers_life_is_cancelled() -> None:
    assert (
        cancel_each_life(
            Scene(brokers_with_records, reader_of_both, polls, reads_the_rest, close_seconds=1, code=CLIENT_CODE)
        )
        > 1
    )
