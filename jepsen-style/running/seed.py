"""One seed: its plan is drawn, and carried out as `run` does it."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from histories.promises import PROMISES
from running.experiment import COULD_NOT_RUN, Outcome, carry_out
from running.plan import Plan
from running.swarm import draw_plan

UNFINISHED = "unfinished"
"""Broken promise of a healed cluster in which not everything was read to its end."""


@dataclass(slots=True)
class SeedReport:
    """The result of one seed."""

    seed: int
    plan: Plan
    broken: list[str] = field(default_factory=list)
    """Broken promises and anomalies, one line each."""
    counts: dict[str, int] = field(default_factory=dict)
    digest: str = ""
    """Digest of everything that happened, in order."""
    simulated_seconds: float = 0.0
    cpu_seconds: float = 0.0
    coverage: dict[str, Any] = field(default_factory=dict)
    """The faults that met each state: see `coverage.Coverage.table`."""
    directory: Path | None = None
    """The directory of a run that failed; None if it passed, or was not to be kept."""

    @property
    def passed(self) -> bool:
        return not self.broken


def run_seed(
    seed: int, *, changes: Mapping[str, Any] | None = None, store: Path | None = None, workload: str = ""
) -> SeedReport:
    """Runs one seed in this process. `changes` replaces fields of its plan; `store` keeps the run if it fails; the
    workload is drawn unless given. The same arguments give the same report, in any process."""
    return run_plan(replace(draw_plan(seed, workload), **(changes or {})), store)


def run_plan(plan: Plan, store: Path | None = None) -> SeedReport:
    """The same with this plan, which is a simulation."""
    with tempfile.TemporaryDirectory(prefix="seed-") as scratch:
        directory = Path(scratch) / "run"
        outcome = carry_out(plan, lambda _line: None, directory=directory, page=False)
        report = _report(plan, outcome)
        if store is not None and not report.passed and directory.exists():
            report.directory = store / f"seed-{plan.seed}"
            shutil.rmtree(report.directory, ignore_errors=True)
            shutil.copytree(directory, report.directory)
    return report


def _report(plan: Plan, outcome: Outcome) -> SeedReport:
    report = SeedReport(plan.seed, plan)
    promises, coverage = _read(outcome.directory / PROMISES), _read(outcome.directory / "coverage.json")
    report.counts = promises.get("counts", {})
    report.digest = promises.get("digest", "")
    report.simulated_seconds = promises.get("simulated_seconds", 0.0)
    report.cpu_seconds = promises.get("cpu_seconds", 0.0)
    report.coverage = coverage
    verdict = outcome.verdict
    if verdict is None or outcome.exit_code == COULD_NOT_RUN:
        report.broken.append(outcome.summary)
    if verdict is not None:
        bad = [finding for finding in verdict.findings if not finding.legal]
        report.broken += [f"{each.anomaly} {each.where}: {each.description}" for each in bad]
        run = _read(outcome.directory / "run.json")
        if run.get("ended") == "interrupted":
            raise KeyboardInterrupt
        if not bad and not run.get("final_done", False):
            report.broken.append(f"{UNFINISHED}: {verdict.unknown_because}")
    return report


def _read(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content
