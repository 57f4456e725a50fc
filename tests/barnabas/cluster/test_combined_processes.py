"""A local cluster of three combined nodes, each a process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas import NewTopic, sync
from barnabas.cluster.local import LocalCluster
from barnabas.cluster.ports import free_base_port

FILE = """\
process.roles=broker,controller
node.id={id}
controller.quorum.voters={voters}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
controller.listener.names=CONTROLLER
log.dirs=data
barnabas.http.listener=127.0.0.1:{http_port}
"""
FIRST_PORT = 9092


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    shape = tmp_path / "shape"
    shape.mkdir()
    voters = ",".join(f"{it}@127.0.0.1:{FIRST_PORT + 100 + it}" for it in (1, 2, 3))
    for it in (1, 2, 3):
        text = FILE.format(
            id=it,
            voters=voters,
            port=FIRST_PORT + it - 1,
            controller_port=FIRST_PORT + 100 + it,
            http_port=FIRST_PORT + 200 + it,
        )
        (shape / f"broker-{it}.properties").write_text(text)
    ports = free_base_port([*range(3), *range(101, 104), *range(201, 204)])
    cluster = LocalCluster(tmp_path / "data", ports, config_dir=shape)
    yield cluster
    cluster.down()


@pytest.mark.feature("KR-18")
def test_three_processes_are_a_whole_cluster(cluster: LocalCluster) -> None:
    cluster.up()
    cluster.wait_ready()
    servers = cluster.layout.bootstrap_servers
    with sync.Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic("kept", num_partitions=3, replication_factor=3)])
    status = cluster.status()
    assert status.quorum is not None
    assert sorted(status.quorum.voters) == [1, 2, 3]
    active = f"broker-{status.quorum.leader}"
    cluster.kill(active)
    with sync.Producer(bootstrap_servers=servers) as producer:
        producer.send("kept", b"after the active controller")
    cluster.start(active)
    cluster.wait_ready()
    assert cluster.down() == [], "all left in good order"
