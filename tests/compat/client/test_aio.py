"""The client on asyncio, on our cluster and on Apache Kafka."""

from __future__ import annotations

import asyncio

import pytest

from barnabas import TopicPartition, aio
from tests.compat.client.any_cluster import AnyCluster

pytestmark = pytest.mark.feature("CL-05")


def test_records_go_through_a_transaction_and_a_group(any_cluster: AnyCluster) -> None:
    topic, servers = any_cluster.create_topic("asyncio", partitions=3), any_cluster.bootstrap_servers
    group, place = any_cluster.new_name("asyncio"), TopicPartition(topic, 0)

    async def write() -> None:
        name = any_cluster.new_name("asyncio")
        async with aio.Producer(bootstrap_servers=servers, transactional_id=name) as producer:
            with pytest.raises(LookupError):
                async with producer.transaction():
                    await producer.send(topic, b"aborted", partition=0)
                    raise LookupError("a mistake")
            async with producer.transaction():
                sent = (producer.send(topic, b"%d" % number, partition=number % 3) for number in range(300))
                assert len(await asyncio.gather(*sent)) == 300

    async def read() -> None:
        async with aio.Consumer(
            topic,
            bootstrap_servers=servers,
            group_id=group,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        ) as consumer:
            values = []
            async for record in consumer:
                values.append(int(record.value))
                if len(values) == 300:
                    break
            assert sorted(values) == list(range(300))
            await consumer.commit()
        async with aio.Admin(bootstrap_servers=servers) as admin:
            offsets = (await admin.list_consumer_group_offsets(group))[group]
        committed = offsets[place]
        assert committed is not None and committed.offset >= 101, "an aborted record and its marker come first"

    asyncio.run(write())
    asyncio.run(read())
