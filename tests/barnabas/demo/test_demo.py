"""Six real nodes, a real load, real signals: nothing is lost, and the cluster is left as it was found."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.cli.main import run
from barnabas.cluster.local import LocalCluster
from barnabas.cluster.ports import free_base_port


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    cluster = LocalCluster(tmp_path / "cluster", free_base_port())
    yield cluster
    cluster.down()


class Demo:
    """Plays a scenario and gives its summary, whose accounts have to be clean."""

    def __init__(self, cluster: LocalCluster, capsys: pytest.CaptureFixture[str]) -> None:
        self._words = ["--data", str(cluster.layout.data)]
        self._new = ["--base-port", str(cluster.layout.base_port)]
        self._capsys = capsys
        self._cluster = cluster

    def __call__(self, scenario: str, *more: str, seconds: float) -> dict[str, Any]:
        words = ["demo", "--scenario", scenario, "--seconds", str(seconds), "--json", *self._words, *self._new, *more]
        code = run(words)
        captured = self._capsys.readouterr()
        assert code == 0, captured
        summary: dict[str, Any] = json.loads(captured.out)
        faults = ("lost", "duplicated", "out_of_order", "misplaced", "failed")
        assert {name: summary[name] for name in faults} == dict.fromkeys(faults, 0)
        assert summary["clean"] and summary["read"] >= summary["acked"] > 100
        assert {node.state for node in self._cluster.processes()} == {"running"}
        return summary


@pytest.fixture
def demo(cluster: LocalCluster, capsys: pytest.CaptureFixture[str]) -> Demo:
    return Demo(cluster, capsys)


@pytest.mark.feature("FI-10")
def test_the_leader_and_the_controller_die_and_no_record_is_lost(demo: Demo, tmp_path: Path) -> None:
    drawing = tmp_path / "demo.svg"
    summary = demo("kill", "--picture", str(drawing), seconds=5)
    calm, leader, controller, start = (gap["what"] for gap in summary["gaps"])
    assert calm == "before the first fault"
    assert leader.startswith("kill -9 broker-") and controller.startswith("kill -9 controller-")
    assert start.startswith("start broker-")
    assert summary["unknown"] == 0
    # The session of a broker would last 9 s: that a killed one is gone is noticed, not waited for.
    assert all(gap["longest_gap_ms"] < 8_000 for gap in summary["gaps"])
    assert "</svg>" in drawing.read_text()


@pytest.mark.slow
@pytest.mark.feature("FI-09")
def test_a_paused_leader_comes_back_fenced(demo: Demo) -> None:
    summary = demo("pause", "--set", "broker.session.timeout.ms=2000", seconds=4)
    assert summary["zombie"]["answer"] == "NOT_LEADER_OR_FOLLOWER"
    assert not summary["zombie"]["acked"] and not summary["zombie"]["read"]
    assert summary["unknown"] == 1, "the write that the zombie refused"


@pytest.mark.slow
@pytest.mark.feature("FI-10", "OP-03")
def test_a_running_cluster_is_used_and_left_running(demo: Demo, cluster: LocalCluster) -> None:
    cluster.up()
    cluster.wait_ready()
    cluster.kill("broker-3")
    assert "broker-3" not in demo("all-at-once", seconds=3)["gaps"][1]["what"]
    before = {node.name: node.pid for node in cluster.processes()}
    rolled = [gap["what"] for gap in demo("rolling", seconds=3)["gaps"][1:]]
    assert rolled == [f"restart {node.name}" for node in cluster.nodes]
    after = {node.name: node.pid for node in cluster.processes()}
    assert all(after[name] != pid for name, pid in before.items())


def test_an_unknown_scenario_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["demo", "--scenario", "earthquake"]) == 2
    assert capsys.readouterr().err == "--scenario must be one of kill, pause, all-at-once, rolling; got 'earthquake'\n"
