"""A suite on a machine without some privileges skips those faults and reports it; it does not fail."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from typer import Typer
from typer.testing import CliRunner

from commands import suite
from running import privileges
from running.jobs import Job, Tally
from running.processes import VALID, Done
from scenarios.catalogue import find
from scenarios.processes import NEED_POWER, STORIES

NO_POWER = "a power cut needs root (a file system of its own for each node)"


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Removes all privileges of the current user."""
    asked = (privileges.why_no_power, privileges.why_no_namespaces, privileges.why_no_containers)
    for each in asked:
        each.cache_clear()
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    yield
    for each in asked:
        each.cache_clear()


@pytest.mark.feature("FI-12")
def test_a_regression_without_root_leaves_out_what_needs_it_and_says_so(
    nobody: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended with 2: a scenario of real processes cuts the power of a node, and without root that did not come
    about."""
    done: list[tuple[str, ...]] = []

    def do(words: Sequence[str], _store: Path | None = None) -> Done:
        done.append(tuple(words))
        lacking = ("power is off: " + NO_POWER,) if "kill,power" in words else ()
        return Done(tuple(words), VALID, (*lacking, "VALID | store/a"), 1.0)

    runs = [
        ("run", "queue", "--cluster", "netns", "--nemesis", "kill"),
        ("run", "set", "--cluster", "local", "--nemesis", "kill,power"),
    ]
    monkeypatch.setattr("running.jobs.do", do)
    monkeypatch.setattr(suite, "past_runs", lambda: runs)
    app = Typer()
    app.command()(suite.command)
    result = CliRunner().invoke(app, ["regression", "--store", str(tmp_path), "--jobs", "1"])
    assert result.exit_code == VALID, result.output

    lines = result.output.splitlines()
    [scenario] = [find(str(number)) for number in NEED_POWER]
    assert scenario is not None
    assert ("scenario", scenario.name) in done, "the simulated one needs nobody"
    assert ("scenario", scenario.name, "--cluster", "local") not in done and runs[0] not in done and runs[1] in done
    assert f"off                scenario-{scenario.name}-local: {NO_POWER}" in lines
    assert lines[-4:-1] == [
        f"off on this machine: scenario-{scenario.name}-local: {NO_POWER}",
        "off on this machine: queue: network namespaces need root: --cluster local breaks links without",
        f"off on this machine: power in set: {NO_POWER}",
    ]
    assert lines[-1].startswith("VALID: suite regression") and "nothing was found, 3 off on this machine" in lines[-1]


@pytest.mark.feature("FI-12")
def test_each_skipped_fault_is_reported_once() -> None:
    tally, job = Tally(), Job("set", ("run", "set"))
    for _ in range(2):
        tally.add(job, Done((), VALID, ("power is off: no root", "the light is off: night"), 1.0))
    assert tally.off == ["power in set: no root"] and tally.exit_code == VALID


def test_scenarios_that_cut_the_power_are_listed() -> None:
    assert {number for number, story in STORIES.items() if "power_cut" in inspect.getsource(story)} == NEED_POWER
