"""`barnabas migrate` on real processes under load: a broker is replaced by another one, and comes back."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.cli.main import run
from barnabas.cluster.layout import LOCAL_SHAPE
from barnabas.cluster.local import LocalCluster
from barnabas.cluster.ports import free_base_port
from barnabas.sync import Admin, Consumer, Producer
from tests.eventually import eventually

TOPIC = "flights"
PARTITIONS = 30


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """One controller and four brokers."""
    shape = tmp_path / "shape"
    shape.mkdir()
    texts = {path.name: path.read_text() for path in LOCAL_SHAPE.glob("*.properties")}
    voters = "101@127.0.0.1:9192,102@127.0.0.1:9193,103@127.0.0.1:9194"
    texts["broker-4.properties"] = (
        texts["broker-3.properties"]
        .replace("node.id=3", "node.id=4")
        .replace("rack-3", "rack-4")
        .replace("9094", "9095")
        .replace("9294", "9295")
        .replace("broker-3", "broker-4")
    )
    for name, text in texts.items():
        if name not in ("controller-102.properties", "controller-103.properties"):
            (shape / name).write_text(text.replace(voters, "101@127.0.0.1:9192"))
    cluster = LocalCluster(tmp_path / "data", free_base_port(), config_dir=shape)
    cluster.up()
    try:
        cluster.wait_ready()
        yield cluster
    finally:
        cluster.down()


class Load:
    """A producer that sends until it is stopped, and knows what was acknowledged."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.acknowledged: list[bytes] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._send, args=(bootstrap_servers,))

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _send(self, bootstrap_servers: str) -> None:
        with Producer(bootstrap_servers=bootstrap_servers, acks="all") as producer:
            while not self._stopped.is_set():
                value = b"%d" % len(self.acknowledged)
                producer.send(TOPIC, value, key=value)
                self.acknowledged.append(value)


def migrate(cluster: LocalCluster, pairs: str, *more: str) -> int:
    where = ["--bootstrap-server", cluster.bootstrap_servers]
    return run(["migrate", "--brokers", pairs, *where, "--at-once", "7", *more])


def brokers_of(cluster: LocalCluster) -> set[int]:
    """Brokers with replicas, internal topics included."""
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        topics = admin.describe_topics(list(admin.list_topics(list_internal=True)))
        return {broker for topic in topics.values() for part in topic.partitions for broker in part.replicas}


def registered(cluster: LocalCluster) -> dict[int, bool]:
    """Registered brokers; True for fenced ones."""
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        described = admin.describe_cluster(include_fenced_brokers=True)
        return {node.node_id: node.is_fenced for node in described.nodes}


@pytest.mark.feature("OP-05", "MB-19")
def test_a_broker_is_replaced_and_comes_back_under_load(
    cluster: LocalCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        from barnabas.client.admin import NewTopic

        assignment = {number: [1, 2, 3] if number % 2 else [3, 1, 2] for number in range(PARTITIONS)}
        admin.create_topics(NewTopic(TOPIC, replica_assignments=assignment))
    with Load(cluster.bootstrap_servers) as load:
        eventually(lambda: len(load.acknowledged) > 20)
        assert migrate(cluster, "3=4", "--dry-run") == 0
        assert "move 30 replicas from broker 3 to broker 4, 7 at a time" in capsys.readouterr().out
        assert 3 in brokers_of(cluster), "nothing has moved yet"

        assert migrate(cluster, "3=4") == 3
        printed = capsys.readouterr().out
        assert printed.endswith("brokers 3 have no replicas any longer: stop them; then run this command again\n")
        assert brokers_of(cluster) <= {1, 2, 4}
        cluster.stop("broker-3")
        eventually(lambda: registered(cluster)[3])
        assert migrate(cluster, "3=4") == 0
        assert capsys.readouterr().out == "unregister broker 3\nthe migration is complete\n"
        assert registered(cluster) == {1: False, 2: False, 4: False}

        cluster.start("broker-3")
        eventually(lambda: registered(cluster).get(3) is False)
        assert migrate(cluster, "4=3", "--throttle", "100000000") == 3
        assert brokers_of(cluster) == {1, 2, 3}
    where = {"bootstrap_servers": cluster.bootstrap_servers, "group_id": "account"}
    with Consumer(TOPIC, auto_offset_reset="earliest", **where) as consumer:
        found = [next(iter(consumer)).value for _ in load.acknowledged]
    assert sorted(found, key=int) == load.acknowledged, "each record once"
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        parts = admin.describe_topics([TOPIC])[TOPIC].partitions
    assert all(part.leader == part.replicas[0] for part in parts)
