"""The reader on a simulated cluster: leaders die, logs are cut off, topics are created again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest
import trio

from barnabas import Admin, Producer
from barnabas.client.admin.settings import AdminSettings
from barnabas.client.cluster import Cluster
from barnabas.client.session import open_cluster
from barnabas.lake.errors import LakeError, RecordsLost, TopicChanged
from barnabas.lake.pieces import Piece
from barnabas.lake.topic_lookup import find_topic
from barnabas.lake.topic_reader import TopicReader, TopicToRead
from barnabas.pipeline.columns import Columns
from barnabas.runtime.error_groups import only_error
from barnabas.testing.simulated import SimulatedClusterForTests
from tests.barnabas.lake.simulated_table import Rows

TOPIC = "orders"
UNCLEAN = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}


def rows(partition: int, columns: Columns) -> tuple[Rows, None]:
    return Rows((partition, int(offset)) for offset in columns.offsets), None


@asynccontextmanager
async def opened(cluster: SimulatedClusterForTests, host: str = "lake") -> AsyncIterator[Cluster]:
    settings = AdminSettings.of({"bootstrap_servers": cluster.bootstrap_servers})
    async with open_cluster(settings, cluster.client_world(host)) as client:
        yield client


class Reading:
    """Pieces that a reader has handed on."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int]] = []
        self.next: dict[int, int] = {}
        self.ended: LakeError | None = None

    async def run(self, client: Cluster, topic_id: str, offsets: Mapping[int, int], *, skip_lost: bool = False) -> None:
        reader = TopicReader(client, TopicToRead(TOPIC, topic_id, rows, skip_lost), offsets)
        send, receive = trio.open_memory_channel[Piece](1)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(reader.run, send)
                nursery.start_soon(self._take, receive)
        except* LakeError as group:
            self.ended = only_error(group)  # type: ignore[assignment]

    async def _take(self, receive: trio.MemoryReceiveChannel[Piece]) -> None:
        async for piece in receive:
            assert piece.next_offset > self.next.get(piece.partition, -1)
            self.next[piece.partition] = piece.next_offset
            self.rows += piece.rows or []

    async def reaches(self, partition: int, offset: int) -> None:
        with trio.fail_after(120):
            while self.next.get(partition, 0) < offset:
                await trio.sleep(0.1)

    async def ends(self) -> LakeError:
        with trio.fail_after(300):
            while self.ended is None:
                await trio.sleep(0.1)
        return self.ended


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_committed_records_are_read_once_while_leaders_die(seed: int) -> None:
    cluster = SimulatedClusterForTests(seed)

    async def story() -> None:
        await cluster.create_topic(TOPIC, partitions=2)
        reading, committed = Reading(), []
        async with opened(cluster) as client, trio.open_nursery() as nursery:
            topic_id, _ = await find_topic(client, TOPIC, 10_000)
            nursery.start_soon(reading.run, client, topic_id, {0: 0, 1: 0})
            async with Producer(
                bootstrap_servers=cluster.bootstrap_servers, transactional_id="writer", world=cluster.world
            ) as producer:
                for number in range(12):
                    producer.begin_transaction()
                    futures = [await producer.enqueue(TOPIC, b"%d" % each, partition=each % 2) for each in range(20)]
                    if number % 4 == 2:
                        leader = await cluster.leader_of(TOPIC, number % 2)
                        cluster.kill(leader)
                        await trio.sleep(1)
                        cluster.start(leader)
                        await cluster.wait_ready()
                    if number % 3 == 1:
                        await producer.abort_transaction()
                    else:
                        await producer.commit_transaction()
                        committed += [(place.partition, place.offset) for place in [await each for each in futures]]
            for partition in (0, 1):
                await reading.reaches(partition, max(offset for part, offset in committed if part == partition))
            nursery.cancel_scope.cancel()
        assert reading.ended is None
        assert sorted(reading.rows) == sorted(committed)

    cluster.run(story)


