"""A node that is started with a directory of another cluster, perhaps of an earlier one on the same disks."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.cli.main import run
from barnabas.cluster.ports import free_base_port
from tests.barnabas.client.admin.dynamic_quorum import CLUSTER_ID, DynamicQuorum

pytestmark = pytest.mark.feature("OP-05", "KR-15")
OLD_ID = "zVEcfC9tSc6w6rJ4s5XZeA"
SECONDS = 60.0


@pytest.fixture
def quorum(tmp_path: Path) -> Iterator[DynamicQuorum]:
    made = DynamicQuorum(tmp_path)
    made.start(1, "--standalone")
    yield made
    made.stop()


def broker_config(quorum: DynamicQuorum, path: Path, *directories: str) -> str:
    file = path / "broker.properties"
    port = free_base_port((0,))
    file.write_text(
        f"process.roles=broker\nnode.id=7\ncontroller.listener.names=CONTROLLER\n"
        f"listeners=PLAINTEXT://127.0.0.1:{port}\nlog.dirs={','.join(f'{path}/{each}' for each in directories)}\n"
        f"controller.quorum.bootstrap.servers={quorum.servers}\ninitial.broker.registration.timeout.ms=4000\n"
    )
    return str(file)


def start(config: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "barnabas.broker", config]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)


def last_line(ended: subprocess.CompletedProcess[str]) -> str:
    assert "Traceback" not in ended.stdout + ended.stderr
    return (ended.stdout + ended.stderr).strip().splitlines()[-1]


def test_a_broker_of_an_old_cluster_ends_with_one_line(quorum: DynamicQuorum, tmp_path: Path) -> None:
    """As in Apache Kafka it asks until initial.broker.registration.timeout.ms, and the exit code is 1."""
    config = broker_config(quorum, tmp_path, "b")
    assert run(["storage", "format", "-c", config, "-t", OLD_ID]) == 0
    ended = start(config)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert last_line(ended).endswith(
        "no controller registered this broker within 4000 ms (initial.broker.registration.timeout.ms): the controllers"
        f" belong to another cluster than this node's log directories, {OLD_ID}"
    )
    assert ended.stderr.count("INCONSISTENT_CLUSTER_ID") + ended.stdout.count("INCONSISTENT_CLUSTER_ID") == 1


def test_two_directories_of_different_clusters_are_refused(quorum: DynamicQuorum, tmp_path: Path) -> None:
    for name, cluster_id in (("a", CLUSTER_ID), ("b", OLD_ID)):
        assert run(["storage", "format", "-c", broker_config(quorum, tmp_path, name), "-t", cluster_id]) == 0
    ended = start(broker_config(quorum, tmp_path, "a", "b"))
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert last_line(ended).endswith(f"{tmp_path}/b belongs to cluster {OLD_ID}, not {CLUSTER_ID}")
