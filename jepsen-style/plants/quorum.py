"""Mistakes of voters of the metadata quorum, and of its leader."""

from __future__ import annotations

from typing import Any

from barnabas.kraft.quorum_state import QuorumStateFile
from barnabas.kraft.raft.leadership import Leadership
from barnabas.kraft.raft.messages import VoterChangeAnswer
from barnabas.kraft.raft.voter_changes import VoterChanges
from barnabas.kraft.raft.voters import ReplicaKey
from barnabas.protocol.errors import ErrorCode


def forget_votes(_original: Any) -> Any:
    """A vote is answered and kept in memory only: after a restart the voter votes once more in the same epoch."""

    def write(self: QuorumStateFile, *_: object) -> None:
        pass

    return write


def place_without_hosts(original: Any) -> Any:
    """Replicas are spread over brokers, whatever hosts these share."""

    def next_(wheel: Any, partition: int, _used_hosts: set[str]) -> int | None:
        found: int | None = original(wheel, partition, set())
        return found

    return next_


_NOT_NOW = VoterChangeAnswer(error=ErrorCode.REQUEST_TIMED_OUT)


def change_voters_twice_at_once(_original: Any) -> Any:
    """A leader does not wait until its previous change of the voters is committed."""

    def refusal(changes: VoterChanges, _doing: str, leadership: Leadership) -> VoterChangeAnswer | None:
        changes._pending = None
        return None if leadership.high_watermark is not None else _NOT_NOW

    return refusal


def change_voters_before_a_commit(_original: Any) -> Any:
    """A new leader does not wait until a record of its own epoch is committed (Ongaro, 2015)."""

    def refusal(changes: VoterChanges, _doing: str, _leadership: Leadership) -> VoterChangeAnswer | None:
        return _NOT_NOW if changes.is_pending else None

    return refusal


def take_another_disk_for_the_voter(_original: Any) -> Any:
    """The id of a node is its vote, whatever disk it has."""

    def matches(key: ReplicaKey, other: ReplicaKey) -> bool:
        return key.id == other.id

    return matches
