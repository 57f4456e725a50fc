"""Shared by all tests: remembers which feature rows each test shows, and how it ended.

Each run adds its results to `.cache/features/`; `python docs/make_features.py` turns them into `docs/features.md`.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.examples import DEEP

# A machine that others use as well may stand still for a moment: how long an example takes says nothing about the code.
# The gate draws the same examples each time: it fails for a change. Elsewhere they are drawn at random; many of them
# by `pytest --hypothesis-profile deep`.
settings.register_profile(
    "barnabas", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize="CI" in os.environ
)
settings.register_profile(DEEP, settings.get_profile("barnabas"), max_examples=3_000, derandomize=False)
settings.load_profile("barnabas")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell ignores SIGINT for scripts in the background; tests and the programs they start need it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / ".cache" / "features"

_results: dict[str, dict[str, object]] = {}


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Carry the rows of the `feature` marks along in the report, which also crosses process borders."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    rows = [row for mark in item.iter_markers("feature") for row in mark.args]
    if rows:
        report.user_properties.append(("feature_rows", sorted(set(rows))))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    rows = [row for name, value in report.user_properties if name == "feature_rows" for row in value]
    if not rows or not (report.when == "call" or report.outcome != "passed"):
        return
    test = report.nodeid.split("[")[0]
    known = _results.setdefault(test, {"rows": rows, "outcome": report.outcome})
    if report.outcome == "failed" or known["outcome"] == "skipped":
        known["outcome"] = report.outcome


def pytest_sessionfinish(session: pytest.Session) -> None:
    if not _results or hasattr(session.config, "workerinput"):
        return
    RESULTS.mkdir(parents=True, exist_ok=True)
    target = RESULTS / f"{os.getpid()}.json"
    target.write_text(json.dumps(_results, indent=1, sort_keys=True))
