"""The driver starts, stops and kills processes; the nodes here only wait for their end."""

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.cluster import ports
from barnabas.cluster.breakable_programs import BREAKABLE, what_joins
from barnabas.cluster.errors import ClusterError
from barnabas.cluster.layout import Layout
from barnabas.cluster.local import LocalCluster
from barnabas.cluster.plan import Programs
from barnabas.cluster.ports import free_base_port
from barnabas.cluster.processes import ProcessId
from barnabas.runtime.disk import RealDisk


@pytest.fixture(autouse=True)
def _fake_nodes_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))


FAKES = Programs({"broker": "fake_node", "controller": "fake_node"})


class FakeCluster(LocalCluster):
    def __init__(self, data: Path, overrides: dict[str, str] | None = None, base_port: int | None = None) -> None:
        super().__init__(data, base_port or free_base_port(), overrides, programs=FAKES)

    def states(self) -> dict[str, str]:
        return {status.name: status.state for status in self.processes()}

    def wait_for_log(self, name: str, text: str) -> str:
        """Until the node's log has the text."""
        path = self.layout.log_file(self.layout.node(name))
        deadline = time.monotonic() + 20
        while not path.exists() or text not in path.read_text():
            assert time.monotonic() < deadline, f"{name} never said {text!r}"
            time.sleep(0.01)
        return path.read_text()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[FakeCluster]:
    cluster = FakeCluster(tmp_path)
    yield cluster
    cluster.down()


def test_a_cluster_comes_up_and_goes_down_and_up_again(cluster: FakeCluster) -> None:
    names = [node.name for node in cluster.nodes]
    assert cluster.up() == names
    assert set(cluster.states().values()) == {"running"}
    assert cluster.up() == []
    for name in names:
        assert "a warning" in cluster.wait_for_log(name, "is up after")
    identity = RealDisk().read_bytes(f"{cluster.layout.data}/broker-1/data/meta.properties")
    assert cluster.down() == []
    assert set(cluster.states().values()) == {"stopped"}
    assert cluster.up() == names
    assert RealDisk().read_bytes(f"{cluster.layout.data}/broker-1/data/meta.properties") == identity


def test_a_killed_node_is_dead_until_it_is_started(cluster: FakeCluster) -> None:
    cluster.up()
    cluster.kill("broker-2")
    assert cluster.states()["broker-2"] == "dead"
    with pytest.raises(ClusterError, match=r"broker-2 does not run; `barnabas cluster start broker-2` starts it"):
        cluster.pause("broker-2")
    assert cluster.up() == ["broker-2"]
    with pytest.raises(ClusterError, match="broker-2 runs already"):
        cluster.start("broker-2")


def test_a_node_can_be_stopped_and_started_alone(cluster: FakeCluster) -> None:
    cluster.up()
    cluster.wait_for_log("controller-103", "is up")
    assert cluster.stop("controller-103")
    assert cluster.states()["controller-103"] == "stopped"
    cluster.start("controller-103")
    assert set(cluster.states().values()) == {"running"}


def test_a_paused_node_goes_on_or_is_stopped(cluster: FakeCluster) -> None:
    cluster.up()
    for name in ("broker-1", "broker-3"):
        cluster.wait_for_log(name, "is up")
        cluster.pause(name)
        deadline = time.monotonic() + 10
        while cluster.states()[name] != "paused":
            assert time.monotonic() < deadline
    cluster.resume("broker-1")
    assert cluster.states()["broker-1"] == "running"
    assert cluster.stop("broker-3")


def test_a_node_that_does_not_stop_in_time_is_killed(tmp_path: Path) -> None:
    cluster = FakeCluster(tmp_path, {"broker.rack": "never-leaves"})
    cluster.up()
    cluster.wait_for_log("broker-1", "is up")
    try:
        assert not cluster.stop("broker-1", timeout_seconds=0.2)
    finally:
        assert len(cluster.down(timeout_seconds=0.2)) == 5


def test_a_bad_setting_is_an_error_of_one_line_and_nothing_starts(tmp_path: Path) -> None:
    cluster = FakeCluster(tmp_path, {"num.partitions": "none"})
    with pytest.raises(ClusterError, match=r"line 7: num.partitions=none: not a whole number; allowed: 1 or more"):
        cluster.up()
    assert set(cluster.states().values()) == {"stopped"}


def test_a_port_in_use_is_reported_before_anything_starts(tmp_path: Path) -> None:
    cluster = FakeCluster(tmp_path)
    port = cluster.layout.node("broker-2").port
    with (
        socket.create_server(("127.0.0.1", port)),
        pytest.raises(ClusterError, match=f"port {port}, which broker-2 needs"),
    ):
        cluster.up()
    assert set(cluster.states().values()) == {"stopped"}


