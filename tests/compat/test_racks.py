"""A consumer in a rack reads from the replica there (KIP-392)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.settings.broker import RACK_AWARE_SELECTOR
from tests.compat.running import RunningCluster

pytestmark = pytest.mark.compat

TIMEOUT_SECONDS = 30
RECORDS = 500


@pytest.fixture
def racked(tmp_path: Path) -> Iterator[RunningCluster]:
    cluster = RunningCluster.start_new(tmp_path / "cluster", {"replica.selector.class": RACK_AWARE_SELECTOR})
    yield cluster
    cluster.down()


@pytest.mark.client("confluent-kafka")
@pytest.mark.feature("RE-15")
def test_a_consumer_is_sent_to_its_rack_and_back_to_the_leader(racked: RunningCluster) -> None:
    topic = racked.create_topic("near")
    leader = int(racked.leader_of(topic, 0).removeprefix("broker-"))
    racks = racks_of(racked)
    near = next(broker for broker in racks if broker != leader)
    produce(racked, topic, 0)
    reader = Reader(racked, topic, racks[near])
    reader.read_to(RECORDS)
    reader.poll_until(lambda: reader.reads_from == near)

    produce(racked, topic, RECORDS)
    reader.read_to(2 * RECORDS)
    assert reader.reads_from == near

    racked.kill(f"broker-{near}")
    produce(racked, topic, 2 * RECORDS)
    reader.read_to(3 * RECORDS)
    assert reader.seen == [f"{number}" for number in range(3 * RECORDS)]
    reader.close()


def racks_of(cluster: RunningCluster) -> dict[int, str]:
    from confluent_kafka.admin import AdminClient

    administrator = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    described = administrator.describe_cluster().result(TIMEOUT_SECONDS)
    return {node.id: node.rack for node in described.nodes}


def produce(cluster: RunningCluster, topic: str, first: int) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    for number in range(first, first + RECORDS):
        producer.produce(topic, f"{number}".encode(), partition=0)
    assert producer.flush(TIMEOUT_SECONDS) == 0


class Reader:
    """One consumer, and which broker its client says it reads from."""

    def __init__(self, cluster: RunningCluster, topic: str, rack: str) -> None:
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        self.seen: list[str] = []
        self.reads_from: int | None = None
        self._topic = topic
        self._consumer: Any = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": "near",
                "client.rack": rack,
                "enable.auto.commit": False,
                "statistics.interval.ms": 100,
                "stats_cb": self._statistics,
            }
        )
        self._consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])

    def _statistics(self, text: str) -> None:
        partition = json.loads(text)["topics"].get(self._topic, {}).get("partitions", {}).get("0")
        if partition is not None:
            self.reads_from = partition["broker"]

    def read_to(self, count: int) -> None:
        self.poll_until(lambda: len(self.seen) >= count)

    def poll_until(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not holds():
            assert time.monotonic() < deadline, f"{len(self.seen)} records seen, from broker {self.reads_from}"
            for message in self._consumer.consume(1000, 0.05):
                if message.error() is None:
                    self.seen.append(message.value().decode())

    def close(self) -> None:
        self._consumer.close()
