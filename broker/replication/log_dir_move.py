"""Core: the next step in the move of one replica to another log directory of its broker (KIP-113, KIP-858).

    Copying ──everything copied and durable──► Assigning ──recorded by the controller──► Accepted ──caught up──► swapped

The controller records the new directory before the swap: if that directory fails just after it, the controller knows
that the replica is lost. A move that ends before the swap takes the assignment back.
"""

from __future__ import annotations

from enum import Enum, auto


class Phase(Enum):
    COPYING = auto()
    """The controller has the replica in its present directory."""
    ASSIGNING = auto()
    """The controller was asked to record the new directory, and has not answered."""
    ACCEPTED = auto()
    """The controller has recorded the new directory."""


class Action(Enum):
    COPY = auto()
    """Copy what the log has, and the future log does not."""
    FLUSH = auto()
    """Make the future log durable; then call `flushed`."""
    ASSIGN = auto()
    """Ask the controller to record the new directory; then call `accepted`."""
    WAIT = auto()
    """Nothing before the controller answers."""
    SWAP = auto()
    """The future log takes the place of the log."""


class LogDirMove:
    """One move. `was_flushed`: a flush as long as the copy happens once; what follows it is short."""

    __slots__ = ("phase", "was_flushed")

    def __init__(self) -> None:
        self.phase = Phase.COPYING
        self.was_flushed = False

    def next(self, *, caught_up: bool) -> Action:
        """`caught_up`: the future log ends where the log ends, and they do not diverge."""
        if not caught_up:
            return Action.COPY
        if self.phase is Phase.ACCEPTED:
            return Action.SWAP
        if self.phase is Phase.ASSIGNING:
            return Action.WAIT
        if not self.was_flushed:
            return Action.FLUSH
        self.phase = Phase.ASSIGNING
        return Action.ASSIGN

    def flushed(self) -> None:
        self.was_flushed = True

    def accepted(self) -> None:
        """The controller has recorded the new directory."""
        if self.phase is Phase.ASSIGNING:
            self.phase = Phase.ACCEPTED

    @property
    def must_be_taken_back(self) -> bool:
        """True if the controller may have the replica in the new directory."""
        return self.phase is not Phase.COPYING
