"""The voters of the metadata log, in a fixed order.

With `kraft.version` 0 the set comes from the configuration and directory ids are unknown; a set with
directory ids (KIP-853) is the same value built from a VotersRecord. The shell keeps the addresses.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

NO_DIRECTORY = bytes(16)
"""The directory id of a replica that did not send one."""


@dataclass(frozen=True, slots=True, order=True)
class ReplicaKey:
    """A replica's node id and, where known, the id of its metadata directory."""

    id: int
    directory_id: bytes = NO_DIRECTORY

    def matches(self, other: ReplicaKey) -> bool:
        """True if `other` may be the same replica: ids are equal, directory ids too unless this one has none."""
        return self.id == other.id and self.directory_id in (NO_DIRECTORY, other.directory_id)


@dataclass(frozen=True, slots=True)
class VoterSet:
    """The voters, ordered by id."""

    keys: tuple[ReplicaKey, ...]

    @classmethod
    def of_ids(cls, ids: Iterable[int]) -> VoterSet:
        """Static voters (kraft.version 0): ids alone."""
        return cls(tuple(ReplicaKey(voter_id) for voter_id in sorted(set(ids))))

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(key.id for key in self.keys)

    def key(self, voter_id: int) -> ReplicaKey | None:
        return next((key for key in self.keys if key.id == voter_id), None)

    def contains(self, replica: ReplicaKey) -> bool:
        key = self.key(replica.id)
        return key is not None and key.matches(replica)

    def place(self, voter_id: int, *, without: int | None) -> int:
        """The rank of a voter among the others, leaving out `without`; voters stagger their candidacies by
        it."""
        others = [key.id for key in self.keys if key.id != without]
        return others.index(voter_id) if voter_id in others else len(others)
