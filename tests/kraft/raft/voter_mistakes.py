"""Mistakes in changes of the voters, to plant into a leader or a replica (KIP-853)."""

from __future__ import annotations

from barnabas.kraft.raft.leadership import Leadership
from barnabas.kraft.raft.messages import VoterChangeAnswer
from barnabas.kraft.raft.voter_changes import VoterChanges
from barnabas.kraft.raft.voters import ReplicaKey
from barnabas.protocol.errors import ErrorCode

_NOT_NOW = VoterChangeAnswer(error=ErrorCode.REQUEST_TIMED_OUT)


def two_changes_at_once(changes: VoterChanges, _doing: str, leadership: Leadership) -> VoterChangeAnswer | None:
    """The leader does not wait for the change before."""
    changes._pending = None
    return None if leadership.high_watermark is not None else _NOT_NOW


def a_change_before_a_commit(changes: VoterChanges, _doing: str, _leadership: Leadership) -> VoterChangeAnswer | None:
    """A new leader does not wait until a record of its own epoch has committed (Ongaro, 2015)."""
    return _NOT_NOW if changes.is_pending else None


def by_id_alone(key: ReplicaKey, other: ReplicaKey) -> bool:
    """A new disk with the old id votes."""
    return key.id == other.id
