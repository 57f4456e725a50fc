"""Whole clusters, one universe for each seed: everything breaks, and every promise is kept.

`make simulate SEEDS=…` runs more of them, and replays one that failed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from commands.seeds import command
from running.many_seeds import (
    ENOUGH_SEEDS,
    MUST_HAPPEN,
    Summary,
    describe_failure,
    parse_seeds,
    read_seeds,
)
from running.plan import Plan, WrongPlan
from running.seed import SeedReport, run_plan, run_seed
from running.shrinking import plan_of
from running.swarm import PHASE_SECONDS, draw_plan
from simulation.conditions import Conditions, parse_conditions, shown
from simulation.coverage import parse_pairs
from tests.simulation.plans import usual

BLOCKS = 5
SEEDS_IN_A_BLOCK = 5
"""Short blocks: two workers that share them end at the same time."""
ROOT = Path(__file__).resolve().parents[2]
PAIRS = Path(__file__).with_name("pairs.txt")
PAST = Path(__file__).with_name("seeds.txt")
"""Seeds that failed once."""

REPLAY = """
from running.seed import run_seed
report = run_seed({seed})
print(report.digest, report.counts, report.broken)
"""


@pytest.mark.feature("FI-05", "FI-06", "FI-07", "FI-08", "RE-10", "RE-11", "RE-21", "KR-17")
@pytest.mark.parametrize("block", range(BLOCKS))
def test_every_promise_is_kept(block: int) -> None:
    digests = set()
    for seed in range(1 + block * SEEDS_IN_A_BLOCK, 1 + (block + 1) * SEEDS_IN_A_BLOCK):
        report = run_seed(seed)
        assert report.passed, describe_failure(report)
        digests.add(report.digest)
        assert report.simulated_seconds >= PHASE_SECONDS
    assert len(digests) == SEEDS_IN_A_BLOCK, "every seed is another story"


@pytest.mark.feature("FI-05")
def test_a_plan_without_faults_breaks_nothing() -> None:
    """It ended at once with an IndexError: the nemesis drew a fault from none."""
    report = run_plan(usual(3, "set", nemesis=()))
    assert report.passed, describe_failure(report)
    assert report.counts["acks"] > 0
    assert not [what for what in report.counts if what.startswith("fault: ")]


@pytest.mark.feature("FI-05")
@pytest.mark.parametrize("seed", read_seeds(PAST))
def test_seeds_that_failed_once_pass(seed: int) -> None:
    report = run_seed(seed)
    assert report.passed, describe_failure(report)


@pytest.mark.feature("FI-05")
def test_a_seed_replays_exactly_in_other_processes() -> None:
    def replay(hash_seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": f"{ROOT}:{ROOT / 'jepsen-style'}"}
        script = REPLAY.format(seed=4)
        done = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=300, check=True
        )
        return done.stdout

    first = replay("1")
    assert first == replay("77")
    assert "'acks'" in first


def run_command(seeds: str, **options: object) -> int:
    """The exit code of `python jepsen-style seeds`."""
    with pytest.raises(typer.Exit) as ended:
        command(seeds, **options)  # type: ignore[arg-type]
    return ended.value.exit_code


def report_of(seed: int, counts: dict[str, int], *broken: str) -> SeedReport:
    return SeedReport(seed, Plan("set", seed=seed, cluster="sim"), list(broken), counts)


@pytest.mark.feature("FI-05")
def test_the_plan_of_a_seed_is_one_that_run_takes() -> None:
    for seed in range(100):
        plan = draw_plan(seed)
        assert plan_of(plan.replay()) == plan == draw_plan(seed)


@pytest.mark.feature("FI-05")
def test_conditions_are_shown_as_they_are_given() -> None:
    conditions = Conditions(size=(4, 5), latency_ms=(0.3, 1.0), core=True, tuned={"a.b": 3}, passing_topics=0.5)
    pairs = shown(conditions)
    assert pairs == ["size=4/5", "latency-ms=0.3/1", "core=true", "passing-topics=0.5", "inner.a.b=3"]
    assert parse_conditions(dict(pair.split("=") for pair in pairs)) == conditions


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        ({"condition": ("size=4",)}, "size must be BROKERS/CONTROLLERS; got '4'"),
        ({"condition": ("size=0/3",)}, "a broker and a controller at least"),
        ({"condition": ("weather=bad",)}, "weather is unknown; there are size,"),
        ({"condition": ("inner.a=x",)}, "inner.a must be a whole number; got 'x'"),
        ({"condition": ("core=true",), "cluster": "local"}, "only --cluster sim"),
        ({"condition": ("size=3/3",), "without_nodes": ("broker-3",)}, "--without-nodes"),
        ({"client_config": ("colour_ms=3",)}, "--client-config colour_ms=3"),
        ({"client_config": ("assignors=best",)}, "of range, roundrobin"),
    ],
)
def test_conditions_that_cannot_be_are_refused(plan: dict[str, Any], reason: str) -> None:
    with pytest.raises(WrongPlan, match=reason):
        Plan("set", **{"cluster": "sim", **plan})


@pytest.mark.feature("FI-05", "FI-11")
def test_a_seed_that_fails_is_kept_as_a_run_is(tmp_path: Path) -> None:
    report = run_plan(usual(4, "set", plant="ack-before-replication"), tmp_path)
    assert not report.passed
    assert report.directory == tmp_path / "seed-4"
    assert {"history.jsonl", "report.html", "verdict.json", "trace.txt"} <= {
        path.name for path in report.directory.iterdir()
    }
    assert "--plant ack-before-replication" in describe_failure(report)


@pytest.mark.feature("FI-05", "FI-12")
def test_a_summary_shows_hours_faults_and_their_cost() -> None:
    summary = Summary()
    for seed in range(2):
        report = report_of(seed, {"fault: kill": 3, "fault: clog": 1, "acks": 7})
        report.simulated_seconds, report.cpu_seconds = 1_800.0, 2.5
        report.coverage = {
            "faults": ["kill"],
            "cells": {"is starting": {"kill": seed}, "is active": {"kill": 0}},
            "struck": {"kill": seed},
            "points": {},
            "never": [],
        }
        summary.add(report)
    assert list(summary.lines())[:2] == [
        "2 seeds: 1.00 simulated hours and 8 faults in 5 CPU seconds (2.50 each)",
        "1 of 2 pairs of a state and a fault have met (50.0 %)",
    ]


@pytest.mark.feature("FI-05", "FI-12")
def test_a_summary_fails_for_pairs_that_were_never_met() -> None:
    def met(*pairs: tuple[str, str]) -> Summary:
        summary = Summary(must_meet=[("is active", "kill"), ("loads a snapshot", "*")])
        report = report_of(1, {})
        faults, states = ("kill", "pause"), ("is active", "loads a snapshot")
        cells = {state: {fault: int((state, fault) in pairs) for fault in faults} for state in states}
        never = [[state, fault] for state in states for fault in faults if not cells[state][fault]]
        report.coverage = {"faults": faults, "cells": cells, "struck": {}, "points": {}, "never": never}
        summary.add(report)
        return summary

    assert met(("is active", "kill"), ("loads a snapshot", "pause")).not_met == []
    missing = met(("is active", "pause"))
    assert missing.not_met == ["is active | kill", "loads a snapshot | *"]
    assert "never met: loads a snapshot | *" in list(missing.lines())
    assert not missing.too_little
    missing.least_coverage = 25.0
    assert not missing.too_little
    missing.least_coverage = 25.1
    assert missing.too_little
    assert "too few pairs have met: 25.1 % are required" in list(missing.lines())
    assert Summary(must_meet=[("is active", "kill")]).not_met == ["is active | kill"], "a run that met nothing at all"


@pytest.mark.feature("FI-05")
def test_a_run_that_does_not_meet_what_it_must_names_the_pair(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = tmp_path / "pairs.txt"
    pairs.write_text("is starting | *\nloads a snapshot | clock  # nothing of the kind in one seed\n")
    assert run_command("3", jobs=1, must_meet=pairs) == 1
    output = capsys.readouterr().out
    assert "never met: loads a snapshot | clock" in output and "every promise was kept" in output


@pytest.mark.parametrize(
    ("line", "output"),
    [
        ("is active, kill", "pairs.txt:1: a line must be `state | fault`; got 'is active, kill'"),
        ("is asleep | kill", "pairs.txt:1: unknown state 'is asleep'"),
        ("is active | boredom", "or *; got 'boredom'"),
    ],
)
def test_a_pair_that_nothing_can_meet_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, output: str
) -> None:
    pairs = tmp_path / "pairs.txt"
    pairs.write_text(line)
    assert run_command("3", must_meet=pairs) == 2
    assert output in capsys.readouterr().err


@pytest.mark.feature("FI-05")
def test_the_pairs_of_the_night_can_be_met() -> None:
    assert len(parse_pairs(PAIRS.read_text(), "pairs.txt")) > 50


@pytest.mark.feature("FI-05")
def test_a_summary_fails_for_what_never_happened() -> None:
    summary = Summary()
    everything = dict.fromkeys(MUST_HAPPEN, 1)
    for seed in range(ENOUGH_SEEDS):
        summary.add(report_of(seed, everything))
    assert summary.never == [] and "every promise was kept" in list(summary.lines())
    missing = Summary()
    for seed in range(ENOUGH_SEEDS):
        assert missing.never == []
        missing.add(report_of(seed, everything | {"log truncations": 0}))
    assert missing.never == ["log truncations"]
    assert "never happened: log truncations" in list(missing.lines())


def test_a_summary_names_the_seeds_that_failed() -> None:
    summary = Summary()
    summary.add(report_of(3, {}))
    summary.add(report_of(8, {}, "a promise"))
    assert list(summary.lines())[-1] == "failed: 8"


def test_which_seeds(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert parse_seeds("7") == [7]
    assert parse_seeds("3,8,20-22") == [3, 8, 20, 21, 22]
    wrong = tmp_path / "seeds.txt"
    wrong.write_text("7 sometimes  # a word that means nothing\n")
    with pytest.raises(ValueError, match="7 sometimes"):
        read_seeds(wrong)
    assert run_command("some") == 2
    assert "got 'some'" in capsys.readouterr().err
    assert run_command("1", also=Path("not/there")) == 2
    assert "--also not/there" in capsys.readouterr().err
    assert run_command("1", require_coverage=101.0) == 2
    assert "between 0 and 100; got 101" in capsys.readouterr().err
