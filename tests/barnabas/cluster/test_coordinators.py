"""Six real nodes: groups and transactions of our own client, past the death of their coordinators."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import trio

from barnabas.client.admin import Admin, NewTopic
from barnabas.client.cluster import Cluster, ClusterSettings
from barnabas.client.consumer.consumer import Consumer
from barnabas.client.consumer.settings import ConsumerOptions
from barnabas.client.groups.coordinators import CoordinatorLink, CoordinatorType
from barnabas.client.producer import Producer, TransactionState
from barnabas.cluster.local import LocalCluster
from barnabas.cluster.ports import free_base_port
from barnabas.protocol.errors import KafkaError
from barnabas.runtime.real import real_world

OVERRIDES = {"offsets.topic.num.partitions": "3", "transaction.state.log.num.partitions": "3"}


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[LocalCluster]:
    cluster = LocalCluster(tmp_path, free_base_port(), OVERRIDES)
    try:
        cluster.up()
        cluster.wait_ready(60)
        yield cluster
    finally:
        cluster.down()


async def kill_coordinator(nodes: LocalCluster, client: Cluster, kind: CoordinatorType, key: str) -> str:
    name = f"broker-{await CoordinatorLink(client, kind, key).find()}"
    await trio.to_thread.run_sync(nodes.kill, name)
    return name


@pytest.mark.feature("CG-12", "CG-21", "TX-01", "TX-08", "TX-13")
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_exactly_once_past_the_death_of_the_coordinators(nodes: LocalCluster, protocol: str) -> None:
    total = 60

    def reading(group_id: str) -> ConsumerOptions:
        options = ConsumerOptions(
            bootstrap_servers=nodes.bootstrap_servers,
            group_id=group_id,
            group_protocol=protocol,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            request_timeout_ms=5_000,
        )
        if protocol == "classic":
            options["session_timeout_ms"], options["heartbeat_interval_ms"] = 6_000, 500
        return options

    bootstrap = [("127.0.0.1", int(server.rpartition(":")[2])) for server in nodes.bootstrap_servers.split(",")]
    world = real_world()
    copied: list[bytes] = []

    async def copy(index: int) -> None:
        async with (
            Consumer("source", **reading("copiers")) as consumer,
            Producer(bootstrap_servers=nodes.bootstrap_servers, transactional_id=f"copier-{index}") as producer,
        ):
            while len(copied) < total:
                records = await consumer.poll(500)
                if not records:
                    continue
                try:
                    async with producer.transaction():
                        for record in records:
                            await producer.enqueue("target", record.value, partition=record.partition)
                        await producer.send_offsets_to_transaction(consumer.positions(), consumer.group_metadata())
                except KafkaError:
                    assert producer.transaction_state is TransactionState.READY
                    for partition, place in (await consumer.committed(consumer.assignment())).items():
                        consumer.seek(partition, place or 0)

    async def audit() -> None:
        async with Consumer("target", **reading("auditors")) as consumer:
            while len(copied) < total:
                copied.extend(record.value or b"" for record in await consumer.poll(500))
                await consumer.commit()

    async with trio.open_nursery() as nursery:
        client = Cluster(world, nursery, bootstrap, settings=ClusterSettings(request_timeout_ms=5_000))
        for topic in ("source", "target"):
            await Admin.over(client).create_topics([NewTopic(topic, 2, 3)])
        async with trio.open_nursery() as work:
            work.start_soon(audit)
            for index in range(2):
                work.start_soon(copy, index)
            async with Producer(bootstrap_servers=nodes.bootstrap_servers, transactional_id="source") as producer:
                for number in range(total):
                    async with producer.transaction():
                        await producer.enqueue("source", b"%d" % number)
                    producer.begin_transaction()
                    await producer.enqueue("source", b"-1")
                    await producer.abort_transaction()
                    if number == 20:
                        killed = await kill_coordinator(nodes, client, CoordinatorType.GROUP, "copiers")
                    if number == 40:
                        await trio.to_thread.run_sync(partial(nodes.start, killed))
                        await trio.to_thread.run_sync(nodes.wait_ready, 60)
                        await kill_coordinator(nodes, client, CoordinatorType.TRANSACTION, "source")
        nursery.cancel_scope.cancel()
    assert sorted(copied, key=int) == [b"%d" % number for number in range(total)]
