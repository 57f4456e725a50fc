"""The states of a classic group and every move between them, in one table.

`ClassicGroup.move` looks here before it moves.
"""

from __future__ import annotations

from enum import Enum


class ClassicState(Enum):
    """The value is what ListGroups and DescribeGroups say."""

    EMPTY = "Empty"
    """Nobody is in it; it stays as long as it has offsets."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """JoinGroups are collected; they wait for their answers."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """A new generation is told to all; SyncGroups wait for the leader's."""
    STABLE = "Stable"
    """Everybody can have an assignment."""
    DEAD = "Dead"
    """Of no use any more: nothing leads out of it."""


MOVES: dict[tuple[ClassicState, ClassicState], str] = {
    (ClassicState.EMPTY, ClassicState.PREPARING_REBALANCE): "a first member joins",
    (ClassicState.PREPARING_REBALANCE, ClassicState.COMPLETING_REBALANCE): "members joined in time",
    (ClassicState.COMPLETING_REBALANCE, ClassicState.STABLE): "the leader brings the assignment",
    (ClassicState.PREPARING_REBALANCE, ClassicState.EMPTY): "all members left",
    (ClassicState.COMPLETING_REBALANCE, ClassicState.PREPARING_REBALANCE): "a member joins, changes, leaves or fails",
    (ClassicState.STABLE, ClassicState.PREPARING_REBALANCE): "a member joins, changes, leaves or fails",
    (ClassicState.EMPTY, ClassicState.DEAD): "offsets expired, group deleted, or emigration",
    (ClassicState.PREPARING_REBALANCE, ClassicState.DEAD): "emigration",
    (ClassicState.COMPLETING_REBALANCE, ClassicState.DEAD): "emigration",
    (ClassicState.STABLE, ClassicState.DEAD): "emigration",
    (ClassicState.DEAD, ClassicState.DEAD): "let go of again",
}
"""From, to: why. There are no other moves. Emigration: the partition is led elsewhere, or the group becomes one of
another kind.
"""

CAN_REBALANCE = frozenset(source for source, target in MOVES if target is ClassicState.PREPARING_REBALANCE)
