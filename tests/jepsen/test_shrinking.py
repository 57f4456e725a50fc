"""From a run that fails to the smallest one that fails alike; and what suites are made of."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from commands.suite import quick
from running.experiment import carry_out as carry_out_plan
from running.jobs import Job, Tally, carry_out, coverage_of, past_runs, past_seeds, swarm
from running.plan import Plan, WrongPlan, ranges_of
from running.processes import ANOMALY, COULD_NOT_RUN, VALID, Done, story_of
from running.shrinking import NO_CRASHES_SECONDS, Enough, Trial, plan_of, shown_ranges, shrink
from workloads.catalogue import WORKLOADS

PLAN = Plan(
    "queue", seed=7, cluster="sim", nemesis=("kill", "pause"), time=60.0, settings=("num.partitions=2",),
    option=("prefix=x",),
)  # fmt: skip


def never_mind(_: str) -> None:
    pass


def fails_when(rule: Callable[[Plan, Sequence[int]], bool], faults: Sequence[int]) -> Callable[[Plan], Trial]:
    """A cluster that has a fault every five seconds, and loses a record when the rule says so."""

    def attempt(plan: Plan) -> Trial:
        came = [number for number in faults if number * 5 < plan.time and plan.nemesis]
        came = [number for number in came if not plan.only_faults or str(number) in plan.only_faults]
        found = ("lost-write",) if rule(plan, came) else ()
        asked = int(plan.time * plan.rate)
        gone = sum(len(each) for each in ranges_of(plan.without_operations))
        return Trial(found, 33.0 if found else None, tuple(came), asked - gone, asked)

    return attempt


@pytest.mark.feature("FI-12")
def test_a_command_line_is_the_plan_that_it_was_made_from() -> None:
    plan = Plan("bank", 3, "sim", ("kill",), only_faults=("3", "7"), no_transactions=False, assign_only=True, rate=7.5)
    assert plan_of(plan.replay()) == plan
    assert plan_of(PLAN.replay()) == PLAN
    for wrong in ("ls -l", "python jepsen-style run queue --not-there 3", "python jepsen-style run queue --keys many"):
        with pytest.raises(WrongPlan):
            plan_of(wrong)


@pytest.mark.feature("FI-12")
def test_a_failure_that_needs_two_faults_keeps_these_and_little_else() -> None:
    def needs(plan: Plan, came: Sequence[int]) -> bool:
        return {3, 6} <= set(came) and plan.concurrency >= 3 and plan.time >= 32

    attempt = fails_when(needs, range(1, 12))
    shrunk = shrink(PLAN, attempt(PLAN), "lost-write", attempt, never_mind)
    assert shrunk.plan.only_faults == ("3", "6") and shrunk.trial.faults == (3, 6)
    assert shrunk.plan.concurrency == 3 and shrunk.plan.keys == 1 and shrunk.plan.rate == 1
    assert shrunk.plan.no_transactions and shrunk.plan.assign_only
    assert 32 <= shrunk.plan.time < 36
    assert len(shrunk.plan.without_processes) == 2 and len(shrunk.plan.without_nodes) == 4
    assert shrunk.trial.operations < 3
    assert shrunk.runs < 90


@pytest.mark.feature("FI-12")
def test_a_failure_that_needs_certain_processes_nodes_and_operations_keeps_these() -> None:
    def needs(plan: Plan, _came: Sequence[int]) -> bool:
        gone = {number for each in ranges_of(plan.without_operations) for number in each}
        working = {str(number) for number in range(plan.concurrency)} - {*plan.without_processes}
        return (
            not gone & {17, 18, 40}
            and {"1", "4"} <= working
            and "controller-102" not in plan.without_nodes
            and plan.time * plan.rate > 40
        )

    attempt = fails_when(needs, ())
    shrunk = shrink(PLAN, attempt(PLAN), "lost-write", attempt, never_mind)
    left = set(range(shrunk.trial.thought_of))
    left -= {number for each in ranges_of(shrunk.plan.without_operations) for number in each}
    assert left == {17, 18, 40}
    assert {*map(str, range(shrunk.plan.concurrency))} - {*shrunk.plan.without_processes} == {"1", "4"}
    assert set(shrunk.plan.without_nodes) == {"broker-3", "broker-2", "controller-103"}
    assert plan_of(shrunk.plan.replay()) == shrunk.plan
    assert shrunk.runs < 150


@pytest.mark.feature("FI-12")
def test_numbers_are_shown_as_ranges() -> None:
    assert list(shown_ranges([])) == []
    assert list(shown_ranges([0])) == ["0"]
    numbers = [0, 1, 2, 7, 9, 10]
    assert list(shown_ranges(numbers)) == ["0-2", "7", "9-10"]
    assert [number for each in ranges_of(["0-2", "7", "9-10"]) for number in each] == numbers
    for wrong in ("", "a", "3-", "-3", "9-8", "1-2-3"):
        with pytest.raises(WrongPlan):
            ranges_of([wrong])


@pytest.mark.feature("FI-12")
def test_a_plan_with_fewer_nodes_asks_for_fewer_replicas() -> None:
    plan = Plan("queue", cluster="sim", without_nodes=("broker-3", "controller-103"), option=("prefix=x",))
    assert plan.workload_options().more == {"prefix": "x", "replicas": "2"}
    assert plan.node_settings()["offsets.topic.replication.factor"] == "2"
    assert Plan("queue", cluster="sim").node_settings() == {}
    assert "replicas" not in Plan("queue", cluster="sim", without_nodes=("controller-103",)).workload_options().more


@pytest.mark.feature("FI-12")
def test_another_anomaly_is_not_the_same_failure() -> None:
    def attempt(plan: Plan) -> Trial:
        name = "lost-write" if plan.nemesis else "duplicate"
        return Trial((name,), 10.0, (1,) if plan.nemesis else (), 10)

    shrunk = shrink(PLAN, attempt(PLAN), "lost-write", attempt, never_mind)
    assert shrunk.plan.nemesis == PLAN.nemesis and shrunk.plan.only_faults == ("1",)


@pytest.mark.feature("FI-12")
def test_a_search_that_is_ended_gives_what_it_has() -> None:
    left = [True, True, True]

    def attempt(plan: Plan) -> Trial:
        if not left:
            raise Enough
        left.pop()
        return Trial(("lost-write",), None, (1, 2), 10)

    first = Trial(("lost-write",), None, (1, 2), 10)
    assert shrink(PLAN, first, "lost-write", attempt, never_mind).plan.time == 7.5


@pytest.mark.feature("FI-12")
def test_no_faults_at_all_where_none_are_needed() -> None:
    attempt = fails_when(lambda _plan, _came: True, range(1, 12))
    shrunk = shrink(PLAN, attempt(PLAN), "lost-write", attempt, never_mind)
    assert shrunk.plan.nemesis == () and shrunk.plan.time < 3


@pytest.mark.feature("FI-12")
def test_a_run_is_read_from_its_directory(tmp_path: Path) -> None:
    assert story_of(tmp_path) is None
    finding = {"anomaly": "lost-write", "operations": [1], "legal": False}
    (tmp_path / "verdict.json").write_text(json.dumps({"findings": [finding, {**finding, "legal": True}]}))
    (tmp_path / "run.json").write_text(json.dumps({"thought_of": 5}))
    lines = [
        {"i": 0, "process": "nemesis", "type": "invoke", "f": "kill", "value": {"number": 4}, "t_ns": 1},
        {"i": 1, "process": 2, "type": "invoke", "f": "send", "value": [], "t_ns": 2_000_000_000},
        {"i": 2, "process": "nemesis", "type": "info", "f": "heal", "value": {"number": 0}, "t_ns": 3},
    ]
    (tmp_path / "history.jsonl").write_text("\n".join(map(json.dumps, lines)) + '\n{"i": 3, "pro')
    story = story_of(tmp_path)
    assert story is not None
    assert (story.anomalies, story.last_seconds, story.faults, story.operations) == (("lost-write",), 2.0, (4,), 1)
    assert story.thought_of == 5


@pytest.mark.feature("FI-12")
def test_a_suite_goes_on_after_what_failed_and_its_verdict_is_the_worst(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes = {"a": VALID, "b": ANOMALY, "c": COULD_NOT_RUN, "d": VALID}

    def do(words: Sequence[str], store: Path | None = None) -> Done:
        return Done(tuple(words), codes[words[0]], ("what it said",), 1.0, store)

    monkeypatch.setattr("running.jobs.do", do)
    said: list[str] = []
    tally = carry_out([Job(name, (name,)) for name in codes], tmp_path, 2, said.append, lambda: True)
    assert tally.done == 4 and tally.exit_code == ANOMALY
    assert tally.failed == ["python jepsen-style b"] and tally.not_run == ["python jepsen-style c"]
    assert sum("what it said" in line for line in said) == 2
    assert carry_out([Job("c", ("c",))], tmp_path, 2, said.append, lambda: True).exit_code == COULD_NOT_RUN
    assert carry_out([Job("a", ("a",))], tmp_path, 2, said.append, lambda: False).done == 0
    assert Tally().exit_code == VALID


@pytest.mark.feature("FI-12")
def test_every_command_of_a_swarm_is_one_that_run_takes() -> None:
    jobs = swarm(1)
    plans = [plan_of("python jepsen-style " + " ".join(next(jobs).words)) for _ in range(80)]
    assert len({plan.replay() for plan in plans}) == 80
    assert [plan.seed for plan in plans] == list(range(1, 81))
    assert {plan.workload for plan in plans} == set(WORKLOADS)
    for job in quick(1):
        plan_of("python jepsen-style " + " ".join(job.words))
    for words in past_runs():
        assert plan_of("python jepsen-style " + " ".join(words)).cluster == "sim"
    assert all("seeds" in job.words for job in past_seeds())


@pytest.mark.feature("FI-12")
def test_cells_that_no_run_has_tried_are_listed(tmp_path: Path) -> None:
    def table(cells: dict[str, dict[str, int]]) -> Path:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.json"
        path.write_text(json.dumps({"faults": ["kill", "pause"], "cells": cells, "struck": {}, "points": {}}))
        return path

    first = table({"leads": {"kill": 1, "pause": 0}, "follows": {"kill": 0, "pause": 0}})
    second = table({"leads": {"kill": 0, "pause": 2}, "follows": {"kill": 0, "pause": 0}})
    assert coverage_of([]) == ("", [])
    assert coverage_of([first, second]) == ("state × fault: 2 of 4 cells happened; no fault met: follows", ["follows"])


MOST_RUNS = 28


@pytest.mark.slow
@pytest.mark.feature("FI-12")
def test_a_run_of_a_broken_cluster_gets_smaller_and_fails_still(tmp_path: Path) -> None:
    """In real simulations; so many runs that something of each kind is tried."""
    runs = 0

    def attempt(plan: Plan) -> Trial | None:
        nonlocal runs
        if runs > MOST_RUNS:
            raise Enough
        runs += 1
        outcome = carry_out_plan(plan, never_mind, directory=tmp_path / str(runs))
        story = story_of(outcome.directory)
        assert story is not None
        return Trial(story.anomalies, story.last_seconds, story.faults, story.operations, story.thought_of)

    plan = Plan(
        *("queue", 3, "sim"), time=3.0, rate=20.0, concurrency=4, quiet=2.0, plant="no-aborted-list", assign_only=True,
        without_nodes=("broker-3",), crash_every=NO_CRASHES_SECONDS, keys=1,
    )  # fmt: skip
    first = attempt(plan)
    assert first is not None and first.anomalies
    shrunk = shrink(plan, first, first.anomalies[0], attempt, never_mind)
    assert first.anomalies[0] in shrunk.trial.anomalies
    assert shrunk.plan.without_operations and shrunk.trial.operations < first.operations
    assert len(shrunk.plan.without_nodes) > 1, "nothing of this needs so many controllers"
    again = carry_out_plan(shrunk.plan, never_mind, directory=tmp_path / "again")
    assert again.verdict is not None and again.exit_code == ANOMALY
