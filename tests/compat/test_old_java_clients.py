"""Java clients of earlier releases on a cluster of Apache Kafka's nodes and ours, back to 2.1: Apache Kafka 4 serves
none that is older (KIP-896).
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat.available import ROOT
from tests.compat.java import FLAGS
from tests.compat.mixed import KAFKA, OURS, MixedCluster
from tests.compat.running_programs import compile_java

pytestmark = [pytest.mark.compat, pytest.mark.slow, pytest.mark.client("java")]

RELEASES = ("2.1.1", "2.8.2", "3.3.2", "3.9.1")
CLIENT_SECONDS = 300
IDEMPOTENT, COMMITTED = 100, 10


@pytest.fixture(scope="module")
def mixed(libs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedCluster]:
    with MixedCluster(libs, tmp_path_factory.mktemp("old-clients")) as cluster:
        controller = cluster.add(OURS, 301, "controller")
        voters = cluster.voters(controller)
        controller.config.write_text(f"{controller.config.read_text()}controller.quorum.voters={voters}\n")
        brokers = [
            cluster.add(kind, node_id, "broker", controller__quorum__voters=voters)
            for node_id, kind in ((1, KAFKA), (2, OURS))
        ]
        cluster.up(controller, *brokers)
        cluster.wait_for_brokers(*brokers, seconds=240)
        yield cluster


@pytest.fixture(scope="module")
def classes(libs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_java(tmp_path_factory.mktemp("classes"), libs)


def client_jar(release: str) -> Path:
    """Through Maven, once."""
    jar = ROOT / ".cache" / "kafka-clients" / f"kafka-clients-{release}.jar"
    if not jar.exists():
        done = subprocess.run(["tests/compat/old_clients.sh", release], cwd=ROOT, capture_output=True, check=False)
        if done.returncode:
            pytest.skip(f"Maven could not fetch kafka-clients {release}: {done.stderr.decode()[-300:]}")
    return jar


@pytest.mark.timeout(900, method="thread")
@pytest.mark.feature("KR-19", "PF-20")
@pytest.mark.parametrize("release", RELEASES)
def test_a_client_of_an_earlier_release_writes_and_reads(
    release: str, mixed: MixedCluster, classes: Path, libs: Path
) -> None:
    """Its group reads each acknowledged record once, and no aborted one."""
    paths = (classes, client_jar(release), *libs.glob("slf4j-api-*.jar"))
    words = ("OldClient", mixed.bootstrap_servers, f"from-{release}", "2")
    command = ["java", *FLAGS, "-cp", os.pathsep.join(map(str, paths)), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=CLIENT_SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    expected = [f"idempotent-{number}" for number in range(IDEMPOTENT)]
    expected += [f"committed-{number}" for number in range(COMMITTED)]
    assert done.stdout.split() == sorted(expected)
