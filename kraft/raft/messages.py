"""Messages between replicas of the metadata log, as values: the APIs of KIP-595, 630, 996 and 853.

Records do not travel in these: a fetch answer names the offsets that it carries, and the shell holds their bytes.
The shell also owns the wire form, the topic's name and the cluster id.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.kraft.raft.history import OffsetAndEpoch
from barnabas.kraft.raft.voter_history import QuorumRecord
from barnabas.kraft.raft.voters import ReplicaKey, Voter
from barnabas.protocol.errors import ErrorCode

NONE = ErrorCode.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    voter: ReplicaKey | None
    """The voter that the candidate means to ask; None from a version without the field."""
    candidate: ReplicaKey
    epoch: int
    """The epoch to be elected for; in a pre-vote the candidate's own epoch, which it has not bumped."""
    log_end: OffsetAndEpoch
    pre_vote: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteAnswer:
    error: ErrorCode = NONE
    leader_id: int | None = None
    epoch: int = -1
    granted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginQuorumEpoch:
    voter: ReplicaKey | None
    leader_id: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EndQuorumEpoch:
    leader_id: int
    epoch: int
    preferred_candidates: tuple[ReplicaKey, ...]
    """Most complete log first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumEpochAnswer:
    """The answer to both BeginQuorumEpoch and EndQuorumEpoch."""

    error: ErrorCode = NONE
    leader_id: int | None = None
    epoch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetch:
    replica: ReplicaKey
    epoch: int
    fetch_offset: int
    """The end of the replica's log: everything before it is on its disk (voters sync before they fetch
    on)."""
    last_fetched_epoch: int
    high_watermark: int | None = None
    """The high watermark as the replica knows it (KIP-1166); None from a version without the field."""
    max_wait_ms: int = 0


@dataclass(frozen=True, slots=True)
class FetchedSpan:
    """Consecutive records of one epoch in a fetch answer."""

    epoch: int
    first_offset: int
    next_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchAnswer:
    error: ErrorCode = NONE
    leader_id: int | None = None
    epoch: int = -1
    high_watermark: int | None = None
    log_start_offset: int = -1
    diverging: OffsetAndEpoch | None = None
    snapshot: OffsetAndEpoch | None = None
    readable: tuple[int, int] | None = None
    """Outgoing: the offsets [first, end) that records may be read from."""
    spans: tuple[FetchedSpan, ...] = ()
    """Incoming: epochs and offsets of the records in the answer."""
    quorum_records: tuple[QuorumRecord, ...] = ()
    """Incoming: the records among them that say who votes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSnapshot:
    replica: ReplicaKey
    epoch: int
    snapshot: OffsetAndEpoch
    position: int
    max_bytes: int = 0x7FFFFFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSnapshotAnswer:
    error: ErrorCode = NONE
    leader_id: int | None = None
    epoch: int = -1
    snapshot: OffsetAndEpoch | None = None
    size_bytes: int = 0
    position: int = 0
    count: int = 0
    """Number of bytes of the file, from `position` on, that the answer carries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddVoter:
    voter: Voter
    ack_when_committed: bool = True
    """False: the response leaves as soon as the change is in the leader's log (KIP-1186)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveVoter:
    voter: ReplicaKey


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateVoter:
    epoch: int
    voter: Voter


@dataclass(frozen=True, slots=True, kw_only=True)
class VoterChangeAnswer:
    """The answer to AddVoter, RemoveVoter and UpdateVoter; the first two have no leader and epoch on the wire."""

    error: ErrorCode = NONE
    message: str | None = None
    leader_id: int | None = None
    epoch: int = -1


VoterChange = AddVoter | RemoveVoter | UpdateVoter
Request = Vote | BeginQuorumEpoch | EndQuorumEpoch | Fetch | FetchSnapshot | VoterChange
Answer = VoteAnswer | QuorumEpochAnswer | FetchAnswer | FetchSnapshotAnswer | VoterChangeAnswer