def test_data_of_another_cluster_is_refused(tmp_path: Path) -> None:
    first = FakeCluster(tmp_path)
    first.up()
    first.down()
    (tmp_path / "cluster.json").unlink()
    with pytest.raises(ClusterError, match="belongs to cluster"):
        FakeCluster(tmp_path).up()


def test_a_node_that_fails_at_the_start_is_reported_with_its_last_line(tmp_path: Path) -> None:
    cluster = FakeCluster(tmp_path, {"broker.rack": "falls-over"})
    cluster.up()
    with pytest.raises(ClusterError, match=r"has ended: .*the port is taken"):
        cluster.wait_ready(timeout_seconds=20)
    cluster.down()


def test_a_cluster_that_does_not_get_ready_is_reported_with_a_line_of_a_node(tmp_path: Path) -> None:
    cluster = FakeCluster(tmp_path, {"broker.rack": "complains"})
    cluster.up()
    try:
        cluster.wait_for_log("broker-1", "something is wrong")
        with pytest.raises(ClusterError, match=r"not ready after 0 s: .*; broker-1 logged: .*something is wrong"):
            cluster.wait_ready(timeout_seconds=0.1)
    finally:
        cluster.down()


def test_nodes_are_nobodys_children_and_lead_their_own_sessions(cluster: FakeCluster) -> None:
    cluster.up()
    for node in cluster.nodes:
        process = ProcessId.read(cluster.layout.pid_file(node))
        assert process is not None
        assert os.getsid(process.pid) == process.pid
        assert cluster.wait_for_log(node.name, "is up")
        assert Path(f"/proc/{process.pid}/comm").read_text().strip() == f"node-{node.id}"


def test_a_second_try_elsewhere_does_not_part_the_cluster(tmp_path: Path) -> None:
    """Brokers that come up at other ports than the controllers that run would look for them where nobody is."""
    first = FakeCluster(tmp_path)
    first.up()
    first.kill("broker-1")
    there, elsewhere = first.layout.base_port, free_base_port()
    try:
        with pytest.raises(
            ClusterError, match=f"controller-103 of this cluster run at base port {there}; it can move to {elsewhere}"
        ):
            FakeCluster(tmp_path, base_port=elsewhere).up()
        assert Layout.open(tmp_path).base_port == there, "others still find it"
        assert LocalCluster(tmp_path, programs=FAKES).up() == ["broker-1"]
    finally:
        first.down()
    moved = FakeCluster(tmp_path, base_port=elsewhere)
    try:
        assert len(moved.up()) == 6
    finally:
        moved.down()
    assert Layout.open(tmp_path).base_port == elsewhere


def test_ports_that_cannot_be_had_are_not_remembered(tmp_path: Path) -> None:
    first = FakeCluster(tmp_path)
    first.up()
    first.down()
    taken = FakeCluster(tmp_path)
    with socket.create_server(("127.0.0.1", taken.layout.base_port)), pytest.raises(ClusterError, match="is taken by"):
        taken.up()
    assert Layout.open(tmp_path).base_port == first.layout.base_port


def test_a_node_that_joins_breakable_ones_is_breakable(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path, free_base_port(), programs=Programs(FAKES.modules, BREAKABLE.environment))
    assert what_joins(cluster.layout) is None
    cluster.up()
    try:
        assert what_joins(cluster.layout) is BREAKABLE
        LocalCluster(tmp_path).faults.set_clock("broker-1", 1_000)
    finally:
        cluster.down()
    assert what_joins(cluster.layout) is None


def test_faults_are_for_breakable_nodes_alone(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="cannot be broken: start them with programs=BREAKABLE"):
        LocalCluster(tmp_path, free_base_port()).faults.cut("broker-1", "broker-2")
    faults = LocalCluster(tmp_path, free_base_port(), programs=BREAKABLE).faults
    with pytest.raises(ClusterError, match="there is no node broker-9; nodes are broker-1"):
        faults.cut("broker-1", "broker-9")


def test_the_range_of_ephemeral_ports_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port_range = tmp_path / "ip_local_port_range"
    monkeypatch.setattr(ports, "_OUTGOING", port_range)
    assert ports.is_for_outgoing([9092, 32_767]) is None
    assert ports.is_for_outgoing([32_767, 32_768]) == 32_768
    port_range.write_text("10000\t20000\n")
    assert ports.is_for_outgoing([9092, 20_000, 32_768]) == 20_000
    assert ports.is_for_outgoing([32_768]) is None
