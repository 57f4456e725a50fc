"""The profile `extra` of docker-compose.yml without docker: a broker and a controller join the six nodes, by the
entrypoint of the image, as processes of this machine. Only paths, and addresses of nodes, are others.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.cli.main import run
from barnabas.cluster.local import code_environment
from barnabas.cluster.ports import free_base_port
from tests.docker.compose_file import ROOT, command, profiles, section, services
from tests.eventually import eventually

EXTRA = ("controller-104", "broker-4")
NODES = ("controller-101", "controller-102", "controller-103", "broker-1", "broker-2", "broker-3", *EXTRA)
CLIENTS, INTERNAL, QUORUM, HTTP = (10 * number for number in range(4))
"""Ports of nodes above the base port."""
START_SECONDS = 120.0
STOP_SECONDS = 40.0


class Containers:
    """The nodes of the profile, in one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._base_port = free_base_port(range(40))
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        for node in NODES:
            (directory / node).mkdir()
            source = ROOT / "cluster-configs" / "compose" / ("extra" if node in EXTRA else "")
            text = self._placed((source / f"{node}.properties").read_text(), node)
            (directory / node / f"{node}.properties").write_text(text)

    def port(self, node: str, kind: int) -> int:
        return self._base_port + kind + NODES.index(node)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port('broker-1', CLIENTS)}"

    def start(self, node: str) -> None:
        """The command of its service, by the entrypoint."""
        data = self.directory / node
        script = data / "entrypoint"
        script.write_text((ROOT / "docker" / "entrypoint").read_text().replace("/var/lib/barnabas", str(data)))
        number = node.rpartition("-")[2]
        words = command(node, {f"KAFKA_PORT_{number}": str(self.port(node, CLIENTS))})
        environment = {
            **code_environment(),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "CLUSTER_ID": "barnabas-compose-extra",
            "BARNABAS_CONFIGS": str(data),
        }
        with (data / "log").open("ab") as log:
            placed = [self._placed(word, node) for word in words]
            arguments = ["sh", str(script), *placed]
            self.running[node] = subprocess.Popen(arguments, cwd=data, env=environment, stdout=log, stderr=log)

    def is_healthy(self, node: str) -> bool:
        check = [sys.executable, "-IS", str(ROOT / "docker" / "healthcheck"), str(self.port(node, HTTP))]
        return subprocess.run(check, capture_output=True, timeout=30, check=False).returncode == 0

    def _placed(self, text: str, own: str) -> str:
        for node in NODES:
            kind = QUORUM if node.startswith("controller") else INTERNAL
            for port in ("9092", "9093"):
                text = text.replace(f"{node}:{port}", f"127.0.0.1:{self.port(node, kind)}")
        for port, kind in {"9092": INTERNAL, "19092": CLIENTS, "9093": QUORUM}.items():
            text = text.replace(f"://:{port}", f"://127.0.0.1:{self.port(own, kind)}")
        text = text.replace("0.0.0.0:9292", f"127.0.0.1:{self.port(own, HTTP)}")
        return text.replace("/var/lib/barnabas/data", str(self.directory / own / "data"))


@pytest.fixture
def containers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Containers]:
    monkeypatch.delenv("BARNABAS_BOOTSTRAP_SERVER", raising=False)
    made = Containers(tmp_path)
    try:
        yield made
    finally:
        for node in (*made.running,):
            made.running[node].terminate()
        codes = {node: process.wait(STOP_SECONDS) for node, process in made.running.items()}
        assert codes == dict.fromkeys(made.running, 0)


@pytest.mark.slow
@pytest.mark.feature("OP-01", "KR-14")
def test_a_broker_and_a_controller_join(containers: Containers, capsys: pytest.CaptureFixture[str]) -> None:
    for node in NODES:
        containers.start(node)
    eventually(lambda: all(containers.is_healthy(node) for node in NODES), START_SECONDS)
    where = ("-b", containers.bootstrap)
    assert run(["cluster", "features", "--upgrade", "kraft.version=1", *where]) == 0

    def voters() -> list[str]:
        capsys.readouterr()
        assert run(["cluster", "quorum", *where]) == 0
        lines = [line.split() for line in capsys.readouterr().out.splitlines()]
        return sorted(words[0] for words in lines if len(words) > 1 and words[1] in ("voter", "leader"))

    eventually(lambda: voters() == ["101", "102", "103", "104"], START_SECONDS)
    assert run(["topics", "create", "everywhere", "--partitions", "4", "--replication-factor", "4", *where]) == 0


def test_the_extra_nodes_come_with_their_profile_only() -> None:
    assert [name for name in services() if profiles(name) == ["extra"]] == list(EXTRA)
    for name in EXTRA:
        assert "BARNABAS_CONFIGS: /etc/barnabas/extra" in section("controller-104")
        assert (ROOT / "cluster-configs" / "compose" / "extra" / f"{name}.properties").exists()
