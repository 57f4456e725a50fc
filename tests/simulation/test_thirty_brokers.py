"""Thirty brokers, nine voters and two observers in one simulation: every promise holds through faults and changes."""

from __future__ import annotations

import pytest

from running.plan import Plan
from running.seed import run_plan

pytestmark = [pytest.mark.slow, pytest.mark.feature("OP-08", "KR-14", "FI-11")]

SIZE = (30, 11)
VOTERS = 9


@pytest.mark.timeout(1200)
def test_promises_hold_in_a_large_cluster_whose_voters_and_replicas_change() -> None:
    """Seed 9: voters come and go, replicas move, nodes are killed, stopped and cut off, while a queue is filled."""
    plan = Plan(
        "queue",
        seed=9,
        cluster="sim",
        nemesis=("kill", "stop", "voters", "voters", "reassign", "partition", "restart-all"),
        time=30.0,
        rate=10.0,
        concurrency=3,
        interval=3.0,
        condition=(f"size={SIZE[0]}/{SIZE[1]}", f"voters={VOTERS}"),
        quiet=3.0,
    )
    report = run_plan(plan)
    assert report.broken == []
    assert report.counts["changes of the voters"] >= 1
    assert report.counts["raft elections"] >= 2
    assert report.counts["partition elections"] >= 1
    assert report.counts["acks"] >= 100
