"""No step of a request makes more calls than fit into its share of the event loop."""

from __future__ import annotations

import sys

import pytest

from barnabas.runtime.simulated.work import WorkCounter
from running.seed import run_plan
from simulation.findings import Findings
from simulation.invariants import work
from tests.simulation.plans import usual

LATENCY = ("latency-ms=0.3/1",)
COUNTED = (*LATENCY, "count-work=true", "until-broken=true")


def test_calls_are_counted_for_each_step() -> None:
    counts: list[tuple[str, int]] = []
    count = WorkCounter(lambda name, calls: counts.append((name, calls)))

    def step(times: int) -> int:
        for _ in range(times):
            len("")
        return times

    assert count("Metadata", lambda: step(10)) == 10
    assert count("Fetch", lambda: count("Produce", lambda: step(1000))) == 1000
    with pytest.raises(ZeroDivisionError):
        count("Fetch", lambda: 1 // 0)
    (metadata, small), (fetch, large), (failed, _) = counts
    assert (metadata, fetch, failed) == ("Metadata", "Fetch", "Fetch"), "a step within a step is part of it"
    assert 10 <= small <= 20 and 1000 <= large <= 1020
    assert sys.getprofile() is None


def test_a_step_that_is_too_long_breaks_the_promise() -> None:
    findings = Findings(lambda: 1.0)
    promise = work.Work(findings)
    promise.took("Fetch", work.MOST_CALLS)
    promise.took("Fetch", 3)
    assert findings.broken == [] and promise.largest == {"Fetch": work.MOST_CALLS}
    promise.took("Fetch", work.MOST_CALLS + 1)
    assert len(findings.broken) == 1 and "one step of Fetch" in findings.broken[0]


def test_a_seed_that_counts_is_the_same_seed() -> None:
    plain, counted = (run_plan(usual(1, "set", condition=condition)) for condition in (LATENCY, COUNTED))
    assert counted.passed and counted.counts["runs whose steps are counted"] == 1
    assert counted.digest == plain.digest


def test_a_seed_with_a_long_step_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "MOST_CALLS", 100)
    report = run_plan(usual(1, "set", condition=COUNTED))
    assert any("makes" in line for line in report.broken)
