"""`Ready`: everything that the core asks for after a step, in the order in which it has to happen.

1. `election` is written and synced before anything below leaves this process, and before the answer to the
   request that caused the step does.
2. `truncate_to`, then `append_leader_change`, `append_quorum_records` or `append_fetched`, on the log; or the steps of
   a snapshot.
3. `requests` are sent; parked fetches are answered again if `wake_fetches`.
4. `high_watermark` and `leader` are passed to the listener that applies the log.

Appended records are synced when the shell likes; it reports that with `Raft.log_synced`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from barnabas.kraft.raft.history import OffsetAndEpoch
from barnabas.kraft.raft.messages import Request, VoterChangeAnswer
from barnabas.kraft.raft.roles import ElectionState
from barnabas.kraft.raft.voter_history import QuorumRecord
from barnabas.kraft.raft.voters import Voter, VoterSet
from barnabas.runtime.decisions import Note


@dataclass(frozen=True, slots=True)
class Send:
    """A request for a peer. Its outcome comes back as `handle_answer` or `request_failed` with the same
    id."""

    peer_id: int
    request_id: int
    request: Request

    def __str__(self) -> str:
        return f"{type(self.request).__name__}#{self.request_id}->{self.peer_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderChange:
    """The control record that opens an epoch, to be appended at `offset`."""

    offset: int
    epoch: int
    leader_id: int
    voters: tuple[int, ...]
    granting_voters: tuple[int, ...]
    quorum_records: tuple[QuorumRecord, ...] = ()
    """Records that follow it in the same batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendQuorumRecords:
    """Control records that a leader appends in one batch: a change of the voters, or of `kraft.version`."""

    epoch: int
    records: tuple[QuorumRecord, ...]


@dataclass(frozen=True, slots=True)
class ProbeVoter:
    """Ask a replica that is about to become a voter for its versions; `Raft.voter_probed` takes the outcome."""

    ticket: int
    voter: Voter


@dataclass(frozen=True, slots=True)
class VoterChangeDone:
    """The answer to the AddVoter or RemoveVoter with this ticket."""

    ticket: int
    answer: VoterChangeAnswer


@dataclass(frozen=True, slots=True)
class LeaderAndEpoch:
    leader_id: int | None
    epoch: int


@dataclass(frozen=True, slots=True)
class StartSnapshot:
    """Make an empty file for the snapshot that will be downloaded; drop any other unfinished one."""

    snapshot: OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class WriteSnapshotChunk:
    """The bytes of the answer just handled belong at `position` of the file."""

    snapshot: OffsetAndEpoch
    position: int


@dataclass(frozen=True, slots=True)
class InstallSnapshot:
    """The file is whole: check and sync it, restart the log at its end, then call
    `Raft.snapshot_installed`."""

    snapshot: OffsetAndEpoch


SnapshotStep = StartSnapshot | WriteSnapshotChunk | InstallSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    election: ElectionState | None = None
    truncate_to: int | None = None
    append_leader_change: LeaderChange | None = None
    append_quorum_records: AppendQuorumRecords | None = None
    append_fetched: bool = False
    """The records of the answer just handled go to the end of the log."""
    snapshot_steps: tuple[SnapshotStep, ...] = ()
    voters: VoterSet | None = None
    """The voters, if they changed: the shell keeps their addresses."""
    probe_voter: ProbeVoter | None = None
    voter_changes: tuple[VoterChangeDone, ...] = ()
    requests: tuple[Send, ...] = ()
    wake_fetches: bool = False
    high_watermark: int | None = None
    leader: LeaderAndEpoch | None = None
    next_deadline_ms: int | None = None
    """Time at which `Raft.tick` is due; None: no sooner than the next input."""
    notes: Sequence[Note] = ()
    """Decisions and their causes, for people."""

    def __str__(self) -> str:
        parts = []
        if self.election is not None:
            voted = "-" if self.election.voted is None else self.election.voted.id
            parts.append(f"persist(epoch={self.election.epoch} leader={self.election.leader_id} voted={voted})")
        if self.truncate_to is not None:
            parts.append(f"truncate({self.truncate_to})")
        if self.append_leader_change is not None:
            parts.append(f"leader-change({self.append_leader_change.offset}@{self.append_leader_change.epoch})")
        if self.append_quorum_records is not None:
            parts.append(f"quorum-records({self.append_quorum_records.records[0].offset})")
        if self.append_fetched:
            parts.append("append")
        parts.extend(f"{type(step).__name__}({step.snapshot})" for step in self.snapshot_steps)
        parts.extend(str(send) for send in self.requests)
        if self.high_watermark is not None:
            parts.append(f"hw={self.high_watermark}")
        if self.leader is not None:
            parts.append(f"leader={self.leader.leader_id}@{self.leader.epoch}")
        return " ".join(parts) or "-"