def test_a_log_that_was_cut_off_is_noticed() -> None:
    cluster = SimulatedClusterForTests(1)

    async def story() -> None:
        await cluster.create_topic(TOPIC, replicas=2, configs=UNCLEAN)
        leader = await cluster.leader_of(TOPIC)
        reading = Reading()
        async with opened(cluster) as client, trio.open_nursery() as nursery:
            topic_id, _ = await find_topic(client, TOPIC, 10_000)
            nursery.start_soon(reading.run, client, topic_id, {0: 0})
            async with Producer(bootstrap_servers=cluster.bootstrap_servers, world=cluster.world) as producer:
                await producer.send(TOPIC, b"kept")
                await reading.reaches(0, 1)
                [follower] = [
                    f"broker-{each}"
                    for each in client.metadata.partitions(TOPIC)[0].replicas
                    if f"broker-{each}" != leader
                ]
                cluster.kill(follower)
                for number in range(5):
                    await producer.send(TOPIC, b"lost %d" % number)
                await reading.reaches(0, 6)
                cluster.power_cut(leader)
                cluster.start(follower)
                await cluster.leader_of(TOPIC, other_than=leader)
            async with Producer(bootstrap_servers=cluster.bootstrap_servers, world=cluster.world) as producer:
                for number in range(20):
                    await producer.send(TOPIC, b"new %d" % number)
            error = await reading.ends()
            assert isinstance(error, RecordsLost) and "the log was cut off" in str(error)
            assert len(reading.rows) == 6
            nursery.cancel_scope.cancel()

    cluster.run(story)


def test_a_topic_that_is_created_again_is_not_read() -> None:
    cluster = SimulatedClusterForTests(1)

    async def story() -> None:
        await cluster.create_topic(TOPIC)
        reading = Reading()
        async with opened(cluster) as client, trio.open_nursery() as nursery:
            topic_id, _ = await find_topic(client, TOPIC, 10_000)
            nursery.start_soon(reading.run, client, topic_id, {0: 0})
            async with Producer(bootstrap_servers=cluster.bootstrap_servers, world=cluster.world) as producer:
                await producer.send(TOPIC, b"old")
            await reading.reaches(0, 1)
            async with Admin(bootstrap_servers=cluster.bootstrap_servers, world=cluster.world) as admin:
                await admin.delete_topics([TOPIC])
            await cluster.create_topic(TOPIC)
            async with Producer(bootstrap_servers=cluster.bootstrap_servers, world=cluster.world) as producer:
                for _ in range(10):
                    await producer.send(TOPIC, b"new")
            error = await reading.ends()
            assert isinstance(error, TopicChanged) and "created again" in str(error)
            assert reading.rows == [(0, 0)]
            nursery.cancel_scope.cancel()

    cluster.run(story)


def test_a_deleted_topic_is_noticed_after_a_while() -> None:
    cluster = SimulatedClusterForTests(1)

    async def story() -> None:
        await cluster.create_topic(TOPIC)
        reading = Reading()
        async with opened(cluster) as client, trio.open_nursery() as nursery:
            topic_id, _ = await find_topic(client, TOPIC, 10_000)
            nursery.start_soon(reading.run, client, topic_id, {0: 0})
            async with Admin(bootstrap_servers=cluster.bootstrap_servers, world=cluster.world) as admin:
                await admin.delete_topics([TOPIC])
            error = await reading.ends()
            assert isinstance(error, TopicChanged) and "was deleted; the table keeps what it has" in str(error)
            nursery.cancel_scope.cancel()

    cluster.run(story)


def test_new_partitions_are_read_from_their_begin() -> None:
    cluster = SimulatedClusterForTests(1)

    async def story() -> None:
        from barnabas import NewPartitions

        await cluster.create_topic(TOPIC)
        reading = Reading()
        async with opened(cluster) as client, trio.open_nursery() as nursery:
            topic_id, _ = await find_topic(client, TOPIC, 10_000)
            nursery.start_soon(reading.run, client, topic_id, {0: 0})
            async with Admin(bootstrap_servers=cluster.bootstrap_servers, world=cluster.world) as admin:
                await admin.create_partitions({TOPIC: NewPartitions(total_count=2)})
            async with Producer(bootstrap_servers=cluster.bootstrap_servers, world=cluster.world) as producer:
                await trio.sleep(1)
                await producer.send(TOPIC, b"x", partition=1)
            with trio.fail_after(400):
                while (1, 0) not in reading.rows:
                    await trio.sleep(1)
            nursery.cancel_scope.cancel()

    cluster.run(story)
