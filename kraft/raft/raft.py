"""The Raft core of the metadata log, as Kafka speaks it: KIP-595, 630 (snapshots), 996 (pre-vote), 1166.

Messages and the time go in; answers come out, and `take_ready` tells what else has to happen. The core knows
epochs and offsets, not records; it reads no clock, no disk and no socket, and believes no peer further than
the checks below. `kraft.raft.roles` lists the roles and how one follows another.

Faster than timeouts: a follower that knows its leader's process to be gone (`leader_process_gone`) stands for
pre-election at once, in an order staggered by the voters' places, and grants pre-votes against that leader.
Evidence only ever shortens waiting and opens pre-votes, which bump no epoch; votes proper follow the rules of
Raft alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kraft.raft.history import LogHistory, OffsetAndEpoch
from kraft.raft.messages import (
    Answer,
    BeginQuorumEpoch,
    EndQuorumEpoch,
    Fetch,
    FetchAnswer,
    FetchedSpan,
    FetchSnapshot,
    FetchSnapshotAnswer,
    QuorumEpochAnswer,
    Request,
    Vote,
    VoteAnswer,
)
from kraft.raft.progress import Progress
from kraft.raft.quorum import Votes
from kraft.raft.ready import (
    InstallSnapshot,
    LeaderAndEpoch,
    LeaderChange,
    Ready,
    Send,
    SnapshotStep,
    StartSnapshot,
    WriteSnapshotChunk,
)
from kraft.raft.requests import Requests
from kraft.raft.roles import (
    Candidate,
    ElectionState,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Role,
    SnapshotDownload,
    Unattached,
)
from kraft.raft.story import Story
from kraft.raft.voters import ReplicaKey, VoterSet
from protocol.errors import ErrorCode
from runtime.world import Chance

ELECTION_BACKOFF_BASE_MS = 50
CANDIDACY_STAGGER_MS = 30
CANDIDACY_JITTER_MS = 10
"""Voters that learn of a leader's death together stand 30 ms apart, so that the first one usually wins
alone."""


class CommittedRecordsLost(Exception):
    """The leader asks to drop records that were committed: a voter has lost its disk, or worse. Nobody can go
    on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftConfig:
    """Who we are, and Kafka's `controller.quorum.*` times."""

    local: ReplicaKey
    bootstrap_ids: tuple[int, ...] = ()
    """Whom an observer asks for the leader; the voters if empty. May hold made-up negative ids of
    addresses."""
    election_timeout_ms: int = 1000
    fetch_timeout_ms: int = 2000
    election_backoff_max_ms: int = 1000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    fetch_max_wait_ms: int = 500


