"""The role of a replica and how it changes: epochs, elections, votes, leaders.

`kraft.raft.roles` lists the roles and their transitions. Knows no messages beyond the answers to votes, and no fetches.
"""

from __future__ import annotations

from dataclasses import replace

from barnabas.kraft.raft.config import RaftConfig
from barnabas.kraft.raft.election_notes import ElectionNotes
from barnabas.kraft.raft.election_times import ElectionTimes
from barnabas.kraft.raft.leadership import Leadership
from barnabas.kraft.raft.messages import QuorumEpochAnswer, VoteAnswer
from barnabas.kraft.raft.own_log import OwnLog
from barnabas.kraft.raft.quorum import Votes
from barnabas.kraft.raft.ready import LeaderChange
from barnabas.kraft.raft.requests import Requests
from barnabas.kraft.raft.roles import (
    Candidate,
    ElectionState,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Role,
    Unattached,
)
from barnabas.kraft.raft.voter_history import QuorumRecord, VoterHistory
from barnabas.kraft.raft.voters import ReplicaKey
from barnabas.protocol.errors import ErrorCode
from barnabas.runtime.world import Chance


class Elections:
    """Mutable; owned by `Raft`, which sets `now_ms` before each step."""

    def __init__(  # noqa: PLR0913 - all that elections depend on
        self,
        config: RaftConfig,
        voters: VoterHistory,
        log: OwnLog,
        requests: Requests,
        election: ElectionState,
        *,
        chance: Chance,
        now_ms: int,
    ) -> None:
        self._config = config
        self._voters = voters
        self._log = log
        self._requests = requests
        self._times = ElectionTimes(config, voters, chance)
        self.now_ms = now_ms
        self.notes = ElectionNotes(config.local.id, is_controller=config.can_vote or self.is_voter)
        self.leadership: Leadership | None = None
        """None unless this replica leads."""
        self.leader_change: LeaderChange | None = None
        """The record that opens the epoch of a new leader, until the shell appends it."""
        self.role: Role = self._first_role(election)

    @property
    def epoch(self) -> int:
        return self.role.epoch

    @property
    def is_voter(self) -> bool:
        """By the last voter set in the log, committed or not; also while this replica's removal is not committed."""
        return self._voters.may_stand(self._log.high_watermark)

    def election_state(self) -> ElectionState:
        """State that must survive a crash."""
        role = self.role
        leader_id = self._config.local.id if isinstance(role, Resigned) else role.leader_id
        return ElectionState(epoch=role.epoch, leader_id=leader_id, voted=role.voted)

    def leader_known(self) -> None:
        """There is a leader: the backoff of elections starts over."""
        self._times.leader_known()

    # ---- changes of the role

    def _first_role(self, election: ElectionState) -> Role:
        """A replica that led an epoch never leads it again, and votes once in it: both are read from
        `election`."""
        if election.epoch < self._log.history.last_epoch:
            election = ElectionState(epoch=self._log.history.last_epoch)
        if election.leader_id == self._config.local.id:
            election = replace(election, leader_id=None, voted=self._config.local)
        if election.leader_id is not None and election.leader_id in (
            self._voters.current.ids or self._config.bootstrap_ids
        ):
            return self._follower(election.epoch, election.leader_id, election.voted)
        self.notes.leader_doubted("it has just started and knows no leader")
        deadline = self.now_ms + self._times.stagger_ms(self._voters.current.place(self._config.local.id, without=None))
        return Unattached(
            epoch=election.epoch,
            voted=election.voted,
            election_deadline_ms=deadline if self.is_voter else None,
        )

    def _follower(self, epoch: int, leader_id: int, voted: ReplicaKey | None) -> Follower:
        return Follower(
            epoch=epoch,
            leader_id=leader_id,
            voted=voted,
            fetch_deadline_ms=self.now_ms + self._config.fetch_timeout_ms,
            update_voter_at_ms=self.now_ms + self._config.update_voter_period_ms,
        )

    def _enter(self, role: Role) -> None:
        assert role.epoch >= self.role.epoch, f"epoch falls: {self.role} -> {role}"
        self.role = role
        self._requests.reset()
        if not isinstance(role, Leader):
            self.leadership = None

    def become_unattached(self, epoch: int) -> None:
        """A higher epoch became known, but not its leader."""
        role = self.role
        deadline: int | None = None
        if isinstance(role, Unattached | Prospective | Candidate):
            deadline = role.election_deadline_ms
        elif self.is_voter:
            deadline = self.now_ms + self._times.timeout_ms()
        self._enter(Unattached(epoch=epoch, voted=None, election_deadline_ms=deadline))

    def become_follower(self, epoch: int, leader_id: int) -> None:
        voted = self.role.voted if epoch == self.epoch else None
        self._times.leader_known()
        self._enter(self._follower(epoch, leader_id, voted))
        self.notes.follows(leader_id, epoch, self._log.history.end)

    def become_prospective(self, cause: str) -> None:
        role = self.role
        self.notes.stands(role.epoch, role.leader_id, self._log.history.end, cause)
        self._enter(
            Prospective(
                epoch=role.epoch,
                leader_id=role.leader_id,
                voted=role.voted,
                leader_gone=isinstance(role, Follower) and role.leader_gone,
                votes=Votes(self._voters.current.ids).record(self._config.local.id, True),
                election_deadline_ms=self.now_ms + self._times.timeout_ms(),
            )
        )
        self._settle_votes()

    def become_candidate(self, pre_votes: tuple[int, ...]) -> None:
        self.notes.is_candidate(self.epoch + 1, pre_votes, self._log.history.end)
        self._enter(
            Candidate(
                epoch=self.epoch + 1,
                voted=self._config.local,
                votes=Votes(self._voters.current.ids).record(self._config.local.id, True),
                election_deadline_ms=self.now_ms + self._times.timeout_ms(),
            )
        )
        self._settle_votes()

    def become_leader(self, candidate: Candidate) -> None:
        start = self._log.history.end_offset
        self._times.leader_known()
        self._enter(
            Leader(
                epoch=candidate.epoch,
                leader_id=self._config.local.id,
                voted=candidate.voted,
                granting_voters=candidate.votes.granted,
                epoch_start_offset=start,
            )
        )
        self.leadership = Leadership(self._config, self._voters, self._log, self.now_ms)
        voter_ids, restated = self._voters.current.ids, self._restated_voters(start + 1)
        self.leader_change = LeaderChange(
            offset=start,
            epoch=candidate.epoch,
            leader_id=self._config.local.id,
            voters=voter_ids,
            granting_voters=candidate.votes.granted,
            quorum_records=restated,
        )
        self._log.append(candidate.epoch, start + 1 + len(restated))
        self._voters.add(restated)
        self.notes.leads(candidate.epoch, candidate.votes.granted, start)

    def _restated_voters(self, offset: int) -> tuple[QuorumRecord, ...]:
        """Records that a new leader appends after its leader change: the voter set of `format`, which is in no log yet,
        or its own entry, if its listeners or versions are others now."""
        voters, local = self._voters.current, self._config.local_voter
        if not self._voters.is_dynamic or (self._voters.offset != -1 and voters.voter(local.id) == local):
            return ()
        updated = voters.with_updated(local)
        if updated is None:
            return ()  # it leads until its removal is committed
        return (
            QuorumRecord(offset=offset, kraft_version=self._voters.kraft_version),
            QuorumRecord(offset=offset + 1, voters=updated),
        )

    def voters_changed(self) -> None:
        """The log has another last voter set: this replica may have become a voter, or may be one no longer."""
        role = self.role
        if self.leadership is not None:
            self.leadership.progress.set_voters(self._voters.current, self.now_ms)
            if self._voters.is_dynamic:
                self.leadership.reported_voters = None
        match role:
            case Follower():
                deadline = self.now_ms + self._config.fetch_timeout_ms
                self.role = replace(role, fetch_deadline_ms=max(role.fetch_deadline_ms, deadline))
            case Unattached() | Prospective() | Candidate():
                # Votes of another set count no longer.
                deadline = self.now_ms + self._times.timeout_ms()
                self._enter(
                    Unattached(
                        epoch=role.epoch,
                        voted=role.voted,
                        election_deadline_ms=deadline if self.is_voter else None,
                    )
                )
            case _:
                pass

    def become_resigned(self, cause: str) -> None:
        role = self.role
        assert isinstance(role, Leader) and self.leadership is not None
        self.notes.resigns(role.epoch, cause)
        successors = self.leadership.progress.successors()
        self._enter(
            Resigned(
                epoch=role.epoch,
                voted=role.voted,
                preferred_candidates=successors,
                unacknowledged=tuple(key.id for key in successors),
                election_deadline_ms=self.now_ms + self._times.timeout_ms(),
            )
        )

    def doubt_leader(self, place: int, cause: str) -> None:
        """There is evidence that our leader no longer leads: stand after this voter's delay, and let others
        stand."""
        role = self.role
        assert isinstance(role, Follower)
        if role.leader_gone:
            return
        deadline = role.fetch_deadline_ms
        if self.is_voter:
            self.notes.leader_doubted(cause)
            deadline = min(deadline, self.now_ms + self._times.stagger_ms(place))
        self.role = replace(role, leader_gone=True, fetch_deadline_ms=deadline)

    # ---- votes

    def vote_for(self, candidate: ReplicaKey) -> None:
        """Wait an election timeout for the candidate before this replica stands again."""
        if self.role.voted is None:
            self.notes.votes(candidate.id, self.epoch, self._log.history.end)
            deadline = self.now_ms + self._times.timeout_ms() if self.is_voter else None
            self._enter(Unattached(epoch=self.epoch, voted=candidate, election_deadline_ms=deadline))

    def count_vote(self, peer_id: int, answer: VoteAnswer) -> None:
        role = self.role
        if answer.error is not ErrorCode.NONE:
            self._requests.rest(peer_id, self.now_ms)
        elif isinstance(role, Prospective | Candidate):
            self.role = replace(role, votes=role.votes.record(peer_id, answer.granted))
            self._settle_votes()

    def _settle_votes(self) -> None:
        role = self.role
        match role:
            case Prospective() if role.votes.won:
                self.become_candidate(role.votes.granted)
            case Candidate() if role.votes.won:
                self.become_leader(role)
            case Prospective() | Candidate() if role.votes.lost:
                self._lose_election()
            case _:
                pass

    def _lose_election(self) -> None:
        """Follow on if the epoch has a leader, else wait a while before standing again."""
        role = self.role
        assert isinstance(role, Prospective | Candidate)
        if isinstance(role, Prospective) and role.leader_id is not None:
            wait_ms = self._times.backoff_ms() if role.leader_gone else self._config.fetch_timeout_ms
            self._enter(
                Follower(
                    epoch=role.epoch,
                    leader_id=role.leader_id,
                    voted=role.voted,
                    fetch_deadline_ms=self.now_ms + wait_ms,
                    update_voter_at_ms=self.now_ms + self._config.update_voter_period_ms,
                    leader_gone=role.leader_gone,
                )
            )
            return
        deadline = self.now_ms + self._times.backoff_ms()
        self._enter(Unattached(epoch=role.epoch, voted=role.voted, election_deadline_ms=deadline))

    # ---- leaders

    def learn_leader(self, leader_id: int | None, epoch: int) -> None:
        """A peer named an epoch and perhaps its leader. An epoch cannot have two leaders: the first one named is
        believed."""
        if leader_id == self._config.local.id:
            leader_id = None
        if epoch > self.epoch:
            if leader_id is None:
                self.become_unattached(epoch)
            else:
                self.become_follower(epoch, leader_id)
        elif (
            epoch == self.epoch
            and leader_id is not None
            and isinstance(self.role, Unattached | Prospective | Candidate)
            and self.role.leader_id is None
        ):
            self.become_follower(epoch, leader_id)

    def count_acknowledgement(self, peer_id: int, answer: QuorumEpochAnswer) -> None:
        role = self.role
        if answer.error is not ErrorCode.NONE:
            self._requests.rest(peer_id, self.now_ms)
        elif isinstance(role, Resigned):
            left = tuple(voter for voter in role.unacknowledged if voter != peer_id)
            self.role = replace(role, unacknowledged=left)

    def _end_resignation(self, role: Resigned) -> None:
        """Nobody else was elected in time: stand again, unless this replica was removed from the voters."""
        deadline = self.now_ms if self.is_voter else None
        self._enter(Unattached(epoch=role.epoch, voted=role.voted, election_deadline_ms=deadline))
        if self.is_voter:
            self.become_prospective("it resigned, and nobody else was elected since")

    # ---- time

    def poll_timeouts(self) -> None:
        role = self.role
        match role:
            case Follower() if self.is_voter and role.fetch_deadline_ms <= self.now_ms:
                waited_ms = self._config.fetch_timeout_ms
                self.become_prospective(f"controller {role.leader_id} did not answer a fetch for {waited_ms} ms")
            case Follower() if not role.leader_gone and role.fetch_deadline_ms <= self.now_ms:
                # The voter set of an observer may be behind: others may count on its vote.
                self.role = replace(role, leader_gone=True)
            case Prospective() | Candidate() if role.election_deadline_ms <= self.now_ms:
                self._lose_election()
            case Resigned() if role.election_deadline_ms <= self.now_ms:
                self._end_resignation(role)
            case Unattached() if role.election_deadline_ms is not None and role.election_deadline_ms <= self.now_ms:
                self.become_prospective(f"no leader of epoch {role.epoch} made itself known in time")
            case Leader() if self.leadership is not None:
                deadline = self.leadership.progress.check_quorum_deadline_ms()
                if deadline is not None and deadline <= self.now_ms:
                    silent_ms = self._config.check_quorum_timeout_ms
                    self.become_resigned(f"no majority of the voters has fetched from it for {silent_ms} ms")
            case _:
                pass
