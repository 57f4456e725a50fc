"""No step of a request makes more calls than fit into its share of the event loop."""

from __future__ import annotations

import sys

import pytest

from barnabas.runtime.simulated.work import WorkCounter
from simulation import seed
from simulation.findings import Findings
from simulation.invariants import work


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


def test_a_seed_that_counts_is_the_same_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seed, "COUNTED_SHARE", 0.0)
    plain = seed.run_seed(1)
    monkeypatch.setattr(seed, "COUNTED_SHARE", 1.0)
    counted = seed.run_seed(1)
    assert counted.passed and counted.counts["runs whose steps are counted"] == 1
    assert counted.digest == plain.digest


def test_a_seed_with_a_long_step_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seed, "COUNTED_SHARE", 1.0)
    monkeypatch.setattr(work, "MOST_CALLS", 100)
    report = seed.run_seed(1)
    assert not report.passed and "makes" in report.broken[0]
