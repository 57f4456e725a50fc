"""Nodes that end by themselves are started again; those that somebody ended are not."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from barnabas.cluster.keeping import WELL_AFTER_SECONDS, KeepFile, pause_seconds, restart_backoff
from barnabas.cluster.local import LocalCluster
from barnabas.cluster.plan import Programs
from barnabas.cluster.ports import free_base_port
from barnabas.cluster.processes import ProcessId

FAKES = Programs({"broker": "fake_node", "controller": "fake_node"})


@pytest.fixture(autouse=True)
def _fake_nodes_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))


class KeptCluster(LocalCluster):
    def __init__(self, data: Path, *, restarts: bool = True) -> None:
        super().__init__(data, free_base_port(), programs=FAKES, restarts=restarts)

    def state(self, name: str) -> tuple[str, int]:
        """(state, restarts) of a node."""
        [found] = [status for status in self.processes() if status.name == name]
        return found.state, found.restarts

    def pid(self, name: str) -> int:
        process = ProcessId.read(self.layout.pid_file(self.layout.node(name)))
        assert process is not None
        return process.pid

    def keeper(self, name: str) -> ProcessId:
        kept = KeepFile.beside(self.layout.pid_file(self.layout.node(name))).read()
        assert kept is not None
        return kept[0]

    def will_break(self, name: str) -> None:
        """The node raises in its next life."""
        path = self.layout.config_file(self.layout.node(name)).with_suffix(".breaks")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()

    def log_of(self, name: str) -> str:
        return self.layout.log_file(self.layout.node(name)).read_text()


def wait_for(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[KeptCluster]:
    cluster = KeptCluster(tmp_path)
    yield cluster
    cluster.down()


def test_pauses_double_up_to_a_minute_and_begin_again_after_a_minute_of_life() -> None:
    backoff = restart_backoff()
    assert [pause_seconds(backoff, 0.1) for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert pause_seconds(backoff, WELL_AFTER_SECONDS) == 1
    assert pause_seconds(backoff, 1) == 2


def test_a_node_that_dies_of_its_own_mistake_is_started_again(cluster: KeptCluster) -> None:
    cluster.will_break("broker-2")
    cluster.up()
    wait_for(lambda: cluster.state("broker-2") == ("running", 1))
    wait_for(lambda: "is up" in cluster.log_of("broker-2").partition("started again")[2])
    assert "broker-2 ended with exit code 1; it is started again in 1 s" in cluster.log_of("broker-2")
    assert "ZeroDivisionError" in cluster.log_of("broker-2")
    assert cluster.state("broker-1") == ("running", 0)


def test_a_node_that_the_machine_ends_is_started_again(cluster: KeptCluster) -> None:
    """The kernel kills a process that way when memory runs out; the cluster did not ask for it."""
    cluster.up()
    os.kill(cluster.pid("controller-101"), signal.SIGKILL)
    wait_for(lambda: cluster.state("controller-101") == ("running", 1))
    assert "ended with signal 9" in cluster.log_of("controller-101")


def test_a_node_that_was_killed_on_purpose_stays_down(cluster: KeptCluster) -> None:
    cluster.up()
    cluster.kill("broker-1")
    os.kill(cluster.pid("broker-2"), signal.SIGKILL)
    wait_for(lambda: cluster.state("broker-2") == ("running", 1))
    assert cluster.state("broker-1") == ("dead", 0), "its pause would have been over, too"
    cluster.start("broker-1")
    assert cluster.state("broker-1") == ("running", 0)


def test_a_node_that_waits_to_be_started_again_can_be_stopped_or_started(cluster: KeptCluster) -> None:
    cluster.up()
    brokers = ["broker-1", "broker-2", "broker-3"]
    for restarts in range(3):
        wait_for(lambda count=restarts: all(cluster.state(name) == ("running", count) for name in brokers))
        for name in brokers:
            os.kill(cluster.pid(name), signal.SIGKILL)
    wait_for(lambda: all("started again in 4 s" in cluster.log_of(name) for name in brokers))
    assert cluster.up() == brokers, "within the four seconds, and by another keeper"
    pids = {name: cluster.pid(name) for name in brokers}
    os.kill(cluster.pid("controller-102"), signal.SIGKILL)
    wait_for(lambda: cluster.state("controller-102") == ("running", 1))
    assert {name: cluster.pid(name) for name in pids} == pids, "the first keeper has let go of them"


def test_the_keeper_goes_with_its_last_node(cluster: KeptCluster) -> None:
    cluster.up()
    keeper = cluster.keeper("broker-1")
    os.kill(cluster.pid("broker-3"), signal.SIGKILL)
    cluster.down()
    wait_for(lambda: not keeper.alive)
    assert {status.state for status in cluster.processes()} == {"stopped"}


def test_fault_tests_see_a_node_end(tmp_path: Path) -> None:
    cluster = KeptCluster(tmp_path, restarts=False)
    cluster.up()
    try:
        os.kill(cluster.pid("broker-1"), signal.SIGKILL)
        wait_for(lambda: cluster.state("broker-1") == ("dead", 0))
        assert not KeepFile.beside(cluster.layout.pid_file(cluster.layout.node("broker-1"))).path.exists()
    finally:
        cluster.down()
