"""Kafka's consumer reads a compacted topic as a table whose old part is in the store, while it is compacted there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from barnabas.sync import Producer
from tests.compat.java import Java
from tests.compat.running import QUICK_GROUPS, RunningCluster

pytestmark = [pytest.mark.compat, pytest.mark.client("java"), pytest.mark.feature("TS-05", "TS-06", "CR-03")]

KEYS = 60
TABLE = {
    "cleanup.policy": "compact",
    "remote.storage.enable": "true",
    "internal.segment.bytes": "10000",
    "local.retention.bytes": "1",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "2000",
    "file.delete.delay.ms": "0",
}
SETTINGS = {
    "remote.log.storage.system.enable": "true",
    "barnabas.remote.storage.compacted.enable": "true",
    "remote.log.manager.task.interval.ms": "500",
    "log.retention.check.interval.ms": "500",
    "log.cleaner.backoff.ms": "300",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def cluster(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    settings = {**QUICK_GROUPS, **SETTINGS, "barnabas.remote.store.url": f"file://{store}"}
    cluster = RunningCluster.start_new(tmp_path_factory.mktemp("cluster"), settings)
    yield cluster
    assert cluster.down() == []


@pytest.fixture(scope="module")
def tools(cluster: RunningCluster, libs: Path, tmp_path_factory: pytest.TempPathFactory) -> Java:
    return Java(libs, cluster.bootstrap_servers).with_archive(tmp_path_factory.mktemp("java") / "classes.jsa")


def write(cluster: RunningCluster, topic: str, table: Mapping[str, str | None]) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for key, value in table.items():
            padded = None if value is None else value.ljust(500, "x").encode()
            producer.send(topic, padded, key=key.encode(), partition=0)


def local_start(cluster: RunningCluster, topic: str) -> int:
    """The first offset on any disk."""
    starts = []
    for broker in ("broker-1", "broker-2", "broker-3"):
        names = cluster.partition_directory(broker, topic, 0).glob("*.log")
        starts.append(min((int(path.stem) for path in names), default=0))
    return min(starts)


def records(tools: Java, topic: str) -> list[tuple[int, str, str]]:
    """(offset, key, value) of all records, from the beginning to the end."""
    where = ("--topic", topic, "--partition", "0", "--offset", "0", "--timeout-ms", "8000")
    shown = [word for each in ("print.key", "print.offset") for word in ("--formatter-property", f"{each}=true")]
    found = []
    for line in tools.ask("console-consumer", *where, *shown, expected="terminating consumer process").lines:
        offset, key, value = line.split("\t")
        found.append((int(offset.removeprefix("Offset:")), key, value.rstrip("x")))
    return found


def table(found: list[tuple[int, str, str]]) -> dict[str, str]:
    values: dict[str, str] = {}
    for _, key, value in found:
        values[key] = value
        if value == "null":
            del values[key]
    return values


def test_the_consumer_reads_a_table_across_the_seam_and_what_is_void_leaves_the_store(
    tools: Java, cluster: RunningCluster, store: Path
) -> None:
    topic = cluster.create_topic("users", configs=TABLE)
    write(cluster, topic, {f"k{number:03}": "first" for number in range(KEYS)})
    cluster.wait_for("the first part is only in the store", lambda: local_start(cluster, topic) > KEYS // 2)
    expected = {f"k{number:03}": "first" for number in range(KEYS)}
    assert table(records(tools, topic)) == expected

    changes = {f"k{number:03}": None if number % 4 == 0 else "second" for number in range(0, KEYS, 2)}
    write(cluster, topic, changes)
    expected = {key: value for key, value in (expected | changes).items() if value is not None}
    cluster.wait_for("the changes are only in the store", lambda: local_start(cluster, topic) > KEYS + 10)
    write(cluster, topic, {"last": "1"})
    expected["last"] = "1"

    def is_compacted() -> bool:
        """The first changes are clean, and so remote, on all brokers."""
        left = [int(key[1:]) for offset, key, _ in records(tools, topic) if offset < KEYS]
        return all(number % 2 for number in left if number < 20)

    cluster.wait_for("older values are gone from the store", is_compacted, 90)
    assert table(records(tools, topic)) == expected
    brokers = ["broker-1", "broker-2", "broker-3"]
    cluster.kill(*brokers)
    cluster.start(*brokers)
    cluster.wait_ready()
    assert table(records(tools, topic)) == expected


def test_a_compacted_topic_that_exists_becomes_tiered(tools: Java, cluster: RunningCluster) -> None:
    tiering = ("remote.storage.enable", "local.retention.bytes")
    before = {key: value for key, value in TABLE.items() if key not in tiering}
    topic = cluster.create_topic("cities", configs={**before, "min.cleanable.dirty.ratio": "0.5"})
    write(cluster, topic, {f"k{number:03}": "first" for number in range(KEYS)})
    changes = {f"k{number:03}": None if number % 4 == 0 else "second" for number in range(0, KEYS, 2)}
    write(cluster, topic, changes)
    written = {f"k{number:03}": "first" for number in range(KEYS)} | changes
    expected = {key: value for key, value in written.items() if value is not None}
    entity = ("--entity-type", "topics", "--entity-name", topic)
    tools.ask("configs", "--alter", *entity, "--add-config", "remote.storage.enable=true,local.retention.ms=1")
    # Nothing more is written: the active segment is closed, and cleaned, for the copy.
    cluster.wait_for("all of it is only in the store", lambda: local_start(cluster, topic) >= KEYS + len(changes))
    assert table(records(tools, topic)) == expected

    off = "remote.storage.enable=false,remote.log.delete.on.disable=true"
    tools.ask("configs", "--alter", *entity, "--add-config", off)
    refused = tools.ask("configs", "--alter", *entity, "--add-config", "remote.storage.enable=true", code=1)
    assert "a compacted topic is not tiered again" in refused.err
