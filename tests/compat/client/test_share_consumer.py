"""Our share consumer, with one program on our cluster and on Apache Kafka."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Any

import pytest
import trio

from barnabas import (
    Acknowledged,
    AcknowledgeType,
    Admin,
    AlterConfigOp,
    ConfigResource,
    Producer,
    ResourceType,
    ShareConsumer,
    ShareRecord,
    TopicPartition,
    errors,
    sync,
)
from tests.compat.client.any_cluster import AnyCluster

pytestmark = [pytest.mark.feature("CL-03"), pytest.mark.nightly_on_kafka]
EXPLICIT: dict[str, Any] = {"share_acknowledgement_mode": "explicit"}


async def new_group(cluster: AnyCluster, lock_ms: int = 15_000) -> str:
    """A group that begins with the first record."""
    group_id = cluster.new_name("workers")
    configs = {
        "share.auto.offset.reset": "earliest",
        "share.record.lock.duration.ms": str(lock_ms),
        "share.heartbeat.interval.ms": "5000",
    }
    async with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        resource = ConfigResource(ResourceType.GROUP, group_id)
        operations = [AlterConfigOp(name, value) for name, value in configs.items()]
        await admin.incremental_alter_configs({resource: operations})
    return group_id


async def write(cluster: AnyCluster, topic: str, *values: str) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number, value in enumerate(values):
            await producer.send(topic, value.encode(), partition=number % len(await producer.partitions_for(topic)))


async def some(consumer: ShareConsumer, **options: int) -> list[ShareRecord]:
    """The records of the first poll that has any."""
    with trio.fail_after(30):
        while True:
            records = await consumer.poll(timeout_ms=500, **options)
            if records:
                return records


async def test_members_divide_the_records_and_each_is_accepted_once(any_cluster: AnyCluster) -> None:
    topic, group_id = any_cluster.create_topic("jobs", 3), await new_group(any_cluster)
    await write(any_cluster, topic, *map(str, range(300)))
    seen: Counter[tuple[int, int]] = Counter()
    counts: Counter[int] = Counter()

    async def work(nursery: trio.Nursery) -> None:
        async with ShareConsumer(
            topic, bootstrap_servers=any_cluster.bootstrap_servers, group_id=group_id, max_poll_records=20
        ) as consumer:
            while True:
                for record in await consumer.poll(timeout_ms=300):
                    seen[record.partition, record.offset] += 1
                    counts[record.delivery_count] += 1
                results = await consumer.commit()
                assert set(results.values()) <= {None}
                if seen.total() >= 300:
                    nursery.cancel_scope.cancel()

    with trio.fail_after(40):
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(work, nursery)
    assert seen == Counter((partition, offset) for partition in range(3) for offset in range(100))
    assert counts == {1: 300}


async def test_blocks_accept_release_and_reject(any_cluster: AnyCluster) -> None:
    topic, group_id = any_cluster.create_topic("jobs"), await new_group(any_cluster)
    await write(any_cluster, topic, "good", "again", "bad")
    handled: list[tuple[bytes, int]] = []
    results: list[Acknowledged] = []
    async with ShareConsumer(
        topic,
        bootstrap_servers=any_cluster.bootstrap_servers,
        group_id=group_id,
        reject_on=(ValueError,),
        **EXPLICIT,
    ) as consumer:
        consumer.set_acknowledgement_callback(results.append)
        with trio.fail_after(40):
            while len(handled) < 4:
                for record in await consumer.poll(timeout_ms=500):
                    with suppress(ValueError, LookupError):
                        async with record:
                            handled.append((record.value, record.delivery_count))
                            if record.value == b"bad":
                                raise ValueError("it will never work")
                            if record.delivery_count == 1 and record.value == b"again":
                                raise LookupError("not now")
        assert await consumer.commit() == {TopicPartition(topic, 0): None}
        assert await consumer.poll(timeout_ms=1_000) == []
    assert sorted(handled) == [(b"again", 1), (b"again", 2), (b"bad", 1), (b"good", 1)]
    assert {each.error for each in results} == {None}
    assert sorted(offset for each in results for offset in each.offsets) == [0, 1, 1, 2]


async def test_a_block_keeps_its_lock_for_longer_than_one_lasts(any_cluster: AnyCluster) -> None:
    topic, group_id = any_cluster.create_topic("jobs"), await new_group(any_cluster, lock_ms=15_000)
    await write(any_cluster, topic, "slow")
    options: dict[str, Any] = {"bootstrap_servers": any_cluster.bootstrap_servers, "group_id": group_id, **EXPLICIT}
    async with ShareConsumer(topic, **options) as consumer, ShareConsumer(topic, **options) as other:
        [record] = await some(consumer)
        assert consumer.acquisition_lock_timeout_ms() == 15_000
        async with record:
            assert await other.poll(timeout_ms=17_000) == []
        assert await consumer.commit() == {TopicPartition(topic, 0): None}
        assert await other.poll(timeout_ms=500) == []


async def test_closing_releases_what_is_not_acknowledged(any_cluster: AnyCluster) -> None:
    topic, group_id = any_cluster.create_topic("jobs"), await new_group(any_cluster)
    await write(any_cluster, topic, "a", "b", "c")
    options: dict[str, Any] = {"bootstrap_servers": any_cluster.bootstrap_servers, "group_id": group_id, **EXPLICIT}
    delivered: list[ShareRecord] = []
    async with ShareConsumer(topic, **options, share_acquire_mode="record_limit") as consumer:
        while len(delivered) < 2:
            [record] = await some(consumer, max_records=1)
            delivered.append(record)
            consumer.acknowledge(record, AcknowledgeType.RENEW if record.value == b"a" else AcknowledgeType.ACCEPT)
        with pytest.raises(errors.IllegalStateException, match="acknowledged already"):
            consumer.acknowledge(delivered[1])
    async with ShareConsumer(topic, **options) as consumer:
        left: list[tuple[bytes, int]] = []
        while len(left) < 2:
            for record in await some(consumer):
                left.append((record.value, record.delivery_count))
                consumer.acknowledge(record)
    assert sorted(left) == [(b"a", 2), (b"c", 1)]


async def test_a_record_whose_lock_expired_is_reported(any_cluster: AnyCluster) -> None:
    topic, group_id = any_cluster.create_topic("jobs"), await new_group(any_cluster, lock_ms=15_000)
    await write(any_cluster, topic, "slow")
    options: dict[str, Any] = {"bootstrap_servers": any_cluster.bootstrap_servers, "group_id": group_id, **EXPLICIT}
    async with ShareConsumer(topic, **options) as consumer, ShareConsumer(topic, **options) as other:
        [record] = await some(consumer)
        [again] = await some(other)
        assert (again.offset, again.delivery_count) == (record.offset, 2)
        consumer.acknowledge(record)
        [error] = (await consumer.commit()).values()
        assert isinstance(error, errors.InvalidRecordStateException)
        other.acknowledge(again)
        assert await other.commit() == {TopicPartition(topic, 0): None}


def test_without_await(any_cluster: AnyCluster) -> None:
    topic, group_id = any_cluster.create_topic("jobs"), trio.run(new_group, any_cluster)
    trio.run(write, any_cluster, topic, "a", "b")
    results: list[Acknowledged] = []
    with sync.ShareConsumer(
        topic, bootstrap_servers=any_cluster.bootstrap_servers, group_id=group_id, **EXPLICIT
    ) as consumer:
        consumer.set_acknowledgement_callback(results.append)
        values: list[tuple[bytes, int]] = []
        while len(values) < 3:
            for record in consumer.poll(timeout_ms=500):
                values.append((record.value, record.delivery_count))
                with suppress(LookupError), record:
                    if record.value == b"b" and record.delivery_count == 1:
                        raise LookupError("not now")
        assert consumer.commit() == {TopicPartition(topic, 0): None}
    assert sorted(values) == [(b"a", 1), (b"b", 1), (b"b", 2)]
    assert sorted(offset for each in results for offset in each.offsets) == [0, 1, 1]
