"""A plain replica of the metadata log: its role, its votes and the notes of both, one rule after the other.

It is slow, copies everything, and knows no effects but those in `asked`. Voters in the log, majorities, requests in
flight and the progress of others are the real parts: each of them has a plain model of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from barnabas.kraft.raft.config import RaftConfig
from barnabas.kraft.raft.history import LogHistory
from barnabas.kraft.raft.messages import Vote
from barnabas.kraft.raft.progress import Progress
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
from barnabas.kraft.raft.voters import ReplicaKey, VoterSet
from barnabas.runtime.decisions import DecisionKind, Note

NO_EPOCH = -1


@dataclass
class PlainLead:
    """Knowledge of a leader in its epoch."""

    progress: Progress
    announce_ms: int
    high_watermark: int | None = None
    reported: VoterSet | None = None
    unannounced: tuple[int, ...] = ()


@dataclass
class PlainElections:
    """Fields and rules of the role. `part` of each random range is drawn: 0.0 the least, 1.0 the most."""

    config: RaftConfig
    voters: VoterHistory
    log: LogHistory
    high_watermark: int
    now_ms: int
    part: float
    requests: Requests
    lead: PlainLead | None = None
    synced: int = 0
    lost_elections: int = 0
    cause: str = ""
    attempts: int = 0
    refused: set[tuple[int, bool]] = field(default_factory=set)
    refused_in: int = NO_EPOCH
    name: str = ""
    notes: list[Note] = field(default_factory=list)
    asked: dict[str, Any] = field(default_factory=dict)
    """Effects of the steps since the last `ready`, under the names of its fields."""
    role: Role = field(default_factory=lambda: Unattached(epoch=0, voted=None, election_deadline_ms=None))

    @property
    def me(self) -> ReplicaKey:
        return self.config.local

    @property
    def ids(self) -> tuple[int, ...]:
        return self.voters.current.ids

    @property
    def may_stand(self) -> bool:
        return self.voters.may_stand(self.high_watermark)

    # -- times

    def between(self, least: int, most: int) -> int:
        return least + int((most - least) * self.part)

    def election_deadline(self) -> int:
        """After one to two election timeouts."""
        timeout_ms = self.config.election_timeout_ms
        return self.now_ms + timeout_ms + self.between(0, max(timeout_ms - 1, 0))

    def own_turn(self, place: int) -> int:
        """Voters stand 30 ms apart, give or take up to 9 ms."""
        return self.now_ms if len(self.ids) < 2 else self.now_ms + 30 * place + self.between(0, 9)

    def after_a_loss(self) -> int:
        """A random time from 25 ms to 100, 200, 400 ms … but never less than 50, and never more than the maximum."""
        self.lost_elections += 1
        most_ms = min(50 * 2 ** min(self.lost_elections, 20), self.config.election_backoff_max_ms)
        return self.now_ms + self.between(25, max(most_ms, 50))

    def place_without(self, other: int | None) -> int:
        """The rank of this replica among the voters but one; a stranger comes last."""
        others = [each for each in self.ids if each != other]
        return sum(each < self.me.id for each in others) if self.me.id in others else len(others)

    # -- roles

    def begin(self, saved: ElectionState) -> None:
        self.name = f"{'controller' if self.config.can_vote or self.may_stand else 'broker'} {self.me.id}"
        epoch, leader_id, voted = saved.epoch, saved.leader_id, saved.voted
        if epoch < self.log.last_epoch:
            epoch, leader_id, voted = self.log.last_epoch, None, None
        if leader_id == self.me.id:
            leader_id, voted = None, self.me
        if leader_id is not None and leader_id in (self.ids or self.config.bootstrap_ids):
            self.role = self.following(epoch, leader_id, voted)
            return
        self.cause = "it has just started and knows no leader"
        deadline = self.own_turn(self.place_without(None)) if self.may_stand else None
        self.role = Unattached(epoch=epoch, voted=voted, election_deadline_ms=deadline)

    def following(self, epoch: int, leader_id: int, voted: ReplicaKey | None) -> Follower:
        wait_ms = self.config.fetch_timeout_ms
        return Follower(
            epoch=epoch,
            leader_id=leader_id,
            voted=voted,
            fetch_deadline_ms=self.now_ms + wait_ms,
            update_voter_at_ms=self.now_ms + wait_ms,
        )

    def enter(self, role: Role) -> None:
        """Answers to requests of the last role count no longer."""
        self.role = role
        self.requests.reset()
        if not isinstance(role, Leader):
            self.lead = None

    def enter_epoch(self, epoch: int) -> None:
        """The leader of a higher epoch is not known."""
        waits = isinstance(self.role, Unattached | Prospective | Candidate)
        deadline = self.role.election_deadline_ms if waits else None  # type: ignore[union-attr]
        if not waits and self.may_stand:
            deadline = self.election_deadline()
        self.enter(Unattached(epoch=epoch, voted=None, election_deadline_ms=deadline))

    def follow(self, epoch: int, leader_id: int) -> None:
        self.lost_elections = 0
        self.enter(self.following(epoch, leader_id, self.role.voted if epoch == self.role.epoch else None))
        self.note(
            f"controller {leader_id} leads the quorum in epoch {epoch}",
            f"{self.name} learned of it, and fetches from it",
            also=f"controller {leader_id}",
            leader_epoch=epoch,
            leader=leader_id,
            log_end_offset=self.log.end_offset,
            hearsay=2,
        )
        self.is_well()

    def believe(self, leader_id: int | None, epoch: int) -> None:
        """A peer named an epoch, and perhaps its leader. A replica knows better whether it leads itself."""
        leader_id = None if leader_id == self.me.id else leader_id
        role = self.role
        if epoch > role.epoch and leader_id is None:
            self.enter_epoch(epoch)
        elif leader_id is not None and (
            epoch > role.epoch
            or (epoch == role.epoch and role.leader_id is None and not isinstance(role, Resigned | Leader | Follower))
        ):
            self.follow(epoch, leader_id)

    def stand(self, cause: str) -> None:
        role, end = self.role, self.log.end
        self.cause = self.cause or cause
        self.attempts += 1
        if self.attempts in (1, 2, 4, 8, 16, 32, 64, 128):
            again = f", its attempt {self.attempts}" if self.attempts > 1 else ""
            self.note(
                f"{self.name} asks in epoch {role.epoch} whether it would be elected{again}",
                self.cause,
                epoch=role.epoch,
                leader=role.leader_id,
                log_end_offset=end.offset,
                log_end_epoch=end.epoch,
                attempt=self.attempts,
            )
        self.enter(
            Prospective(
                epoch=role.epoch,
                leader_id=role.leader_id,
                voted=role.voted,
                leader_gone=isinstance(role, Follower) and role.leader_gone,
                votes=Votes(self.ids).record(self.me.id, True),
                election_deadline_ms=self.election_deadline(),
            )
        )
        self.count()

    def count(self) -> None:
        """The next role if the votes of this one decide it."""
        role = self.role
        if not isinstance(role, Prospective | Candidate):
            return
        needed = len(role.votes.voters) // 2 + 1
        if len(role.votes.granted) >= needed and isinstance(role, Candidate):
            self.lead_epoch(role)
        elif len(role.votes.granted) >= needed:
            self.be_candidate(role.votes.granted)
        elif len(role.votes.voters) - len(role.votes.rejected) < needed:
            self.lose()

    def be_candidate(self, pre_votes: tuple[int, ...]) -> None:
        epoch, end = self.role.epoch + 1, self.log.end
        if self.attempts in (1, 2, 4, 8, 16, 32, 64, 128):
            self.note(
                f"{self.name} stands for election in epoch {epoch}",
                f"{self.cause}; {list(pre_votes)} would vote for it",
                epoch=epoch,
                votes=pre_votes,
                log_end_offset=end.offset,
                log_end_epoch=end.epoch,
            )
        votes = Votes(self.ids).record(self.me.id, True)
        deadline = self.election_deadline()
        self.enter(Candidate(epoch=epoch, voted=self.me, votes=votes, election_deadline_ms=deadline))
        self.count()

    def lead_epoch(self, candidate: Candidate) -> None:
        epoch, start, granted = candidate.epoch, self.log.end_offset, candidate.votes.granted
        self.lost_elections = 0
        self.enter(
            Leader(epoch=epoch, leader_id=self.me.id, voted=self.me, granting_voters=granted, epoch_start_offset=start)
        )
        current, local, voter_ids = self.voters.current, self.config.local_voter, self.ids
        progress = Progress(self.me, current, self.config.fetch_timeout_ms * 3 // 2, self.now_ms)
        progress.local_synced(self.synced)
        self.lead = PlainLead(progress, self.now_ms)
        if not self.voters.is_dynamic:
            self.lead.reported = current.with_updated(local, any_directory=True)
        restated: tuple[QuorumRecord, ...] = ()
        if self.voters.is_dynamic and (self.voters.offset == -1 or current.voter(local.id) != local):
            updated = current.with_updated(local)
            if updated is not None:
                level = QuorumRecord(offset=start + 1, kraft_version=self.voters.kraft_version)
                restated = (level, QuorumRecord(offset=start + 2, voters=updated))
        self.asked["append_leader_change"] = LeaderChange(
            offset=start,
            epoch=epoch,
            leader_id=self.me.id,
            voters=voter_ids,
            granting_voters=granted,
            quorum_records=restated,
        )
        self.log = self.log.appended(epoch, start + 1 + len(restated))
        self.voters.add(restated)
        self.note(
            f"{self.name} leads the quorum in epoch {epoch}",
            f"{self.cause}; elected by {list(granted)}",
            leader_epoch=epoch,
            leader=self.me.id,
            votes=granted,
            offset=start,
        )
        self.is_well()

    def lose(self) -> None:
        role = self.role
        assert isinstance(role, Prospective | Candidate)
        if role.leader_id is None:
            deadline = self.after_a_loss()
            self.enter(Unattached(epoch=role.epoch, voted=role.voted, election_deadline_ms=deadline))
            return
        assert isinstance(role, Prospective)
        again = self.following(role.epoch, role.leader_id, role.voted)
        if role.leader_gone:
            again = replace(again, leader_gone=True, fetch_deadline_ms=self.after_a_loss())
        self.enter(again)

    def resign(self, cause: str) -> None:
        role = self.role
        assert isinstance(role, Leader) and self.lead is not None
        self.note(f"{self.name} resigns as leader of epoch {role.epoch}", cause, epoch=role.epoch)
        self.cause = ""
        keys = self.lead.progress.successors()
        deadline = self.election_deadline()
        self.enter(
            Resigned(
                epoch=role.epoch,
                voted=role.voted,
                preferred_candidates=keys,
                unacknowledged=tuple(key.id for key in keys),
                election_deadline_ms=deadline,
            )
        )

    def doubt(self, place: int, cause: str) -> None:
        """Evidence against the leader shortens waiting; the first of it counts."""
        role = self.role
        assert isinstance(role, Follower)
        if role.leader_gone:
            return
        deadline = role.fetch_deadline_ms
        if self.may_stand:
            self.cause = cause
            deadline = min(deadline, self.own_turn(place))
        self.role = replace(role, leader_gone=True, fetch_deadline_ms=deadline)

    def other_voters(self) -> None:
        """The log has another last set."""
        role = self.role
        if self.lead is not None:
            self.lead.progress.set_voters(self.voters.current, self.now_ms)
            if self.voters.is_dynamic:
                self.lead.reported = None
        if isinstance(role, Follower):
            least = self.now_ms + self.config.fetch_timeout_ms
            self.role = replace(role, fetch_deadline_ms=max(role.fetch_deadline_ms, least))
        elif isinstance(role, Unattached | Prospective | Candidate):
            deadline = self.election_deadline() if self.may_stand else None
            self.enter(Unattached(epoch=role.epoch, voted=role.voted, election_deadline_ms=deadline))

    def let_time_decide(self) -> None:
        role, now_ms = self.role, self.now_ms
        if isinstance(role, Leader):
            assert self.lead is not None
            deadline = self.lead.progress.check_quorum_deadline_ms()
            if deadline is not None and now_ms >= deadline:
                silence_ms = self.config.fetch_timeout_ms * 3 // 2
                self.resign(f"no majority of the voters has fetched from it for {silence_ms} ms")
        elif isinstance(role, Follower):
            if now_ms >= role.fetch_deadline_ms and self.may_stand:
                waited_ms = self.config.fetch_timeout_ms
                self.stand(f"controller {role.leader_id} did not answer a fetch for {waited_ms} ms")
            elif now_ms >= role.fetch_deadline_ms:
                self.role = replace(role, leader_gone=True)
        elif role.election_deadline_ms is None or now_ms < role.election_deadline_ms:
            return
        elif isinstance(role, Unattached):
            self.stand(f"no leader of epoch {role.epoch} made itself known in time")
        elif isinstance(role, Resigned):
            deadline = now_ms if self.may_stand else None
            self.enter(Unattached(epoch=role.epoch, voted=role.voted, election_deadline_ms=deadline))
            if self.may_stand:
                self.stand("it resigned, and nobody else was elected since")
        else:
            self.lose()

    # -- votes

    def objection(self, request: Vote) -> str:
        """The reason against a request of this epoch; none if it is empty."""
        role, end = self.role, self.log.end
        led = f"controller {role.leader_id} leads that epoch"
        if (request.log_end.epoch, request.log_end.offset) < (end.epoch, end.offset):
            return "its log lacks records that this one has"
        if isinstance(role, Leader):
            return "this one leads that epoch"
        if isinstance(role, Follower):
            lets_ask = request.pre_vote and (role.leader_gone or not role.has_fetched)
            return "" if lets_ask else led
        if request.pre_vote:
            return ""
        if isinstance(role, Candidate):
            return "this one stands itself in that epoch"
        if isinstance(role, Resigned):
            return "this one has led that epoch itself"
        if role.voted is not None:
            same = role.voted.matches(request.candidate)
            return "" if same else f"its vote went to controller {role.voted.id}"
        return "" if role.leader_id is None else led

    def vote_for(self, candidate: ReplicaKey) -> None:
        if self.role.voted is not None:
            return
        end = self.log.end
        self.note(
            f"{self.name} votes for controller {candidate.id} in epoch {self.role.epoch}",
            "it had no vote in that epoch yet, and the candidate's log has all that its own has",
            also=f"controller {candidate.id}",
            epoch=self.role.epoch,
            log_end_offset=end.offset,
            log_end_epoch=end.epoch,
        )
        deadline = self.election_deadline() if self.may_stand else None
        self.enter(Unattached(epoch=self.role.epoch, voted=candidate, election_deadline_ms=deadline))

    def refuse(self, request: Vote, cause: str) -> None:
        """Noted once for each candidate in an epoch, and kind of vote; up to 20 in one epoch."""
        if request.epoch != self.refused_in:
            self.refused, self.refused_in = set(), request.epoch
        which = (request.candidate.id, request.pre_vote)
        if which in self.refused or len(self.refused) == 20:
            return
        self.refused.add(which)
        end = self.log.end
        self.note(
            f"{self.name} {'would' if request.pre_vote else 'does'} not vote for controller {request.candidate.id} "
            f"in epoch {request.epoch}",
            cause,
            also=f"controller {request.candidate.id}",
            routine=True,
            epoch=request.epoch,
            log_end_offset=end.offset,
            log_end_epoch=end.epoch,
            its_log_end_offset=request.log_end.offset,
            its_log_end_epoch=request.log_end.epoch,
        )

    # -- notes

    def note(
        self,
        text: str,
        cause: str,
        *,
        also: str = "",
        kind: DecisionKind = DecisionKind.QUORUM,
        routine: bool = False,
        **facts: Any,
    ) -> None:
        names = (self.name, also) if also else (self.name,)
        self.notes.append(Note(kind, "quorum", text, names, cause, facts, routine))

    def is_well(self) -> None:
        """The leader is there: a later candidacy has another cause."""
        self.attempts, self.cause = 0, ""
