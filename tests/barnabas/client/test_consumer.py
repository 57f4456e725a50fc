"""The consumer: reads on through changes of leaders, cut batches, control records and aborted
transactions."""

import pytest
import trio

from barnabas.client.cluster import Cluster, TopicPartition
from barnabas.client.consumer import (
    EARLIEST,
    LATEST,
    ConsumedRecord,
    Consumer,
    ConsumerSettings,
    Isolation,
    list_offsets,
    open_consumer,
)
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.fetch import AbortedTransaction
from protocol.records.builder import build_batch
from protocol.records.control import EndTxn, build_end_txn_batch
from protocol.records.record import Record
from runtime.simulated import run_simulation
from tests.barnabas.client.fake_cluster import FakeCluster, FakePartition, with_client

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)


def fill(partition: FakePartition, *values: bytes, per_batch: int = 3) -> None:
    for start in range(0, len(values), per_batch):
        records = [Record(0, 7, b"k", value) for value in values[start : start + per_batch]]
        partition.append(build_batch(records))


async def read(consumer: Consumer, count: int) -> list[ConsumedRecord]:
    """At least `count` records."""
    records: list[ConsumedRecord] = []
    with trio.fail_after(30):
        while len(records) < count:
            records += await consumer.poll(1000)
    return records


def test_every_record_is_read_once_from_the_offset_on() -> None:
    async def story(fake: FakeCluster, cluster: Cluster, nursery: trio.Nursery) -> None:
        partitions = fake.create("t", 2)
        values = [b"%d" % n for n in range(400)]
        for partition in partitions:
            fill(partition, *values)
        async with open_consumer(cluster) as consumer:
            consumer.assign({T0: 0, T1: 301})
            records = await read(consumer, 499)
            assert await consumer.poll(100) == []
            assert consumer.position(T0) == consumer.position(T1) == 400
            assert consumer.high_watermark(T0) == 400
        first = [record for record in records if record.partition == 0]
        second = [record for record in records if record.partition == 1]
        assert [(record.offset, record.value) for record in first] == list(enumerate(values))
        assert [record.offset for record in second] == list(range(301, 400))
        assert first[0] == ConsumedRecord("t", 0, 0, 7, b"k", b"0", (), 0)

    run_simulation(1, with_client, story)


@pytest.mark.parametrize("hints", [True, False])
def test_it_follows_the_leader(hints: bool) -> None:
    async def story(fake: FakeCluster, cluster: Cluster, nursery: trio.Nursery) -> None:
        fake.hints = hints
        [partition] = fake.create("t")
        fill(partition, b"a")
        async with open_consumer(cluster) as consumer:
            consumer.assign({T0: 0})
            await read(consumer, 1)
            partition.leader, partition.epoch = 2, 4
            fill(partition, b"b")
            [record] = await read(consumer, 1)
            assert (record.value, record.leader_epoch) == (b"b", 4)
            fake.universe.kill("b2")
            fill(partition, b"c")
            assert await consumer.poll(500) == []
            partition.leader, partition.epoch = 3, 5
            [record] = await read(consumer, 1)
            assert record.value == b"c"

    run_simulation(2, with_client, story)


def test_seek_forgets_what_was_read_ahead() -> None:
    async def story(fake: FakeCluster, cluster: Cluster, nursery: trio.Nursery) -> None:
        [partition] = fake.create("t")
        fill(partition, *[b"%d" % n for n in range(9)])
        async with open_consumer(cluster) as consumer:
            consumer.assign({T0: 0})
            await read(consumer, 9)
            consumer.seek(T0, 4)
            assert [record.offset for record in await read(consumer, 5)] == [4, 5, 6, 7, 8]

    run_simulation(3, with_client, story)


def transactional(producer_id: int, *values: bytes, sequence: int = 0) -> bytes:
    records = [Record(0, 0, None, value) for value in values]
    return build_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True)


@pytest.mark.feature("PF-18")
@pytest.mark.parametrize("isolation", list(Isolation))
def test_aborted_records_are_seen_only_by_those_who_want_them(isolation: Isolation) -> None:
    async def story(fake: FakeCluster, cluster: Cluster, nursery: trio.Nursery) -> None:
        [partition] = fake.create("t")
        partition.append(transactional(1, b"aborted 1"))
        partition.append(transactional(2, b"committed 2"))
        fill(partition, b"plain")
        partition.append(build_end_txn_batch(EndTxn(False, 0), 1, 0, 0))
        partition.append(build_end_txn_batch(EndTxn(True, 0), 2, 0, 0))
        partition.append(transactional(1, b"committed 1", sequence=1))
        partition.append(build_end_txn_batch(EndTxn(True, 0), 1, 0, 0))
        partition.aborted = [AbortedTransaction(producer_id=1, first_offset=0)]
        async with open_consumer(cluster, ConsumerSettings(isolation=isolation)) as consumer:
            consumer.assign({T0: 0})
            values = [record.value for record in await read(consumer, 4 - isolation)]
            assert consumer.position(T0) == 7, "markers take offsets and are never given"
        committed = [b"committed 2", b"plain", b"committed 1"]
        assert values == ([b"aborted 1", *committed] if isolation == 0 else committed)

    run_simulation(4, with_client, story)


def test_an_offset_that_is_gone_is_an_error_or_a_new_start() -> None:
    async def story(fake: FakeCluster, cluster: Cluster, nursery: trio.Nursery) -> None:
        [partition] = fake.create("t")
        fill(partition, *[b"%d" % n for n in range(6)])
        partition.start_offset = 3
        async with open_consumer(cluster) as consumer:
            consumer.assign({T0: 0})
            with pytest.raises(KafkaError) as caught:
                await read(consumer, 1)
            assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
            consumer.seek(T0, 3)
            assert [record.offset for record in await read(consumer, 3)] == [3, 4, 5]
        async with open_consumer(cluster, ConsumerSettings(start_when_out_of_range=EARLIEST)) as consumer:
            consumer.assign({T0: 100})
            assert [record.offset for record in await read(consumer, 3)] == [3, 4, 5]

    run_simulation(5, with_client, story)


def test_a_batch_whose_bytes_changed_is_not_given_to_anyone() -> None:
    async def story(fake: FakeCluster, cluster: Cluster, nursery: trio.Nursery) -> None:
        [partition] = fake.create("t")
        fill(partition, b"good")
        fill(partition, b"evil")
        partition.log[1] = partition.log[1].replace(b"evil", b"live")
        async with open_consumer(cluster) as consumer:
            consumer.assign({T0: 0})
            assert [record.value for record in await read(consumer, 1)] == [b"good"]
            with pytest.raises(KafkaError) as caught:
                await consumer.poll(1000)
            assert caught.value.code is ErrorCode.CORRUPT_MESSAGE

    run_simulation(6, with_client, story)


def test_offsets_are_asked_of_the_leaders_wherever_they_go() -> None:
    async def story(fake: FakeCluster, cluster: Cluster, nursery: trio.Nursery) -> None:
        partitions = fake.create("t", 2)
        fill(partitions[1], b"a", b"b")
        assert await list_offsets(cluster, {T0: LATEST, T1: LATEST}, 5000) == {T0: 0, T1: 2}
        partitions[1].leader, partitions[1].epoch = 3, 1
        assert await list_offsets(cluster, {T1: EARLIEST}, 5000) == {T1: 0}
        with pytest.raises(KafkaError, match="missing-0"):
            await list_offsets(cluster, {TopicPartition("missing", 0): LATEST}, 500)

    run_simulation(7, with_client, story)
