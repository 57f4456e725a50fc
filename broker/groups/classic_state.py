"""States of a classic group and the legal moves between them.

`ClassicGroup.move` checks this table.
"""

from __future__ import annotations

from enum import Enum


class ClassicState(Enum):
    """The value is the name in ListGroups and DescribeGroups."""

    EMPTY = "Empty"
    """No members; the group exists as long as it has offsets."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """Collecting JoinGroups, whose answers wait."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """The answers to JoinGroup have announced a new generation; SyncGroups wait for the leader's."""
    STABLE = "Stable"
    """Every member can fetch its assignment."""
    DEAD = "Dead"
    """Removed or replaced; the final state."""


MOVES: dict[tuple[ClassicState, ClassicState], str] = {
    (ClassicState.EMPTY, ClassicState.PREPARING_REBALANCE): "the first member joins",
    (ClassicState.PREPARING_REBALANCE, ClassicState.COMPLETING_REBALANCE): "members joined in time",
    (ClassicState.COMPLETING_REBALANCE, ClassicState.STABLE): "the leader brings the assignment",
    (ClassicState.PREPARING_REBALANCE, ClassicState.EMPTY): "all members left",
    (ClassicState.COMPLETING_REBALANCE, ClassicState.PREPARING_REBALANCE): "a member joins, changes, leaves or expires",
    (ClassicState.STABLE, ClassicState.PREPARING_REBALANCE): "a member joins, changes, leaves or expires",
    (ClassicState.EMPTY, ClassicState.DEAD): "offsets expired, group deleted, or emigration",
    (ClassicState.PREPARING_REBALANCE, ClassicState.DEAD): "emigration",
    (ClassicState.COMPLETING_REBALANCE, ClassicState.DEAD): "emigration",
    (ClassicState.STABLE, ClassicState.DEAD): "emigration",
    (ClassicState.DEAD, ClassicState.DEAD): "released again",
}
"""(from, to): reason. No other move is legal. Emigration means that the leadership has moved, or that the group became
one of another kind.
"""

CAN_REBALANCE = frozenset(source for source, target in MOVES if target is ClassicState.PREPARING_REBALANCE)
