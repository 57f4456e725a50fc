"""Core: a follower asks for all that it needs to begin behind remote segments (KIP-405, KIP-1023).

    FETCH: OFFSET_MOVED_TO_TIERED_STORAGE, or the logs diverge at an offset that is only remote here
      │ ask the leader where its log starts, and from where on it has records itself
      ▼
    AskingTier ──► AskingTierEpoch ──► BuildingState ──► the log begins behind the remote segments
                   the epoch of the     epochs and producers are read from the remote segment with the
                   offset before        offset before

Any error ends in a backoff, and then all is asked again. Types here; `follower.py` makes the moves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class TierWanted(NamedTuple):
    """Ask for the leader's log start offset, and for the offset to begin at (ListOffsets as a replica)."""

    leader_epoch: int
    behind_copied: bool
    """True for the first offset that is not copied yet; False for the first that the leader has on its disk."""


class TierBounds(NamedTuple):
    """The leader's answer."""

    log_start_offset: int
    start_offset: int
    start_epoch: int
    """Leader epoch of `start_offset`; -1 if it has none."""


class StateWanted(NamedTuple):
    """Read leader epochs and producers at the end of the remote segment with `offset`, of leader epoch `epoch`."""

    leader_epoch: int
    """The present one."""
    epoch: int
    offset: int
    log_start_offset: int
    """The leader's."""


class RemoteState(NamedTuple):
    """The log at the end of a remote segment, as the segment describes it."""

    next_offset: int
    leader_epochs: tuple[tuple[int, int], ...]
    """(epoch, start offset), oldest first."""
    producer_snapshot: bytes


@dataclass(frozen=True, slots=True)
class AskingTier:
    behind_copied: bool
    diverges: bool = False
    """The log is not the leader's, and begins again in any case."""


@dataclass(frozen=True, slots=True)
class AskingTierEpoch:
    bounds: TierBounds


@dataclass(frozen=True, slots=True)
class BuildingState:
    wanted: StateWanted


def state_wanted(leader_epoch: int, bounds: TierBounds, before: tuple[int, int] | None = None) -> StateWanted:
    """`before`: the leader's (largest epoch before that of the start offset, its end offset); None if there is none.

    The epoch before may end farther back: then the offset before the start has the same epoch as the start.
    """
    offset = bounds.start_offset - 1
    epoch = max(bounds.start_epoch, 0)
    if before is not None and before[1] > offset:
        epoch = before[0]
    return StateWanted(leader_epoch, epoch, offset, bounds.log_start_offset)
