"""Mistakes of tiered storage: promises and checkers must find each within a few seeds of `tiered` or `table`."""

from __future__ import annotations

import pytest

from running.swarm import draw_plan
from tests.simulation.plans import is_found

SEEDS = range(1, 101)


@pytest.mark.feature("FI-11", "TS-01", "TS-06", "TS-08")
@pytest.mark.parametrize(
    "name",
    [
        "deletes-what-is-not-copied",
        "begins-with-one-epoch",
        "begins-without-producers",
        "remote-reads-skip",
        "remote-reads-hide-aborts",
        pytest.param("failed-copies-count", marks=pytest.mark.slow),
        pytest.param("copies-what-is-not-committed", marks=pytest.mark.slow),
        pytest.param("expires-another-lineage", marks=pytest.mark.slow),
    ],
)
def test_a_planted_mistake_is_found(name: str) -> None:
    assert is_found(name, (draw_plan(seed, "tiered") for seed in SEEDS))


@pytest.mark.slow
@pytest.mark.feature("FI-11", "TS-05", "CR-03")
def test_a_planted_mistake_in_compacted_tiers_is_found() -> None:
    assert is_found("tombstones-leave-disks", (draw_plan(seed, "table") for seed in SEEDS))
