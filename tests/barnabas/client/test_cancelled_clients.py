"""Producers, consumers and administrators, cancelled at each checkpoint of each thing they do, over whole clusters."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from barnabas.client.admin import Admin, ConfigResource, NewTopic, ResourceType
from barnabas.client.consumer.consumer import Consumer
from barnabas.client.groups.membership import ConsumerGroupMetadata
from barnabas.client.metadata import TopicPartition
from barnabas.client.offsets import OffsetAndMetadata
from barnabas.client.producer.producer import Producer
from barnabas.client.producer.transaction_manager import TransactionState
from barnabas.testing.simulated import SimulatedClusterForTests
from tests.barnabas.client.cancel_points import cancel_in_a_row

CLIENT_CODE = ("/barnabas/client/",)
T0 = TopicPartition("t", 0)

pytestmark = pytest.mark.feature("CL-02")

Scenario = Callable[[SimulatedClusterForTests], Awaitable[None]]


def play(scenario: Scenario) -> None:
    cluster = SimulatedClusterForTests(seed=3)

    async def story() -> None:
        await cluster.create_topic("t")
        await scenario(cluster)

    cluster.run(story)


def test_calls_of_a_producer_are_cancelled() -> None:
    async def scenario(cluster: SimulatedClusterForTests) -> None:
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
                # Accepted records are still sent, by a task of the producer.
                await cancel_in_a_row(act, works)
            assert offsets == sorted(set(offsets))

    play(scenario)


def test_a_transaction_is_cancelled() -> None:
    async def scenario(cluster: SimulatedClusterForTests) -> None:
        options: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap_servers, "world": cluster.world}
        async with Producer(transactional_id="etl", **options) as producer:

            async def transact() -> None:
                async with producer.transaction():
                    await producer.enqueue("t", b"maybe")

            async def works() -> None:
                async with producer.transaction():
                    await producer.send("t", b"works")

            async def transact_by_hand() -> None:
                if producer.transaction_state is TransactionState.READY:
                    producer.begin_transaction()
                await producer.send("t", b"maybe")
                await producer.send_offsets_to_transaction({T0: OffsetAndMetadata(1)}, ConsumerGroupMetadata("g"))
                await producer.commit_transaction()

            async def ends() -> None:
                if producer.transaction_state is not TransactionState.READY:
                    await producer.abort_transaction()
                await works()

            await cancel_in_a_row(transact, works)
            await cancel_in_a_row(transact_by_hand, ends)

    play(scenario)


def test_a_producers_life_is_cancelled() -> None:
    async def scenario(cluster: SimulatedClusterForTests) -> None:
        async def life() -> None:
            async with Producer(bootstrap_servers=cluster.bootstrap_servers, world=cluster.world) as producer:
                await producer.enqueue("t", b"maybe")

        async def works() -> None:
            async with Producer(bootstrap_servers=cluster.bootstrap_servers, world=cluster.world) as producer:
                await producer.send("t", b"works")

        await cancel_in_a_row(life, works, code=CLIENT_CODE)

    play(scenario)


def test_calls_of_a_consumer_are_cancelled() -> None:
    async def scenario(cluster: SimulatedClusterForTests) -> None:
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

    play(scenario)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_calls_of_a_group_member_are_cancelled(protocol: str) -> None:
    async def scenario(cluster: SimulatedClusterForTests) -> None:
        where: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap_servers, "world": cluster.world}
        options: dict[str, Any] = {"group_protocol": protocol, "auto_offset_reset": "earliest", **where}
        async with Producer(**where) as producer, Consumer("t", group_id="g", **options) as consumer:
            given: list[int] = []

            async def read() -> None:
                await producer.send("t", b"next")
                given.extend(record.offset for record in await consumer.poll(5_000))

            async def works() -> None:
                wanted = (await producer.send("t", b"works")).offset
                while wanted not in given:
                    given.extend(record.offset for record in await consumer.poll(5_000))
                await consumer.commit()

            async def join_again() -> None:
                consumer.enforce_rebalance()
                await consumer.poll(100)

            for act in (read, consumer.commit, join_again):
                await cancel_in_a_row(act, works)
            assert given == list(range(len(given))), "nothing twice, nothing left out"

    play(scenario)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_members_life_is_cancelled(protocol: str) -> None:
    async def scenario(cluster: SimulatedClusterForTests) -> None:
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

    play(scenario)


def test_calls_of_an_administrator_are_cancelled() -> None:
    async def scenario(cluster: SimulatedClusterForTests) -> None:
        async with Admin(bootstrap_servers=cluster.bootstrap_servers, world=cluster.world) as admin:
            names = (f"topic-{number}" for number in itertools.count())
            broker = ConfigResource(ResourceType.BROKER, "1")

            async def works() -> None:
                assert "t" in await admin.list_topics()

            acts: list[Callable[[], Awaitable[object]]] = [
                lambda: admin.create_topics(NewTopic(next(names), 1, 1)),
                lambda: admin.describe_topics("t"),
                lambda: admin.create_partitions({"t": 1}, raise_errors=False),
                lambda: admin.delete_topics("not-there", raise_errors=False),
                lambda: admin.list_offsets({T0: -1}),
                lambda: admin.delete_records({T0: 0}),
                lambda: admin.elect_leaders(partitions=T0, raise_errors=False),
                lambda: admin.describe_configs([broker, ConfigResource(ResourceType.TOPIC, "t")]),
                lambda: admin.incremental_alter_configs({ConfigResource(ResourceType.TOPIC, "t"): {"segment.ms": "9"}}),
                admin.describe_cluster,
                admin.describe_metadata_quorum,
                admin.describe_features,
                admin.list_groups,
                lambda: admin.alter_consumer_group_offsets("g", {T0: 0}),
                lambda: admin.list_consumer_group_offsets("g"),
                lambda: admin.describe_consumer_groups("g"),
                lambda: admin.delete_groups("g", raise_errors=False),
                admin.list_transactions,
                lambda: admin.describe_producers(T0),
                lambda: admin.fence_producers("etl"),
            ]
            for act in acts:
                await cancel_in_a_row(act, works, code=CLIENT_CODE)

    play(scenario)


def test_nothing_of_this_takes_long_to_end_without_a_cluster() -> None:
    async def scenario(cluster: SimulatedClusterForTests) -> None:
        cluster.kill(*cluster.brokers)

        async def life() -> None:
            async with Producer(bootstrap_servers=cluster.bootstrap_servers, world=cluster.world) as producer:
                with trio.move_on_after(1):
                    await producer.send("t", b"lost")

        async def nothing() -> None:
            await trio.sleep(0)

        assert await cancel_in_a_row(life, nothing, patience_seconds=35, code=CLIENT_CODE) > 1

    play(scenario)
