"""Client libraries beside writing and reading: offsets by time, headers, large records, administration."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from typing import Any

import pytest

from tests.compat.foreign import Confluent, KafkaPython, Kcat, Sent
from tests.compat.running import RunningCluster

pytestmark = pytest.mark.compat

TIMEOUT_SECONDS = 30
HOUR_MS = 3_600_000
FETCH_WAIT_MS = 2_000


@pytest.mark.client("confluent-kafka", "kafka-python", "aiokafka")
@pytest.mark.feature("PF-10", "PF-13", "PF-20", "PR-10")
def test_keys_tombstones_headers_and_timestamps_come_through(cluster: RunningCluster) -> None:
    from confluent_kafka import Producer

    topic = cluster.create_topic("whole")
    now_ms = int(time.time() * 1000)
    headers = [("trace", b"\x00\xff"), ("trace", b"again"), ("empty", b""), ("none", None)]
    sent = [
        (b"key", b"value", now_ms, headers),
        (None, b"no key", now_ms - HOUR_MS, []),
        (b"tombstone", None, now_ms + 5, []),
        (b"", b"", now_ms, []),
    ]
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "compression.type": "lz4"})
    for key, value, timestamp_ms, its_headers in sent:
        producer.produce(topic, value, key, 0, timestamp=timestamp_ms, headers=its_headers)
    assert producer.flush(TIMEOUT_SECONDS) == 0

    assert list(map(parts, poll(cluster, topic, len(sent)))) == sent

    async def read() -> list[Any]:
        from aiokafka import AIOKafkaConsumer, TopicPartition

        consumer = AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest")
        consumer.assign([TopicPartition(topic, 0)])
        async with consumer, asyncio.timeout(TIMEOUT_SECONDS):
            return [await consumer.getone() for _ in sent]

    assert list(map(parts, asyncio.run(read()))) == sent


def parts(record: Any) -> tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]]]:
    """Key, value, timestamp and headers of a record of kafka-python or aiokafka."""
    return record.key, record.value, record.timestamp, list(record.headers)


def poll(cluster: RunningCluster, topic: str, count: int) -> list[Any]:
    """The first records of partition 0, as kafka-python gives them."""
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers.split(","), auto_offset_reset="earliest", enable_auto_commit=False
    )
    found: list[Any] = []
    try:
        consumer.assign([TopicPartition(topic, 0)])
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while len(found) < count and time.monotonic() < deadline:
            for records in consumer.poll(500).values():
                found += records
    finally:
        consumer.close()
    return found


@pytest.mark.client("confluent-kafka", "kafka-python", "aiokafka", "kcat")
@pytest.mark.feature("ST-07", "PF-13", "PF-20", "CL-03")
def test_all_find_the_same_offset_by_time(cluster: RunningCluster) -> None:
    from confluent_kafka import Consumer, Producer, TopicPartition

    topic = cluster.create_topic("timed")
    first_ms = int(time.time() * 1000) - HOUR_MS
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for number in range(500):
        producer.produce(topic, b"%d" % number, partition=0, timestamp=first_ms + 1000 * number)
    assert producer.flush(TIMEOUT_SECONDS) == 0
    asked_ms = first_ms + 1000 * 123 + 1
    kcat = Kcat(cluster.bootstrap_servers)
    config = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "timed"}
    consumer = Consumer(config)
    try:
        (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, asked_ms)], TIMEOUT_SECONDS)
        assert found.offset == 124
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), TIMEOUT_SECONDS) == (0, 500)
    finally:
        consumer.close()
    assert f"{topic} [0] offset 124" in kcat.run("-Q", "-t", f"{topic}:0:{asked_ms}")

    import kafka

    pure = kafka.KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers.split(","))
    try:
        where = kafka.TopicPartition(topic, 0)
        assert pure.offsets_for_times({where: asked_ms})[where].offset == 124
        assert pure.offsets_for_times({where: first_ms + HOUR_MS})[where] is None
        assert (pure.beginning_offsets([where]), pure.end_offsets([where])) == ({where: 0}, {where: 500})
    finally:
        pure.close()

    async def find() -> int:
        from aiokafka import AIOKafkaConsumer
        from aiokafka import TopicPartition as Where

        async with AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap_servers) as reader:
            found = await reader.offsets_for_times({Where(topic, 0): asked_ms})
            return int(found[Where(topic, 0)].offset)

    assert asyncio.run(find()) == 124


@pytest.mark.client("confluent-kafka", "kafka-python")
@pytest.mark.feature("PR-04", "PR-10", "PF-20", "RE-05")
def test_large_records_go_through_up_to_the_limit(cluster: RunningCluster) -> None:
    from confluent_kafka import KafkaError, Producer

    topic = cluster.create_topic("large", configs={"max.message.bytes": "2000000"})
    config = {"bootstrap.servers": cluster.bootstrap_servers, "message.max.bytes": 5_000_000}
    producer = Producer(config)
    outcomes: list[int] = []

    def note_outcome(error: Any, _message: Any) -> None:
        outcomes.append(KafkaError.NO_ERROR if error is None else error.code())

    for size in (1_900_000, 2_500_000, 10):
        producer.produce(topic, b"x" * size, partition=0, on_delivery=note_outcome)
        assert producer.flush(TIMEOUT_SECONDS) == 0
    assert outcomes == [KafkaError.NO_ERROR, KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.NO_ERROR]
    # Larger than what the reader asks for in one answer (1 MiB): it gets the record all the same.
    assert [len(record.value) for record in poll(cluster, topic, 2)] == [1_900_000, 10]


@pytest.mark.client("confluent-kafka", "kafka-python")
@pytest.mark.feature("RE-05", "ST-16", "CL-03")
def test_a_reader_that_waits_gets_a_record_at_once(cluster: RunningCluster) -> None:
    from confluent_kafka import Producer
    from kafka import KafkaConsumer, TopicPartition

    topic = cluster.create_topic("awaited")
    consumer = KafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers.split(","),
        fetch_max_wait_ms=FETCH_WAIT_MS,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    consumer.assign([TopicPartition(topic, 0)])
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0})
    waited: list[float] = []
    try:
        for number in range(20):
            producer.produce(topic, b"%d" % number, partition=0)
            assert producer.flush(TIMEOUT_SECONDS) == 0
            acked_at = time.monotonic()
            (records,) = consumer.poll(TIMEOUT_SECONDS * 1000).values()
            waited.append(time.monotonic() - acked_at)
            assert [record.value for record in records] == [b"%d" % number]
    finally:
        consumer.close()
    assert statistics.median(waited) < FETCH_WAIT_MS / 1000 / 4


@pytest.mark.client("confluent-kafka")
@pytest.mark.feature("CL-04", "AD-01", "AD-02", "AD-03", "AD-05", "MB-08", "MB-22", "PF-20", "RE-17")
def test_administration_with_confluent_kafka(cluster: RunningCluster) -> None:
    from confluent_kafka import KafkaError, KafkaException, TopicPartition
    from confluent_kafka.admin import (
        AdminClient,
        AlterConfigOpType,
        ConfigEntry,
        ConfigResource,
        NewPartitions,
        NewTopic,
        OffsetSpec,
        ResourceType,
    )

    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})

    def done(futures: dict[Any, Any]) -> dict[Any, Any]:
        return {key: future.result(TIMEOUT_SECONDS) for key, future in futures.items()}

    topic = "run-by-confluent"
    done(admin.create_topics([NewTopic(topic, 2, 3, config={"retention.ms": "100000"})]))
    with pytest.raises(KafkaException) as refusal:
        done(admin.create_topics([NewTopic(topic, 2, 3)]))
    assert refusal.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    with pytest.raises(KafkaException) as refusal:
        done(admin.create_topics([NewTopic("too-wide", 1, 4)]))
    assert refusal.value.args[0].code() == KafkaError.INVALID_REPLICATION_FACTOR
    done(admin.create_partitions([NewPartitions(topic, 3)]))
    cluster.wait_for("the third is led", lambda: len(cluster.partitions(topic)) == 3 and not cluster.not_ready())
    assert sorted(admin.list_topics(topic, TIMEOUT_SECONDS).topics[topic].partitions) == [0, 1, 2]

    resource = ConfigResource(ResourceType.TOPIC, topic)
    change = ConfigEntry("max.message.bytes", "7777", incremental_operation=AlterConfigOpType.SET)
    done(admin.incremental_alter_configs([ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[change])]))

    def described_config(name: str) -> str:
        (configs,) = done(admin.describe_configs([resource])).values()
        return str(configs[name].value)

    # Any broker may answer, and one may not have applied the change yet.
    cluster.wait_for("the change is described", lambda: described_config("max.message.bytes") == "7777")
    assert described_config("retention.ms") == "100000"

    described = admin.describe_cluster(request_timeout=TIMEOUT_SECONDS).result()
    assert described.cluster_id == cluster.layout.cluster_id
    assert sorted(node.id for node in described.nodes) == [1, 2, 3]

    Confluent(cluster.bootstrap_servers).produce(topic, [Sent("k", str(number)) for number in range(10)])
    where = TopicPartition(topic, 0)
    found = done(admin.list_offsets({where: OffsetSpec.latest()}))
    assert found[where].offset == 10
    (deleted,) = done(admin.delete_records([TopicPartition(topic, 0, 4)])).values()
    assert deleted.low_watermark == 4
    assert done(admin.list_offsets({where: OffsetSpec.earliest()}))[where].offset == 4
    done(admin.delete_topics([topic]))
    cluster.wait_for("the topic is gone", lambda: topic not in admin.list_topics(timeout=TIMEOUT_SECONDS).topics)


@pytest.mark.client("kafka-python")
@pytest.mark.feature("CL-04", "AD-01", "AD-02", "AD-03", "AD-05", "AD-06", "MB-22", "PF-20")
def test_administration_with_kafka_python(cluster: RunningCluster) -> None:
    from kafka import KafkaAdminClient

    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers.split(","))
    try:
        topic = "run-by-kafka-python"
        admin.create_topics({topic: {"num_partitions": 2, "replication_factor": 3}})
        cluster.wait_for("it is led", lambda: len(cluster.partitions(topic)) == 2 and not cluster.not_ready())
        KafkaPython(cluster.bootstrap_servers).produce(topic, [Sent("k", "v")])
        (described,) = admin.describe_topics([topic])
        assert [len(partition["replica_nodes"]) for partition in described["partitions"]] == [3, 3]
        cluster.wait_for("the topic is listed", lambda: topic in admin.list_topics())
        described_cluster = admin.describe_cluster()
        assert described_cluster["cluster_id"] == cluster.layout.cluster_id
        assert {broker["broker_id"] for broker in described_cluster["brokers"] if not broker["is_fenced"]} == {1, 2, 3}
        (quorum,) = admin.describe_metadata_quorum()["topics"][0]["partitions"]
        assert f"controller-{quorum['leader_id']}" == cluster.active_controller()
        assert {voter["replica_id"] for voter in quorum["current_voters"]} == {101, 102, 103}
        assert admin.describe_features()["metadata.version"]["finalized"] == (30, 30)
        sizes = [
            partition["partition_size"]
            for broker in admin.describe_log_dirs()
            for directory in broker["log_dirs"]
            for each in directory["topics"]
            for partition in each["partitions"]
            if each["name"] == topic and partition["partition_index"] == 0
        ]
        assert len(sizes) == 3
        assert len(set(sizes)) == 1
        assert sizes[0] > 61
        admin.delete_topics([topic])
        cluster.wait_for("it is gone", lambda: cluster.partitions(topic) == [])
    finally:
        admin.close()


@pytest.mark.client("aiokafka")
@pytest.mark.feature("CL-04", "AD-01", "AD-02", "MB-22", "PF-20")
def test_administration_with_aiokafka(cluster: RunningCluster) -> None:
    async def administer() -> None:
        from aiokafka.admin import AIOKafkaAdminClient, NewTopic
        from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

        admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
        await admin.start()
        try:
            topic = "run-by-aiokafka"
            created = await admin.create_topics([NewTopic(topic, 2, 3)])
            assert [error for _, error, *_ in created.topic_errors] == [0]
            while topic not in await admin.list_topics():  # Any broker answers, also one that does not know it yet.
                await asyncio.sleep(0.05)
            (described,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
            assert described.resources[0][0] == 0
            assert (await admin.describe_cluster())["cluster_id"] == cluster.layout.cluster_id
            await admin.delete_topics([topic])
        finally:
            await admin.close()

    asyncio.run(asyncio.wait_for(administer(), TIMEOUT_SECONDS))


@pytest.mark.client("kcat")
@pytest.mark.feature("PF-20", "MB-07", "MB-09", "PR-02")
def test_kcat_makes_a_topic_lists_it_and_reads_the_last_records(cluster: RunningCluster) -> None:
    kcat = Kcat(cluster.bootstrap_servers)
    topic = "made-by-kcat"
    kcat.run("-P", "-t", topic, stdin="".join(f"line {number}\n" for number in range(20)))
    listed = json.loads(kcat.run("-L", "-J", "-t", topic))
    assert sorted(broker["id"] for broker in listed["brokers"]) == [1, 2, 3]
    (described,) = listed["topics"]
    assert [len(partition["isrs"]) for partition in described["partitions"]] == [3]
    assert kcat.run("-C", "-t", topic, "-o", "-3", "-e", "-q").splitlines() == ["line 17", "line 18", "line 19"]
    assert kcat.run("-C", "-t", topic, "-o", "5", "-c", "1", "-q", "-X", "isolation.level=read_committed") == "line 5\n"


@pytest.mark.client("confluent-kafka", "kafka-python", "aiokafka")
@pytest.mark.feature("RE-09", "PR-10", "PR-11")
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_kind_of_ack(acks: str, cluster: RunningCluster) -> None:
    from aiokafka import AIOKafkaProducer
    from confluent_kafka import Producer
    from kafka import KafkaProducer

    topic = cluster.create_topic("acks")
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": acks})
    for number in range(100):
        producer.produce(topic, b"%d" % number, b"confluent", partition=0)
    assert producer.flush(TIMEOUT_SECONDS) == 0
    pure = KafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers.split(","),
        acks=acks if acks == "all" else int(acks),
        enable_idempotence=acks == "all",
    )
    for number in range(100):
        pure.send(topic, b"%d" % number, b"pure", partition=0)
    pure.flush(TIMEOUT_SECONDS)
    pure.close()

    async def send() -> None:
        async with AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers, acks=acks if acks == "all" else int(acks)
        ) as asynchronous:
            for number in range(100):
                await asynchronous.send(topic, b"%d" % number, b"asynchronous", partition=0)
            await asynchronous.flush()

    asyncio.run(asyncio.wait_for(send(), TIMEOUT_SECONDS))
    cluster.wait_for("all is there", lambda: cluster.partitions(topic)[0].high_watermark == 300)
    values = [seen.value for seen in Confluent(cluster.bootstrap_servers).consume(topic, 300)]
    assert values == [str(number) for number in range(100)] * 3


@pytest.mark.client("confluent-kafka", "aiokafka")
@pytest.mark.feature("MB-08", "ST-19", "PR-01", "RE-14")
def test_writers_and_readers_survive_a_topic_that_is_deleted_and_created_again(cluster: RunningCluster) -> None:
    """The new topic shows nothing of the old one, and clients of the old one continue by themselves."""
    from aiokafka import AIOKafkaProducer
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    config = {"bootstrap.servers": cluster.bootstrap_servers}
    admin = AdminClient(config)
    topic = "made-again"
    lasting = Producer(config | {"topic.metadata.refresh.interval.ms": 500})

    def make() -> None:
        # The deletion is committed when it is answered, but each broker replays it a little later.
        cluster.wait_for("the old one is gone", lambda: topic not in cluster.topics_everywhere())
        admin.create_topics([NewTopic(topic, 1, 3)])[topic].result(TIMEOUT_SECONDS)
        cluster.wait_for("it is led", lambda: len(cluster.partitions(topic)) == 1 and not cluster.not_ready())

    async def write_to_both() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers, enable_idempotence=True, metadata_max_age_ms=500
        )
        async with producer:
            for life in ("first", "second"):
                await asyncio.to_thread(make)
                for number in range(20):
                    lasting.produce(topic, f"{life} {number}", "confluent", 0)
                assert await asyncio.to_thread(lasting.flush, TIMEOUT_SECONDS) == 0
                for number in range(20):
                    await producer.send_and_wait(topic, f"{life} {number}".encode(), b"aiokafka", 0)
                seen = await asyncio.to_thread(Confluent(cluster.bootstrap_servers).consume, topic, 40)
                assert [record.value for record in seen] == [f"{life} {number}" for number in range(20)] * 2
                if life == "first":
                    admin.delete_topics([topic])[topic].result(TIMEOUT_SECONDS)

    asyncio.run(asyncio.wait_for(write_to_both(), 3 * TIMEOUT_SECONDS))
