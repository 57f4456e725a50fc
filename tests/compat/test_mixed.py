"""Clusters in which some nodes are Apache Kafka 4.3.1 and some are ours."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.compat.java import Java
from tests.compat.mixed import KAFKA, OURS, MixedCluster, MixedNode, differing, segments

pytestmark = [pytest.mark.compat, pytest.mark.client("java", "confluent-kafka")]

TOPIC = "mixed"
PARTITIONS = 4
RECORDS = 1500
TRANSACTIONAL_IDS = ("a", "b", "c", "d")


def create(cluster: MixedCluster, topic: str, replicas: int, seconds: float = 30) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    wanted = NewTopic(topic, PARTITIONS, replicas, config={"min.insync.replicas": "1"})
    for created in admin.create_topics([wanted]).values():
        created.result(seconds)


def produce(cluster: MixedCluster, topic: str, count: int, during: Callable[[], None] | None = None) -> None:
    """`count` records, all acknowledged, no two of them twice; `during` runs in the middle."""
    from confluent_kafka import Producer

    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "enable.idempotence": True, "linger.ms": 2}
    )
    errors: list[str] = []
    thread = None if during is None else threading.Thread(target=during)
    for number in range(count):
        producer.produce(topic, b"%d" % number, callback=lambda error, _: errors.append(str(error)) if error else None)
        producer.poll(0.001 if thread is not None else 0)
        if number == count // 3 and thread is not None:
            thread.start()
    assert producer.flush(60) == 0
    if thread is not None:
        thread.join()
    assert errors == []


def consume(cluster: MixedCluster, topic: str, group: str, count: int, protocol: str = "consumer") -> list[bytes]:
    """The committed values, by a group; by default one of the new protocol (KIP-848)."""
    from confluent_kafka import Consumer

    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([topic])
    values: list[bytes] = []
    idle = 0
    while idle < (2 if len(values) >= count else 40):
        message = consumer.poll(0.5)
        if message is None or message.error():
            idle += 1
        else:
            values.append(message.value())
    consumer.commit(asynchronous=False)
    consumer.close()
    return values


def transact(cluster: MixedCluster, topic: str) -> None:
    """One committed and one aborted transaction of each id; the ids have coordinators on all brokers."""
    from confluent_kafka import Producer

    for name in TRANSACTIONAL_IDS:
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": name})
        producer.init_transactions(40)
        for value, end in ((b"kept", producer.commit_transaction), (b"aborted", producer.abort_transaction)):
            producer.begin_transaction()
            for partition in range(PARTITIONS):
                producer.produce(topic, value, partition=partition)
            producer.flush(20)
            end(40)


@pytest.mark.feature("KR-19", "MB-01")
@pytest.mark.parametrize("controller", [OURS, pytest.param(KAFKA, marks=pytest.mark.slow)])
def test_brokers_of_both_kinds_share_partitions(controller: str, libs: Path, tmp_path: Path) -> None:
    """Both lead, follow and coordinate; each is stopped or killed under load; their files are the same bytes."""
    with MixedCluster(libs, tmp_path) as cluster:
        one = cluster.add(controller, 101, "controller")
        voters = cluster.voters(one)
        one.config.write_text(f"{one.config.read_text()}controller.quorum.voters={voters}\n")
        theirs = cluster.add(KAFKA, 1, "broker", controller__quorum__voters=voters)
        ours = cluster.add(OURS, 2, "broker", controller__quorum__voters=voters)
        cluster.up(one, theirs, ours)
        cluster.wait_for_brokers(theirs, ours)
        create(cluster, TOPIC, 2)
        cluster.wait_in_sync(ours, TOPIC, 2)
        assert {leader for leader, _ in cluster.in_sync(ours, TOPIC).values()} == {1, 2}
        produce(cluster, TOPIC, RECORDS)
        transact(cluster, TOPIC)
        for node, number in ((theirs, signal.SIGTERM), (ours, signal.SIGKILL)):
            produce(cluster, TOPIC, RECORDS, lambda node=node, number=number: cluster.stop(node, number))  # type: ignore[misc]
            cluster.start(node)
            cluster.wait_for_brokers(theirs, ours)
            cluster.wait_in_sync(ours, TOPIC, 2)
        kept = PARTITIONS * len(TRANSACTIONAL_IDS)
        values = consume(cluster, TOPIC, "group", 3 * RECORDS + kept)
        assert values.count(b"kept") == kept
        assert b"aborted" not in values
        assert sorted(map(int, filter(bytes.isdigit, values))) == sorted(3 * list(range(RECORDS)))
        assert list(differing(segments(theirs, TOPIC), segments(ours, TOPIC))) == []


@pytest.mark.feature("KR-19", "KR-02")
def test_controllers_of_both_kinds_are_one_quorum(libs: Path, tmp_path: Path) -> None:
    """Either kind leads, and is killed; the metadata logs are the same bytes."""
    with MixedCluster(libs, tmp_path) as cluster:
        controllers = [cluster.add(kind, 301 + at, "controller") for at, kind in enumerate((OURS, OURS, KAFKA))]
        theirs = controllers[2]
        voters = cluster.voters(*controllers)
        for node in controllers:
            node.config.write_text(f"{node.config.read_text()}controller.quorum.voters={voters}\n")
        broker = cluster.add(OURS, 1, "broker", controller__quorum__voters=voters)
        cluster.up(*controllers, broker)
        cluster.wait_for_brokers(broker)
        leader = active(cluster, controllers)
        if leader is not theirs:
            # One of ours misses the newest records, so that it cannot be elected when the leader ends.
            behind = controllers[1] if leader is controllers[0] else controllers[0]
            cluster.stop(behind)
            create(cluster, "first", 1)
            cluster.stop(leader)
            cluster.start(behind)
            assert active(cluster, [theirs, behind]) is theirs
            cluster.start(leader)
            cluster.wait(lambda: cluster.leader_of_quorum(leader) == theirs.id, f"{leader.id} follows")
        create(cluster, "decided-by-kafka", 1)
        produce(cluster, "decided-by-kafka", RECORDS, lambda: cluster.stop(theirs, signal.SIGKILL))
        assert active(cluster, controllers[:2]).kind == OURS
        create(cluster, "decided-by-us", 1)
        cluster.start(theirs)
        cluster.wait(lambda: cluster.leader_of_quorum(theirs) > 0, "Apache Kafka follows")
        wait_for_topic(cluster, controllers, b"decided-by-us")
        for node in (broker, *controllers):
            cluster.stop(node)
        logs = [segments(node, "__cluster_metadata") for node in controllers]
        (name,) = logs[0]
        length = min(len(log[name]) for log in logs)
        assert logs[0][name][:length] == logs[1][name][:length] == logs[2][name][:length]
        assert b"decided-by-us" in logs[2][name][:length]


def active(cluster: MixedCluster, among: list[MixedNode]) -> MixedNode:
    """The active controller, as all of these say."""

    def leaders() -> set[int]:
        return {cluster.leader_of_quorum(node) for node in among}

    ids = {node.id for node in among}
    cluster.wait(lambda: len(leaders()) == 1 and leaders() <= ids, f"a leader among {sorted(ids)}")
    return cluster.nodes[leaders().pop()]


def wait_for_topic(cluster: MixedCluster, nodes: list[MixedNode], name: bytes) -> None:
    """All have the record on disk."""
    cluster.wait(
        lambda: all(any(name in log for log in segments(node, "__cluster_metadata").values()) for node in nodes),
        f"{name!r} in the metadata logs",
    )


@pytest.mark.feature("KR-19", "KR-14", "MB-01")
@pytest.mark.parametrize(("controller", "broker"), [(KAFKA, OURS), (OURS, KAFKA)])
def test_a_broker_joins_the_quorum_of_kafkas_quick_start(
    controller: str, broker: str, libs: Path, tmp_path: Path
) -> None:
    """`kafka-storage format --standalone` makes kraft.version 1 and no voters in any file."""
    with MixedCluster(libs, tmp_path) as cluster:
        address = f"127.0.0.1:{cluster.base_port}"
        quorum = cluster.add(controller, 401, "controller", controller__quorum__bootstrap__servers=address)
        joining = cluster.add(broker, 2, "broker", controller__quorum__bootstrap__servers=address)
        cluster.format_standalone(quorum)
        cluster.start(quorum)
        cluster.up(joining)
        cluster.wait_for_brokers(joining)
        create(cluster, TOPIC, 1)
        produce(cluster, TOPIC, RECORDS)
        transact(cluster, TOPIC)
        values = consume(cluster, TOPIC, "group", RECORDS + PARTITIONS * len(TRANSACTIONAL_IDS))
        assert b"aborted" not in values
        assert sorted(map(int, filter(bytes.isdigit, values))) == list(range(RECORDS))
        # The controller is killed and comes back: the broker finds it again by what it learned.
        cluster.stop(quorum, signal.SIGKILL)
        cluster.start(quorum)
        create(cluster, "later", 1)
        cluster.stop(joining)


@pytest.mark.feature("KR-18", "ST-20")
def test_a_combined_node_is_run_by_us_and_by_kafka_in_turn(libs: Path, tmp_path: Path) -> None:
    """One directory and one file, formatted by Apache Kafka's own tool: both of them open what the other wrote."""
    with MixedCluster(libs, tmp_path) as cluster:
        node = cluster.add_combined(1)
        cluster.format_standalone(node)
        written = 0
        for turn, kind in enumerate((OURS, KAFKA, OURS)):
            node.kind = kind
            cluster.start(node)
            cluster.wait_for_brokers(node)
            if turn == 0:
                create(cluster, TOPIC, 1)
            produce(cluster, TOPIC, RECORDS)
            transact(cluster, TOPIC)
            written += RECORDS + PARTITIONS * len(TRANSACTIONAL_IDS)
            assert len(consume(cluster, TOPIC, f"group-{turn}", written)) == written
            if kind == OURS:
                java = Java(libs, f"127.0.0.1:{node.port}")
                quorum = java.ask("metadata-quorum", "describe", "--status").out
                assert re.search(r"LeaderId: +1\n", quorum), quorum
                assert re.search(r"CurrentVoters: .*\"id\": 1", quorum), quorum
                features = java.ask("features", "describe").out
                assert re.search(r"kraft.version.*FinalizedVersionLevel: 1", features), features
            cluster.stop(node)
        names = {path.name for path in node.data.iterdir()}
        assert {"__cluster_metadata-0", "meta.properties", f"{TOPIC}-0"} <= names