class Raft:
    """One replica. Every public method is one step; after each, take and carry out `take_ready()`.

    Invariants: the epoch never falls; one vote per epoch; `high_watermark` never falls and nothing below it
    is truncated; a leader never truncates and appends only in its own epoch.
    """

    def __init__(  # noqa: PLR0913 - everything a replica starts from
        self,
        config: RaftConfig,
        voters: VoterSet,
        election: ElectionState,
        log: LogHistory,
        *,
        latest_snapshot: OffsetAndEpoch | None,
        chance: Chance,
        now_ms: int,
    ) -> None:
        self._config = config
        self._id = config.local.id
        self.voters = voters
        self._chance = chance
        self._now_ms = now_ms
        self.log = log
        self.latest_snapshot = latest_snapshot
        self.high_watermark = latest_snapshot.offset if latest_snapshot is not None else log.start.offset
        """Everything below is committed, as far as we know. A snapshot holds only what was."""
        self.log_generation = 0
        """Rises when records are dropped from the end, so that the news of an earlier sync is not misread."""
        self.synced_end_offset = log.end_offset
        self._installing: OffsetAndEpoch | None = None
        self._requests = Requests(config.retry_backoff_ms, config.request_timeout_ms)
        self._failed_elections = 0
        self._rotation = 0
        self.progress: Progress | None = None
        """Only while leader."""
        self._epoch_high_watermark: int | None = None
        """The high watermark established as leader of this epoch, None until then: an older one may be behind
        what the last leader showed to the world."""
        self._announce: tuple[int, ...] = ()
        self._announce_at_ms = 0
        self._saved = election
        self._told = LeaderAndEpoch(None, -1)
        self._story = Story(self._id, is_voter=self.is_voter)
        self._clear_wishes()
        self.role: Role = self._first_role(election)
        self._poll()

    # ---- what others may look at

    @property
    def local_id(self) -> int:
        return self._id

    @property
    def epoch(self) -> int:
        return self.role.epoch

    @property
    def leader_id(self) -> int | None:
        return self.role.leader_id

    @property
    def is_voter(self) -> bool:
        return self.voters.contains(self._config.local)

    @property
    def is_leader(self) -> bool:
        return isinstance(self.role, Leader)

    @property
    def shown_high_watermark(self) -> int | None:
        """What this replica may tell others to be committed."""
        return self._epoch_high_watermark if self.is_leader else self.high_watermark

    # ---- time

    def tick(self, now_ms: int) -> None:
        """The time moved; due at `Ready.next_deadline_ms` at the latest."""
        self._now_ms = now_ms
        self._poll()

    # ---- requests of others

    def handle_vote(self, request: Vote, now_ms: int) -> VoteAnswer:
        """Grant a vote or a pre-vote (KIP-996), or say why not. The answer leaves only after `Ready.election`
        is synced."""
        self._now_ms = now_ms
        last = request.log_end
        newest_epoch = request.epoch if request.pre_vote else request.epoch - 1
        if last.offset < 0 or not 0 <= last.epoch <= newest_epoch:
            return self._vote_answer(ErrorCode.INVALID_REQUEST)
        if request.epoch < self.epoch:
            return self._vote_answer(ErrorCode.FENCED_LEADER_EPOCH)
        if request.candidate.id < 0 or request.candidate.id == self._id:
            return self._vote_answer(ErrorCode.INVALID_REQUEST)
        if request.epoch > self.epoch:
            self._become_unattached(request.epoch)
        if request.voter is not None and not request.voter.matches(self._config.local):
            self._poll()
            return self._vote_answer(ErrorCode.INVALID_VOTER_KEY)
        objection = self._objection(request)
        granted = not objection
        if objection:
            self._story.refuses(request, self.log.end, objection)
        elif not request.pre_vote:
            self._vote_for(request.candidate)
        self._poll()
        return self._vote_answer(ErrorCode.NONE, granted)

    def wants_leader_check(self, request: Vote) -> bool:
        """Whether it is worth a dial to our leader before this pre-vote is refused on its account."""
        role = self.role
        return (
            request.pre_vote
            and isinstance(role, Follower)
            and role.has_fetched
            and not role.leader_gone
            and request.epoch == role.epoch
            and request.candidate.id != role.leader_id
            and request.log_end >= self.log.end
        )

    def handle_begin_quorum_epoch(self, request: BeginQuorumEpoch, now_ms: int) -> QuorumEpochAnswer:
        """A leader makes itself known."""
        self._now_ms = now_ms
        error = self._follow_requester(request.leader_id, request.epoch)
        if error is ErrorCode.NONE and request.voter is not None and not request.voter.matches(self._config.local):
            error = ErrorCode.INVALID_VOTER_KEY
        self._poll()
        return QuorumEpochAnswer(error=error, leader_id=self.leader_id, epoch=self.epoch)

    def handle_end_quorum_epoch(self, request: EndQuorumEpoch, now_ms: int) -> QuorumEpochAnswer:
        """A leader says it has resigned; the preferred candidates stand in their order, without waiting."""
        self._now_ms = now_ms
        error = self._follow_requester(request.leader_id, request.epoch)
        role = self.role
        if error is ErrorCode.NONE and isinstance(role, Follower) and role.leader_id == request.leader_id:
            keys = request.preferred_candidates
            place = next((i for i, key in enumerate(keys) if key.matches(self._config.local)), len(keys))
            self._doubt_leader(place, f"controller {role.leader_id} said that it has resigned")
        self._poll()
        return QuorumEpochAnswer(error=error, leader_id=self.leader_id, epoch=self.epoch)

    def handle_fetch(self, request: Fetch, now_ms: int) -> FetchAnswer:
        """Note how far the replica is and answer it; see `must_wait` for when to park the answer."""
        self._now_ms = now_ms
        answer = self.answer_fetch(request)
        if (
            self.progress is not None
            and answer.error is ErrorCode.NONE
            and request.replica.id >= 0
            and answer.diverging is None
            and answer.snapshot is None
        ):
            self.progress.fetched(request.replica, request.fetch_offset, self.log.end_offset, now_ms)
            self._advance_leader_high_watermark()
            answer = self.answer_fetch(request)
        self._poll()
        return answer

    def answer_fetch(self, request: Fetch) -> FetchAnswer:
        """The answer to a fetch as things stand; changes nothing, so a parked one may be answered again."""
        error = self._leader_only_error(request.epoch)
        if (
            request.max_wait_ms < 0
            or request.fetch_offset < 0
            or not 0 <= request.last_fetched_epoch <= request.epoch
            or request.replica.id == self._id
        ):
            error = ErrorCode.INVALID_REQUEST
        answer = FetchAnswer(
            error=error, leader_id=self.leader_id, epoch=self.epoch, log_start_offset=self.log.start.offset
        )
        if error is not ErrorCode.NONE:
            return answer
        answer = replace(answer, high_watermark=self._epoch_high_watermark)
        if self.latest_snapshot is not None and (
            request.fetch_offset == 0 or self.log.needs_snapshot(request.fetch_offset, request.last_fetched_epoch)
        ):
            return replace(answer, snapshot=self.latest_snapshot)
        diverging = self.log.divergence(request.fetch_offset, request.last_fetched_epoch)
        if diverging is not None:
            return replace(answer, diverging=diverging)
        if request.fetch_offset < self.log.end_offset:
            return replace(answer, readable=(request.fetch_offset, self.log.end_offset))
        return answer

    @staticmethod
    def must_wait(request: Fetch, answer: FetchAnswer) -> bool:
        """Nothing in the answer is news to the replica: keep it until there is, or until `max_wait_ms`
        passed."""
        knows_high_watermark = (
            request.high_watermark is None
            or answer.high_watermark is None
            or answer.high_watermark <= request.high_watermark
        )
        return (
            answer.error is ErrorCode.NONE
            and answer.readable is None
            and answer.diverging is None
            and answer.snapshot is None
            and request.max_wait_ms > 0
            and knows_high_watermark
        )

    def handle_fetch_snapshot(self, request: FetchSnapshot, size_bytes: int | None, now_ms: int) -> FetchSnapshotAnswer:
        """Which bytes of a snapshot to send; `size_bytes` is the file's, None if there is no such
        snapshot."""
        self._now_ms = now_ms
        error = self._leader_only_error(request.epoch)
        if error is ErrorCode.NONE:
            if size_bytes is None:
                error = ErrorCode.SNAPSHOT_NOT_FOUND
            elif not 0 <= request.position < size_bytes:
                error = ErrorCode.POSITION_OUT_OF_RANGE
        answer = FetchSnapshotAnswer(error=error, leader_id=self.leader_id, epoch=self.epoch)
        if error is not ErrorCode.NONE or size_bytes is None:
            return answer
        if self.progress is not None and request.replica.id not in (-1, self._id):
            self.progress.heard(request.replica, now_ms)
        return replace(
            answer,
            snapshot=request.snapshot,
            size_bytes=size_bytes,
            position=request.position,
            count=min(max(request.max_bytes, 0), size_bytes - request.position),
        )

    # ---- what became of our own requests

    def handle_answer(self, peer_id: int, request_id: int, answer: Answer, now_ms: int) -> None:
        """An answer arrived. Those nobody waits for any more are ignored."""
        self._now_ms = now_ms
        self._requests.answered(peer_id)
        if not self._requests.settle(peer_id, request_id):
            return
        self._learn_leader(answer.leader_id, answer.epoch)
        if answer.epoch == self.epoch:
            match answer:
                case VoteAnswer():
                    self._count_vote(peer_id, answer)
                case QuorumEpochAnswer():
                    self._count_acknowledgement(peer_id, answer)
                case FetchAnswer():
                    self._take_fetched(peer_id, answer)
                case FetchSnapshotAnswer():
                    self._take_snapshot_chunk(peer_id, answer)
        elif answer.epoch < self.epoch:
            self._requests.rest(peer_id, now_ms)
        self._poll()

    def request_failed(self, peer_id: int, request_id: int, now_ms: int) -> None:
        """No answer will come: not sent, connection lost, timed out, or nothing that makes sense."""
        self._now_ms = now_ms
        if self._requests.settle(peer_id, request_id):
            self._requests.failed(peer_id, now_ms)
        self._poll()

    def leader_process_gone(self, leader_id: int, epoch: int, now_ms: int) -> None:
        """The connection to the leader closed and a fresh dial was refused: its process has ended."""
        self._now_ms = now_ms
        role = self.role
        if self.is_voter and isinstance(role, Follower) and (role.leader_id, role.epoch) == (leader_id, epoch):
            place = self.voters.place(self._id, without=leader_id)
            self._doubt_leader(place, f"the connection to controller {leader_id} ended and dialling it was refused")
        self._poll()

    # ---- the log and its snapshots

    def appended_as_leader(self, next_offset: int, now_ms: int) -> None:
        """The leader wrote records of its epoch up to `next_offset`; they are not yet synced."""
        assert self.is_leader, "only a leader appends"
        self._now_ms = now_ms
        self.log = self.log.appended(self.epoch, next_offset)
        self._wake_fetches = True

    def log_synced(self, end_offset: int, log_generation: int, now_ms: int) -> None:
        """All records below `end_offset` are durable, as of `log_generation`."""
        self._now_ms = now_ms
        if log_generation == self.log_generation and end_offset > self.synced_end_offset:
            self.synced_end_offset = end_offset
            if self.progress is not None:
                self.progress.local_synced(end_offset)
                self._advance_leader_high_watermark()
        self._poll()

    def snapshot_created(self, snapshot: OffsetAndEpoch) -> None:
        """A snapshot of our own committed records is on the disk."""
        assert snapshot.offset <= self.high_watermark, "a snapshot holds committed records only"
        if self.latest_snapshot is None or snapshot.offset > self.latest_snapshot.offset:
            self.latest_snapshot = snapshot

    def log_started_at(self, start: OffsetAndEpoch) -> None:
        """The log's prefix before the snapshot `start` was deleted."""
        self.log = self.log.started_at(start)

    def snapshot_installed(self, snapshot: OffsetAndEpoch, installed: bool, now_ms: int) -> None:
        """A downloaded snapshot replaced the log; or, not `installed`, it was not what it should be: fetch
        again."""
        assert self._installing == snapshot and not self.is_leader
        self._now_ms = now_ms
        self._installing = None
        if installed:
            self.log = LogHistory.of_snapshot(snapshot)
            self.log_generation += 1
            self.synced_end_offset = snapshot.offset
            self.latest_snapshot = snapshot
            self._raise_high_watermark(snapshot.offset)
        self._poll()

    # ---- giving up leadership

    def resign(self, now_ms: int) -> None:
        """Stop leading, if we do, and ask the most complete voters to stand."""
        self._now_ms = now_ms
        if self.is_leader:
            self._become_resigned("it stops, or its disk failed")
        self._poll()

    # ---- the outcome of a step

    def take_ready(self) -> Ready:
        """All that the steps since the last call want to happen."""
        election = self._election()
        leader = LeaderAndEpoch(self.leader_id, self.epoch)
        ready = Ready(
            election=election if election != self._saved else None,
            truncate_to=self._truncate_to,
            append_leader_change=self._leader_change,
            append_fetched=self._append_fetched,
            snapshot_steps=tuple(self._snapshot_steps),
            requests=tuple(self._sends),
            wake_fetches=self._wake_fetches or leader != self._told,
            high_watermark=self._new_high_watermark,
            leader=leader if leader != self._told else None,
            next_deadline_ms=self.next_deadline_ms(),
            notes=self._story.take(),
        )
        self._saved = election
        self._told = leader
        self._clear_wishes()
        return ready

    def _clear_wishes(self) -> None:
        self._truncate_to: int | None = None
        self._leader_change: LeaderChange | None = None
        self._append_fetched = False
        self._snapshot_steps: list[SnapshotStep] = []
        self._sends: list[Send] = []
        self._wake_fetches = False
        self._new_high_watermark: int | None = None

    def _election(self) -> ElectionState:
        role = self.role
        leader_id = self._id if isinstance(role, Resigned) else role.leader_id
        return ElectionState(epoch=role.epoch, leader_id=leader_id, voted=role.voted)

    # ---- roles

    def _first_role(self, election: ElectionState) -> Role:
        """Who led never leads that epoch again, and who voted does not vote again: both are read from
        `election`."""
        if election.epoch < self.log.last_epoch:
            election = ElectionState(epoch=self.log.last_epoch)
        if election.leader_id == self._id:
            election = replace(election, leader_id=None, voted=self._config.local)
        if election.leader_id is not None and election.leader_id in (self.voters.ids or self._config.bootstrap_ids):
            return self._follower(election.epoch, election.leader_id, election.voted)
        self._story.leader_doubted("it has just started and knows no leader")
        deadline = self._now_ms + self._stagger_ms(self.voters.place(self._id, without=None))
        return Unattached(
            epoch=election.epoch,
            voted=election.voted,
            election_deadline_ms=deadline if self.is_voter else None,
        )

    def _follower(self, epoch: int, leader_id: int, voted: ReplicaKey | None) -> Follower:
        deadline = self._now_ms + self._config.fetch_timeout_ms
        return Follower(epoch=epoch, leader_id=leader_id, voted=voted, fetch_deadline_ms=deadline)

    def _enter(self, role: Role) -> None:
        assert role.epoch >= self.role.epoch, f"epoch falls: {self.role} -> {role}"
        self.role = role
        self._requests.reset()
        self._sends.clear()
        if not isinstance(role, Leader):
            self.progress = None
            self._epoch_high_watermark = None

    def _become_unattached(self, epoch: int) -> None:
        """A higher epoch was heard of, but not its leader."""
        role = self.role
        deadline: int | None = None
        if isinstance(role, Unattached | Prospective | Candidate):
            deadline = role.election_deadline_ms
        elif self.is_voter:
            deadline = self._now_ms + self._election_timeout_ms()
        self._enter(Unattached(epoch=epoch, voted=None, election_deadline_ms=deadline))

    def _become_follower(self, epoch: int, leader_id: int) -> None:
        voted = self.role.voted if epoch == self.epoch else None
        self._failed_elections = 0
        self._enter(self._follower(epoch, leader_id, voted))
        self._story.follows(leader_id, epoch, self.log.end)

    def _become_prospective(self, cause: str) -> None:
        role = self.role
        self._story.stands(role.epoch, role.leader_id, self.log.end, cause)
        self._enter(
            Prospective(
                epoch=role.epoch,
                leader_id=role.leader_id,
                voted=role.voted,
                leader_gone=isinstance(role, Follower) and role.leader_gone,
                votes=Votes(self.voters.ids).record(self._id, True),
                election_deadline_ms=self._now_ms + self._election_timeout_ms(),
            )
        )
        self._settle_votes()

    def _become_candidate(self, pre_votes: tuple[int, ...]) -> None:
        self._story.is_candidate(self.epoch + 1, pre_votes, self.log.end)
        self._enter(
            Candidate(
                epoch=self.epoch + 1,
                voted=self._config.local,
                votes=Votes(self.voters.ids).record(self._id, True),
                election_deadline_ms=self._now_ms + self._election_timeout_ms(),
            )
        )
        self._settle_votes()

    def _become_leader(self, candidate: Candidate) -> None:
        start = self.log.end_offset
        self._failed_elections = 0
        self._enter(
            Leader(
                epoch=candidate.epoch,
                leader_id=self._id,
                voted=candidate.voted,
                granting_voters=candidate.votes.granted,
                epoch_start_offset=start,
            )
        )
        self.progress = Progress(self._id, self.voters, self._config.fetch_timeout_ms * 3 // 2, self._now_ms)
        self.progress.local_synced(self.synced_end_offset)
        self._leader_change = LeaderChange(
            offset=start,
            epoch=candidate.epoch,
            leader_id=self._id,
            voters=self.voters.ids,
            granting_voters=candidate.votes.granted,
        )
        self.log = self.log.appended(candidate.epoch, start + 1)
        self._announce_at_ms = self._now_ms
        self._story.leads(candidate.epoch, candidate.votes.granted, start)

    def _become_resigned(self, cause: str) -> None:
        role = self.role
        assert isinstance(role, Leader) and self.progress is not None
        self._story.resigns(role.epoch, cause)
        successors = self.progress.successors()
        self._enter(
            Resigned(
                epoch=role.epoch,
                voted=role.voted,
                preferred_candidates=successors,
                unacknowledged=tuple(key.id for key in successors),
                election_deadline_ms=self._now_ms + self._election_timeout_ms(),
            )
        )

    def _doubt_leader(self, place: int, cause: str) -> None:
        """There is evidence that our leader leads no more: stand when our turn comes, and let others
        stand."""
        role = self.role
        assert isinstance(role, Follower)
        if self.is_voter and not role.leader_gone:
            self._story.leader_doubted(cause)
            deadline = min(role.fetch_deadline_ms, self._now_ms + self._stagger_ms(place))
            self.role = replace(role, leader_gone=True, fetch_deadline_ms=deadline)

    def _stagger_ms(self, place: int) -> int:
        if len(self.voters.keys) <= 1:
            return 0
        return place * CANDIDACY_STAGGER_MS + self._chance.randrange(0, CANDIDACY_JITTER_MS)

    def _election_timeout_ms(self) -> int:
        timeout = self._config.election_timeout_ms
        return timeout + self._chance.randrange(0, max(timeout, 1))

    def _election_backoff_ms(self) -> int:
        """After a lost election: random, its bound doubling with each one lost in a row."""
        self._failed_elections += 1
        bound = min(ELECTION_BACKOFF_BASE_MS << min(self._failed_elections, 16), self._config.election_backoff_max_ms)
        return self._chance.randrange(ELECTION_BACKOFF_BASE_MS // 2, max(bound, ELECTION_BACKOFF_BASE_MS) + 1)

    # ---- voting

    def _vote_answer(self, error: ErrorCode, granted: bool = False) -> VoteAnswer:
        return VoteAnswer(error=error, leader_id=self.leader_id, epoch=self.epoch, granted=granted)

    def _objection(self, request: Vote) -> str:
        """Why we would not (pre-vote) or do not (vote) support this candidate in our epoch; nothing if we do."""
        if request.log_end < self.log.end:
            return "its log lacks records that this one has"
        match self.role:
            case Leader():
                return "this one leads that epoch"
            case Follower() as role if request.pre_vote and (not role.has_fetched or role.leader_gone):
                return ""
            case Follower() as role:
                return f"controller {role.leader_id} leads that epoch"
            case _ if request.pre_vote:
                return ""
            case Unattached() | Prospective() as role if role.voted is not None:
                return "" if role.voted.matches(request.candidate) else f"its vote went to controller {role.voted.id}"
            case Unattached() | Prospective() as role:
                return "" if role.leader_id is None else f"controller {role.leader_id} leads that epoch"
            case Candidate():
                return "this one stands itself in that epoch"
            case Resigned():
                return "this one has led that epoch itself"

    def _vote_for(self, candidate: ReplicaKey) -> None:
        """The candidate has as good a chance as we: give it an election timeout before we stand again."""
        if self.role.voted is None:
            self._story.votes(candidate.id, self.epoch, self.log.end)
            deadline = self._now_ms + self._election_timeout_ms() if self.is_voter else None
            self._enter(Unattached(epoch=self.epoch, voted=candidate, election_deadline_ms=deadline))

    def _count_vote(self, peer_id: int, answer: VoteAnswer) -> None:
        role = self.role
        if answer.error is not ErrorCode.NONE:
            self._requests.rest(peer_id, self._now_ms)
        elif isinstance(role, Prospective | Candidate):
            self.role = replace(role, votes=role.votes.record(peer_id, answer.granted))
            self._settle_votes()

    def _settle_votes(self) -> None:
        role = self.role
        match role:
            case Prospective() if role.votes.won:
                self._become_candidate(role.votes.granted)
            case Candidate() if role.votes.won:
                self._become_leader(role)
            case Prospective() | Candidate() if role.votes.lost:
                self._lose_election()
            case _:
                pass

    def _lose_election(self) -> None:
        """Follow on if the epoch has a leader, else wait a while before standing again."""
        role = self.role
        assert isinstance(role, Prospective | Candidate)
        if isinstance(role, Prospective) and role.leader_id is not None:
            wait_ms = self._election_backoff_ms() if role.leader_gone else self._config.fetch_timeout_ms
            self._enter(
                Follower(
                    epoch=role.epoch,
                    leader_id=role.leader_id,
                    voted=role.voted,
                    fetch_deadline_ms=self._now_ms + wait_ms,
                    leader_gone=role.leader_gone,
                )
            )
            return
        deadline = self._now_ms + self._election_backoff_ms()
        self._enter(Unattached(epoch=role.epoch, voted=role.voted, election_deadline_ms=deadline))

    # ---- learning of leaders

    def _leader_only_error(self, epoch: int) -> ErrorCode:
        if epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch > self.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NONE if self.is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _follow_requester(self, leader_id: int, epoch: int) -> ErrorCode:
        if epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if leader_id < 0 or leader_id == self._id:
            return ErrorCode.INVALID_REQUEST
        self._learn_leader(leader_id, epoch)
        return ErrorCode.NONE if self.leader_id == leader_id else ErrorCode.INVALID_REQUEST

    def _learn_leader(self, leader_id: int | None, epoch: int) -> None:
        """Somebody named an epoch and perhaps its leader. Two leaders of one epoch cannot be: the first is
        believed."""
        if leader_id == self._id:
            leader_id = None
        if epoch > self.epoch:
            if leader_id is None:
                self._become_unattached(epoch)
            else:
                self._become_follower(epoch, leader_id)
        elif (
            epoch == self.epoch
            and leader_id is not None
            and isinstance(self.role, Unattached | Prospective | Candidate)
            and self.leader_id is None
        ):
            self._become_follower(epoch, leader_id)

    # ---- following

    def _take_fetched(self, peer_id: int, answer: FetchAnswer) -> None:
        role = self.role
        if not isinstance(role, Follower) or role.leader_id != peer_id:
            self._requests.rest(peer_id, self._now_ms)
            return
        if answer.error is not ErrorCode.NONE:
            self._requests.rest(peer_id, self._now_ms)
            if answer.error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                # Who led an epoch and stopped never leads it again.
                place = self.voters.place(self._id, without=peer_id)
                self._doubt_leader(place, f"controller {peer_id} answered that it does not lead epoch {role.epoch} now")
            return
        download: SnapshotDownload | None = None
        if answer.diverging is not None:
            self._truncate(self.log.truncation_offset(answer.diverging))
        elif answer.snapshot is not None:
            if answer.snapshot.offset < self.high_watermark or answer.snapshot == self.latest_snapshot:
                self._requests.rest(peer_id, self._now_ms)
                return
            download = SnapshotDownload(snapshot=answer.snapshot)
            self._story.takes_snapshot(answer.snapshot, self.log.end_offset, peer_id)
            self._snapshot_steps.append(StartSnapshot(answer.snapshot))
        elif not self._append_spans(answer.spans):
            self._requests.rest(peer_id, self._now_ms)
            return
        elif answer.high_watermark is not None:
            self._raise_high_watermark(min(answer.high_watermark, self.log.end_offset))
        self._leader_answered(role, download)

    def _leader_answered(self, role: Follower, download: SnapshotDownload | None) -> None:
        deadline = self._now_ms + self._config.fetch_timeout_ms
        self._failed_elections = 0
        self._story.leader_is_well()
        self.role = replace(role, fetch_deadline_ms=deadline, has_fetched=True, leader_gone=False, download=download)

    def _append_spans(self, spans: tuple[FetchedSpan, ...]) -> bool:
        """Take over fetched records; False if they do not continue our log within the leader's epoch."""
        log = self.log
        for span in spans:
            continues = span.first_offset == log.end_offset < span.next_offset
            if not continues or not log.last_epoch <= span.epoch <= self.epoch:
                return False
            log = log.appended(span.epoch, span.next_offset)
        self.log = log
        self._append_fetched = bool(spans)
        return True

    def _truncate(self, offset: int) -> None:
        if offset < self.high_watermark:
            raise CommittedRecordsLost(
                f"leader {self.leader_id} of epoch {self.epoch} wants the log cut at {offset}, "
                f"below the high watermark {self.high_watermark}"
            )
        if offset < self.log.end_offset:
            self._story.cuts(self.log.end_offset, offset, self.leader_id, self.epoch)
            self.log = self.log.truncated_to(offset)
            self.log_generation += 1
            self.synced_end_offset = min(self.synced_end_offset, offset)
            self._truncate_to = offset

    def _take_snapshot_chunk(self, peer_id: int, answer: FetchSnapshotAnswer) -> None:
        role = self.role
        if not isinstance(role, Follower) or role.leader_id != peer_id or role.download is None:
            return
        download = role.download
        if answer.error in (ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE):
            # A newer one took its place: a fetch tells which.
            self._leader_answered(role, None)
            return
        end = download.position + answer.count
        if (
            answer.error is not ErrorCode.NONE
            or (answer.snapshot, answer.position) != (download.snapshot, download.position)
            or answer.count <= 0
            or end > answer.size_bytes
        ):
            self._requests.rest(peer_id, self._now_ms)
            return
        self._snapshot_steps.append(WriteSnapshotChunk(download.snapshot, download.position))
        if end < answer.size_bytes:
            self._leader_answered(role, replace(download, position=end))
            return
        self._snapshot_steps.append(InstallSnapshot(download.snapshot))
        self._installing = download.snapshot
        self._leader_answered(role, None)

    def _raise_high_watermark(self, offset: int) -> None:
        if offset > self.high_watermark:
            self.high_watermark = offset
            self._new_high_watermark = offset

    # ---- leading

    def _advance_leader_high_watermark(self) -> None:
        role = self.role
        assert isinstance(role, Leader) and self.progress is not None
        offset = self.progress.majority_offset()
        if offset is None or offset <= role.epoch_start_offset:
            return
        if self._epoch_high_watermark is None or offset > self._epoch_high_watermark:
            self._epoch_high_watermark = offset
            self._raise_high_watermark(offset)
            self._wake_fetches = True

    def _count_acknowledgement(self, peer_id: int, answer: QuorumEpochAnswer) -> None:
        role = self.role
        if answer.error is not ErrorCode.NONE:
            self._requests.rest(peer_id, self._now_ms)
        elif isinstance(role, Resigned):
            left = tuple(voter for voter in role.unacknowledged if voter != peer_id)
            self.role = replace(role, unacknowledged=left)

    # ---- what is due now

    def _poll(self) -> None:
        self._requests.expire(self._now_ms)
        self._poll_timeouts()
        match self.role:
            case Prospective() | Candidate() as role:
                for voter_id in role.votes.missing:
                    self._send_if_free(voter_id, self._vote_request(voter_id, role))
            case Resigned() as role:
                for voter_id in role.unacknowledged:
                    end = EndQuorumEpoch(
                        leader_id=self._id,
                        epoch=role.epoch,
                        preferred_candidates=role.preferred_candidates,
                    )
                    self._send_if_free(voter_id, end)
            case Leader() as role:
                self._poll_leader(role)
            case Follower() as role if self.is_voter:
                if self._may_fetch():
                    self._send_if_free(role.leader_id, self._fetch_request())
            case Follower() | Unattached() if not self.is_voter:
                self._poll_observer()
            case _:
                pass

    def _poll_timeouts(self) -> None:
        role = self.role
        match role:
            case Follower() if self.is_voter and role.fetch_deadline_ms <= self._now_ms:
                waited_ms = self._config.fetch_timeout_ms
                self._become_prospective(f"controller {role.leader_id} did not answer a fetch for {waited_ms} ms")
            case Prospective() | Candidate() if role.election_deadline_ms <= self._now_ms:
                self._lose_election()
            case Resigned() if role.election_deadline_ms <= self._now_ms:
                self._enter(Unattached(epoch=role.epoch, voted=role.voted, election_deadline_ms=self._now_ms))
                self._become_prospective("it resigned, and nobody else was elected since")
            case Unattached() if role.election_deadline_ms is not None and role.election_deadline_ms <= self._now_ms:
                self._become_prospective(f"no leader of epoch {role.epoch} made itself known in time")
            case Leader() if self.progress is not None:
                deadline = self.progress.check_quorum_deadline_ms()
                if deadline is not None and deadline <= self._now_ms:
                    silent_ms = self._config.fetch_timeout_ms * 3 // 2
                    self._become_resigned(f"no majority of the voters has fetched from it for {silent_ms} ms")
            case _:
                pass

    def _poll_leader(self, role: Leader) -> None:
        assert self.progress is not None
        if self._announce_at_ms <= self._now_ms:
            period_ms = self._config.fetch_timeout_ms // 2
            self._announce = self.progress.silent_voters(self._now_ms - period_ms)
            self._announce_at_ms = self._now_ms + period_ms
        waiting = []
        for voter_id in self._announce:
            begin = BeginQuorumEpoch(voter=self.voters.key(voter_id), leader_id=self._id, epoch=role.epoch)
            if not self._send_if_free(voter_id, begin):
                waiting.append(voter_id)
        self._announce = tuple(waiting)

    def _poll_observer(self) -> None:
        """Fetch from the leader; while it does not answer, ask the voters in turn who leads."""
        if not self._may_fetch() or self._requests.any_in_flight():
            return
        role = self.role
        if (
            isinstance(role, Follower)
            and self._now_ms < role.fetch_deadline_ms
            and self._send_if_free(role.leader_id, self._fetch_request())
        ):
            return
        peers = self._bootstrap_ids()
        for step in range(len(peers)):
            peer_id = peers[(self._rotation + step) % len(peers)]
            if self._send_if_free(peer_id, self._plain_fetch()):
                self._rotation = (self._rotation + step + 1) % len(peers)
                return

    def _bootstrap_ids(self) -> tuple[int, ...]:
        return tuple(peer for peer in self._config.bootstrap_ids or self.voters.ids if peer != self._id)

    def _may_fetch(self) -> bool:
        """A voter's fetch says what it has on disk, so it waits for the sync; observers' offsets do not
        count."""
        return self._installing is None and (not self.is_voter or self.synced_end_offset == self.log.end_offset)

    def _send_if_free(self, peer_id: int, request: Request) -> bool:
        if not self._requests.is_free(peer_id, self._now_ms):
            return False
        request_id = self._requests.sent(peer_id, self._now_ms)
        self._sends.append(Send(peer_id, request_id, request))
        return True

    def _vote_request(self, voter_id: int, role: Prospective | Candidate) -> Vote:
        return Vote(
            voter=self.voters.key(voter_id),
            candidate=self._config.local,
            epoch=role.epoch,
            log_end=self.log.end,
            pre_vote=isinstance(role, Prospective),
        )

    def _fetch_request(self) -> Fetch | FetchSnapshot:
        role = self.role
        if isinstance(role, Follower) and role.download is not None:
            return FetchSnapshot(
                replica=self._config.local,
                epoch=role.epoch,
                snapshot=role.download.snapshot,
                position=role.download.position,
            )
        return self._plain_fetch()

    def _plain_fetch(self) -> Fetch:
        return Fetch(
            replica=self._config.local,
            epoch=self.epoch,
            fetch_offset=self.log.end_offset,
            last_fetched_epoch=self.log.last_epoch,
            high_watermark=self.high_watermark,
            max_wait_ms=self._config.fetch_max_wait_ms,
        )

    def next_deadline_ms(self) -> int | None:
        """When `tick` is due; None: no sooner than the next input."""
        times: list[int | None] = []
        match self.role:
            case Prospective() | Candidate() as role:
                times = [role.election_deadline_ms, *self._free_times(role.votes.missing)]
            case Resigned() as role:
                times = [role.election_deadline_ms, *self._free_times(role.unacknowledged)]
            case Leader() if self.progress is not None:
                times = [
                    self.progress.check_quorum_deadline_ms(),
                    self._announce_at_ms if len(self.voters.keys) > 1 else None,
                    *self._free_times(self._announce),
                ]
            case Follower() as role if self.is_voter:
                times = [role.fetch_deadline_ms, *self._free_times((role.leader_id,))]
            case Unattached() as role if self.is_voter:
                times = [role.election_deadline_ms]
            case Unattached() | Follower() as role:
                leader = () if role.leader_id is None else (role.leader_id,)
                times = [*self._free_times((*leader, *self._bootstrap_ids()))]
            case _:
                pass
        return min((time for time in times if time is not None), default=None)

    def _free_times(self, peer_ids: tuple[int, ...]) -> list[int]:
        """When to look at these peers again; a peer that is free now waits for something else than time."""
        times = (self._requests.free_at_ms(peer_id, self._now_ms) for peer_id in peer_ids)
        return [time for time in times if time > self._now_ms]

    def __str__(self) -> str:
        return (
            f"{self._id} {type(self.role).__name__.lower()} epoch={self.epoch} leader={self.leader_id} "
            f"log={self.log} synced={self.synced_end_offset} hw={self.high_watermark}"
        )
