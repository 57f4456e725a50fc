"""The regression scenarios have teeth: each of these fails with the mistake that it is about, and is played to its end
without it (which `test_scenarios` shows)."""

from __future__ import annotations

import pytest

from plants.catalogue import find
from plants.plant import planted
from scenarios.catalogue import SCENARIOS
from scenarios.stage import Violation

SEEDS = (1, 2, 3)
"""Some mistakes show in one seed of two: the batch that a coordinator does not load may be one that nobody asks for."""
ACTS = {act.name: act for scenario in SCENARIOS.values() for act in scenario.acts}


@pytest.mark.feature("FI-11")
@pytest.mark.parametrize(
    ("plant", "act"),
    [
        ("ack-before-replication", "acked_below_the_high_watermark"),
        ("high-watermark-off-by-one", "acked_below_the_high_watermark"),
        ("reads-past-high-watermark", "acked_below_the_high_watermark"),
        ("truncation-by-high-watermark", "two_leaders_in_a_row_die"),
        ("deposed-leader-serves", "zombie_leader"),
        ("no-dedup", "repeated_after_failover"),
        ("no-fencing", "late_commit"),
        ("unverified-writes", "late_first_batch"),
        ("last-stable-offset-too-high", "open_transaction_past_failovers"),
        ("no-aborted-list", "half_of_an_aborted_transaction"),
        ("lost-commit", "coordinator_moves"),
        ("forgotten-vote", "vote_before_a_power_cut"),
    ],
)
def test_a_scenario_finds_the_mistake_that_it_is_about(plant: str, act: str) -> None:
    with planted(find(plant)), pytest.raises((Violation, BaseExceptionGroup)) as raised:
        for seed in SEEDS:
            ACTS[act].play(seed)
    error = raised.value
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, Violation)
