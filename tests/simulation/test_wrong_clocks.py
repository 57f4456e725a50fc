"""Clocks are set wrong while things break, and are right again when all is healed."""

from __future__ import annotations

import pytest

from runtime.simulated import Universe
from simulation.wrong_clocks import WrongClocks

NAMES = ("broker-1", "broker-2")
HOUR_MS = 3_600_000


@pytest.mark.feature("FI-05")
def test_jumps_add_up_and_are_all_taken_back() -> None:
    universe = Universe(seed=1)
    clocks = WrongClocks(universe, universe.stream("test"))
    begun = [universe.host(name).wall_clock.now_ms() for name in NAMES]
    furthest = 0.0
    for _ in range(300):
        for name in NAMES:
            clocks.jump(name)
        furthest = max(furthest, abs(universe.host(NAMES[0]).wall_clock.now_ms() - begun[0]))
    assert furthest > HOUR_MS, "a broker would refuse what is dated right"
    clocks.set_right()
    assert [universe.host(name).wall_clock.now_ms() for name in NAMES] == pytest.approx(begun, abs=1)
    clocks.set_right()
    assert [universe.host(name).wall_clock.now_ms() for name in NAMES] == pytest.approx(begun, abs=1)
