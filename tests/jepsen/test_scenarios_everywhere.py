"""Scenarios in the words of every world, here with simulated nodes; and the command that plays all of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer import Typer
from typer.testing import CliRunner

from barnabas.storage.producer_tracker import ProducerTracker
from commands.scenario import command
from scenarios.catalogue import SCENARIOS, find
from scenarios.processes import STORIES
from scenarios.stage import SETTINGS, NotBroughtAbout, Violation, leaves_of
from worlds.world_options import WorldOptions, run_in

QUICK = (1, 12, 22)


def play(number: int, directory: Path) -> None:
    run_in(WorldOptions("sim", 1, directory, settings=SETTINGS), STORIES[number])


@pytest.mark.feature("FI-03", "FI-09")
@pytest.mark.parametrize("number", QUICK)
def test_a_story_in_the_words_of_all_worlds(number: int, tmp_path: Path) -> None:
    play(number, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("number", [number for number in STORIES if number not in QUICK])
def test_and_the_longer_ones(number: int, tmp_path: Path) -> None:
    play(number, tmp_path)


@pytest.mark.slow
@pytest.mark.feature("FI-04", "FI-09")
@pytest.mark.parametrize("number", STORIES)
def test_with_processes(number: int, tmp_path: Path) -> None:
    faults = ("kill", "pause", "stop", "partition", "message", "power")
    options = WorldOptions("local", 1, tmp_path, settings=SETTINGS, faults=faults)
    try:
        run_in(options, STORIES[number])
    except (NotBroughtAbout, BaseExceptionGroup) as error:
        if os.geteuid() == 0 or not any("a power cut needs root" in str(leaf) for leaf in leaves_of(error)):
            raise
        pytest.skip("a power cut needs root")


def test_it_finds_there_what_it_is_about(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProducerTracker, "check", lambda *_: None)
    with pytest.raises((Exception, BaseExceptionGroup)) as caught:
        play(1, tmp_path)
    assert any(isinstance(leaf, Violation) for leaf in leaves_of(caught.value))


# ---- the command

app = Typer()
app.command()(command)


def run(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, words)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def test_the_list_names_all() -> None:
    code, output = run("--list")
    assert code == 0
    assert all(f"{scenario.number:2}  {scenario.name} " in output for scenario in SCENARIOS.values())


def test_by_name_or_number() -> None:
    assert find("10") is find("acked-too-early") is SCENARIOS["acked-too-early"]
    code, output = run("acked-too-early", "--seed", "3")
    assert code == 0
    assert output.splitlines()[-1] == "valid; again: python jepsen-style scenario acked-too-early --seed 3"


def test_an_anomaly_is_described_and_exits_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProducerTracker, "check", lambda *_: None)
    code, output = run("1", "--seed", "1")
    assert code == 1
    assert "does not hold: acked at 2, it was written at 1" in output
    assert output.splitlines()[-1] == "anomaly; again: python jepsen-style scenario duplicate --seed 1"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ((), "which one? --list names all"),
        (("nix",), "there is no scenario 'nix'; --list names all"),
        (("2", "--cluster", "moon"), "--cluster moon: scenarios are played in sim, local, netns"),
        (("2", "--cluster", "local"), "inconsistent-offsets has no form for processes; those that have: duplicate,"),
    ],
)
def test_bad_words_are_2_and_one_line(words: tuple[str, ...], line: str) -> None:
    code, output = run(*words)
    assert code == 2
    assert output.startswith(line) and len(output.splitlines()) == 1
