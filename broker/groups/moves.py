"""Tables of legal moves between states. A core."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TypeVar

State = TypeVar("State", bound=Enum)

Moves = Mapping[State, tuple[State, ...]]
"""State to the states that may follow it. Staying is no move and always legal."""


def is_legal(moves: Moves[State], before: State, after: State) -> bool:
    return before is after or after in moves[before]
