"""Every plant is found by the checkers, within its bound of seeds, in the simulation and in real processes; and the
very same run without it is valid.

Minutes to hours: `python jepsen-style plants --try all` does the same and reports how long each took.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from plants.catalogue import PLANTS
from plants.trying import triable, trial_of, try_nothing, try_plant

TRIALS = [(world, plant.name) for world in ("sim", "local") for plant in triable(iter(PLANTS.values()), world)]


@pytest.mark.slow
@pytest.mark.feature("FI-11")
@pytest.mark.parametrize(("world", "name"), TRIALS, ids=[f"{name}-{world}" for world, name in TRIALS])
def test_a_plant_is_found(world: str, name: str, tmp_path: Path) -> None:
    plant = PLANTS[name]
    tried = try_plant(plant, world, tmp_path)
    assert tried.found, [outcome.anomalies for outcome in tried.outcomes]
    without = try_nothing(trial_of(plant, world), world, tmp_path, tried.outcomes[-1].seed)
    assert not without.found, without.outcomes[-1]
