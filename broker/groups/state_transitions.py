"""Core: tables of legal state transitions."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TypeVar

State = TypeVar("State", bound=Enum)

Moves = Mapping[State, tuple[State, ...]]
"""Each state with the states that may follow it. Remaining in a state is always legal."""


def is_legal(moves: Moves[State], before: State, after: State) -> bool:
    return before is after or after in moves[before]
