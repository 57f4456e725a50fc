"""docs/operations.md on three addresses: installation, rolling restart, a lost disk, backup and restore."""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from barnabas.cli.main import run
from barnabas.cluster.ports import free_base_port

PAGE = (Path(__file__).parents[3] / "docs" / "operations.md").read_text()
READY_SECONDS = 60.0
NODES = [*(f"controller-{100 + index}" for index in (1, 2, 3)), *(f"broker-{index}" for index in (1, 2, 3))]


def properties(role: str) -> str:
    """The page's configuration file of machine 1."""
    blocks = [
        re.sub("^   ", "", block, flags=re.MULTILINE) for block in re.findall(r"```properties\n(.*?)```", PAGE, re.S)
    ]
    (found,) = [block for block in blocks if f"process.roles={role}\n" in block]
    return found


class ThreeMachines:
    """The page's machines as addresses of this one: 10.0.0.N becomes 127.0.1.N; files are below a directory."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.root = root
        self._capsys = capsys
        self._ports = free_base_port()
        self.cluster_id = "?"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        (root / "etc/barnabas").mkdir(parents=True)
        for name in NODES:
            role, _, number = name.partition("-")
            machine = number[-1]
            own = properties(role)
            own = re.sub(r"node\.id=.*", f"node.id={number}", own)
            own = re.sub(r"(listeners?=\S*)10\.0\.0\.1", rf"\g<1>10.0.0.{machine}", own)
            own = own.replace("machine-1", f"machine-{machine}").replace(f"{role}-1\n", f"{name}\n")
            own = own.replace("controller-101\n", f"{name}\n")
            (root / f"etc/barnabas/{name}.properties").write_text(self.here(own))

    def here(self, text: str) -> str:
        """A text of the page with the addresses, ports and directories of this test."""
        text = text.replace("10.0.0.", "127.0.1.").replace("/var/lib/barnabas", str(self.root / "var"))
        text = text.replace("/etc/barnabas", str(self.root / "etc/barnabas"))
        return re.sub(r":(9092|9093|9292|9293)\b", lambda port: f":{self._ports + int(port[1]) - 9092}", text)

    def command(self, line: str) -> str:
        """Runs a command that is on the page."""
        assert f"   {line.replace(self.cluster_id, 'CLUSTER_ID')}\n" in PAGE
        assert run(shlex.split(self.here(line))[1:]) == 0, self._capsys.readouterr().err
        return self._capsys.readouterr().out

    def command_for(self, line: str, first: str, name: str) -> str:
        """Runs a command that is on the page for the node `first`, in one line or several, for another one."""
        on_page = re.sub(r" \\\n +", " ", PAGE)
        assert f"   {line.replace(self.cluster_id, 'CLUSTER_ID')}\n" in on_page
        assert run(shlex.split(self.here(line.replace(first, name)))[1:]) == 0, self._capsys.readouterr().err
        return self._capsys.readouterr().out

    def start(self, name: str) -> None:
        """By the ExecStart of the unit that the page's command prints."""
        assert run(["systemd", self.here(f"/etc/barnabas/{name}.properties")]) == 0
        found = re.search(r"^ExecStart=(.*)$", self._capsys.readouterr().out, re.MULTILINE)
        assert found is not None
        log = (self.root / f"{name}.log").open("ab")
        self._processes[name] = subprocess.Popen(shlex.split(found[1]), stderr=log, stdout=log)
        log.close()

    def stop(self, name: str) -> None:
        """Stops a node with SIGTERM, as systemd does."""
        process = self._processes.pop(name)
        process.send_signal(signal.SIGTERM)
        assert process.wait(40) == 0, (self.root / f"{name}.log").read_text()

    def stop_all(self) -> None:
        for name in reversed(NODES):
            if name in self._processes:
                self.stop(name)

    def kill_all(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()

    def wait(self, line: str, lines: int) -> None:
        """Until the command of the page succeeds and prints so many lines, the titles included."""
        self._until(line, lambda out: len(out.splitlines()) == lines)

    def repeat(self, line: str) -> None:
        """A command that is on the page, until it succeeds."""
        assert f"   {line}\n" in PAGE
        self._until(line, lambda _: True)

    def _until(self, line: str, is_enough: Callable[[str], bool]) -> None:
        deadline = time.monotonic() + READY_SECONDS
        words = shlex.split(self.here(line))[1:]
        while True:
            code, captured = run([*words, "--timeout", "5"]), self._capsys.readouterr()
            if code == 0 and is_enough(captured.out):
                return
            assert time.monotonic() < deadline, captured.out + captured.err
            time.sleep(0.2)


@pytest.fixture
def machines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[ThreeMachines]:
    machines = ThreeMachines(tmp_path, capsys)
    yield machines
    machines.kill_all()


UNDER_REPLICATED = "barnabas topics describe --under-replicated -b 10.0.0.2:9092"
CONSUME = "barnabas consume flights --from-beginning --exit -b 10.0.0.1:9092"


@pytest.mark.slow
@pytest.mark.feature("OP-03")
def test_install_roll_replace_a_disk_back_up_and_restore(machines: ThreeMachines, tmp_path: Path) -> None:
    machines.cluster_id = machines.command("barnabas storage random-uuid").strip()
    format_broker = (
        f"barnabas storage format --cluster-id {machines.cluster_id} --config /etc/barnabas/broker-3.properties"
    )
    for name in NODES:
        assert run(["storage", "format", "--cluster-id", machines.cluster_id, "--config",
                    str(tmp_path / f"etc/barnabas/{name}.properties")]) == 0  # fmt: skip
        machines.start(name)
    machines.wait("barnabas cluster describe -b 10.0.0.1:9092", lines=5)
    assert "leader" in machines.command("barnabas cluster quorum -b 10.0.0.1:9092")
    created = machines.command("barnabas topics create flights --partitions 3 -b 10.0.0.1:9092")
    assert created == "created flights: 3 partitions, replication factor 3\n"
    records = tmp_path / "records"
    records.write_text("departed")
    produce = ["produce", "flights", str(records), "-q", "-b", machines.here("10.0.0.1:9092,10.0.0.2:9092")]

    for name in [*NODES[3:], *NODES[:3]]:
        machines.stop(name)
        assert run(produce) == 0, "the others accept writes meanwhile"
        machines.start(name)
        machines.wait("barnabas cluster describe -b 10.0.0.1:9092", lines=5)
        machines.wait(UNDER_REPLICATED, lines=1)

    machines.stop("broker-3")
    shutil.rmtree(tmp_path / "var/broker-3")
    machines.command(format_broker)
    machines.start("broker-3")
    machines.wait(UNDER_REPLICATED, lines=1)
    machines.wait(CONSUME, lines=6)

    machines.stop_all()
    shutil.copytree(tmp_path / "var", tmp_path / "backup")
    shutil.rmtree(tmp_path / "var")
    shutil.copytree(tmp_path / "backup", tmp_path / "var")
    for name in NODES:
        machines.start(name)
    machines.wait(CONSUME, lines=6)
    machines.stop_all()


ADDED = "controller-104"


@pytest.mark.slow
@pytest.mark.feature("OP-03", "KR-14")
def test_a_controller_is_added_and_another_removed(machines: ThreeMachines) -> None:
    cluster_id = machines.command("barnabas storage random-uuid").strip()
    machines.cluster_id = cluster_id
    for name in NODES:
        config = machines.here(f"/etc/barnabas/{name}.properties")
        assert run(["storage", "format", "--cluster-id", cluster_id, "--config", config]) == 0
        machines.start(name)
    machines.wait("barnabas cluster quorum -b 10.0.0.1:9092", 8)
    # Each voter has to report first that it supports that level.
    machines.repeat("barnabas cluster features --upgrade kraft.version=1 -b 10.0.0.1:9092")
    own = machines.root / "etc/barnabas" / f"{ADDED}.properties"
    first = own.with_name("controller-101.properties").read_text()
    first = re.sub(r"controller\.quorum\.voters=.*", "controller.quorum.bootstrap.servers=10.0.0.1:9093", first)
    first = first.replace("controller-101", ADDED).replace("node.id=101", "node.id=104")
    first = re.sub(r"127\.0\.1\.1", "127.0.1.4", first)
    own.write_text(machines.here(first))
    machines.command(
        f"barnabas storage format --no-initial-controllers --cluster-id {cluster_id} "
        "--config /etc/barnabas/controller-104.properties"
    )
    machines.start(ADDED)
    machines.wait("barnabas cluster quorum -b 10.0.0.1:9092", 9)
    machines.command("barnabas cluster add-voter 104 10.0.0.4:9093 -b 10.0.0.1:9092")
    machines.command("barnabas cluster remove-voter 103 -b 10.0.0.1:9092")
    machines.stop("controller-103")
    voters = machines.command("barnabas cluster quorum -b 10.0.0.1:9092")
    assert [line.split()[0] for line in voters.splitlines() if "voter" in line or "leader " in line[4:]][-1] == "104"
    machines.stop(ADDED)
    machines.stop_all()


@pytest.mark.slow
@pytest.mark.feature("OP-07", "OP-03")
def test_all_controllers_lost_their_disks(
    machines: ThreeMachines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    machines.cluster_id = machines.command("barnabas storage random-uuid").strip()
    for name in NODES:
        config = machines.here(f"/etc/barnabas/{name}.properties")
        assert run(["storage", "format", "--cluster-id", machines.cluster_id, "--config", config]) == 0
        machines.start(name)
    machines.wait("barnabas cluster describe -b 10.0.0.1:9092", lines=5)
    machines.command("barnabas topics create flights --partitions 3 -b 10.0.0.1:9092")
    records = tmp_path / "records"
    records.write_text("departed\nlanded")
    produce = ["produce", "flights", str(records), "-q", "-b", machines.here("10.0.0.1:9092,10.0.0.2:9092")]
    assert run(produce) == 0
    machines.stop_all()
    for name in NODES[:3]:
        shutil.rmtree(tmp_path / "var" / name)

    for name in NODES[3:]:
        machines.command_for(
            "barnabas storage log-ends --config /etc/barnabas/broker-1.properties --to broker-1.ends", "broker-1", name
        )
    for name in NODES[:3]:
        machines.command_for(
            "barnabas storage restore --config /etc/barnabas/controller-101.properties "
            f"--from /var/lib/barnabas/broker-2 --cluster-id {machines.cluster_id} "
            "--log-ends broker-1.ends --log-ends broker-2.ends --log-ends broker-3.ends",
            "controller-101",
            name,
        )
    for name in [*NODES[:3], "broker-3", "broker-1", "broker-2"]:
        machines.start(name)
    machines.wait(CONSUME, lines=2)
    assert run(produce) == 0
    machines.wait(CONSUME, lines=4)
    machines.stop_all()
