"""The client without `await`, on our cluster and on Apache Kafka."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from barnabas import NewTopic, OffsetAndMetadata, TopicPartition, errors, sync
from tests.compat.client.any_cluster import AnyCluster

pytestmark = pytest.mark.feature("CL-05")


def test_records_come_back_as_they_were_sent(any_cluster: AnyCluster) -> None:
    topic, servers = any_cluster.create_topic("sync"), any_cluster.bootstrap_servers
    with sync.Producer(bootstrap_servers=servers, value_serializer="str") as producer:
        assert producer.send(topic, "first", key=b"k", headers=[("h", b"1")]).offset == 0
        futures = [producer.enqueue(topic, f"{number}") for number in range(50)]
        futures += [producer.send_nowait(topic, f"{number}") for number in range(50, 90)]
        producer.flush()
        assert all(future.done for future in futures)
        assert [future.result().offset for future in futures] == list(range(1, 91))
        assert [future.exception() for future in futures] == [None] * 90
        together = producer.send_all(topic, [f"{number}" for number in range(90, 100)])
        assert [place.offset for place in together] == list(range(91, 101))
        assert len(producer.partitions_for(topic)) == 1
        assert producer.metrics()
    with sync.Consumer(
        topic,
        bootstrap_servers=servers,
        group_id=any_cluster.new_name("sync"),
        auto_offset_reset="earliest",
        value_deserializer="str",
    ) as consumer:
        values = []
        for record in consumer:
            values.append(record.value)
            if len(values) == 101:
                break
        assert values == ["first", *map(str, range(100))]
        consumer.commit()
        place = TopicPartition(topic, 0)
        assert consumer.committed([place])[place].offset == 101
        consumer.seek(place, OffsetAndMetadata(100))
        assert [record.value for record in consumer.poll(timeout_ms=10_000)] == ["99"]


def test_a_listener_may_use_the_consumer(any_cluster: AnyCluster) -> None:
    topic, servers = any_cluster.create_topic("sync-listener"), any_cluster.bootstrap_servers
    with sync.Producer(bootstrap_servers=servers) as producer:
        for number in range(10):
            producer.send(topic, b"%d" % number)
    threads: list[str] = []
    with sync.Consumer(
        bootstrap_servers=servers, group_id=any_cluster.new_name("sync"), auto_offset_reset="earliest"
    ) as consumer:

        def assigned(partitions: list[TopicPartition]) -> None:
            threads.append(threading.current_thread().name)
            for each in partitions:
                consumer.seek(each, 7)

        consumer.subscribe(topics=[topic], listener=sync.RebalanceListener(on_assigned=assigned))
        values: list[bytes] = []
        while len(values) < 3:
            values += [record.value for record in consumer.poll(timeout_ms=500)]
    assert values == [b"7", b"8", b"9"]
    assert threads and "barnabas" not in threads


def test_a_transaction_is_whole_or_nothing(any_cluster: AnyCluster) -> None:
    topic, servers = any_cluster.create_topic("sync-transaction"), any_cluster.bootstrap_servers
    with sync.Producer(bootstrap_servers=servers, transactional_id=any_cluster.new_name("sync")) as producer:
        with pytest.raises(LookupError, match="a mistake"), producer.transaction():
            producer.enqueue(topic, b"aborted")
            raise LookupError("a mistake")
        with producer.transaction():
            producer.enqueue(topic, b"committed")
    with sync.Consumer(
        bootstrap_servers=servers, isolation_level="read_committed", auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert [record.value for record in consumer.poll(timeout_ms=10_000)] == [b"committed"]


def test_an_administrator(any_cluster: AnyCluster) -> None:
    topic = any_cluster.new_name("sync-admin")
    with sync.Admin(bootstrap_servers=any_cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(topic, num_partitions=2)])
        until = time.monotonic() + 30
        while topic not in admin.list_topics():
            assert time.monotonic() < until, "no broker that is asked knows the topic"
            time.sleep(0.05)
        with pytest.raises(errors.TopicExistsException):
            admin.create_topics([NewTopic(topic)])


def test_an_interrupted_call_ends_and_the_client_goes_on(any_cluster: AnyCluster) -> None:
    topic, servers = any_cluster.create_topic("sync-interrupted"), any_cluster.bootstrap_servers
    with sync.Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            consumer.poll(timeout_ms=60_000)
        assert time.monotonic() - began < 10
        with sync.Producer(bootstrap_servers=servers) as producer:
            producer.send(topic, b"afterwards")
        assert [record.value for record in consumer.poll(timeout_ms=10_000)] == [b"afterwards"]
    assert not [thread for thread in threading.enumerate() if thread.name == "barnabas"]


def test_threads_share_a_producer(any_cluster: AnyCluster) -> None:
    topic, servers = any_cluster.create_topic("sync-threads"), any_cluster.bootstrap_servers
    with sync.Producer(bootstrap_servers=servers) as producer:
        offsets: list[int] = []

        def send_some() -> None:
            offsets.extend(producer.send(topic, b"x").offset for _ in range(20))

        threads = [threading.Thread(target=send_some) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(offsets) == list(range(80))
