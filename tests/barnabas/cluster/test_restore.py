"""Six real nodes whose metadata is lost, and restored from copies that were made while they ran."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from barnabas.cli.main import run
from barnabas.cluster.layout import Layout
from barnabas.cluster.ports import free_base_port
from tests.barnabas.cluster.test_whole import Shell, lines_of, shell

__all__ = ["shell"]

CONTROLLERS = ("controller-101", "controller-102", "controller-103")
BROKERS = ("broker-1", "broker-2", "broker-3")


def config(layout: Layout, name: str) -> list[str]:
    return ["--config", str(layout.config_file(layout.node(name)))]


def kill_all(shell: Shell) -> None:
    for node in shell.status()["nodes"]:
        if node["state"] == "running":
            shell("cluster kill", node["name"])


def read(shell: Shell, topic: str, count: int) -> list[str]:
    return sorted(shell("consume", topic, "--from-beginning", "-n", str(count), "-k", ":", "--exit").splitlines())


@pytest.mark.feature("OP-07", "OP-05")
def test_a_quorum_that_lost_all_its_disks_is_restored_from_a_brokers_copy(shell: Shell, tmp_path: Path) -> None:
    shell("cluster up", "--base-port", str(free_base_port()))
    layout = Layout.open(tmp_path, None)
    shell("topics create", "events", "-p", "3", "-r", "3")
    shell("produce", "events", "-k", ":", stdin=lines_of(0, 50))
    kill_all(shell)
    source = layout.log_directory(layout.node("broker-2"))
    ends = log_ends(layout, tmp_path, *BROKERS)
    for name in CONTROLLERS:
        shutil.rmtree(layout.log_directory(layout.node(name)))
        words = [*config(layout, name), "--from", str(source), "--cluster-id", layout.cluster_id, *ends]
        assert run(["storage", "restore", *words]) == 0
    shell("cluster up")
    assert read(shell, "events", 50) == sorted(lines_of(0, 50).splitlines())
    shell("topics create", "later", "-p", "1", "-r", "3")
    shell("produce", "events", "-k", ":", stdin=lines_of(50, 60))
    assert read(shell, "events", 60) == sorted(lines_of(0, 60).splitlines())


def log_ends(layout: Layout, tmp_path: Path, *names: str) -> list[str]:
    """The options with the ends of the logs of stopped brokers."""
    words = []
    for name in names:
        listed = tmp_path / f"{name}.ends"
        assert run(["storage", "log-ends", *config(layout, name), "--to", str(listed)]) == 0
        words += ["--log-ends", str(listed)]
    return words


@dataclass(frozen=True)
class Incident:
    """A cluster whose nodes are all dead, and an old copy of its metadata."""

    layout: Layout
    copy: Path
    behind: str
    """The broker that led when the copy was made, and died before the others went on."""
    single: str
    """The broker to which the only replica of `single` was moved afterwards."""


@pytest.fixture
def incident(shell: Shell, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Incident:
    shell("cluster up", "--base-port", str(free_base_port()))
    layout = Layout.open(tmp_path, None)
    shell("topics create", "events", "-p", "1", "-r", "3")
    shell("topics create", "single", "-p", "1", "-r", "1")
    shell("topics create", "gone", "-p", "1", "-r", "3")
    shell("produce", "events", "-k", ":", stdin=lines_of(0, 50))
    shell("produce", "single", "-k", ":", stdin=lines_of(0, 5))
    copy = tmp_path / "copy"
    assert run(["storage", "backup", *config(layout, "controller-101"), "--to", str(copy)]) == 0
    assert "1 partitions" in capsys.readouterr().out
    assert run(["storage", "restore", *config(layout, "controller-101"), "--from", str(copy)]) == 1
    assert "is in use: stop the node first" in capsys.readouterr().err
    assert run(["storage", "log-ends", *config(layout, "broker-1"), "--to", str(tmp_path / "early")]) == 1
    assert "is in use by another process" in capsys.readouterr().err

    shell("topics delete", "gone")
    shell("topics create", "later", "-p", "2", "-r", "3")
    shell("produce", "later", "-k", ":", stdin=lines_of(0, 20))
    leaders = {each["topic"]: each["leader"] for each in shell.status()["partitions"]}
    behind = leaders["events"]
    target = next(each for each in (1, 2, 3) if each not in (behind, leaders["single"]))
    plan = tmp_path / "plan.json"
    move = {"topic": "single", "partition": 0, "replicas": [target]}
    plan.write_text(json.dumps({"version": 1, "partitions": [move]}))
    shell("topics reassign execute", str(plan), "--wait")
    shell("cluster kill", f"broker-{behind}")
    shell("produce", "events", "-k", ":", stdin=lines_of(50, 60))
    kill_all(shell)
    return Incident(layout, copy, f"broker-{behind}", f"broker-{target}")


@pytest.mark.feature("OP-07")
@pytest.mark.parametrize("comes_back", ["first", "last"])
def test_a_cluster_goes_back_to_the_metadata_of_a_backup(
    incident: Incident, shell: Shell, tmp_path: Path, capsys: pytest.CaptureFixture[str], comes_back: str
) -> None:
    layout, behind = incident.layout, incident.behind
    ends = log_ends(layout, tmp_path, *BROKERS)
    for name in CONTROLLERS:
        assert run(["storage", "restore", *config(layout, name), "--from", str(incident.copy), *ends]) == 0
    out = capsys.readouterr().out
    assert out.count("3 topics with 4 partitions, 3 brokers") == 3
    assert out.count("topic gone: no broker has a log of it, so it was deleted later: left out") == 3
    assert out.count("single-0: was moved later from brokers ") == 3
    assert out.count("topic later: was created later, has 2 partitions, and gets retention.bytes=-1") == 3
    assert out.count("the previous metadata log is in ") == 3

    others = [name for name in BROKERS if name != behind]
    for name in (*CONTROLLERS, *([behind, *others] if comes_back == "first" else others)):
        shell("cluster start", name)
    assert shell("topics list") == "events\nlater\nsingle\n"
    shell("produce", "events", "-k", ":", stdin=lines_of(60, 70))
    if comes_back == "last":
        shell("cluster start", behind)
    assert read(shell, "events", 70) == sorted(lines_of(0, 70).splitlines())
    assert read(shell, "later", 20) == sorted(lines_of(0, 20).splitlines())
    assert read(shell, "single", 5) == sorted(lines_of(0, 5).splitlines())


@pytest.mark.feature("OP-07")
def test_a_broker_that_never_returns_is_left_out_by_name(
    incident: Incident, shell: Shell, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layout = incident.layout
    lost = next(name for name in BROKERS if name not in (incident.behind, incident.single))
    left = [name for name in BROKERS if name != lost]
    ends = log_ends(layout, tmp_path, *left)
    words = ["storage", "restore", *config(layout, "controller-101"), "--from", str(incident.copy)]
    assert run([*words, *ends]) == 2
    number = lost.removeprefix("broker-")
    assert f"the log ends of brokers {number} are missing" in capsys.readouterr().err
    for name in CONTROLLERS:
        words[3:4] = config(layout, name)[1:]
        assert run([*words, *ends, "--without", number]) == 0
    for name in (*CONTROLLERS, *left):
        shell("cluster start", name)
    assert read(shell, "events", 60) == sorted(lines_of(0, 60).splitlines())
    assert read(shell, "single", 5) == sorted(lines_of(0, 5).splitlines())
    assert read(shell, "later", 20) == sorted(lines_of(0, 20).splitlines())


@pytest.mark.feature("OP-07")
def test_nobody_leads_without_the_ends_of_the_logs(
    incident: Incident, shell: Shell, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in CONTROLLERS:
        words = [*config(incident.layout, name), "--from", str(incident.copy)]
        assert run(["storage", "restore", *words]) == 0
    assert capsys.readouterr().out.count("3 partitions have no leader: restore again with --log-ends") == 3
    for name in (*CONTROLLERS, *BROKERS):
        shell("cluster start", name)
    shell("cluster describe", "--timeout", "60")
    assert {each["leader"] for each in shell.status()["partitions"]} == {-1}
    directory = Path(incident.layout.log_directory(incident.layout.node(BROKERS[0])))
    assert [each.name for each in directory.iterdir() if each.name.startswith("later-0.") and "stray" in each.name]
    # The operator decides, and accepts that records may be lost.
    shell("topics elect", "events:0", "--unclean")
    assert len(read(shell, "events", 50)) >= 50
