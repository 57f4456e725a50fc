"""Producers, consumers and administrators, cancelled at each checkpoint of each thing they do, over whole clusters."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from barnabas.client.admin import Admin, NewTopic
from barnabas.client.cluster import TopicPartition
from barnabas.client.consumer.consumer import Consumer
from barnabas.client.producer.producer import Producer
from barnabas.testing.simulated import SimulatedClusterForTests
from tests.barnabas.client.cancelling import cancel_in_a_row

CLIENT_CODE = ("/barnabas/client/",)
T0 = TopicPartition("t", 0)

pytestmark = pytest.mark.feature("CL-02")

Tell = Callable[[SimulatedClusterForTests], Awaitable[None]]


def play(tell: Tell) -> None:
    cluster = SimulatedClusterForTests(seed=3)

    async def story() -> None:
        await cluster.create_topic("t")
        await tell(cluster)

    cluster.run(story)


def test_what_a_producer_does_is_cancelled() -> None:
    async def tell(cluster: SimulatedClusterForTests) -> None:
        async with Producer(bootstrap_servers=cluster.bootstrap_servers, world=cluster.world) as producer:
            offsets = []

            async def works() -> None:
                offsets.append((await producer.send("t", b"works")).offset)
                await producer.flush()

            async def send() -> None:
                await producer.send("t", b"maybe")

            async def enqueue() -> None:
                await (await producer.enqueue("t", b"maybe"))

            async def send_to_a_new_topic() -> None:
                await producer.partitions_for("made-now")

            async def flush() -> None:
                producer.send_nowait("t", b"taken")
                await producer.flush()

            for act in (send, enqueue, flush, send_to_a_new_topic):
                # What was taken on goes on being sent, by a task of the producer's own.
                await cancel_in_a_row(act, works)
            assert offsets == sorted(set(offsets))

    play(tell)


def test_a_transaction_is_cancelled() -> None:
    async def tell(cluster: SimulatedClusterForTests) -> None:
        options: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap_servers, "world": cluster.world}
        async with Producer(transactional_id="etl", **options) as producer:

            async def transact() -> None:
                async with producer.transaction():
                    await producer.enqueue("t", b"maybe")

            async def works() -> None:
                async with producer.transaction():
                    await producer.send("t", b"works")

            await cancel_in_a_row(transact, works)

    play(tell)


def test_a_producers_life_is_cancelled() -> None:
    async def tell(cluster: SimulatedClusterForTests) -> None:
        async def life() -> None:
            async with Producer(bootstrap_servers=cluster.bootstrap_servers, world=cluster.world) as producer:
                await producer.enqueue("t", b"maybe")

        async def works() -> None:
            async with Producer(bootstrap_servers=cluster.bootstrap_servers, world=cluster.world) as producer:
                await producer.send("t", b"works")

        await cancel_in_a_row(life, works, code=CLIENT_CODE)

    play(tell)


def test_what_a_consumer_does_is_cancelled() -> None:
    async def tell(cluster: SimulatedClusterForTests) -> None:
        where: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap_servers, "world": cluster.world}
        async with (
            Producer(**where) as producer,
            Consumer(auto_offset_reset="earliest", group_id="g", **where) as consumer,
        ):
            await producer.send("t", b"first")
            consumer.assign([T0])

            async def works() -> None:
                await producer.send("t", b"works")
                consumer.seek_to_end([T0])
                end = await consumer.position(T0)
                consumer.seek(T0, end - 1)
                records = await consumer.poll(10_000)
                assert [record.offset for record in records] == [end - 1]

            async def commit() -> None:
                await consumer.commit({T0: 1})

            acts: list[Callable[[], Awaitable[object]]] = [
                lambda: consumer.poll(500),
                lambda: consumer.position(T0),
                commit,
                lambda: consumer.committed([T0]),
                lambda: consumer.beginning_offsets([T0]),
                lambda: consumer.end_offsets([T0]),
                lambda: consumer.offsets_for_times({T0: 0}),
                lambda: consumer.partitions_for("t"),
                consumer.list_topics,
            ]
            for act in acts:
                await cancel_in_a_row(act, works)

    play(tell)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_members_life_is_cancelled(protocol: str) -> None:
    async def tell(cluster: SimulatedClusterForTests) -> None:
        where: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap_servers, "world": cluster.world}
        async with Producer(**where) as producer:
            await producer.send("t", b"first")

        async def read() -> None:
            options: dict[str, Any] = {"group_protocol": protocol, "enable_auto_commit": False, **where}
            if protocol == "classic":
                options["session_timeout_ms"] = 6_000
                options["heartbeat_interval_ms"] = 1_000
            async with Consumer("t", group_id="g", auto_offset_reset="earliest", **options) as consumer:
                while not await consumer.poll(1_000):
                    pass

        await cancel_in_a_row(read, read, patience_seconds=120, code=CLIENT_CODE)

    play(tell)


def test_what_an_administrator_does_is_cancelled() -> None:
    async def tell(cluster: SimulatedClusterForTests) -> None:
        async with Admin(bootstrap_servers=cluster.bootstrap_servers, world=cluster.world) as admin:
            names = iter(f"topic-{number}" for number in range(1_000))

            async def works() -> None:
                assert "t" in await admin.list_topics()

            async def create() -> None:
                await admin.create_topics([NewTopic(next(names), 1, 1)])

            async def describe() -> None:
                await admin.describe_topics(["t"])

            for act in (create, describe, works):
                await cancel_in_a_row(act, works)

    play(tell)


def test_nothing_of_this_takes_long_to_end_without_a_cluster() -> None:
    async def tell(cluster: SimulatedClusterForTests) -> None:
        cluster.kill(*cluster.brokers)

        async def life() -> None:
            async with Producer(bootstrap_servers=cluster.bootstrap_servers, world=cluster.world) as producer:
                with trio.move_on_after(1):
                    await producer.send("t", b"lost")

        async def nothing() -> None:
            await trio.sleep(0)

        assert await cancel_in_a_row(life, nothing, patience_seconds=35, code=CLIENT_CODE) > 1

    play(tell)
