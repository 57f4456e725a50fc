"""Tables of legal moves between states, and their pictures. A core."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TypeVar

State = TypeVar("State", bound=Enum)

Moves = Mapping[State, tuple[State, ...]]
"""State to the states that may follow it. Staying is no move and always legal."""


def is_legal(moves: Moves[State], before: State, after: State) -> bool:
    return before is after or after in moves[before]


def mermaid(moves: Moves[State]) -> str:
    """The table as a mermaid state diagram; the first state is where everything begins, and one that nothing
    follows is an end.
    """
    lines = ["stateDiagram-v2"]
    for place, (before, followers) in enumerate(moves.items()):
        if place == 0:
            lines.append(f"    [*] --> {before.name}")
        lines += [f"    {before.name} --> {after.name}" for after in followers]
        if not followers:
            lines.append(f"    {before.name} --> [*]")
    return "\n".join(lines) + "\n"


def dot(moves: Moves[State], name: str) -> str:
    """The table as a graph for Graphviz."""
    lines = [f"digraph {name} {{"]
    for before, followers in moves.items():
        lines += [f"    {before.name} -> {after.name};" for after in followers]
    return "\n".join([*lines, "}"]) + "\n"
