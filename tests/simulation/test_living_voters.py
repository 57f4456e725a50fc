"""Voters of the metadata log change in some seeds; mistakes in these changes are found within a hundred."""

from __future__ import annotations

from dataclasses import replace

import pytest

from running.plan import Plan
from running.seed import run_plan
from running.swarm import draw_plan

MISTAKES = ("two-changes-of-voters", "change-before-commit", "votes-by-id-alone")
WITHIN = 100


def plans() -> list[Plan]:
    """Those of the first seeds whose voters change."""
    return [plan for seed in range(1, WITHIN + 1) if "voters" in (plan := draw_plan(seed)).nemesis]


@pytest.mark.slow
@pytest.mark.feature("KR-14", "FI-11")
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_found_within_a_hundred_seeds(name: str) -> None:
    for plan in plans():
        report = run_plan(replace(plan, plant=name))
        if report.broken:
            return
    raise AssertionError(f"{name} was not found")
