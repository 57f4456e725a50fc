"""Clients as they spoke before Kafka 0.11, on a cluster with `barnabas.legacy.clients.enable`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas import sync
from barnabas.cluster.probe import ask
from barnabas.protocol.api_keys import API_SPECS, LEGACY_VERSIONS, ApiKey
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.compat.running import QUICK_GROUPS, RunningCluster

pytestmark = [pytest.mark.compat, pytest.mark.feature("PF-17", "CG-01")]

SWITCH = {"barnabas.legacy.clients.enable": "true"}
CODECS = [None, "gzip", "snappy", "lz4"]
OLD_VERSIONS = [(0, 10, 1), (0, 10, 0), (0, 9), (0, 8, 2)]
LANGUAGES = [
    pytest.param(version, codec, id=f"{'.'.join(map(str, version))}-{codec}")
    for version in OLD_VERSIONS
    for codec in CODECS
    if codec != "lz4" or version >= (0, 9)
]
"""kafka-python refuses lz4 with 0.8.2."""
RECORDS = 40
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def old_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    cluster = RunningCluster.start_new(tmp_path_factory.mktemp("old"), QUICK_GROUPS | SWITCH)
    yield cluster
    assert cluster.down() == []


def expected(name: str) -> list[bytes]:
    return [f"{name} {number}".encode() for number in range(RECORDS)]


def read_with_kafka_python(cluster: RunningCluster, topic: str, version: tuple[int, ...]) -> list[Any]:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers.split(","),
        api_version=version,
        group_id=None,
        auto_offset_reset="earliest",
        consumer_timeout_ms=1000,
    )
    consumer.assign([TopicPartition(topic, 0)])
    consumer.seek_to_beginning()
    found: list[Any] = []
    end = time.monotonic() + PATIENCE_S
    while len(found) < RECORDS and time.monotonic() < end:
        for record in consumer:
            found.append(record)
            if len(found) == RECORDS:
                break
    consumer.close()
    return found


@pytest.mark.client("kafka-python")
@pytest.mark.parametrize(("version", "codec"), LANGUAGES)
def test_an_old_consumer_reads_what_a_new_producer_wrote(
    old_cluster: RunningCluster, version: tuple[int, ...], codec: str | None
) -> None:
    topic = old_cluster.create_topic("new-to-old")
    options: dict[str, Any] = {} if codec is None else {"compression_type": codec}
    with sync.Producer(bootstrap_servers=old_cluster.bootstrap_servers, **options) as producer:
        sent = [
            producer.send_nowait(topic, value, key=b"k", headers=[("trace", b"1")], timestamp_ms=1_000 + number)
            for number, value in enumerate(expected("new"))
        ]
        for each in sent:
            each.result()
    found = read_with_kafka_python(old_cluster, topic, version)
    assert [record.value for record in found] == expected("new")
    assert [record.offset for record in found] == list(range(RECORDS))
    assert {record.key for record in found} == {b"k"}
    if version >= (0, 10):
        assert [record.timestamp for record in found] == [1_000 + number for number in range(RECORDS)]


@pytest.mark.client("kafka-python")
@pytest.mark.parametrize(("version", "codec"), LANGUAGES)
def test_a_new_consumer_reads_what_an_old_producer_wrote(
    old_cluster: RunningCluster, version: tuple[int, ...], codec: str | None
) -> None:
    from kafka import KafkaProducer

    topic = old_cluster.create_topic("old-to-new")
    producer = KafkaProducer(
        bootstrap_servers=old_cluster.bootstrap_servers.split(","),
        api_version=version,
        acks="all",
        compression_type=codec,
        linger_ms=20,
        enable_idempotence=False,
    )
    for value in expected("old"):
        producer.send(topic, value, key=b"k", partition=0)
    producer.flush(PATIENCE_S)
    producer.close()
    found: list[Any] = []
    end = time.monotonic() + PATIENCE_S
    servers = old_cluster.bootstrap_servers
    with sync.Consumer(topic, bootstrap_servers=servers, group_id=topic, auto_offset_reset="earliest") as consumer:
        while len(found) < RECORDS and time.monotonic() < end:
            found += consumer.poll(1_000)
    assert [record.value for record in found] == expected("old")
    assert {record.key for record in found} == {b"k"}


@pytest.mark.client("kafka-python")
@pytest.mark.parametrize("version", [(0, 10, 0), (0, 9), (0, 8, 2)], ids=lambda each: ".".join(map(str, each)))
def test_an_old_consumer_commits_and_goes_on_from_there(old_cluster: RunningCluster, version: tuple[int, ...]) -> None:
    from kafka import KafkaConsumer, OffsetAndMetadata, TopicPartition

    topic = old_cluster.create_topic("committed")
    with sync.Producer(bootstrap_servers=old_cluster.bootstrap_servers) as producer:
        for value in expected("some"):
            producer.send(topic, value)
    partition = TopicPartition(topic, 0)

    def consumer() -> Any:
        made = KafkaConsumer(
            bootstrap_servers=old_cluster.bootstrap_servers.split(","),
            api_version=version,
            group_id=f"old-{topic}",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            consumer_timeout_ms=1000,
        )
        made.assign([partition])
        return made

    first = consumer()
    first.commit({partition: OffsetAndMetadata(25, "", -1)})
    first.close()
    second = consumer()
    assert second.committed(partition) == 25
    found: list[bytes] = []
    end = time.monotonic() + PATIENCE_S
    while len(found) < RECORDS - 25 and time.monotonic() < end:
        found += [record.value for record in second]
    second.close()
    assert found == expected("some")[25:]


@pytest.mark.client("librdkafka")
def test_librdkafka_writes_and_reads_as_if_the_broker_were_old(old_cluster: RunningCluster) -> None:
    from confluent_kafka import Consumer, Producer

    topic = old_cluster.create_topic("fallback")
    old = {
        "bootstrap.servers": old_cluster.bootstrap_servers,
        "api.version.request": "false",
        "broker.version.fallback": "0.9.0.1",
    }
    producer = Producer({**old, "compression.codec": "snappy"})
    for value in expected("c"):
        producer.produce(topic, value)
    assert producer.flush(PATIENCE_S) == 0
    consumer = Consumer({**old, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[bytes] = []
    end = time.monotonic() + PATIENCE_S
    while len(found) < RECORDS and time.monotonic() < end:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            found.append(message.value())
    consumer.close()
    assert found == expected("c")


@pytest.mark.client("kafka-python")
def test_aborted_records_and_control_batches_do_not_stop_an_old_consumer(old_cluster: RunningCluster) -> None:
    """It reads uncommitted data, as it always did, and never sees a marker."""
    topic = old_cluster.create_topic("transactions")
    with sync.Producer(bootstrap_servers=old_cluster.bootstrap_servers, transactional_id=topic) as producer:
        for number, value in enumerate(expected("t")):
            producer.begin_transaction()
            producer.send(topic, value)
            if number % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    found = read_with_kafka_python(old_cluster, topic, (0, 9))
    assert [record.value for record in found] == expected("t")
    assert [record.offset for record in found] == [2 * number for number in range(RECORDS)]


def advertised(cluster: RunningCluster) -> dict[int, int]:
    request = ApiVersionsRequest(client_software_name="compat", client_software_version="1")
    response = ask(cluster.layout.brokers[0].port, request, ApiVersionsResponse)
    return {each.api_key: each.min_version for each in response.api_keys}


def test_the_versions_are_advertised_only_with_the_switch(
    old_cluster: RunningCluster, shared_cluster: RunningCluster
) -> None:
    for key, lowest in LEGACY_VERSIONS.items():
        assert advertised(old_cluster)[key] == lowest
        assert advertised(shared_cluster)[key] == API_SPECS[key].advertised_min_version
    assert advertised(shared_cluster)[ApiKey.FETCH] == 4


@pytest.mark.client("kafka-python")
def test_without_the_switch_an_old_consumer_gets_nothing(shared_cluster: RunningCluster) -> None:
    from kafka import KafkaConsumer, TopicPartition

    topic = shared_cluster.create_topic("refused")
    with sync.Producer(bootstrap_servers=shared_cluster.bootstrap_servers) as producer:
        producer.send(topic, b"never")
    consumer = KafkaConsumer(
        bootstrap_servers=shared_cluster.bootstrap_servers.split(","), api_version=(0, 9), consumer_timeout_ms=2000
    )
    consumer.assign([TopicPartition(topic, 0)])
    consumer.seek(TopicPartition(topic, 0), 0)
    assert list(consumer) == []
    consumer.close()
