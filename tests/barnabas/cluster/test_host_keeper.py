"""`barnabas host`: processes that share a machine, kept by a process that may itself be killed."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from barnabas.cluster.local import LocalCluster, code_environment
from barnabas.cluster.ports import free_base_port
from barnabas.cluster.probe import NoAnswer, ask
from barnabas.cluster.processes import ProcessId
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse

pytestmark = pytest.mark.feature("OP-02")
CELLS = (11, 12)
PAGE = (Path(__file__).parents[3] / "docs" / "cells.md").read_text()


def wait_for(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


class Host:
    """One host with two cells beside a local cluster."""

    def __init__(self, directory: Path, cluster: LocalCluster) -> None:
        self.directory = directory
        self.cluster = cluster
        self.port = cluster.layout.base_port + 80
        self.shared_port = self.port + 10
        voters = ",".join(f"127.0.0.1:{node.port}" for node in cluster.layout.controllers)
        self.config = directory / "host.properties"
        self.config.write_text(self._of_the_page(voters))
        self.process: subprocess.Popen[str] | None = None

    def _of_the_page(self, voters: str) -> str:
        """The file on the page, with addresses and directories of this test."""
        (text,) = re.findall(r"```properties\n(.*?)```", PAGE, re.S)
        text = text.replace("10.0.0.1:9093,10.0.0.2:9093,10.0.0.3:9093", voters)
        text = text.replace("10.0.0.1:19092", f"127.0.0.1:{self.port}")
        text = text.replace("10.0.0.1:9092", f"127.0.0.1:{self.shared_port}")
        return str(text.replace("/var/lib/barnabas", f"{self.directory}/data"))

    def run(self, *more: str) -> None:
        words = [sys.executable, "-P", "-m", "barnabas.cli.main", "host", str(self.config), "--cells", "2", *more]
        self.process = subprocess.Popen(
            words, env=code_environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def line(self) -> str:
        assert self.process is not None and self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def end(self, number: signal.Signals) -> str:
        """Sends it, and waits for the end; returns what was printed and not read."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.communicate(timeout=60)[0]

    def pid(self, cell: int) -> ProcessId | None:
        return ProcessId.read(self.directory / "data" / "run" / f"broker-{cell}.pid")

    def is_alive(self, cell: int) -> bool:
        process = self.pid(cell)
        return process is not None and process.alive

    def in_service(self) -> set[int]:
        """Brokers of the cluster, as a cell that takes connections at the shared address knows them."""
        try:
            answer = ask(self.shared_port, DescribeClusterRequest(endpoint_type=1), DescribeClusterResponse)
        except NoAnswer:
            return set()
        return {each.broker_id for each in answer.brokers}


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    """A cluster without brokers of its own, and a host that is not started."""
    cluster = LocalCluster(tmp_path / "cluster", free_base_port())
    cluster.start(*(node.name for node in cluster.layout.controllers))
    found = Host(tmp_path, cluster)
    yield found
    if found.process is not None and found.process.poll() is None:
        found.end(signal.SIGTERM)
    for cell in CELLS:
        process = found.pid(cell)
        if process is not None:
            process.send(signal.SIGKILL)
    cluster.down()


def test_cells_run_until_their_keeper_is_stopped_and_go_on_if_it_is_killed(host: Host) -> None:
    host.run("--cluster-id", host.cluster.layout.cluster_id)
    assert [host.line(), host.line()] == ["broker-11 is started", "broker-12 is started"]
    wait_for(lambda: host.in_service() == {*CELLS})

    host.end(signal.SIGKILL)
    assert all(host.is_alive(cell) for cell in CELLS), "they go on"
    before = host.pid(11)

    killed = host.pid(12)
    assert killed is not None
    killed.send(signal.SIGKILL)
    assert killed.wait_gone(10)
    host.run()
    assert [host.line(), host.line()] == ["broker-11 runs already", "broker-12 is started"]
    assert host.pid(11) == before
    wait_for(lambda: host.in_service() == {*CELLS})

    adopted = host.pid(11)
    assert adopted is not None
    adopted.send(signal.SIGKILL)
    wait_for(lambda: host.pid(11) != adopted and host.is_alive(11))  # by the keeper, though it is not its parent

    first = [host.pid(cell) for cell in CELLS]
    assert host.process is not None
    host.process.send_signal(signal.SIGHUP)
    for cell in CELLS:
        assert f"broker-{cell} was restarted in" in host.line()
    assert all(host.is_alive(cell) and host.pid(cell) not in first for cell in CELLS)

    assert host.end(signal.SIGTERM) == ""
    assert host.process.returncode == 0
    assert not any(host.is_alive(cell) for cell in CELLS)


def test_two_keepers_of_one_host_and_cells_without_a_cluster_are_refused(host: Host) -> None:
    host.run()
    assert host.process is not None
    printed = host.process.communicate(timeout=60)[0]
    assert "the cells have no log directories yet; --cluster-id says which cluster they join" in printed
    assert host.process.returncode == 2

    host.run("--cluster-id", host.cluster.layout.cluster_id)
    assert host.line() == "broker-11 is started"
    second = Host(host.directory, host.cluster)
    second.run()
    assert second.process is not None
    assert "another `barnabas host` keeps the cells of" in second.process.communicate(timeout=60)[0]
    assert second.process.returncode == 1
