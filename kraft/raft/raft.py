"""The Raft core of the metadata log, in Kafka's dialect: KIP-595, 630 (snapshots), 996 (pre-vote), 1166.

Messages and the time go in; answers come out, and `take_ready` returns what else has to happen. The core knows
epochs and offsets, not records; it reads no clock, no disk and no socket, and believes no peer further than
the checks below. `kraft.raft.roles` lists the roles and how one follows another.

Faster than timeouts: a follower that knows its leader's process to be gone (`leader_process_gone`) stands for
pre-election at once, in an order staggered by the voters' places, and grants pre-votes against that leader.
Evidence only ever shortens waiting and opens pre-votes, which bump no epoch; votes proper follow the rules of
Raft alone.
"""

from __future__ import annotations

from dataclasses import replace

from kraft.raft.config import RaftConfig
from kraft.raft.election_notes import ElectionNotes
from kraft.raft.election_times import ElectionTimes
from kraft.raft.fetch_answers import is_well_formed, with_what_comes_next
from kraft.raft.history import LogHistory, OffsetAndEpoch
from kraft.raft.leadership import Leadership
from kraft.raft.messages import (
    Answer,
    BeginQuorumEpoch,
    EndQuorumEpoch,
    Fetch,
    FetchAnswer,
    FetchSnapshot,
    FetchSnapshotAnswer,
    QuorumEpochAnswer,
    Vote,
    VoteAnswer,
)
from kraft.raft.outgoing_requests import OutgoingRequests
from kraft.raft.own_log import OwnLog
from kraft.raft.progress import Progress
from kraft.raft.quorum import Votes
from kraft.raft.ready import LeaderAndEpoch, LeaderChange, Ready
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
from kraft.raft.voters import ReplicaKey, VoterSet
from kraft.raft.voting import is_worth_a_leader_check, objection, vote_error
from protocol.errors import ErrorCode
from runtime.world import Chance


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
        self._now_ms = now_ms
        self._log = OwnLog(log, latest_snapshot)
        self._times = ElectionTimes(config, len(voters.keys), chance)
        self._requests = Requests(config.retry_backoff_ms, config.request_timeout_ms)
        self._outgoing = OutgoingRequests(config, voters, self._log, self._requests)
        self._leadership: Leadership | None = None
        """Only while leader."""
        self._saved = election
        self._reported_leader = LeaderAndEpoch(None, -1)
        self._notes = ElectionNotes(self._id, is_voter=self.is_voter)
        self._leader_change: LeaderChange | None = None
        self._wake_fetches = False
        self.role: Role = self._first_role(election)
        self._poll()

    # ---- state that others may read

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
        """The high watermark that this replica may report to others; None while a new leader has none."""
        return self._log.high_watermark if self._leadership is None else self._leadership.high_watermark

    @property
    def progress(self) -> Progress | None:
        """Progress of the other replicas; None unless this one leads."""
        return None if self._leadership is None else self._leadership.progress

    @property
    def log(self) -> LogHistory:
        """Start and end of this replica's log, and of its epochs."""
        return self._log.history

    @property
    def log_generation(self) -> int:
        """Rises when records are dropped from the end; goes with the result of a sync."""
        return self._log.generation

    @property
    def synced_end_offset(self) -> int:
        return self._log.synced_end_offset

    @property
    def high_watermark(self) -> int:
        """Everything below is committed, as far as we know."""
        return self._log.high_watermark

    @property
    def latest_snapshot(self) -> OffsetAndEpoch | None:
        return self._log.latest_snapshot

    # ---- time

    def tick(self, now_ms: int) -> None:
        """The time moved; due at `Ready.next_deadline_ms` at the latest."""
        self._now_ms = now_ms
        self._poll()

    # ---- requests of others

    def handle_vote(self, request: Vote, now_ms: int) -> VoteAnswer:
        """Grant or refuse a vote or a pre-vote (KIP-996). The answer leaves only after `Ready.election`
        is synced."""
        self._now_ms = now_ms
        error = vote_error(request, self._id, self.epoch)
        if error is not ErrorCode.NONE:
            self._poll()
            return self._vote_answer(error)
        if request.epoch > self.epoch:
            self._become_unattached(request.epoch)
        if not self._is_meant(request.voter):
            self._poll()
            return self._vote_answer(ErrorCode.INVALID_VOTER_KEY)
        why_not = objection(request, self.role, self.log.end)
        if why_not:
            self._notes.refuses(request, self.log.end, why_not)
        elif not request.pre_vote:
            self._vote_for(request.candidate)
        self._poll()
        return self._vote_answer(ErrorCode.NONE, granted=not why_not)

    def wants_leader_check(self, request: Vote) -> bool:
        """Whether to dial our leader before this pre-vote is refused on its account."""
        return is_worth_a_leader_check(request, self.role, self.log.end)

    def handle_begin_quorum_epoch(self, request: BeginQuorumEpoch, now_ms: int) -> QuorumEpochAnswer:
        """A leader makes itself known."""
        self._now_ms = now_ms
        error = self._follow_requester(request.leader_id, request.epoch)
        if error is ErrorCode.NONE and not self._is_meant(request.voter):
            error = ErrorCode.INVALID_VOTER_KEY
        self._poll()
        return QuorumEpochAnswer(error=error, leader_id=self.leader_id, epoch=self.epoch)

    def handle_end_quorum_epoch(self, request: EndQuorumEpoch, now_ms: int) -> QuorumEpochAnswer:
        """A leader has resigned; the preferred candidates stand in their order, without waiting."""
        self._now_ms = now_ms
        error = self._follow_requester(request.leader_id, request.epoch)
        role = self.role
        if error is ErrorCode.NONE and isinstance(role, Follower) and role.leader_id == request.leader_id:
            keys = request.preferred_candidates
            place = next((i for i, key in enumerate(keys) if key.matches(self._config.local)), len(keys))
            self._doubt_leader(place, f"controller {role.leader_id} has resigned")
        self._poll()
        return QuorumEpochAnswer(error=error, leader_id=self.leader_id, epoch=self.epoch)

    def handle_fetch(self, request: Fetch, now_ms: int) -> FetchAnswer:
        """Note the replica's progress and answer it; `fetch_answers.must_wait` decides whether the answer is parked."""
        self._now_ms = now_ms
        answer = self.answer_fetch(request)
        if (
            self._leadership is not None
            and answer.error is ErrorCode.NONE
            and request.replica.id >= 0
            and answer.diverging is None
            and answer.snapshot is None
        ):
            self._leadership.progress.fetched(request.replica, request.fetch_offset, self.log.end_offset, now_ms)
            self._advance_leader_high_watermark()
            answer = self.answer_fetch(request)
        self._poll()
        return answer

    def answer_fetch(self, request: Fetch) -> FetchAnswer:
        """The answer to a fetch as things stand; changes nothing, so a parked one may be answered again."""
        error = self._leader_only_error(request.epoch)
        if not is_well_formed(request, self._id):
            error = ErrorCode.INVALID_REQUEST
        answer = FetchAnswer(
            error=error, leader_id=self.leader_id, epoch=self.epoch, log_start_offset=self.log.start.offset
        )
        if error is not ErrorCode.NONE:
            return answer
        return with_what_comes_next(replace(answer, high_watermark=self.shown_high_watermark), request, self._log)

    def handle_fetch_snapshot(self, request: FetchSnapshot, size_bytes: int | None, now_ms: int) -> FetchSnapshotAnswer:
        """The range of bytes of a snapshot to send; `size_bytes` is the file's, None if there is no such
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
            self._poll()
            return answer
        if self._leadership is not None and request.replica.id not in (-1, self._id):
            self._leadership.progress.contacted(request.replica, now_ms)
        self._poll()
        return replace(
            answer,
            snapshot=request.snapshot,
            size_bytes=size_bytes,
            position=request.position,
            count=min(max(request.max_bytes, 0), size_bytes - request.position),
        )

    # ---- outcomes of our own requests

    def handle_answer(self, peer_id: int, request_id: int, answer: Answer, now_ms: int) -> None:
        """An answer arrived. It is ignored if its request is no longer in flight."""
        self._now_ms = now_ms
        self._requests.answered(peer_id)
        if self._requests.settle(peer_id, request_id):
            self._take_answer(peer_id, answer)
        self._poll()

    def _take_answer(self, peer_id: int, answer: Answer) -> None:
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
            self._rest(peer_id)

    def request_failed(self, peer_id: int, request_id: int, now_ms: int) -> None:
        """No answer will come: not sent, connection lost, timed out, or unusable."""
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
        self._log.append(self.epoch, next_offset)
        self._wake_fetches = True

    def log_synced(self, end_offset: int, log_generation: int, now_ms: int) -> None:
        """All records below `end_offset` are durable, as of `log_generation`."""
        self._now_ms = now_ms
        if self._log.synced(end_offset, log_generation) and self._leadership is not None:
            self._leadership.progress.local_synced(end_offset)
            self._advance_leader_high_watermark()
        self._poll()

    def snapshot_created(self, snapshot: OffsetAndEpoch) -> None:
        """A snapshot of our own committed records is on the disk."""
        self._log.snapshot_created(snapshot)

    def log_started_at(self, start: OffsetAndEpoch) -> None:
        """The log's prefix before the snapshot `start` was deleted."""
        self._log.started_at(start)

    def snapshot_installed(self, snapshot: OffsetAndEpoch, installed: bool, now_ms: int) -> None:
        """A downloaded snapshot replaced the log; or, if not `installed`, it was damaged and is fetched
        again."""
        assert not self.is_leader
        self._now_ms = now_ms
        self._log.snapshot_installed(snapshot, installed)
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
        """Everything that the steps since the last call ask for."""
        election = self._election()
        leader = LeaderAndEpoch(self.leader_id, self.epoch)
        work = self._log.take_work()
        ready = Ready(
            election=election if election != self._saved else None,
            truncate_to=work.truncate_to,
            append_leader_change=self._leader_change,
            append_fetched=work.append_fetched,
            snapshot_steps=tuple(work.snapshot_steps),
            requests=self._requests.take_sends(),
            wake_fetches=self._wake_fetches or leader != self._reported_leader,
            high_watermark=work.high_watermark,
            leader=leader if leader != self._reported_leader else None,
            next_deadline_ms=self.next_deadline_ms(),
            notes=self._notes.take(),
        )
        self._saved = election
        self._reported_leader = leader
        self._leader_change = None
        self._wake_fetches = False
        return ready

    def _election(self) -> ElectionState:
        role = self.role
        leader_id = self._id if isinstance(role, Resigned) else role.leader_id
        return ElectionState(epoch=role.epoch, leader_id=leader_id, voted=role.voted)

    # ---- roles

    def _first_role(self, election: ElectionState) -> Role:
        """A replica that led an epoch never leads it again, and votes once in it: both are read from
        `election`."""
        if election.epoch < self.log.last_epoch:
            election = ElectionState(epoch=self.log.last_epoch)
        if election.leader_id == self._id:
            election = replace(election, leader_id=None, voted=self._config.local)
        if election.leader_id is not None and election.leader_id in (self.voters.ids or self._config.bootstrap_ids):
            return self._follower(election.epoch, election.leader_id, election.voted)
        self._notes.leader_doubted("it has just started and knows no leader")
        deadline = self._now_ms + self._times.stagger_ms(self.voters.place(self._id, without=None))
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
        if not isinstance(role, Leader):
            self._leadership = None

    def _become_unattached(self, epoch: int) -> None:
        """A higher epoch became known, but not its leader."""
        role = self.role
        deadline: int | None = None
        if isinstance(role, Unattached | Prospective | Candidate):
            deadline = role.election_deadline_ms
        elif self.is_voter:
            deadline = self._now_ms + self._times.timeout_ms()
        self._enter(Unattached(epoch=epoch, voted=None, election_deadline_ms=deadline))

    def _become_follower(self, epoch: int, leader_id: int) -> None:
        voted = self.role.voted if epoch == self.epoch else None
        self._times.leader_known()
        self._enter(self._follower(epoch, leader_id, voted))
        self._notes.follows(leader_id, epoch, self.log.end)

    def _become_prospective(self, cause: str) -> None:
        role = self.role
        self._notes.stands(role.epoch, role.leader_id, self.log.end, cause)
        self._enter(
            Prospective(
                epoch=role.epoch,
                leader_id=role.leader_id,
                voted=role.voted,
                leader_gone=isinstance(role, Follower) and role.leader_gone,
                votes=Votes(self.voters.ids).record(self._id, True),
                election_deadline_ms=self._now_ms + self._times.timeout_ms(),
            )
        )
        self._settle_votes()

    def _become_candidate(self, pre_votes: tuple[int, ...]) -> None:
        self._notes.is_candidate(self.epoch + 1, pre_votes, self.log.end)
        self._enter(
            Candidate(
                epoch=self.epoch + 1,
                voted=self._config.local,
                votes=Votes(self.voters.ids).record(self._id, True),
                election_deadline_ms=self._now_ms + self._times.timeout_ms(),
            )
        )
        self._settle_votes()

    def _become_leader(self, candidate: Candidate) -> None:
        start = self.log.end_offset
        self._times.leader_known()
        self._enter(
            Leader(
                epoch=candidate.epoch,
                leader_id=self._id,
                voted=candidate.voted,
                granting_voters=candidate.votes.granted,
                epoch_start_offset=start,
            )
        )
        self._leadership = Leadership(self._config, self.voters, self._log, self._now_ms)
        self._leader_change = LeaderChange(
            offset=start,
            epoch=candidate.epoch,
            leader_id=self._id,
            voters=self.voters.ids,
            granting_voters=candidate.votes.granted,
        )
        self._log.append(candidate.epoch, start + 1)
        self._notes.leads(candidate.epoch, candidate.votes.granted, start)

    def _become_resigned(self, cause: str) -> None:
        role = self.role
        assert isinstance(role, Leader) and self._leadership is not None
        self._notes.resigns(role.epoch, cause)
        successors = self._leadership.progress.successors()
        self._enter(
            Resigned(
                epoch=role.epoch,
                voted=role.voted,
                preferred_candidates=successors,
                unacknowledged=tuple(key.id for key in successors),
                election_deadline_ms=self._now_ms + self._times.timeout_ms(),
            )
        )

    def _doubt_leader(self, place: int, cause: str) -> None:
        """There is evidence that our leader no longer leads: stand after this voter's delay, and let others
        stand."""
        role = self.role
        assert isinstance(role, Follower)
        if self.is_voter and not role.leader_gone:
            self._notes.leader_doubted(cause)
            deadline = min(role.fetch_deadline_ms, self._now_ms + self._times.stagger_ms(place))
            self.role = replace(role, leader_gone=True, fetch_deadline_ms=deadline)

    # ---- voting

    def _is_meant(self, voter: ReplicaKey | None) -> bool:
        """A request names the voter that it is for, unless its version has no field for that."""
        return voter is None or voter.matches(self._config.local)

    def _vote_answer(self, error: ErrorCode, granted: bool = False) -> VoteAnswer:
        return VoteAnswer(error=error, leader_id=self.leader_id, epoch=self.epoch, granted=granted)

    def _vote_for(self, candidate: ReplicaKey) -> None:
        """Wait an election timeout for the candidate before this replica stands again."""
        if self.role.voted is None:
            self._notes.votes(candidate.id, self.epoch, self.log.end)
            deadline = self._now_ms + self._times.timeout_ms() if self.is_voter else None
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
            wait_ms = self._times.backoff_ms() if role.leader_gone else self._config.fetch_timeout_ms
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
        deadline = self._now_ms + self._times.backoff_ms()
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
        """A peer named an epoch and perhaps its leader. An epoch cannot have two leaders: the first one named is
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
            self._rest(peer_id)
            return
        if answer.error is not ErrorCode.NONE:
            self._rest(peer_id)
            if answer.error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                # Who led an epoch and stopped never leads it again.
                place = self.voters.place(self._id, without=peer_id)
                self._doubt_leader(place, f"controller {peer_id} answered that it does not lead epoch {role.epoch} now")
            return
        download: SnapshotDownload | None = None
        if answer.diverging is not None:
            self._truncate(role, self.log.truncation_offset(answer.diverging))
        elif answer.snapshot is not None:
            if not self._log.is_wanted(answer.snapshot):
                self._rest(peer_id)
                return
            download = SnapshotDownload(snapshot=answer.snapshot)
            self._notes.takes_snapshot(answer.snapshot, self.log.end_offset, peer_id)
            self._log.start_snapshot(answer.snapshot)
        elif not self._log.append_fetched(answer.spans, role.epoch):
            self._rest(peer_id)
            return
        elif answer.high_watermark is not None:
            self._log.raise_high_watermark(min(answer.high_watermark, self.log.end_offset))
        self._leader_answered(role, download)

    def _rest(self, peer_id: int) -> None:
        """The peer's answer was useless: back off. Observers back off longer while the voters cannot agree."""
        if self.is_voter:
            self._requests.rest(peer_id, self._now_ms)
        else:
            self._requests.rest_longer(peer_id, self._now_ms)

    def _leader_answered(self, role: Follower, download: SnapshotDownload | None) -> None:
        deadline = self._now_ms + self._config.fetch_timeout_ms
        self._times.leader_known()
        self._requests.was_of_use()
        self._notes.leader_is_well()
        self.role = replace(role, fetch_deadline_ms=deadline, has_fetched=True, leader_gone=False, download=download)

    def _truncate(self, role: Follower, offset: int) -> None:
        before = self.log.end_offset
        self._log.truncate(offset, f"leader {role.leader_id} of epoch {role.epoch}")
        if offset < before:
            self._notes.cuts(before, offset, role.leader_id, role.epoch)

    def _take_snapshot_chunk(self, peer_id: int, answer: FetchSnapshotAnswer) -> None:
        role = self.role
        if not isinstance(role, Follower) or role.leader_id != peer_id or role.download is None:
            return
        download = role.download
        if answer.error in (ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE):
            # A newer snapshot replaced it: a fetch names that one.
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
        self._log.write_chunk(download.snapshot, download.position)
        if end < answer.size_bytes:
            self._leader_answered(role, replace(download, position=end))
            return
        self._log.install_snapshot(download.snapshot)
        self._leader_answered(role, None)

    # ---- leading

    def _advance_leader_high_watermark(self) -> None:
        role = self.role
        assert isinstance(role, Leader) and self._leadership is not None
        offset = self._leadership.advance(role.epoch_start_offset)
        if offset is not None:
            self._log.raise_high_watermark(offset)
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
        self._outgoing.send_due(self.role, self._leadership, self._now_ms)

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
            case Leader() if self._leadership is not None:
                deadline = self._leadership.progress.check_quorum_deadline_ms()
                if deadline is not None and deadline <= self._now_ms:
                    silent_ms = self._config.check_quorum_timeout_ms
                    self._become_resigned(f"no majority of the voters has fetched from it for {silent_ms} ms")
            case _:
                pass

    def next_deadline_ms(self) -> int | None:
        """Time at which `tick` is due; None: no sooner than the next input."""
        times: list[int | None] = [*self._outgoing.next_times_ms(self.role, self._leadership, self._now_ms)]
        match self.role:
            case Prospective() | Candidate() | Resigned() | Unattached() as role:
                times.append(role.election_deadline_ms)
            case Follower() as role if self.is_voter:
                times.append(role.fetch_deadline_ms)
            case Leader() if self._leadership is not None:
                times += (self._leadership.progress.check_quorum_deadline_ms(), self._leadership.announce_at_ms)
            case _:
                pass
        return min((time for time in times if time is not None), default=None)

    def __str__(self) -> str:
        return (
            f"{self._id} {type(self.role).__name__.lower()} epoch={self.epoch} leader={self.leader_id} "
            f"log={self.log} synced={self.synced_end_offset} hw={self.high_watermark}"
        )
