"""The voters of the metadata log, in a fixed order.

With `kraft.version` 0 the set comes from the configuration and directory ids are unknown; from 1 on it is that of the
last VotersRecord in the log (KIP-853).
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
class Endpoint:
    """A listener of a voter."""

    name: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Voter:
    """A voter, its listeners, and the levels of `kraft.version` that it can work with."""

    key: ReplicaKey
    endpoints: tuple[Endpoint, ...] = ()
    versions: tuple[int, int] = (0, 0)
    """Lowest and highest `kraft.version`."""

    @property
    def id(self) -> int:
        return self.key.id

    def endpoint(self, listener_name: str) -> Endpoint | None:
        return next((endpoint for endpoint in self.endpoints if endpoint.name == listener_name), None)

    def supports(self, level: int) -> bool:
        return self.versions[0] <= level <= self.versions[1]


@dataclass(frozen=True, slots=True)
class VoterSet:
    """The voters, ordered by id."""

    voters: tuple[Voter, ...]

    @classmethod
    def of(cls, voters: Iterable[Voter]) -> VoterSet:
        return cls(tuple(sorted(voters, key=lambda voter: voter.id)))

    @classmethod
    def of_ids(cls, ids: Iterable[int]) -> VoterSet:
        """Static voters (kraft.version 0): ids alone."""
        return cls.of(Voter(ReplicaKey(voter_id)) for voter_id in set(ids))

    @property
    def keys(self) -> tuple[ReplicaKey, ...]:
        return tuple(voter.key for voter in self.voters)

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(voter.id for voter in self.voters)

    def voter(self, voter_id: int) -> Voter | None:
        return next((voter for voter in self.voters if voter.id == voter_id), None)

    def key(self, voter_id: int) -> ReplicaKey | None:
        voter = self.voter(voter_id)
        return None if voter is None else voter.key

    def contains(self, replica: ReplicaKey) -> bool:
        key = self.key(replica.id)
        return key is not None and key.matches(replica)

    def place(self, voter_id: int, *, without: int | None) -> int:
        """The rank of a voter among the others, leaving out `without`; voters stagger their candidacies by
        it."""
        others = [key.id for key in self.keys if key.id != without]
        return others.index(voter_id) if voter_id in others else len(others)

    # ---- one change at a time; None if it cannot be made

    def with_added(self, voter: Voter) -> VoterSet | None:
        """A new id joins."""
        return None if self.voter(voter.id) is not None else VoterSet.of((*self.voters, voter))

    def without(self, key: ReplicaKey) -> VoterSet | None:
        """A voter leaves: id and directory must be its own, and it must not be the last one."""
        if key not in self.keys or len(self.voters) == 1:
            return None
        return VoterSet(tuple(voter for voter in self.voters if voter.key != key))

    def with_updated(self, voter: Voter, *, any_directory: bool = False) -> VoterSet | None:
        """A voter has other listeners or versions; also another directory, if `any_directory`."""
        known = self.voter(voter.id)
        if known is None or not (any_directory or known.key.matches(voter.key)):
            return None
        return VoterSet(tuple(voter if each.id == voter.id else each for each in self.voters))

    def __str__(self) -> str:
        return "[" + ", ".join(str(key.id) for key in self.keys) + "]"
