"""Plans of seeds for tests: a workload of their choice, in a cluster of the usual size."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from running.plan import Plan
from running.seed import run_plan
from running.swarm import USUAL_FAULTS, draw_plan

USUAL = ("latency-ms=", "disk-ms=", "fault", "until-broken")
"""Conditions that a usual cluster has as well."""


def usual(seed: int, workload: str, **changes: Any) -> Plan:
    """The plan of a seed without extras: three brokers and three controllers, and faults that all seeds may have."""
    plan = draw_plan(seed)
    faults = tuple(kind for kind in plan.nemesis if kind in USUAL_FAULTS)
    conditions = tuple(each for each in plan.condition if each.startswith(USUAL))
    topics = tuple(each for each in plan.topic_config if not each.startswith("min.insync"))
    without = {"workload": workload, "option": (), "condition": conditions, "nemesis": faults}
    plan = replace(plan, **without, topic_config=(*topics, "min.insync.replicas=2"), group_protocol="classic")
    return replace(plan, **changes)


def is_found(plant: str, plans: Iterable[Plan], *promises: str) -> bool:
    """Runs the plans with the plant until one fails; by one of the promises, if any is named."""
    for plan in plans:
        broken = run_plan(replace(plan, plant=plant or None)).broken
        if any(not promises or promise in line for line in broken for promise in promises or ("",)):
            return True
    return False
