"""Failures of other systems, played on this one: all 25, each with the rows of features that it shows.

Each seed gives another order of events; more of them run in `suite regression`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from scenarios.catalogue import SCENARIOS, Act

SEED = 1
MORE_SEEDS = range(2, 5)


def acts(seeds: range) -> Iterator[object]:
    for scenario in SCENARIOS.values():
        for act in scenario.acts:
            for seed in seeds:
                mark = pytest.mark.feature(*scenario.rows)
                yield pytest.param(act, seed, id=f"{scenario.number}-{act.name}-{seed}", marks=mark)


@pytest.mark.parametrize(("act", "seed"), list(acts(range(SEED, SEED + 1))))
def test_it_ends_well(act: Act, seed: int) -> None:
    act.play(seed)


@pytest.mark.slow
@pytest.mark.parametrize(("act", "seed"), list(acts(MORE_SEEDS)))
def test_with_other_seeds(act: Act, seed: int) -> None:
    act.play(seed)


def test_there_are_26_and_each_has_a_story() -> None:
    assert [scenario.number for scenario in SCENARIOS.values()] == list(range(1, 27))
    stories = [act.name for scenario in SCENARIOS.values() for act in scenario.acts]
    assert len(set(stories)) == len(stories)


def test_a_seed_is_one_story() -> None:
    act = SCENARIOS["duplicate"].acts[0]
    first, again, other = (act.play(seed).universe.digest() for seed in (7, 7, 8))
    assert first == again != other
