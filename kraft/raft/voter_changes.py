"""The leader's side of a change of the voters: one at a time, in the order of checks of KIP-853.

A change is refused unless a record of the leader's own epoch has committed and the previous change has. Otherwise two
sets without a common majority could be in force. Adding a voter first asks it for its versions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from barnabas.kraft.raft.config import RaftConfig
from barnabas.kraft.raft.leadership import Leadership
from barnabas.kraft.raft.messages import AddVoter, RemoveVoter, UpdateVoter, VoterChangeAnswer
from barnabas.kraft.raft.own_log import OwnLog
from barnabas.kraft.raft.quorum import majority
from barnabas.kraft.raft.ready import AppendQuorumRecords, ProbeVoter, VoterChangeDone
from barnabas.kraft.raft.voter_history import QuorumRecord, VoterHistory
from barnabas.kraft.raft.voters import NO_DIRECTORY, ReplicaKey, VoterSet
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.primitives import uuid_to_string

ANSWERED = VoterChangeAnswer()


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingChange:
    """An AddVoter or RemoveVoter that is under way in this epoch."""

    ticket: int
    epoch: int
    deadline_ms: int
    adds: AddVoter | None
    """None: it removes a voter."""
    offset: int | None = None
    """Offset of the VotersRecord, once it is appended."""
    is_answered: bool = False


class VoterChanges:
    """Mutable; owned by `Raft`, which takes the outcomes after each step."""

    def __init__(self, config: RaftConfig, voters: VoterHistory, log: OwnLog) -> None:
        self._config = config
        self._voters = voters
        self._log = log
        self._pending: PendingChange | None = None
        self.append: AppendQuorumRecords | None = None
        self.probe: ProbeVoter | None = None
        self.done: list[VoterChangeDone] = []

    @property
    def deadline_ms(self) -> int | None:
        """Time at which the change under way is given up."""
        return None if self._pending is None else self._pending.deadline_ms

    @property
    def is_pending(self) -> bool:
        return self._pending is not None

    # ---- requests

    def add(self, ticket: int, request: AddVoter, epoch: int, leadership: Leadership, now_ms: int) -> None:
        refusal = self._refusal("adding", leadership)
        voters, key = self._voters.current, request.voter.key
        if refusal is None and voters.voter(key.id) is not None:
            refusal = VoterChangeAnswer(
                error=ErrorCode.DUPLICATE_VOTER,
                message=f"The voter id for {_text(key)} is already part of the set of voters {_texts(voters)}.",
            )
        if refusal is not None:
            self.done.append(VoterChangeDone(ticket, refusal))
            return
        deadline_ms = now_ms + self._config.request_timeout_ms
        self._pending = PendingChange(ticket=ticket, epoch=epoch, deadline_ms=deadline_ms, adds=request)
        self.probe = ProbeVoter(ticket, request.voter)

    def probed(
        self, ticket: int, error: ErrorCode, versions: tuple[int, int] | None, leadership: Leadership, now_ms: int
    ) -> None:
        """The voter to be added has answered ApiVersions; `versions` is its range of `kraft.version`, if it has one."""
        change = self._pending
        if change is None or change.ticket != ticket or change.adds is None or change.offset is not None:
            return
        voter, level = change.adds.voter, self._voters.kraft_version
        if error is not ErrorCode.NONE:
            message = f"Aborted add voter operation for since API_VERSIONS returned an error {error.name}"
            self._finish(VoterChangeAnswer(error=ErrorCode.REQUEST_TIMED_OUT, message=message))
        elif versions is None or not versions[0] <= level <= versions[1]:
            lowest, highest = versions or (0, 0)
            message = (
                f"Aborted add voter operation for {_text(voter.key)} since the kraft.version range "
                f"(min: {lowest}, max: {highest}) doesn't support the finalized version {level}"
            )
            self._finish(VoterChangeAnswer(error=ErrorCode.INVALID_REQUEST, message=message))
        elif not leadership.progress.is_caught_up(voter.key, now_ms):
            message = f"Aborted add voter operation for {_text(voter.key)} since it is lagging behind"
            self._finish(VoterChangeAnswer(error=ErrorCode.REQUEST_TIMED_OUT, message=message))
        else:
            voters = self._voters.current.with_added(replace(voter, versions=versions))
            assert voters is not None, f"{voter.key} joined in the middle of its own addition"
            self._pending = replace(change, offset=self._append_voters(voters, change.epoch))
            if not change.adds.ack_when_committed:
                self._answer(ANSWERED)

    def remove(self, ticket: int, request: RemoveVoter, epoch: int, leadership: Leadership, now_ms: int) -> None:
        refusal = self._refusal("removing", leadership)
        voters = self._voters.current
        left = voters.without(request.voter)
        if refusal is None and left is None:
            refusal = VoterChangeAnswer(
                error=ErrorCode.VOTER_NOT_FOUND,
                message=f"Cannot remove voter {_text(request.voter)} from the set of voters {_texts(voters)}",
            )
        if refusal is None and left is not None:
            refusal = self._without_majority(request.voter, left, leadership, now_ms)
        if refusal is not None or left is None:
            assert refusal is not None
            self.done.append(VoterChangeDone(ticket, refusal))
            return
        self._pending = PendingChange(
            ticket=ticket,
            epoch=epoch,
            deadline_ms=now_ms + self._config.request_timeout_ms,
            adds=None,
            offset=self._append_voters(left, epoch),
        )

    def update(self, request: UpdateVoter, epoch: int, leadership: Leadership) -> ErrorCode:
        """A voter reports its listeners and versions; at level 0 they are kept in memory."""
        level = self._voters.kraft_version
        voters = self._voters.current if self._voters.is_dynamic else leadership.reported_voters
        if self._pending is not None or leadership.high_watermark is None or voters is None:
            return ErrorCode.REQUEST_TIMED_OUT
        if self._voters.is_dynamic and not self._is_committed(leadership.high_watermark):
            return ErrorCode.REQUEST_TIMED_OUT
        if not request.voter.supports(level):
            return ErrorCode.INVALID_REQUEST
        updated = voters.with_updated(request.voter, any_directory=not self._voters.is_dynamic)
        if updated is None:
            return ErrorCode.VOTER_NOT_FOUND
        if self._voters.is_dynamic:
            self._append_voters(updated, epoch)
        else:
            leadership.reported_voters = updated
        return ErrorCode.NONE

    def upgrade(self, level: int, epoch: int, leadership: Leadership, *, validate_only: bool) -> str | None:
        """Raise `kraft.version`: one batch with the level and the voters as they reported themselves.

        Returns the reason why that cannot be; None if it was done, or was so already.
        """
        current = self._voters.kraft_version
        if level == current:
            return None
        if level < current:
            return (
                f"Invalid upgrade of kraft.version from version {current} to {level} because the new version is a "
                "downgrade"
            )
        voters = leadership.reported_voters
        if voters is None:
            return f"Invalid upgrade of kraft.version from version {current} to {level}"
        if not all(voter.supports(level) for voter in voters.voters):
            return f"Invalid upgrade of kraft.version to {level} because not all of the voters support it"
        if not validate_only:
            offset = self._log.history.end_offset
            records = [QuorumRecord(offset=offset, kraft_version=level)]
            if voters != self._voters.current:
                records.append(QuorumRecord(offset=offset + 1, voters=voters))
            self._append(tuple(records), epoch)
        return None

    # ---- what happens to the change under way

    def poll(self, epoch: int, leadership: Leadership | None, now_ms: int) -> None:
        """Answer the change under way if it has committed, took too long, or if this replica leads no longer."""
        change = self._pending
        if change is None:
            return
        if leadership is None or epoch != change.epoch:
            self._finish(VoterChangeAnswer(error=ErrorCode.NOT_LEADER_OR_FOLLOWER))
        elif change.offset is not None and (leadership.high_watermark or 0) > change.offset:
            self._finish(ANSWERED)
        elif change.deadline_ms <= now_ms:
            self._finish(_not_now("The request timed out."))

    def removed_itself(self, leadership: Leadership) -> bool:
        """True once a set without this leader has committed."""
        return (
            self._voters.is_dynamic
            and not self._voters.is_voter
            and leadership.high_watermark is not None
            and self._is_committed(leadership.high_watermark)
        )

    def take_done(self) -> tuple[VoterChangeDone, ...]:
        done, self.done = self.done, []
        return tuple(done)

    def _finish(self, answer: VoterChangeAnswer) -> None:
        self._answer(answer)
        self._pending = None

    def _answer(self, answer: VoterChangeAnswer) -> None:
        assert self._pending is not None
        if not self._pending.is_answered:
            self.done.append(VoterChangeDone(self._pending.ticket, answer))
            self._pending = replace(self._pending, is_answered=True)

    # ---- checks and records

    def _refusal(self, doing: str, leadership: Leadership) -> VoterChangeAnswer | None:
        """The first reason, in Kafka's order, why no voter can be added or removed now."""
        high_watermark = leadership.high_watermark
        if self._pending is not None:
            return _not_now("Request timed out waiting for leader to handle previous voter change request")
        if high_watermark is None:
            return _not_now("Request timed out waiting for leader to establish HWM and fence previous voter changes")
        if not self._voters.is_dynamic:
            return VoterChangeAnswer(
                error=ErrorCode.UNSUPPORTED_VERSION,
                message=(
                    f"Cluster doesn't support {doing} voter because the kraft.version feature is "
                    f"{self._voters.kraft_version}"
                ),
            )
        if not self._is_committed(high_watermark):
            return _not_now(
                f"Request timed out waiting for voters to commit the latest voter change at "
                f"Optional[{self._voters.offset}] with HWM {high_watermark}"
            )
        return None

    def _without_majority(
        self, removed: ReplicaKey, left: VoterSet, leadership: Leadership, now_ms: int
    ) -> VoterChangeAnswer | None:
        """The removal could never commit if too few of those who remain are there, and nothing else after it."""
        silent = leadership.progress.silent_voters(now_ms - self._config.fetch_timeout_ms)
        present = [voter_id for voter_id in left.ids if voter_id not in silent]
        needed = majority(len(left.ids))
        if len(present) >= needed:
            return None
        return VoterChangeAnswer(
            error=ErrorCode.INVALID_REQUEST,
            message=(
                f"Cannot remove voter {_text(removed)}: {needed} of the voters {left} that would remain are a "
                f"majority, and only {present} fetch"
            ),
        )

    def _is_committed(self, high_watermark: int) -> bool:
        return self._voters.offset is not None and self._voters.offset < high_watermark

    def _append_voters(self, voters: VoterSet, epoch: int) -> int:
        offset = self._log.history.end_offset
        self._append((QuorumRecord(offset=offset, voters=voters),), epoch)
        return offset

    def _append(self, records: tuple[QuorumRecord, ...], epoch: int) -> None:
        assert self.append is None, "one change in a step"
        self.append = AppendQuorumRecords(epoch=epoch, records=records)
        self._log.append(epoch, records[-1].offset + 1)
        self._voters.add(records)


def _not_now(message: str) -> VoterChangeAnswer:
    return VoterChangeAnswer(error=ErrorCode.REQUEST_TIMED_OUT, message=message)


def _text(key: ReplicaKey) -> str:
    directory = "<undefined>" if key.directory_id == NO_DIRECTORY else uuid_to_string(key.directory_id)
    return f"ReplicaKey(id={key.id}, directoryId={directory})"


def _texts(voters: VoterSet) -> str:
    return "[" + ", ".join(map(_text, voters.keys)) + "]"
