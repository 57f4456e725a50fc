"""Kafka's own consumer and tools on tiered topics: old records come from the store, new ones from the brokers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.sync import Producer
from tests.compat.java import Java
from tests.compat.running import QUICK_GROUPS, RunningCluster

pytestmark = [pytest.mark.compat, pytest.mark.client("java")]

TIERED = {
    "remote.storage.enable": "true",
    "internal.segment.bytes": "20000",
    "local.retention.bytes": "1",
    "retention.ms": "-1",
    "file.delete.delay.ms": "0",
}
TRANSACTIONS = 60
BYTES = 1_000


@pytest.fixture(scope="module")
def tiered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    store = tmp_path_factory.mktemp("store")
    settings = {
        "remote.log.storage.system.enable": "true",
        "barnabas.remote.store.url": f"file://{store}",
        "remote.log.manager.task.interval.ms": "500",
        "log.retention.check.interval.ms": "500",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "2",
    }
    cluster = RunningCluster.start_new(tmp_path_factory.mktemp("cluster"), {**QUICK_GROUPS, **settings})
    yield cluster
    assert cluster.down() == []


@pytest.fixture(scope="module")
def tools(tiered: RunningCluster, libs: Path, tmp_path_factory: pytest.TempPathFactory) -> Java:
    return Java(libs, tiered.bootstrap_servers).with_archive(tmp_path_factory.mktemp("java") / "classes.jsa")


@pytest.fixture(scope="module")
def topic(tiered: RunningCluster) -> str:
    """Transactions of three records; every third is aborted. Most of it is only in the store when this returns."""
    name = tiered.create_topic("tiered", configs=TIERED)
    with Producer(bootstrap_servers=tiered.bootstrap_servers, transactional_id="tiers") as producer:
        for number in range(TRANSACTIONS):
            producer.begin_transaction()
            for _ in range(3):
                value = f"{number:05} ".ljust(BYTES, "x").encode()
                producer.send(name, value, partition=0, timestamp_ms=1_000 + number)
            if number % 3:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
    tiered.wait_for("all brokers have only the end", lambda: local_start(tiered, name) > TRANSACTIONS * 2)
    return name


def local_start(cluster: RunningCluster, topic: str) -> int:
    """The first offset on any disk."""
    starts = []
    for broker in ("broker-1", "broker-2", "broker-3"):
        names = cluster.partition_directory(broker, topic, 0).glob("*.log")
        starts.append(min((int(path.stem) for path in names), default=0))
    return min(starts)


def consumed(tools: Java, topic: str, count: int, isolation: str) -> list[str]:
    where = ("--topic", topic, "--partition", "0", "--offset", "0", "--max-messages", str(count))
    printed = tools.ask("console-consumer", *where, "--timeout-ms", "30000", "--isolation-level", isolation)
    return [line.split()[0] for line in printed.lines]


@pytest.mark.feature("TS-06", "CL-06")
def test_the_consumer_reads_across_the_seam(tools: Java, topic: str) -> None:
    everything = [f"{number:05}" for number in range(TRANSACTIONS) for _ in range(3)]
    assert consumed(tools, topic, len(everything), "read_uncommitted") == everything
    committed = [number for number in everything if int(number) % 3]
    assert consumed(tools, topic, len(committed), "read_committed") == committed


@pytest.mark.feature("TS-09", "TO-09")
def test_kafka_get_offsets_knows_both_tiers(tools: Java, tiered: RunningCluster, topic: str) -> None:
    def offset(when: str) -> int:
        [line] = tools.ask("get-offsets", "--topic", topic, "--time", when).lines
        return int(line.rpartition(":")[2])

    end = TRANSACTIONS * 4
    assert (offset("earliest"), offset("latest")) == (0, end)
    assert local_start(tiered, topic) <= offset("earliest-local") <= end
    copied = offset("latest-tiered")
    assert offset("earliest-local") <= copied + 1
    assert offset("-6") == copied + 1
    assert offset("1000") == 0
    # The marker of the first transaction has the time of the broker, and Kafka finds it, too.
    assert offset("1001") == 3


@pytest.mark.feature("TS-08")
def test_a_new_replica_downloads_nothing_that_is_remote(tools: Java, tiered: RunningCluster, tmp_path: Path) -> None:
    name = tiered.create_topic("moved", replicas=1, configs={**TIERED, "min.insync.replicas": "1"})
    with Producer(bootstrap_servers=tiered.bootstrap_servers) as producer:
        for number in range(200):
            producer.send(name, f"{number:05} ".ljust(BYTES, "x").encode(), partition=0)
    [found] = tiered.partitions(name)
    [old] = found.replicas
    began = time.monotonic()
    tiered.wait_for("it has only the end", lambda: first_offset(tiered, old, name) > 100)
    new = old % 3 + 1
    plan = tmp_path / "plan.json"
    plan.write_text(f'{{"version":1,"partitions":[{{"topic":"{name}","partition":0,"replicas":[{new}]}}]}}')
    tools.ask("reassign-partitions", "--execute", "--reassignment-json-file", str(plan))
    tiered.wait_for("it has moved", lambda: list(tiered.partitions(name)[0].replicas) == [new])
    assert first_offset(tiered, new, name) > 100
    assert consumed(tools, name, 200, "read_uncommitted") == [f"{number:05}" for number in range(200)]
    assert time.monotonic() - began < 120


def first_offset(cluster: RunningCluster, broker: int, topic: str) -> int:
    names = cluster.partition_directory(f"broker-{broker}", topic, 0).glob("*.log")
    return min((int(path.stem) for path in names), default=0)


@pytest.mark.feature("TS-01", "TS-02", "TO-09", "AD-02")
def test_kafka_topics_and_kafka_configs_tier_a_topic_and_are_refused_what_makes_no_sense(tools: Java) -> None:
    create = ("--create", "--topic", "by-tools", "--partitions", "1", "--replication-factor", "3")
    tiers = ("--config", "remote.storage.enable=true", "--config", "local.retention.ms=60000")
    assert "Created topic by-tools." in tools.ask("topics", *create, *tiers).out
    described = tools.ask("topics", "--describe", "--topic", "by-tools").lines[0]
    assert "remote.storage.enable=true" in described
    entity = ("--entity-type", "topics", "--entity-name", "by-tools")
    for wrong in (
        "cleanup.policy=compact",
        "retention.ms=1000",
        "remote.log.copy.disable=true",
        "remote.storage.enable=false",
    ):
        refused = tools.ask("configs", "--alter", *entity, "--add-config", wrong, code=1)
        assert "InvalidConfigurationException" in refused.err, wrong
    off = "remote.storage.enable=false,remote.log.delete.on.disable=true"
    tools.ask("configs", "--alter", *entity, "--add-config", off)
    printed = tools.ask("configs", "--describe", *entity).out
    assert "remote.storage.enable=false" in printed
