"""Brokers that share hosts, in simulations: hosts die, freeze and lose power as a whole, and nothing is lost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from running.plan import Plan
from running.seed import run_plan

pytestmark = pytest.mark.feature("MB-16", "FI-04")

PLAN = Plan(
    "queue",
    cluster="sim",
    nemesis=("host", "host", "host", "reassign", "kill", "stop"),
    time=25.0,
    rate=10.0,
    concurrency=3,
    interval=3.0,
    condition=("size=6/3", "cells=2"),
    option=("replicas=3",),
    quiet=3.0,
)


@pytest.mark.parametrize("seed", [1, *(pytest.param(each, marks=pytest.mark.slow) for each in range(2, 8))])
def test_no_acknowledged_record_is_lost_with_a_host(seed: int) -> None:
    report = run_plan(replace(PLAN, seed=seed))
    assert report.broken == []
    assert report.counts["acks"] >= 50
    assert report.counts["partition elections"] >= 1


def test_two_replicas_on_a_host_are_found() -> None:
    conditions = (*PLAN.condition, "until-broken=true")
    report = run_plan(replace(PLAN, seed=1, plant="two-replicas-on-a-host", condition=conditions))
    assert any("two replicas are on one of" in each for each in report.broken)
