"""Raft's rules for votes, and those of KIP-996 for pre-votes.

Functions of a request and a role; `Raft` changes the role when a vote is granted."""

from __future__ import annotations

from barnabas.kraft.raft.history import OffsetAndEpoch
from barnabas.kraft.raft.messages import Vote
from barnabas.kraft.raft.roles import Candidate, Follower, Leader, Prospective, Resigned, Role, Unattached
from barnabas.protocol.errors import ErrorCode


def vote_error(request: Vote, local_id: int, epoch: int) -> ErrorCode:
    """The error of a request for a vote that is wrong in itself, for a replica of `epoch`; NONE if it is sound."""
    last = request.log_end
    newest_epoch = request.epoch if request.pre_vote else request.epoch - 1
    if last.offset < 0 or not 0 <= last.epoch <= newest_epoch:
        return ErrorCode.INVALID_REQUEST
    if request.epoch < epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if request.candidate.id < 0 or request.candidate.id == local_id:
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def objection(request: Vote, role: Role, log_end: OffsetAndEpoch) -> str:
    """Reason for refusing this candidate a vote or a pre-vote in its epoch; empty if it is granted."""
    if request.log_end < log_end:
        return "its log lacks records that this one has"
    match role:
        case Leader():
            return "this one leads that epoch"
        case Follower() if request.pre_vote and (not role.has_fetched or role.leader_gone):
            return ""
        case Follower():
            return f"controller {role.leader_id} leads that epoch"
        case _ if request.pre_vote:
            return ""
        case Unattached() | Prospective() if role.voted is not None:
            return "" if role.voted.matches(request.candidate) else f"its vote went to controller {role.voted.id}"
        case Unattached() | Prospective():
            return "" if role.leader_id is None else f"controller {role.leader_id} leads that epoch"
        case Candidate():
            return "this one stands itself in that epoch"
        case Resigned():
            return "this one has led that epoch itself"


def is_worth_a_leader_check(request: Vote, role: Role, log_end: OffsetAndEpoch) -> bool:
    """True if the only objection to this pre-vote is a leader that may be gone."""
    return (
        request.pre_vote
        and isinstance(role, Follower)
        and role.has_fetched
        and not role.leader_gone
        and request.epoch == role.epoch
        and request.candidate.id != role.leader_id
        and request.log_end >= log_end
    )
