"""docs/state-machines.md shows what the code does."""

from __future__ import annotations

from enum import Enum

import pytest

from docs.draw_state_machines import MACHINES, PAGE, Arrow, Machine, diagram, page


def test_the_page_shows_the_tables() -> None:
    assert PAGE.read_text() == page(), "run make diagrams"


class Light(Enum):
    RED = 1
    LATE_GREEN = 2
    BROKEN = 3


def test_a_machine_is_drawn_arrow_by_arrow() -> None:
    moves = (Arrow(Light.RED, Light.LATE_GREEN, "it is time"), Arrow(Light.LATE_GREEN, Light.BROKEN))
    assert list(diagram(Machine("Light", "", Light.RED, moves))) == [
        "stateDiagram-v2",
        "    [*] --> Red",
        "    Red --> LateGreen : it is time",
        "    LateGreen --> Broken",
        "    Broken --> [*]",
    ]


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.heading)
def test_all_states_are_reached(machine: Machine) -> None:
    """Other than those that only a newer version writes."""
    reached = {machine.begin}
    for _ in machine.arrows:
        reached |= {arrow.after for arrow in machine.arrows if arrow.before in reached}
    assert {state.name for state in type(machine.begin)} - {state.name for state in reached} <= {"UNKNOWN"}
