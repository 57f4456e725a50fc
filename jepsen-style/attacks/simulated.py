"""Many requests of hostile clients in the simulation: seed after seed, until there were enough of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import count, islice

from barnabas.broker.parts import TELEMETRY_REPORTER
from running.plan import Plan
from running.seed import SeedReport, run_plan
from running.swarm import draw_plan

REQUESTS = "hostile: requests"
AT_ONCE = 6
"""Faults at a time, of which most are hostile clients."""


def simulate(requests: int, first_seed: int, jobs: int) -> Iterator[SeedReport]:
    """The seeds from `first_seed` on, faults and all, each with busy hostile clients."""
    done: Counter[str] = Counter()
    seeds = count(first_seed)
    with ProcessPoolExecutor(jobs) as pool:
        while done[REQUESTS] < requests:
            for report in pool.map(_run, islice(seeds, jobs)):
                done.update(report.counts)
                yield report


def busy_plan(seed: int) -> Plan:
    """The plan of a seed with many hostile clients."""
    plan = draw_plan(seed)
    faults = (*plan.nemesis, *("hostile",) * len(plan.nemesis))
    conditions = (*plan.condition, f"faults-at-once={AT_ONCE}", "hostile-pause=0.004")
    # Brokers serve telemetry only with its receiver.
    settings = (*plan.settings, f"metric.reporters={TELEMETRY_REPORTER}")
    return replace(plan, nemesis=faults, interval=2.0, condition=conditions, settings=settings)


def _run(seed: int) -> SeedReport:
    return run_plan(busy_plan(seed))
