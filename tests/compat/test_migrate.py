"""`barnabas migrate` moves a cluster of Apache Kafka's nodes onto ours, and back, under load."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import pytest

from barnabas.cli.main import run
from tests.compat.mixed import KAFKA, OURS, MixedCluster, MixedNode
from tests.compat.test_mixed import PARTITIONS, TRANSACTIONAL_IDS, active, consume, create, transact

pytestmark = [pytest.mark.compat, pytest.mark.client("java", "confluent-kafka")]

TOPIC = "moved"
WAITS_FOR_OPERATOR = 3
"""Exit code of `barnabas migrate`."""


class Load(threading.Thread):
    """An idempotent producer that never stops by itself; it keeps what was acknowledged."""

    def __init__(self, cluster: MixedCluster) -> None:
        super().__init__(daemon=True)
        self.acknowledged: list[bytes] = []
        self.errors: list[str] = []
        self.stopped = threading.Event()
        self._servers = cluster.bootstrap_servers

    def run(self) -> None:
        from confluent_kafka import KafkaError, Message, Producer

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                self.acknowledged.append(message.value())
            else:
                self.errors.append(str(error))

        settings = {"bootstrap.servers": self._servers, "acks": "all", "enable.idempotence": True, "linger.ms": 2}
        producer = Producer(settings)
        number = 0
        while not self.stopped.is_set():
            producer.produce(TOPIC, b"%d" % number, callback=delivered)
            producer.poll(0.002)
            number += 1
        assert producer.flush(60) == 0

    def finish(self) -> None:
        self.stopped.set()
        self.join(90)


def migrate(cluster: MixedCluster, capsys: pytest.CaptureFixture[str], *pairs: str) -> tuple[int, str]:
    code = run(["migrate", "-b", cluster.bootstrap_servers, *pairs])
    printed = capsys.readouterr()
    assert not printed.err, printed.err
    return code, printed.out


def join_as_observer(cluster: MixedCluster, node: MixedNode) -> None:
    words = ["-c", str(node.config), "-t", cluster.cluster_id, "--no-initial-controllers"]
    assert run(["storage", "format", *words]) == 0
    cluster.start(node)


@pytest.mark.feature("AD-06", "OP-05", "KR-14", "KR-19", "MB-19")
@pytest.mark.parametrize(("old", "new"), [(KAFKA, OURS), pytest.param(OURS, KAFKA, marks=pytest.mark.slow)])
def test_a_cluster_moves_to_nodes_of_the_other_kind(
    old: str, new: str, libs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with MixedCluster(libs, tmp_path) as cluster:
        quorum = ",".join(f"127.0.0.1:{cluster.base_port + at}" for at in (0, 2))
        places = {"controller__quorum__bootstrap__servers": quorum}
        old_controller = cluster.add(old, 401, "controller", **places)
        old_broker = cluster.add(old, 1, "broker", **places)
        cluster.format_standalone(old_controller)
        cluster.start(old_controller)
        cluster.up(old_broker)
        cluster.wait_for_brokers(old_broker)
        create(cluster, TOPIC, 1)
        transact(cluster, TOPIC)
        before = consume(cluster, TOPIC, "group", PARTITIONS * len(TRANSACTIONAL_IDS))
        assert set(before) == {b"kept"}

        new_controller = cluster.add(new, 402, "controller", **places)
        new_broker = cluster.add(new, 2, "broker", **places)
        load = Load(cluster)
        load.start()
        cluster.up(new_broker)
        join_as_observer(cluster, new_controller)
        cluster.wait_for_brokers(old_broker, new_broker)
        pairs = ("--brokers", "1=2", "--controllers", f"401=402@127.0.0.1:{new_controller.port}")
        wait_for_observer(cluster, pairs, capsys)
        code, printed = migrate(cluster, capsys, *pairs, "--at-once", "3")
        assert code == WAITS_FOR_OPERATOR, printed
        assert "add controller 402 to the voters\nremove controller 401 from the voters\n" in printed
        cluster.stop(old_broker)
        cluster.wait(lambda: migrate(cluster, capsys, *pairs)[0] == 0, "broker 1 is unregistered")
        cluster.stop(old_controller, signal.SIGKILL)
        assert active(cluster, [new_controller]) is new_controller
        create(cluster, "new", 1)
        load.finish()

        assert load.errors == []
        transact(cluster, TOPIC)
        kept = PARTITIONS * len(TRANSACTIONAL_IDS)
        after = consume(cluster, TOPIC, "group", len(load.acknowledged) + kept)
        assert after.count(b"kept") == kept, "the group goes on where it was"
        assert b"aborted" not in after
        assert sorted(map(int, filter(bytes.isdigit, after))) == sorted(map(int, load.acknowledged))


def wait_for_observer(cluster: MixedCluster, pairs: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """Until the new controller fetches the metadata log: before that the migration is refused."""

    def is_there() -> bool:
        code = run(["migrate", "-b", cluster.bootstrap_servers, *pairs, "--dry-run"])
        refused = capsys.readouterr().err
        assert code == 0 or "controller 402 does not fetch the metadata log" in refused, refused
        return code == 0

    cluster.wait(is_there, "controller 402 observes")
