"""The Raft core of the metadata log, in Kafka's dialect: KIP-595, 630 (snapshots), 996 (pre-vote), 853, 1166.

Messages and the time go in; answers come out, and `take_ready` returns what else has to happen. The core knows
epochs and offsets, not records; it reads no clock, no disk and no socket, and believes no peer further than
the checks below. `elections.py` changes the role, `following.py` handles the leader's answers.

Faster than timeouts: a follower that knows its leader's process to be gone (`leader_process_gone`) stands for
pre-election at once, in an order staggered by the voters' places, and grants pre-votes against that leader.
Evidence only ever shortens waiting and opens pre-votes, which bump no epoch; votes proper follow the rules of
Raft alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from barnabas.kraft.raft.config import RaftConfig
from barnabas.kraft.raft.elections import Elections
from barnabas.kraft.raft.fetch_answers import is_well_formed, with_what_comes_next
from barnabas.kraft.raft.following import Following
from barnabas.kraft.raft.history import LogHistory, OffsetAndEpoch
from barnabas.kraft.raft.leadership import Leadership
from barnabas.kraft.raft.messages import (
    AddVoter,
    Answer,
    BeginQuorumEpoch,
    EndQuorumEpoch,
    Fetch,
    FetchAnswer,
    FetchSnapshot,
    FetchSnapshotAnswer,
    QuorumEpochAnswer,
    RemoveVoter,
    UpdateVoter,
    Vote,
    VoteAnswer,
    VoterChangeAnswer,
)
from barnabas.kraft.raft.outgoing_requests import OutgoingRequests
from barnabas.kraft.raft.own_log import OwnLog
from barnabas.kraft.raft.progress import Progress
from barnabas.kraft.raft.ready import LeaderAndEpoch, Ready, VoterChangeDone
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
from barnabas.kraft.raft.voter_changes import VoterChanges
from barnabas.kraft.raft.voter_history import QuorumRecord, VoterHistory
from barnabas.kraft.raft.voters import NO_DIRECTORY, ReplicaKey, VoterSet
from barnabas.kraft.raft.voting import is_worth_a_leader_check, objection, vote_error
from barnabas.protocol.errors import ErrorCode
from barnabas.runtime.world import Chance


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
        quorum_records: Iterable[QuorumRecord] = (),
        chance: Chance,
        now_ms: int,
    ) -> None:
        """`voters` are those of the configuration; `quorum_records` those of the newest snapshot and the log."""
        self._config = config
        self._id = config.local.id
        self.voter_history = history = VoterHistory(voters, config.local, quorum_records)
        self._known_voters: VoterSet | None = history.current
        self._reported_voters: VoterSet | None = None
        self._log = own_log = OwnLog(log, latest_snapshot)
        self._requests = requests = Requests(config.retry_backoff_ms, config.request_timeout_ms)
        self._elections = Elections(config, history, own_log, requests, election, chance=chance, now_ms=now_ms)
        self._following = Following(config, history, own_log, requests, self._elections)
        self._outgoing = OutgoingRequests(config, history, self._log, self._requests)
        self._changes = VoterChanges(config, history, self._log)
        self._saved = election
        self._reported_leader = LeaderAndEpoch(None, -1)
        self._wake_fetches = False
        self._poll()

    # ---- state that others may read

    @property
    def local_id(self) -> int:
        return self._id

    @property
    def local_key(self) -> ReplicaKey:
        return self._config.local

    @property
    def role(self) -> Role:
        return self._elections.role

    @property
    def _leadership(self) -> Leadership | None:
        return self._elections.leadership

    @property
    def epoch(self) -> int:
        return self.role.epoch

    @property
    def leader_id(self) -> int | None:
        return self.role.leader_id

    @property
    def is_voter(self) -> bool:
        return self._elections.is_voter

    @property
    def voters(self) -> VoterSet:
        """The last voter set in the log, committed or not."""
        return self.voter_history.current

    @property
    def kraft_version(self) -> int:
        """The last level of `kraft.version` in the log."""
        return self.voter_history.kraft_version

    @property
    def must_sync(self) -> bool:
        """The end of this log counts for a majority, or will once this replica is added to the voters."""
        return self.is_voter or self._config.can_vote

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
        self._elections.now_ms = now_ms
        self._poll()

    # ---- requests of others

    def handle_vote(self, request: Vote, now_ms: int) -> VoteAnswer:
        """Grant or refuse a vote or a pre-vote (KIP-996). The answer leaves only after `Ready.election`
        is synced."""
        self._elections.now_ms = now_ms
        error = vote_error(request, self._id, self.epoch)
        if error is not ErrorCode.NONE:
            self._poll()
            return self._vote_answer(error)
        if request.epoch > self.epoch:
            self._elections.become_unattached(request.epoch)
        if not self._is_meant(request.voter):
            self._poll()
            return self._vote_answer(ErrorCode.INVALID_VOTER_KEY)
        why_not = objection(request, self.role, self.log.end)
        if why_not:
            self._elections.notes.refuses(request, self.log.end, why_not)
        elif not request.pre_vote:
            self._elections.vote_for(request.candidate)
        self._poll()
        return self._vote_answer(ErrorCode.NONE, granted=not why_not)

    def wants_leader_check(self, request: Vote) -> bool:
        """True if our leader is to be dialled before this pre-vote is refused on its account."""
        return is_worth_a_leader_check(request, self.role, self.log.end)

    def handle_begin_quorum_epoch(self, request: BeginQuorumEpoch, now_ms: int) -> QuorumEpochAnswer:
        """A leader makes itself known."""
        self._elections.now_ms = now_ms
        error = self._follow_requester(request.leader_id, request.epoch)
        if error is ErrorCode.NONE and not self._is_meant(request.voter):
            error = ErrorCode.INVALID_VOTER_KEY
        self._poll()
        return QuorumEpochAnswer(error=error, leader_id=self.leader_id, epoch=self.epoch)

    def handle_end_quorum_epoch(self, request: EndQuorumEpoch, now_ms: int) -> QuorumEpochAnswer:
        """A leader has resigned; the preferred candidates stand in their order, without waiting."""
        self._elections.now_ms = now_ms
        error = self._follow_requester(request.leader_id, request.epoch)
        role = self.role
        if error is ErrorCode.NONE and isinstance(role, Follower) and role.leader_id == request.leader_id:
            keys = request.preferred_candidates
            place = next((i for i, key in enumerate(keys) if key.matches(self._config.local)), len(keys))
            self._elections.doubt_leader(place, f"controller {role.leader_id} has resigned")
        self._poll()
        return QuorumEpochAnswer(error=error, leader_id=self.leader_id, epoch=self.epoch)

    def handle_fetch(self, request: Fetch, now_ms: int) -> FetchAnswer:
        """Note the replica's progress and answer it; `fetch_answers.must_wait` decides whether the answer is parked."""
        self._elections.now_ms = now_ms
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
            error=error,
            leader_id=self.leader_id,
            epoch=self.epoch,
            log_start_offset=self.log.start.offset,
            high_watermark=None if error is not ErrorCode.NONE else self.shown_high_watermark,
        )
        return answer if error is not ErrorCode.NONE else with_what_comes_next(answer, request, self._log)

    def handle_fetch_snapshot(self, request: FetchSnapshot, size_bytes: int | None, now_ms: int) -> FetchSnapshotAnswer:
        """The range of bytes of a snapshot to send; `size_bytes` is the file's, None if there is no such
        snapshot."""
        self._elections.now_ms = now_ms
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

    # ---- changes of the voters: their answers come in `Ready.voter_changes`, with the same ticket

    def handle_add_voter(self, request: AddVoter, ticket: int, now_ms: int) -> None:
        self._elections.now_ms = now_ms
        leadership = self._leadership
        if leadership is None:
            self._refuse_change(ticket, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif not _is_named(request.voter.key):
            self._refuse_change(ticket, ErrorCode.INVALID_REQUEST, "Add voter request didn't include a valid voter")
        elif request.voter.endpoint(self._config.listener_name) is None:
            message = (
                "Add voter request didn't include the endpoint "
                f"({[endpoint.name for endpoint in request.voter.endpoints]}) for the default listener "
                f"{self._config.listener_name}"
            )
            self._refuse_change(ticket, ErrorCode.INVALID_REQUEST, message)
        else:
            self._changes.add(ticket, request, self.epoch, leadership, now_ms)
        self._poll()

    def voter_probed(self, ticket: int, error: ErrorCode, versions: tuple[int, int] | None, now_ms: int) -> None:
        """The replica to be added answered `Ready.probe_voter`, or did not (`error`)."""
        self._elections.now_ms = now_ms
        if self._leadership is not None:
            self._changes.probed(ticket, error, versions, self._leadership, now_ms)
        self._poll()

    def handle_remove_voter(self, request: RemoveVoter, ticket: int, now_ms: int) -> None:
        self._elections.now_ms = now_ms
        leadership = self._leadership
        if leadership is None:
            self._refuse_change(ticket, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif not _is_named(request.voter):
            message = "Remove voter request didn't include a valid voter"
            self._refuse_change(ticket, ErrorCode.INVALID_REQUEST, message)
        else:
            self._changes.remove(ticket, request, self.epoch, leadership, now_ms)
        self._poll()

    def _refuse_change(self, ticket: int, error: ErrorCode, message: str | None = None) -> None:
        self._changes.done.append(VoterChangeDone(ticket, VoterChangeAnswer(error=error, message=message)))

    def handle_update_voter(self, request: UpdateVoter, now_ms: int) -> VoterChangeAnswer:
        """A voter reports its listeners and versions."""
        self._elections.now_ms = now_ms
        error = self._leader_only_error(request.epoch)
        voter, leadership = request.voter, self._leadership
        if error is ErrorCode.NONE and leadership is not None:
            has_listener = voter.endpoint(self._config.listener_name) is not None
            if not _is_named(voter.key) or not has_listener or not 0 <= voter.versions[0] <= voter.versions[1]:
                error = ErrorCode.INVALID_REQUEST
            else:
                error = self._changes.update(request, self.epoch, leadership)
        self._poll()
        return VoterChangeAnswer(error=error, leader_id=self.leader_id, epoch=self.epoch)

    def upgrade_kraft_version(self, level: int, now_ms: int, *, validate_only: bool) -> str | None:
        """Raise `kraft.version`, which only a leader can. Returns the reason why that cannot be, None if it is done."""
        self._elections.now_ms = now_ms
        if self._leadership is None:
            return "Upgrade kraft version failed because the replica is not the current leader"
        reason = self._changes.upgrade(level, self.epoch, self._leadership, validate_only=validate_only)
        self._poll()
        return reason

    # ---- outcomes of our own requests

    def handle_answer(self, peer_id: int, request_id: int, answer: Answer, now_ms: int) -> None:
        """An answer arrived. It is ignored if its request is no longer in flight."""
        self._elections.now_ms = now_ms
        self._requests.answered(peer_id)
        if self._requests.settle(peer_id, request_id):
            self._take_answer(peer_id, answer)
        self._poll()

    def _take_answer(self, peer_id: int, answer: Answer) -> None:
        self._elections.learn_leader(answer.leader_id, answer.epoch)
        if isinstance(answer, VoterChangeAnswer):
            self._following.take_voter_change(peer_id, answer)
        elif answer.epoch == self.epoch:
            match answer:
                case VoteAnswer():
                    self._elections.count_vote(peer_id, answer)
                case QuorumEpochAnswer():
                    self._elections.count_acknowledgement(peer_id, answer)
                case FetchAnswer():
                    self._following.take_fetched(peer_id, answer)
                case FetchSnapshotAnswer():
                    self._following.take_snapshot_chunk(peer_id, answer)
        elif answer.epoch < self.epoch:
            self._following.rest(peer_id)

    def request_failed(self, peer_id: int, request_id: int, now_ms: int) -> None:
        """No answer will come: not sent, connection lost, timed out, or unusable."""
        self._elections.now_ms = now_ms
        if self._requests.settle(peer_id, request_id):
            self._requests.failed(peer_id, now_ms)
        self._poll()

    def leader_process_gone(self, leader_id: int, epoch: int, now_ms: int) -> None:
        """The connection to the leader closed and a fresh dial was refused: its process has ended."""
        self._elections.now_ms = now_ms
        role = self.role
        if self.is_voter and isinstance(role, Follower) and (role.leader_id, role.epoch) == (leader_id, epoch):
            place = self.voters.place(self._id, without=leader_id)
            cause = f"the connection to controller {leader_id} ended and dialling it was refused"
            self._elections.doubt_leader(place, cause)
        self._poll()

    # ---- the log and its snapshots

    def appended_as_leader(self, next_offset: int) -> None:
        """The leader wrote records of its epoch up to `next_offset`; they are not yet synced."""
        assert self.is_leader, "only a leader appends"
        self._log.append(self.epoch, next_offset)
        self._wake_fetches = True

    def log_synced(self, end_offset: int, log_generation: int, now_ms: int) -> None:
        """All records below `end_offset` are durable, as of `log_generation`."""
        self._elections.now_ms = now_ms
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
        self.voter_history.started_at(start.offset)

    def snapshot_installed(
        self, snapshot: OffsetAndEpoch, installed: bool, now_ms: int, quorum_records: Iterable[QuorumRecord] = ()
    ) -> None:
        """A downloaded snapshot with these records replaced the log; or, if not `installed`, it was damaged and is
        fetched again."""
        assert not self.is_leader
        self._elections.now_ms = now_ms
        self._log.snapshot_installed(snapshot, installed)
        if installed:
            self.voter_history.restart(quorum_records)
        self._poll()

    # ---- giving up leadership

    def resign(self, now_ms: int) -> None:
        """Stop leading, if we do, and ask the most complete voters to stand."""
        self._elections.now_ms = now_ms
        if self.is_leader:
            self._elections.become_resigned("it stops, or its disk failed")
        self._poll()

    # ---- the outcome of a step

    def take_ready(self) -> Ready:
        """Everything that the steps since the last call ask for."""
        election = self._elections.election_state()
        leader = LeaderAndEpoch(self.leader_id, self.epoch)
        work = self._log.take_work()
        ready = Ready(
            election=election if election != self._saved else None,
            truncate_to=work.truncate_to,
            append_leader_change=self._elections.leader_change,
            append_quorum_records=self._changes.append,
            append_fetched=work.append_fetched,
            snapshot_steps=tuple(work.snapshot_steps),
            voters=self._known_voters if self._known_voters != self._reported_voters else None,
            probe_voter=self._changes.probe,
            voter_changes=self._changes.take_done(),
            requests=self._requests.take_sends(),
            wake_fetches=self._wake_fetches or leader != self._reported_leader,
            high_watermark=work.high_watermark,
            leader=leader if leader != self._reported_leader else None,
            next_deadline_ms=self.next_deadline_ms(),
            notes=self._elections.notes.take(),
        )
        self._saved = election
        self._reported_leader = leader
        self._reported_voters = self._known_voters
        self._elections.leader_change = self._changes.append = self._changes.probe = None
        self._wake_fetches = False
        return ready

    # ---- voting

    def _is_meant(self, voter: ReplicaKey | None) -> bool:
        """A request names the voter that it is for, unless its version has no field for that."""
        return voter is None or voter.matches(self._config.local)

    def _vote_answer(self, error: ErrorCode, granted: bool = False) -> VoteAnswer:
        return VoteAnswer(error=error, leader_id=self.leader_id, epoch=self.epoch, granted=granted)

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
        self._elections.learn_leader(leader_id, epoch)
        return ErrorCode.NONE if self.leader_id == leader_id else ErrorCode.INVALID_REQUEST

    # ---- leading

    def _advance_leader_high_watermark(self) -> None:
        role = self.role
        assert isinstance(role, Leader) and self._leadership is not None
        offset = self._leadership.advance(role.epoch_start_offset)
        if offset is not None:
            self._log.raise_high_watermark(offset)
            self._wake_fetches = True
            self._changes.poll(role.epoch, self._leadership, self._elections.now_ms)
            if self._changes.removed_itself(self._leadership):
                self._elections.become_resigned("it was removed from the voters")

    # ---- what is due now

    def _poll(self) -> None:
        self._follow_voters()
        self._requests.expire(self._elections.now_ms)
        self._elections.poll_timeouts()
        self._changes.poll(self.epoch, self._leadership, self._elections.now_ms)
        self._ask_for_own_entry()
        self._outgoing.send_due(self.role, self._leadership, self._elections.now_ms)

    def _follow_voters(self) -> None:
        """The log has got another last voter set, or a record of one was truncated."""
        if self.voter_history.current == self._known_voters:
            return
        self._known_voters = self.voter_history.current
        self._elections.voters_changed()
        if self._leadership is not None:
            self._wake_fetches = True
            self._advance_leader_high_watermark()

    def _ask_for_own_entry(self) -> None:
        """Once a period, a follower compares its entry in the voter set, and asks the leader to change it."""
        role, now_ms = self.role, self._elections.now_ms
        if not isinstance(role, Follower) or now_ms < role.update_voter_at_ms:
            return
        request = self._outgoing.voter_change_due(role)
        if request is not None and not self._requests.send_if_free(role.leader_id, request, now_ms):
            return
        next_ms = now_ms + self._config.update_voter_period_ms
        self._elections.role = replace(role, update_voter_at_ms=next_ms)

    def next_deadline_ms(self) -> int | None:
        """Time at which `tick` is due; None: no sooner than the next input."""
        times: list[int | None] = [*self._outgoing.next_times_ms(self.role, self._leadership, self._elections.now_ms)]
        match self.role:
            case Prospective() | Candidate() | Resigned() | Unattached() as role:
                times.append(role.election_deadline_ms)
            case Follower() as role if self.is_voter:
                times.append(role.fetch_deadline_ms)
            case Leader() if self._leadership is not None:
                times += (
                    self._leadership.progress.check_quorum_deadline_ms(),
                    self._leadership.announce_at_ms,
                    self._changes.deadline_ms,
                )
            case _:
                pass
        return min((time for time in times if time is not None), default=None)

    def __str__(self) -> str:
        return (
            f"{self._id} {type(self.role).__name__.lower()} epoch={self.epoch} leader={self.leader_id} "
            f"log={self.log} synced={self.synced_end_offset} hw={self.high_watermark}"
        )


def _is_named(key: ReplicaKey) -> bool:
    """A voter to be changed is named by id and directory."""
    return key.id >= 0 and key.directory_id != NO_DIRECTORY
