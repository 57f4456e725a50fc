"""The roles a replica can play, one frozen value each; a change of role is a new value.

    unattached  -> unattached   a higher epoch, or a vote was given
                -> prospective  the election timeout passed (voters)
                -> follower     the epoch's leader became known
    prospective -> candidate    a majority granted the pre-vote
                -> follower     a leader became known; or: lost, and the epoch's leader is known
                -> unattached   a higher epoch, a vote was given; or: lost, and no leader is known
    candidate   -> leader       a majority granted the vote
                -> follower     somebody else leads this or a higher epoch
                -> unattached   a higher epoch; or: lost, backing off
    leader      -> resigned     asked to, or no majority fetched for a while
                -> unattached, follower   a higher epoch
    resigned    -> unattached   a higher epoch, or the election timeout passed
                -> follower     a higher epoch's leader became known
    follower    -> prospective  the fetch timeout passed (voters)
                -> follower, unattached   a higher epoch

Observers are only ever unattached or followers. No role is left for another in a lower epoch.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.kraft.raft.history import OffsetAndEpoch
from barnabas.kraft.raft.quorum import Votes
from barnabas.kraft.raft.voters import ReplicaKey


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionState:
    """State that must survive a crash: the epoch, its leader, and the candidate that got this replica's vote."""

    epoch: int = 0
    leader_id: int | None = None
    voted: ReplicaKey | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unattached:
    """Waits for a leader to become known, or to stand for election itself."""

    epoch: int
    voted: ReplicaKey | None
    election_deadline_ms: int | None
    """None for observers."""

    leader_id = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prospective:
    """Asks whether it could win an election before it disturbs anybody with a higher epoch (KIP-996)."""

    epoch: int
    leader_id: int | None
    voted: ReplicaKey | None
    leader_gone: bool
    votes: Votes
    election_deadline_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Has voted for itself in its epoch and asks the others to."""

    epoch: int
    voted: ReplicaKey
    votes: Votes
    election_deadline_ms: int

    leader_id = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    """Was elected by a majority; `kraft.raft.progress` holds the end offsets of the others."""

    epoch: int
    leader_id: int
    voted: ReplicaKey
    granting_voters: tuple[int, ...]
    epoch_start_offset: int
    """Offset of this epoch's first record, the leader change: nothing commits before it does (Raft
    §5.4.2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotDownload:
    """The snapshot a follower is fetching and how much of it has arrived."""

    snapshot: OffsetAndEpoch
    position: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Follower:
    """Fetches from the leader of its epoch."""

    epoch: int
    leader_id: int
    voted: ReplicaKey | None
    fetch_deadline_ms: int
    update_voter_at_ms: int = 0
    """Time to compare this replica's entry in the voter set; an observer that joins by itself asks for one then."""
    has_updated_leader: bool = False
    """At `kraft.version` 0, the leader knows this voter's directory and listeners."""
    has_fetched: bool = False
    """A fetch from this leader succeeded: pre-votes against it are refused from now on."""
    leader_gone: bool = False
    """There is evidence that the leader no longer leads: its process is gone, or it resigned. Cleared by a
    fetch that succeeds."""
    download: SnapshotDownload | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Resigned:
    """Led this epoch and gave it up; sends EndQuorumEpoch to the voters, and never leads the epoch again."""

    epoch: int
    voted: ReplicaKey
    preferred_candidates: tuple[ReplicaKey, ...]
    unacknowledged: tuple[int, ...]
    election_deadline_ms: int

    leader_id = None


Role = Unattached | Prospective | Candidate | Leader | Follower | Resigned
