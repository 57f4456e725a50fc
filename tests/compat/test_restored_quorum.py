"""A cluster with Apache Kafka's brokers whose controllers lost their disks: its metadata comes from an older copy."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest

from barnabas.cli.main import run
from tests.compat.mixed import KAFKA, OURS, MixedCluster, MixedNode
from tests.compat.test_mixed import PARTITIONS, RECORDS, TOPIC, TRANSACTIONAL_IDS, consume, create, produce, transact

pytestmark = [pytest.mark.compat, pytest.mark.client("java", "confluent-kafka")]

REPLICATED = {
    "offsets__topic__replication__factor": "3",
    "transaction__state__log__replication__factor": "3",
}


def delete(cluster: MixedCluster, topic: str) -> None:
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    for deleted in admin.delete_topics([topic]).values():
        deleted.result(30)


def ends_of(brokers: list[MixedNode], directory: Path) -> list[str]:
    """The options with the ends of the logs of stopped brokers."""
    words = []
    for broker in brokers:
        listed = directory / f"{broker.id}.ends"
        assert run(["storage", "log-ends", "--config", str(broker.config), "--to", str(listed)]) == 0
        words += ["--log-ends", str(listed)]
    return words


@pytest.mark.feature("OP-07", "KR-19")
@pytest.mark.parametrize("controller", [OURS, pytest.param(KAFKA, marks=pytest.mark.slow)])
def test_brokers_of_apache_kafka_go_on_with_restored_metadata(
    controller: str, libs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The copy is of a broker of Apache Kafka, made while it ran, and older than a topic, a deletion and an ISR."""
    with MixedCluster(libs, tmp_path) as cluster:
        quorum = cluster.add(controller, 101, "controller")
        voters = cluster.voters(quorum)
        quorum.config.write_text(f"{quorum.config.read_text()}controller.quorum.voters={voters}\n")
        brokers = [
            cluster.add(kind, 1 + at, "broker", controller__quorum__voters=voters, **REPLICATED)
            for at, kind in enumerate((KAFKA, KAFKA, OURS))
        ]
        theirs, behind, ours = brokers
        cluster.up(quorum, *brokers)
        cluster.wait_for_brokers(*brokers)
        for topic in (TOPIC, "gone"):
            create(cluster, topic, 3)
        produce(cluster, TOPIC, RECORDS)
        transact(cluster, TOPIC)
        before = RECORDS + PARTITIONS * len(TRANSACTIONAL_IDS)
        assert len(consume(cluster, TOPIC, "group", before)) == before
        copy = tmp_path / "copy"
        assert run(["storage", "backup", "--config", str(theirs.config), "--to", str(copy)]) == 0

        delete(cluster, "gone")
        create(cluster, "later", 3)
        produce(cluster, "later", RECORDS)
        cluster.wait_in_sync(ours, "later", 3)
        cluster.stop(behind, signal.SIGKILL)
        produce(cluster, TOPIC, RECORDS)
        for node in (quorum, theirs, ours):
            cluster.stop(node, signal.SIGKILL)

        words = ["--from", str(copy), "--cluster-id", cluster.cluster_id, *ends_of(brokers, tmp_path)]
        shutil.rmtree(quorum.data)
        capsys.readouterr()
        assert run(["storage", "restore", "--config", str(quorum.config), *words]) == 0
        out = capsys.readouterr().out
        assert "topic gone: no broker has a log of it, so it was deleted later: left out" in out
        assert f"topic later: was created later, has {PARTITIONS} partitions" in out
        # The one whose logs are shorter comes first, and may not lead what it lacks.
        for node in (quorum, behind, theirs, ours):
            cluster.start(node)
        cluster.wait_for_brokers(*brokers)
        for topic in (TOPIC, "later"):
            cluster.wait_in_sync(ours, topic, 3)
        values = consume(cluster, TOPIC, "group", RECORDS)
        assert sorted(map(int, values)) == list(range(RECORDS)), "the group goes on where it was"
        assert sorted(map(int, consume(cluster, "later", "others", RECORDS))) == list(range(RECORDS))
        produce(cluster, TOPIC, RECORDS)
        transact(cluster, TOPIC)
        create(cluster, "after", 3)
        kept = PARTITIONS * len(TRANSACTIONAL_IDS)
        every = consume(cluster, TOPIC, "all", 3 * RECORDS + 2 * kept)
        assert every.count(b"kept") == 2 * kept
        assert b"aborted" not in every
        assert sorted(map(int, filter(bytes.isdigit, every))) == sorted(3 * list(range(RECORDS)))
