"""Our client on Apache Kafka 4.3.1: two-phase commit over its unstable protocol (KIP-939), and the push of metrics to a
plug-in of its broker (KIP-714).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas import ConfigResource, NewTopic, PreparedTxnState, ResourceType, TopicPartition, errors
from barnabas.cluster.ports import free_base_port
from barnabas.sync import Admin, Consumer, Producer
from tests.compat.apache import ApacheKafka
from tests.compat.running_programs import compile_java

pytestmark = [pytest.mark.compat, pytest.mark.client("apache-kafka")]

PUSH_SECONDS = 60


@pytest.fixture(scope="module")
def received(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file to which the broker's plug-in writes."""
    return tmp_path_factory.mktemp("receiver") / "pushed.txt"


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory, libs: Path, received: Path) -> Iterator[str]:
    settings = {
        "transaction.two.phase.commit.enable": "true",
        "unstable.api.versions.enable": "true",
        "metric.reporters": "MetricsReceiver",
        "receiver.file": str(received),
    }
    classes = compile_java(tmp_path_factory.mktemp("plugins"), libs)
    port = free_base_port((0, 1))
    node = ApacheKafka(libs, tmp_path_factory.mktemp("kafka"), (port, port + 1), settings, plugins=classes)
    node.start()
    yield f"127.0.0.1:{port}"
    node.stop()


@pytest.mark.feature("TX-15")
def test_kafka_completes_a_prepared_transaction_and_keeps_none(servers: str) -> None:
    """The second half is KAFKA-20739."""
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic("two-phase", num_partitions=1)])
    settings = {
        "bootstrap_servers": servers,
        "transactional_id": "etl",
        "transaction_two_phase_commit_enable": True,
    }
    with Producer(**settings) as producer:
        producer.init_transactions()
        for value, is_decided in ((b"yes", True), (b"no", False), (b"again", True)):
            producer.begin_transaction()
            producer.enqueue("two-phase", value)
            state = producer.prepare_transaction()
            producer.complete_transaction(state if is_decided else PreparedTxnState())
    with Producer(**settings) as producer, pytest.raises(errors.UnsupportedVersionException):
        producer.init_transactions(keep_prepared=True)
    with Consumer(
        bootstrap_servers=servers, isolation_level="read_committed", auto_offset_reset="earliest"
    ) as consumer:
        partition = TopicPartition("two-phase", 0)
        consumer.assign([partition])
        values = []
        (end,) = consumer.end_offsets([partition]).values()
        while consumer.position(partition) < end:
            values += [record.value for record in consumer.poll(timeout_ms=500)]
    assert values == [b"yes", b"again"]


@pytest.mark.feature("CL-06")
def test_kafka_takes_the_metrics_of_our_clients(servers: str, received: Path) -> None:
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic("measured", num_partitions=1)])
        resource = ConfigResource(ResourceType.CLIENT_METRICS, "all")
        admin.incremental_alter_configs({resource: {"metrics": "org.apache.kafka.", "interval.ms": "500"}})
    deadline = time.monotonic() + PUSH_SECONDS
    with (
        Producer(bootstrap_servers=servers) as producer,
        Consumer("measured", bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest") as consumer,
    ):
        assert producer.client_instance_id() != consumer.client_instance_id()
        sent = 0
        while len({name for name, _, _ in pushes(received)} & WANTED) < len(WANTED):
            assert time.monotonic() < deadline, WANTED - {name for name, _, _ in pushes(received)}
            producer.send("measured", b"v")
            sent += 1
            consumer.poll(timeout_ms=100)
    lines = pushes(received)
    kinds = {name: kind for name, kind, _ in lines}
    assert kinds[SENT] == "AGGREGATION_TEMPORALITY_DELTA" and kinds[IDLE] == "GAUGE"
    assert sum(float(value) for name, _, value in lines if name == SENT) == sent, "the deltas add up"
    assert [kind for name, kind, _ in lines if name == "push"].count("terminating") == 2


SENT = "org.apache.kafka.producer.record.send.total"
IDLE = "org.apache.kafka.consumer.poll.idle.ratio.avg"
WANTED = {
    SENT,
    IDLE,
    "org.apache.kafka.producer.node.request.latency.avg",
    "org.apache.kafka.producer.record.queue.time.max",
    "org.apache.kafka.consumer.connection.creation.total",
    "org.apache.kafka.consumer.coordinator.assigned.partitions",
    "org.apache.kafka.consumer.fetch.manager.fetch.latency.avg",
}


def pushes(received: Path) -> list[tuple[str, str, str]]:
    """Whole lines only: the broker may be writing."""
    text = received.read_text() if received.exists() else ""
    lines = text[: text.rfind(os.linesep) + 1].splitlines()
    return [(name, kind, value) for name, kind, value in (line.split() for line in lines)]
