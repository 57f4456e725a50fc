"""The producer on our cluster and on Apache Kafka: what it writes, librdkafka reads; what it promises holds on both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import trio

from barnabas.client import errors
from barnabas.client.admin import Admin, NewTopic
from barnabas.client.cluster import TopicPartition
from barnabas.client.groups.membership import ConsumerGroupMetadata
from barnabas.client.offsets import OffsetAndMetadata
from barnabas.client.producer import Acked, Producer, TransactionState
from tests.compat.client.any_cluster import AnyCluster
from tests.compat.foreign import CODECS

confluent_kafka = pytest.importorskip("confluent_kafka")

READ_SECONDS = 20.0


async def read_all(
    cluster: AnyCluster, topic: str, partitions: Sequence[int] = (0,), isolation: str = "read_committed"
) -> list[Any]:
    """All records, as librdkafka reads them, up to the end of each partition."""

    def read() -> list[Any]:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": "nobody",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": isolation,
                "check.crcs": True,
                "fetch.wait.max.ms": 20,
            }
        )
        begin = confluent_kafka.OFFSET_BEGINNING
        consumer.assign([confluent_kafka.TopicPartition(topic, partition, begin) for partition in partitions])
        found, ends = [], 0
        while ends < len(partitions):
            message = consumer.poll(READ_SECONDS)
            assert message is not None, "nothing comes"
            if message.error() is None:
                found.append(message)
            else:
                assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF, message.error()
                ends += 1
        consumer.close()
        return found

    return await trio.to_thread.run_sync(read)


def value_of(number: int) -> bytes:
    return b"%d-" % number + b"v" * 100


async def create_again(cluster: AnyCluster, topic: str) -> None:
    """Delete a topic and create it with its name, as soon as the old one is gone."""
    async with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        await admin.delete_topics(topic)
        wanted = NewTopic(topic, num_partitions=1, replication_factor=cluster.replication_factor)
        while (await admin.create_topics([wanted], raise_errors=False)).errors:
            await trio.sleep(0.05)


@pytest.mark.feature("PR-13")
async def test_a_topic_that_was_created_again_gets_every_record_of_the_same_producer(any_cluster: AnyCluster) -> None:
    topic = any_cluster.create_topic("again")
    values = [value_of(number) for number in range(2_000)]
    async with Producer(bootstrap_servers=any_cluster.bootstrap_servers) as producer:
        for _ in range(3):
            found = await producer.send_all(topic, values, partition=0)
            assert [each.offset for each in found] == list(range(len(values)))
            assert [each.value() for each in await read_all(any_cluster, topic)] == values
            await create_again(any_cluster, topic)


@pytest.mark.feature("PR-03", "PR-06", "PR-09", "PR-11")
async def test_librdkafka_reads_its_records(any_cluster: AnyCluster) -> None:
    topic = any_cluster.create_topic("written", partitions=len(CODECS))
    headers = [("one", b"1"), ("one", b"2"), ("none", None), ("ümlaut", b"")]
    for partition, codec in enumerate(CODECS):
        async with Producer(bootstrap_servers=any_cluster.bootstrap_servers, compression_type=codec) as producer:
            futures = [
                await producer.enqueue(
                    topic, b"%d-" % n + b"v" * 100, key=b"k%d" % n, partition=partition, timestamp_ms=n
                )
                for n in range(500)
            ]
            futures.append(await producer.enqueue(topic, None, headers=headers, partition=partition))
            await producer.flush()
            assert [(await future).offset for future in futures] == list(range(501))
    messages = await read_all(any_cluster, topic, range(len(CODECS)))
    for partition in range(len(CODECS)):
        found = [message for message in messages if message.partition() == partition]
        assert [message.offset() for message in found] == list(range(501))
        assert [message.value() for message in found[:500]] == [value_of(n) for n in range(500)]
        assert [message.key() for message in found[:500]] == [b"k%d" % n for n in range(500)]
        assert [message.timestamp()[1] for message in found[:500]] == list(range(500))
        last = found[500]
        assert (last.key(), last.value(), last.headers()) == (None, None, headers)


@pytest.mark.feature("PR-02")
async def test_keys_land_where_librdkafka_puts_them(any_cluster: AnyCluster) -> None:
    ours, theirs = any_cluster.create_topic("ours", partitions=7), any_cluster.create_topic("theirs", partitions=7)
    keys = [b"key-%d" % n for n in range(200)]
    async with Producer(bootstrap_servers=any_cluster.bootstrap_servers) as producer:
        for key in keys:
            await producer.enqueue(ours, key=key)

    def produce() -> None:
        other = confluent_kafka.Producer(
            {"bootstrap.servers": any_cluster.bootstrap_servers, "partitioner": "murmur2_random"}
        )
        for key in keys:
            other.produce(theirs, key=key)
        assert other.flush(READ_SECONDS) == 0

    await trio.to_thread.run_sync(produce)
    places = []
    for topic in (ours, theirs):
        messages = await read_all(any_cluster, topic, range(7))
        places.append({message.key(): message.partition() for message in messages})
    assert places[0] == places[1]
    assert len(places[0]) == 200


@pytest.mark.feature("PR-10")
async def test_each_kind_of_ack(any_cluster: AnyCluster) -> None:
    topic = any_cluster.create_topic("acks")
    offsets = []
    for acks in ("all", 1, 0):
        async with Producer(bootstrap_servers=any_cluster.bootstrap_servers, acks=acks) as producer:
            offsets.append((await producer.send(topic, str(acks).encode())).offset)
    assert offsets == [0, 1, -1]
    with trio.fail_after(READ_SECONDS):
        while len(messages := await read_all(any_cluster, topic)) < 3:
            await trio.sleep(0.05)
    assert [message.value() for message in messages] == [b"all", b"1", b"0"]


@pytest.mark.feature("PR-04")
async def test_batches_that_are_too_large_for_the_topic_are_split(any_cluster: AnyCluster) -> None:
    topic = any_cluster.create_topic("small", configs={"max.message.bytes": "1000"})
    async with Producer(bootstrap_servers=any_cluster.bootstrap_servers, linger_ms=50) as producer:
        futures = [await producer.enqueue(topic, b"%03d" % n * 30) for n in range(100)]
        assert [(await future).offset for future in futures] == list(range(100))
        assert producer.metrics()["batch-split-total"] > 0
        with pytest.raises(errors.RecordTooLargeException):
            await producer.send(topic, b"." * 2000)
        assert (await producer.send(topic, b"goes on")).offset == 100
    messages = await read_all(any_cluster, topic)
    assert [message.value() for message in messages] == [b"%03d" % n * 30 for n in range(100)] + [b"goes on"]


async def test_the_brokers_time_comes_back(any_cluster: AnyCluster) -> None:
    topic = any_cluster.create_topic("stamped", configs={"message.timestamp.type": "LogAppendTime"})
    async with Producer(bootstrap_servers=any_cluster.bootstrap_servers) as producer:
        metadata = await producer.send(topic, b"x", timestamp_ms=5)
    [message] = await read_all(any_cluster, topic)
    assert message.timestamp() == (confluent_kafka.TIMESTAMP_LOG_APPEND_TIME, metadata.timestamp_ms)
    assert metadata.timestamp_ms > 5


async def test_mistakes_have_one_exception_each(any_cluster: AnyCluster) -> None:
    servers = any_cluster.bootstrap_servers
    topic = any_cluster.create_topic("mistakes", configs={"cleanup.policy": "compact"})
    async with Producer(bootstrap_servers=servers, max_block_ms=700, allow_auto_create_topics=False) as producer:
        with pytest.raises(errors.UnknownTopicOrPartitionException):
            await producer.send("never-made", b"x")
        with pytest.raises(errors.InvalidTopicException):
            await producer.send("no such name!", b"x")
        with pytest.raises(errors.UnknownTopicOrPartitionException):
            await producer.send(topic, b"x", key=b"k", partition=9)
        with pytest.raises(errors.InvalidRecordException):
            await producer.send(topic, b"a compacted topic wants keys")
        outcome = await (await producer.enqueue(topic, b"x", key=b"k")).outcome()
        assert isinstance(outcome, Acked)


@pytest.mark.feature("TX-12")
async def test_transactions_take_effect_or_do_not(any_cluster: AnyCluster) -> None:
    topic, name = any_cluster.create_topic("transactions", partitions=2), any_cluster.new_name("etl")
    async with Producer(bootstrap_servers=any_cluster.bootstrap_servers, transactional_id=name) as producer:
        assert producer.transaction_state is TransactionState.READY
        for number in range(3):
            async with producer.transaction():
                for partition in (0, 1):
                    await producer.enqueue(topic, b"kept-%d" % number, partition=partition)
            with pytest.raises(RuntimeError, match="changed my mind"):
                async with producer.transaction():
                    await producer.send(topic, b"thrown away", partition=0)
                    raise RuntimeError("changed my mind")
        async with producer.transaction():
            pass
        with trio.CancelScope() as scope:
            async with producer.transaction():
                await producer.send(topic, b"cancelled", partition=1)
                scope.cancel()
                await trio.lowlevel.checkpoint()
        async with producer.transaction():
            await producer.enqueue(topic, b"last", partition=0)
        with pytest.raises(errors.IllegalStateException):
            await producer.send(topic, b"outside")
    committed = await read_all(any_cluster, topic, (0, 1))
    values = [[message.value() for message in committed if message.partition() == index] for index in (0, 1)]
    assert values == [[b"kept-0", b"kept-1", b"kept-2", b"last"], [b"kept-0", b"kept-1", b"kept-2"]]
    everything = await read_all(any_cluster, topic, (0, 1), isolation="read_uncommitted")
    assert [message.value() for message in everything].count(b"thrown away") == 3


@pytest.mark.feature("TX-12", "TX-13")
async def test_offsets_go_with_the_transaction(any_cluster: AnyCluster) -> None:
    topic, group = any_cluster.create_topic("source"), any_cluster.new_name("group")
    name = any_cluster.new_name("mover")
    place = TopicPartition(topic, 0)

    def committed() -> tuple[int, str]:
        consumer = confluent_kafka.Consumer({"bootstrap.servers": any_cluster.bootstrap_servers, "group.id": group})
        [found] = consumer.committed([confluent_kafka.TopicPartition(topic, 0)], timeout=READ_SECONDS)
        consumer.close()
        return found.offset, found.metadata or ""

    async with Producer(bootstrap_servers=any_cluster.bootstrap_servers, transactional_id=name) as producer:
        async with producer.transaction():
            await producer.enqueue(topic, b"out")
            offsets = {place: OffsetAndMetadata(5, None, "so far")}
            await producer.send_offsets_to_transaction(offsets, ConsumerGroupMetadata(group))
        assert await trio.to_thread.run_sync(committed) == (5, "so far")
        producer.begin_transaction()
        await producer.send_offsets_to_transaction({place: 9}, ConsumerGroupMetadata(group))
        await producer.abort_transaction()
        assert await trio.to_thread.run_sync(committed) == (5, "so far")
        stranger = ConsumerGroupMetadata(group, "somebody", 3)
        producer.begin_transaction()
        with pytest.raises(errors.KafkaError) as caught:
            await producer.send_offsets_to_transaction({place: 9}, stranger)
        assert isinstance(caught.value, errors.UnknownMemberIdException | errors.IllegalGenerationException)
        assert producer.transaction_state is TransactionState.ABORTABLE_ERROR
        with pytest.raises(errors.KafkaError):
            await producer.commit_transaction()
        await producer.abort_transaction()
        assert producer.transaction_state is TransactionState.READY


@pytest.mark.feature("TX-12")
async def test_a_second_producer_fences_the_first(any_cluster: AnyCluster) -> None:
    topic, name = any_cluster.create_topic("fenced"), any_cluster.new_name("only-one")
    servers = any_cluster.bootstrap_servers
    async with Producer(bootstrap_servers=servers, transactional_id=name) as first:
        first.begin_transaction()
        await first.send(topic, b"of the first")
        async with Producer(bootstrap_servers=servers, transactional_id=name) as second:
            with pytest.raises(errors.ProducerFencedException):
                await first.commit_transaction()
            assert first.transaction_state is TransactionState.FATAL_ERROR
            with pytest.raises(errors.ProducerFencedException):
                first.begin_transaction()
            async with second.transaction():
                await second.enqueue(topic, b"of the second")
    assert [message.value() for message in await read_all(any_cluster, topic)] == [b"of the second"]
