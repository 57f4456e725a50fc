"""Broken nodes: what a plant changes, what it leaves alone, and that processes get it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from barnabas.broker.replication.replica import Replica
from barnabas.cluster.errors import ClusterError
from barnabas.cluster.layout import Layout
from barnabas.cluster.plan import MODULES, Programs
from barnabas.runtime.process import ArgumentError
from commands.plants import command
from plants import trying
from plants.catalogue import PLANTS, NoSuchPlant, find
from plants.node import broken, load
from plants.plant import Plant, Trial, planted
from plants.trying import Outcome, arguments, is_found, try_plant

LOAD = """
import sys
from plants.node import load
from barnabas.broker.replication.replica import Replica
text = open(sys.argv[1]).read()
print(load(text, sys.argv[1], {}).name, Replica.enough_replicas.__module__)
"""


@pytest.mark.feature("FI-11")
@pytest.mark.parametrize("plant", PLANTS.values(), ids=list(PLANTS))
def test_a_plant_is_taken_back(plant: Plant) -> None:
    before = [patch.owner.__dict__[patch.attribute] for patch in plant.patches]
    with planted(plant):
        changed = [patch.owner.__dict__[patch.attribute] for patch in plant.patches]
    after = [patch.owner.__dict__[patch.attribute] for patch in plant.patches]
    assert all(one is other for one, other in zip(before, after, strict=True))
    assert not any(one is other for one, other in zip(before, changed, strict=True))
    assert all(patch.attribute in plant.owner for patch in plant.patches)


@pytest.mark.feature("FI-11")
def test_all_that_must_be_caught_are_tried_in_the_simulation_and_in_processes() -> None:
    tried = [name for name, plant in PLANTS.items() if plant.sim is not None and plant.local is not None]
    assert len(tried) >= 12
    assert all(plant.found_by for plant in PLANTS.values())


def test_an_unknown_plant_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(NoSuchPlant, match=r"no plant no-dedupe; there are: .*no-dedup"):
        find("no-dedupe")
    assert find(None) is None
    with planted(None):
        assert Replica.enough_replicas.__module__ == Replica.__module__


def test_programs_without_a_plant_are_unchanged() -> None:
    programs = Programs()
    assert broken(programs, None) is programs


@pytest.mark.feature("FI-11")
def test_a_process_has_the_plant_and_is_the_node_that_it_would_be(tmp_path: Path) -> None:
    layout = Layout.open(tmp_path, 20000)
    node = layout.node("broker-2")
    layout.render_config(node, {})
    programs = broken(Programs(), "ack-before-replication")
    assert set(programs.modules) == set(MODULES)
    done = subprocess.run(
        [sys.executable, "-P", "-c", LOAD, str(layout.config_file(node))],
        env={**os.environ, **programs.environment},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.split() == ["broker-2", "plants.replication"]


def test_a_broken_node_without_a_plant_refuses_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JEPSEN_STYLE_PLANT", raising=False)
    with pytest.raises(ArgumentError, match="JEPSEN_STYLE_PLANT"):
        load("", "broker-1.properties", {})


# ---- trying

PLANT = Plant("some", "does wrong", [], ["lost-write"], Trial(runs=3), None)


def test_a_trial_is_what_the_command_line_says(tmp_path: Path) -> None:
    trial = Trial("bank", ["kill", "pause"], 30.0, settings={"min.insync.replicas": "2"})
    words = arguments(trial, "sim", 7, PLANT, tmp_path)
    assert words[:4] == ["run", "bank", "--cluster", "sim"]
    line = " ".join(words)
    for expected in ("--seed 7", "--time 30", "--nemesis kill,pause", "--settings min.insync.replicas=2"):
        assert expected in line
    assert line.endswith("--plant some")
    assert "--plant" not in arguments(trial, "sim", 7, None, tmp_path)


@pytest.mark.feature("FI-11")
def test_a_plant_is_found_by_what_should_find_it_and_not_by_something_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = {1: ("unseen",), 2: ("unseen", "lost-write")}

    def run_once(trial: Trial, world: str, seed: int, plant: Plant | None, store: Path) -> Outcome:
        return Outcome(seed, False, seen.get(seed, ()), 1.0, store)

    monkeypatch.setattr(trying, "run_once", run_once)
    tried = try_plant(PLANT, "sim", tmp_path)
    assert tried.found
    assert [outcome.seed for outcome in tried.outcomes] == [1, 2]
    assert not is_found(PLANT, tried.outcomes[0])
    later = try_plant(PLANT, "sim", tmp_path, first_seed=3)
    assert not later.found
    assert [outcome.seed for outcome in later.outcomes] == [3, 4, 5]


@pytest.mark.feature("FI-11")
def test_a_run_that_breaks_off_has_found_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python ends with 1 where the suite itself is at fault, and so does a run that found something."""

    def run(command: list[str], _timeout_seconds: float) -> subprocess.CompletedProcess[str]:
        (tmp_path / "queue-sim-1").mkdir()
        return subprocess.CompletedProcess(command, 1, "", "Traceback ...\nImportError: no module named checkers\n")

    monkeypatch.setattr(trying.CHILDREN, "run", run)
    with pytest.raises(ClusterError, match="without a verdict: ImportError: no module") as error:
        trying.run_once(Trial(), "sim", 1, PLANT, tmp_path)
    assert "\n" not in str(error.value)


def test_the_command_lists_plants_and_refuses_what_it_does_not_know() -> None:
    app = typer.Typer()
    app.command()(command)
    listed = CliRunner().invoke(app)
    assert listed.exit_code == 0
    assert all(name in listed.stdout for name in PLANTS)
    for words, line in (
        (["--try", "no-dedupe"], "there is no plant no-dedupe"),
        (["--try", "no-dedup", "--cluster", "netns"], "--cluster netns"),
    ):
        refused = CliRunner().invoke(app, words)
        assert refused.exit_code == 2
        assert line in refused.output
        assert len(refused.output.splitlines()) == 1
