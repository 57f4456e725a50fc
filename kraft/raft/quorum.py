"""Majorities: of votes, and of log end offsets. Knows nothing of roles or time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace


def majority(voter_count: int) -> int:
    """The smallest size at which any two groups of voters share a member."""
    return voter_count // 2 + 1


def majority_offset(end_offsets: Sequence[int | None]) -> int | None:
    """The largest offset that a majority of the voters has reached; None while too few are known.

    `end_offsets` holds one entry per voter, None for one that has not fetched yet.
    """
    if not end_offsets:
        return None
    descending = sorted((-1 if offset is None else offset for offset in end_offsets), reverse=True)
    reached = descending[majority(len(descending)) - 1]
    return None if reached < 0 else reached


@dataclass(frozen=True, slots=True)
class Votes:
    """The answers of one election (or pre-election) among `voters`. A voter's first answer counts."""

    voters: tuple[int, ...]
    granted: tuple[int, ...] = ()
    rejected: tuple[int, ...] = ()

    def record(self, voter_id: int, granted: bool) -> Votes:
        if voter_id not in self.voters or voter_id in self.granted or voter_id in self.rejected:
            return self
        if granted:
            return replace(self, granted=tuple(sorted((*self.granted, voter_id))))
        return replace(self, rejected=tuple(sorted((*self.rejected, voter_id))))

    @property
    def missing(self) -> tuple[int, ...]:
        return tuple(v for v in self.voters if v not in self.granted and v not in self.rejected)

    @property
    def won(self) -> bool:
        return len(self.granted) >= majority(len(self.voters))

    @property
    def lost(self) -> bool:
        """Even with the votes still missing it would be no majority."""
        return len(self.granted) + len(self.missing) < majority(len(self.voters))
