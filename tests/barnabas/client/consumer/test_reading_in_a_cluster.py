"""Readers of a whole cluster whose nodes come and go: our own brokers, under virtual time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio

from barnabas.client.cluster import Cluster
from barnabas.client.consumer import FROM_EARLIEST, PartitionReader, ReadingSettings, open_reader
from barnabas.client.errors import LogTruncationException
from barnabas.client.metadata import TopicPartition
from barnabas.client.producer import Producer
from barnabas.client.session import open_cluster
from barnabas.client.settings import ClientSettings
from barnabas.settings.broker import RACK_AWARE_SELECTOR
from barnabas.testing.simulated import SimulatedClusterForTests

T0 = TopicPartition("t", 0)
IMPATIENT = {"request_timeout_ms": 3_000, "retry_backoff_ms": 20, "retry_backoff_max_ms": 200}


def play(story: Callable[[SimulatedClusterForTests], Awaitable[None]], seed: int, **settings: str) -> None:
    cluster = SimulatedClusterForTests(seed, {name.replace("_", "."): value for name, value in settings.items()})
    cluster.run(lambda: story(cluster))


def client(cluster: SimulatedClusterForTests) -> ClientSettings:
    return ClientSettings.of({"bootstrap_servers": cluster.bootstrap_servers, **IMPATIENT})


async def write(cluster: SimulatedClusterForTests, *values: bytes) -> None:
    """Acknowledged, into partition 0."""
    async with Producer(
        bootstrap_servers=cluster.bootstrap_servers,
        world=cluster.world,
        request_timeout_ms=3_000,
        delivery_timeout_ms=60_000,
        retry_backoff_max_ms=200,
    ) as producer:
        for value in values:
            await producer.send("t", value, partition=0)


async def read_to(reader: PartitionReader, offset: int) -> list[bytes]:
    values: list[bytes] = []
    with trio.fail_after(120):
        while reader.position(T0) < offset:
            values += [record.value for record in await reader.poll(1000)]
    return values


async def nodes_of(cluster: Cluster) -> dict[int, str]:
    """Node id to rack."""
    await cluster.refresh()
    return {node.node_id: node.rack or "" for node in cluster.nodes.values()}


@pytest.mark.feature("RE-15")
def test_a_replica_in_the_readers_rack_is_read_from_as_long_as_it_lives() -> None:
    async def story(cluster: SimulatedClusterForTests) -> None:
        await cluster.create_topic("t")
        await write(cluster, *[b"%d" % n for n in range(20)])
        async with open_cluster(client(cluster), cluster.world) as view:
            racks = await nodes_of(view)
            leader = int((await cluster.leader_of("t")).removeprefix("broker-"))
            near = next(node_id for node_id in racks if node_id != leader)
            async with open_reader(view, ReadingSettings(client_rack=racks[near])) as reader:
                reader.assign({T0: 0})
                assert await read_to(reader, 20) == [b"%d" % n for n in range(20)]
                assert reader.reads_from(T0) == near
                cluster.kill(f"broker-{near}")
                await write(cluster, b"20", b"21")
                assert await read_to(reader, 22) == [b"20", b"21"]
                assert reader.reads_from(T0) != near
                cluster.start(f"broker-{near}")
                await cluster.wait_ready()
                cluster.kill(f"broker-{leader}")
                await write(cluster, b"22")
                assert await read_to(reader, 23) == [b"22"]

    play(story, 5, replica_selector_class=RACK_AWARE_SELECTOR)


@pytest.mark.feature("CG-22")
def test_a_reader_notices_that_a_log_lost_what_it_has_read() -> None:
    async def story(cluster: SimulatedClusterForTests) -> None:
        configs = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
        await cluster.create_topic("t", replicas=2, configs=configs)
        await write(cluster, *[b"both have it"] * 10)
        async with open_cluster(client(cluster), cluster.world) as view:
            await view.refresh(["t"])
            leader = await cluster.leader_of("t")
            [info] = view.metadata.partitions("t")
            [other] = [f"broker-{node_id}" for node_id in info.replicas if f"broker-{node_id}" != leader]
            async with open_reader(view) as reader, open_reader(view, ReadingSettings(reset=FROM_EARLIEST)) as patient:
                for each in (reader, patient):
                    each.assign({T0: 0})
                    await read_to(each, 10)
                cluster.kill(other)
                await write(cluster, *[b"one has it"] * 5)
                for each in (reader, patient):
                    await read_to(each, 15)
                cluster.kill(leader)
                cluster.start(other)
                await cluster.leader_of("t", other_than=leader)
                await write(cluster, b"new")
                with pytest.raises(LogTruncationException) as caught:
                    await read_to(reader, 16)
                assert caught.value.divergent is not None
                assert caught.value.divergent.offset == 10
                reader.seek(T0, caught.value.divergent)
                assert await read_to(reader, 11) == [b"new"]
                with trio.fail_after(60):
                    while patient.position(T0) != 11:
                        records = await patient.poll(1000)
                assert [record.value for record in records] == [b"new"]

    play(story, 6)
