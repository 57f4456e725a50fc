"""Six real nodes whose metadata is lost, and restored from copies that were made while they ran."""

from __future__ import annotations

import shutil
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
    for name in (*CONTROLLERS, *BROKERS):
        shell("cluster kill", name)


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
    for name in CONTROLLERS:
        shutil.rmtree(layout.log_directory(layout.node(name)))
        words = [*config(layout, name), "--from", str(source), "--cluster-id", layout.cluster_id]
        assert run(["storage", "restore", *words]) == 0
    shell("cluster up")
    assert read(shell, "events", 50) == sorted(lines_of(0, 50).splitlines())
    shell("topics create", "later", "-p", "1", "-r", "3")
    shell("produce", "events", "-k", ":", stdin=lines_of(50, 60))
    assert read(shell, "events", 60) == sorted(lines_of(0, 60).splitlines())


@pytest.mark.feature("OP-07")
def test_a_cluster_goes_back_to_the_metadata_of_a_backup(
    shell: Shell, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shell("cluster up", "--base-port", str(free_base_port()))
    layout = Layout.open(tmp_path, None)
    shell("topics create", "events", "-p", "1", "-r", "3")
    shell("produce", "events", "-k", ":", stdin=lines_of(0, 50))
    copy = tmp_path / "copy"
    assert run(["storage", "backup", *config(layout, "controller-101"), "--to", str(copy)]) == 0
    assert "1 partitions" in capsys.readouterr().out
    assert run(["storage", "restore", *config(layout, "controller-101"), "--from", str(copy)]) == 1
    assert "is in use: stop the node first" in capsys.readouterr().err

    shell("topics create", "later", "-p", "1", "-r", "3")
    leader = shell.status()["partitions"][0]["leader"]
    shell("cluster kill", f"broker-{leader}")
    shell("produce", "events", "-k", ":", stdin=lines_of(50, 60))
    shell("cluster start", f"broker-{leader}")
    kill_all(shell)
    for name in CONTROLLERS:
        assert run(["storage", "restore", *config(layout, name), "--from", str(copy)]) == 0
    out = capsys.readouterr().out
    assert out.count("1 topic with 1 partitions, 3 brokers") == 3
    assert out.count("the previous metadata log is in ") == 3
    # The backup does not know that the former leader missed records: brokers with all of them come first.
    for name in (*CONTROLLERS, *(it for it in BROKERS if it != f"broker-{leader}")):
        shell("cluster start", name)
    assert shell("topics list") == "events\n"
    shell("produce", "events", "-k", ":", stdin=lines_of(60, 70))
    shell("cluster start", f"broker-{leader}")
    found = read(shell, "events", 70)
    assert found == sorted(lines_of(0, 70).splitlines()), "data logs stay as they are"
