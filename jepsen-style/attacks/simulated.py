"""Many requests of hostile clients in the simulation: seed after seed, until there were enough of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import count, islice

from simulation.seed import SeedReport, run_seed
from simulation.swarm import HostilePlan

BUSY = HostilePlan(clients=3, pause_seconds=0.004)
"""Number of requests that makes the cost of the cluster's other work small."""
REQUESTS = "hostile: requests"


def simulate(requests: int, first_seed: int, jobs: int) -> Iterator[SeedReport]:
    """The seeds from `first_seed` on, faults and all, each with busy hostile clients."""
    done: Counter[str] = Counter()
    seeds = count(first_seed)
    with ProcessPoolExecutor(jobs) as pool:
        while done[REQUESTS] < requests:
            for report in pool.map(_run, islice(seeds, jobs)):
                done.update(report.counts)
                yield report


def _run(seed: int) -> SeedReport:
    return run_seed(seed, hostile=True, changes={"hostile": BUSY})
