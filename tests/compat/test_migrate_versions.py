"""`barnabas migrate` from earlier releases of Apache Kafka, with their own jars."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from barnabas.cli.main import run
from tests.compat.available import ROOT
from tests.compat.mixed import KAFKA, OURS, MixedCluster, MixedNode
from tests.compat.test_migrate import TOPIC, WAITS_FOR_OPERATOR, Load, join_as_observer, migrate, wait_for_observer
from tests.compat.test_mixed import PARTITIONS, TRANSACTIONAL_IDS, active, consume, create, transact

pytestmark = [pytest.mark.compat, pytest.mark.slow, pytest.mark.client("java", "confluent-kafka")]

RELEASES = {"3.9.1": "3.9", "4.0.0": "4.0", "4.1.1": "4.1", "4.2.0": "4.2"}
"""Release whose jars are used, and its metadata.version."""
STATIC = ("3.9.1",)
"""Their quorum has fixed voters: brokers move, controllers stay."""
SLOW_SECONDS = 240.0


def jars(release: str) -> Path:
    """Through Maven, once."""
    target = ROOT / ".cache" / f"kafka-{release}"
    if not (target / "complete").exists():
        done = subprocess.run(["tests/compat/older_kafka.sh", release], cwd=ROOT, capture_output=True, check=False)
        if done.returncode:
            pytest.skip(f"Maven could not fetch Apache Kafka {release}: {done.stderr.decode()[-300:]}")
    return target


def format_as(cluster: MixedCluster, release: str, node: MixedNode, *more: str) -> None:
    words = ["-c", str(node.config), "-t", cluster.cluster_id, "--release-version", RELEASES[release], *more]
    assert run(["storage", "format", *words]) == 0


@pytest.mark.timeout(900, method="thread")
@pytest.mark.feature("OP-05", "KR-14", "MB-19")
@pytest.mark.parametrize("release", RELEASES)
def test_a_cluster_of_an_earlier_release_moves_to_ours(
    release: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    is_static = release in STATIC
    with MixedCluster(jars(release), tmp_path) as cluster:
        quorum = ",".join(f"127.0.0.1:{cluster.base_port + at}" for at in (0, 2))
        places = {"controller__quorum__bootstrap__servers": quorum}
        if is_static:
            places = {"controller__quorum__voters": f"401@127.0.0.1:{cluster.base_port}"}
        old_controller = cluster.add(KAFKA, 401, "controller", **places)
        old_broker = cluster.add(KAFKA, 1, "broker", **places)
        format_as(cluster, release, old_controller, *(() if is_static else ("--standalone",)))
        format_as(cluster, release, old_broker)
        cluster.start(old_controller)
        cluster.start(old_broker)
        cluster.wait_for_brokers(old_broker, seconds=SLOW_SECONDS)
        create(cluster, TOPIC, 1)
        transact(cluster, TOPIC)
        kept = PARTITIONS * len(TRANSACTIONAL_IDS)

        load = Load(cluster)
        load.start()
        pairs = ["--brokers", "1=2"]
        if not is_static:
            new_controller = cluster.add(OURS, 402, "controller", **places)
            join_as_observer(cluster, new_controller)
            pairs += ["--controllers", f"401=402@127.0.0.1:{new_controller.port}"]
        new_broker = cluster.add(OURS, 2, "broker", **places)
        cluster.up(new_broker)
        cluster.wait_for_brokers(old_broker, new_broker, seconds=SLOW_SECONDS)
        if not is_static:
            wait_for_observer(cluster, tuple(pairs), capsys)
        code, printed = migrate(cluster, capsys, *pairs, "--at-once", "3", "--timeout", "120")
        assert code == WAITS_FOR_OPERATOR, printed
        cluster.stop(old_broker)
        cluster.wait(lambda: migrate(cluster, capsys, *pairs)[0] == 0, "broker 1 is unregistered", SLOW_SECONDS)
        if not is_static:
            cluster.stop(old_controller, signal.SIGKILL)
            assert active(cluster, [new_controller]) is new_controller
        create(cluster, "new", 1)
        load.finish()

        assert load.errors == []
        transact(cluster, TOPIC)
        # 3.9 has groups of the new protocol as a preview only.
        protocol = "classic" if is_static else "consumer"
        after = consume(cluster, TOPIC, "group", len(load.acknowledged) + 2 * kept, protocol)
        assert after.count(b"kept") == 2 * kept
        assert b"aborted" not in after
        assert sorted(map(int, filter(bytes.isdigit, after))) == sorted(map(int, load.acknowledged))
