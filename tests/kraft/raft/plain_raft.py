"""A plain replica of the metadata log: what each step answers and asks for."""

from __future__ import annotations

from dataclasses import dataclass, replace

from barnabas.kraft.raft.history import LogHistory, OffsetAndEpoch
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
    Request,
    UpdateVoter,
    Vote,
    VoteAnswer,
    VoterChangeAnswer,
)
from barnabas.kraft.raft.own_log import CommittedRecordsLost
from barnabas.kraft.raft.ready import (
    InstallSnapshot,
    LeaderAndEpoch,
    Ready,
    StartSnapshot,
    WriteSnapshotChunk,
)
from barnabas.kraft.raft.roles import (
    Candidate,
    ElectionState,
    Follower,
    Leader,
    Prospective,
    Resigned,
    SnapshotDownload,
    Unattached,
)
from barnabas.kraft.raft.voter_history import QuorumRecord
from barnabas.kraft.raft.voters import ReplicaKey, VoterSet
from barnabas.protocol.errors import ErrorCode
from barnabas.runtime.decisions import DecisionKind
from tests.kraft.raft.plain_voter_changes import PlainVoterChanges, is_named

E = ErrorCode


@dataclass
class PlainRaft(PlainVoterChanges):
    """The whole replica. Steps have the names of the real one's, without `handle_`."""

    snapshot: OffsetAndEpoch | None = None
    installing: OffsetAndEpoch | None = None
    generation: int = 0
    asked_last: int = 0
    """The place behind the peer that an observer asked last."""
    known_voters: VoterSet | None = None
    reported_voters: VoterSet | None = None
    saved: ElectionState | None = None
    reported_leader: LeaderAndEpoch | None = None

    def start(self, saved: ElectionState) -> None:
        self.saved = saved
        self.known_voters = self.voters.current
        self.synced = self.log.end_offset
        self.begin(saved)
        self.settle()

    @property
    def leader_id(self) -> int | None:
        return self.role.leader_id

    @property
    def epoch(self) -> int:
        return self.role.epoch

    # -- what is due after each step

    def settle(self) -> None:
        if self.voters.current != self.known_voters:
            self.known_voters = self.voters.current
            self.other_voters()
            if self.lead is not None:
                self.asked["wake_fetches"] = True
                self.raise_leaders_mark()
        self.requests.expire(self.now_ms)
        self.let_time_decide()
        self.look_at_change()
        self.ask_for_own_entry()
        for peer_id, request in self.due_requests():
            self.send(peer_id, request)

    def send(self, peer_id: int, request: Request) -> bool:
        return self.requests.send_if_free(peer_id, request, self.now_ms)

    def raise_mark(self, offset: int) -> None:
        if offset > self.high_watermark:
            self.high_watermark = self.asked["high_watermark"] = offset

    def raise_leaders_mark(self) -> None:
        """It needs a majority, and a record of the leader's own epoch."""
        role, lead = self.role, self.lead
        assert isinstance(role, Leader) and lead is not None
        offset = lead.progress.majority_offset()
        if offset is None or offset <= max(role.epoch_start_offset, lead.high_watermark or 0):
            return
        lead.high_watermark = offset
        self.raise_mark(offset)
        self.asked["wake_fetches"] = True
        self.look_at_change()
        if self.voters.is_dynamic and not self.voters.is_voter and self.last_set_is_committed:
            self.resign("it was removed from the voters")

    def ask_for_own_entry(self) -> None:
        role, local, current = self.role, self.config.local_voter, self.voters.current
        if not isinstance(role, Follower) or self.now_ms < role.update_voter_at_ms:
            return
        known = {each.id: each for each in current.voters}.get(local.id)
        is_known = known == local if self.voters.is_dynamic else role.has_updated_leader
        joins = self.voters.is_dynamic and self.config.can_vote and self.config.joins
        request: Request | None = None
        if self.voters.is_voter:
            if local.endpoints and not is_known:
                request = UpdateVoter(epoch=role.epoch, voter=local)
        elif joins and known is not None:
            request = RemoveVoter(voter=known.key)
        elif joins:
            request = AddVoter(voter=local, ack_when_committed=False)
        if request is None or self.send(role.leader_id, request):
            self.role = replace(role, update_voter_at_ms=self.now_ms + self.config.fetch_timeout_ms)

    @property
    def may_fetch(self) -> bool:
        """Voters fetch when all that they have is on the disk, and nobody while a snapshot replaces the log."""
        is_on_disk = self.synced == self.log.end_offset
        return self.installing is None and (is_on_disk or not (self.may_stand or self.config.can_vote))

    def plain_fetch(self) -> Fetch:
        return Fetch(
            replica=self.me,
            epoch=self.epoch,
            fetch_offset=self.log.end_offset,
            last_fetched_epoch=self.log.last_epoch,
            high_watermark=self.high_watermark,
            max_wait_ms=self.config.fetch_max_wait_ms,
        )

    def fetch_of(self, role: Follower) -> Request:
        if role.download is None:
            return self.plain_fetch()
        return FetchSnapshot(
            replica=self.me, epoch=role.epoch, snapshot=role.download.snapshot, position=role.download.position
        )

    @property
    def others(self) -> list[int]:
        """Nodes that an observer asks."""
        return [each for each in (*self.config.bootstrap_ids, *self.ids) if each != self.me.id]

    def due_requests(self) -> list[tuple[int, Request]]:
        role = self.role
        if isinstance(role, Prospective | Candidate):
            return [
                (
                    each,
                    Vote(
                        voter=self.voters.current.key(each),
                        candidate=self.me,
                        epoch=role.epoch,
                        log_end=self.log.end,
                        pre_vote=isinstance(role, Prospective),
                    ),
                )
                for each in role.votes.missing
            ]
        if isinstance(role, Resigned):
            end = EndQuorumEpoch(leader_id=self.me.id, epoch=role.epoch, preferred_candidates=role.preferred_candidates)
            return [(each, end) for each in role.unacknowledged]
        if isinstance(role, Leader):
            self.announce(role)
        elif self.may_stand:
            if isinstance(role, Follower) and self.may_fetch:
                return [(role.leader_id, self.fetch_of(role))]
        elif self.may_fetch and not self.requests.any_in_flight():
            self.look_for_leader()
        return []

    def announce(self, role: Leader) -> None:
        assert self.lead is not None
        lead, period_ms = self.lead, self.config.fetch_timeout_ms // 2
        is_alone = len(self.ids) == 1 and lead.progress.counts_itself
        if not is_alone and self.now_ms >= lead.announce_ms:
            lead.unannounced = lead.progress.silent_voters(self.now_ms - period_ms)
            lead.announce_ms = self.now_ms + period_ms
        left = []
        for each in lead.unannounced:
            begin = BeginQuorumEpoch(voter=self.voters.current.key(each), leader_id=self.me.id, epoch=role.epoch)
            if not self.send(each, begin):
                left.append(each)
        lead.unannounced = tuple(left)

    def look_for_leader(self) -> None:
        role, others = self.role, self.others
        assert isinstance(role, Follower | Unattached)
        is_patient = isinstance(role, Follower) and self.now_ms < role.fetch_deadline_ms
        if is_patient and isinstance(role, Follower) and self.send(role.leader_id, self.fetch_of(role)):
            return
        for step in range(len(others)):
            place = (self.asked_last + step) % len(others)
            if self.send(others[place], self.plain_fetch()):
                self.asked_last = (place + 1) % len(others)
                return

    def next_deadline(self) -> int | None:
        role, lead = self.role, self.lead
        waits_for: tuple[int, ...] = ()
        times: list[int | None] = []
        if isinstance(role, Leader):
            assert lead is not None
            is_alone = len(self.ids) == 1 and lead.progress.counts_itself
            waits_for = lead.unannounced
            times = [
                lead.progress.check_quorum_deadline_ms(),
                None if is_alone else lead.announce_ms,
                None if self.under_way is None else self.under_way.until_ms,
            ]
        elif isinstance(role, Follower) and self.may_stand:
            waits_for, times = (role.leader_id,), [role.fetch_deadline_ms]
        elif isinstance(role, Follower):
            waits_for = (role.leader_id, *self.others)
        elif isinstance(role, Unattached):
            waits_for, times = () if self.may_stand else tuple(self.others), [role.election_deadline_ms]
        elif isinstance(role, Resigned):
            waits_for, times = role.unacknowledged, [role.election_deadline_ms]
        else:
            waits_for, times = role.votes.missing, [role.election_deadline_ms]
        times += [at for at in (self.requests.free_at_ms(each, self.now_ms) for each in waits_for) if at > self.now_ms]
        return min((at for at in times if at is not None), default=None)

    def ready(self) -> Ready:
        leader = LeaderAndEpoch(self.leader_id, self.epoch)
        leads = self.me.id if isinstance(self.role, Resigned) else self.leader_id
        election = ElectionState(epoch=self.epoch, leader_id=leads, voted=self.role.voted)
        asked, self.asked = self.asked, {}
        steps = asked.pop("snapshot_steps", [])
        wakes = asked.pop("wake_fetches", False)
        done, self.done = self.done, []
        notes, self.notes = self.notes, []
        ready = Ready(
            election=None if election == self.saved else election,
            voters=None if self.known_voters == self.reported_voters else self.known_voters,
            leader=None if leader == self.reported_leader else leader,
            wake_fetches=wakes or leader != self.reported_leader,
            snapshot_steps=tuple(steps),
            voter_changes=tuple(done),
            requests=self.requests.take_sends(),
            next_deadline_ms=self.next_deadline(),
            notes=notes,
            **asked,
        )
        self.saved, self.reported_leader, self.reported_voters = election, leader, self.known_voters
        return ready

    # -- requests of others

    def is_meant(self, voter: ReplicaKey | None) -> bool:
        return voter is None or voter.matches(self.me)

    def vote(self, request: Vote) -> VoteAnswer:
        error, granted = E.NONE, False
        end, newest = request.log_end, request.epoch if request.pre_vote else request.epoch - 1
        if end.offset < 0 or end.epoch not in range(newest + 1):
            error = E.INVALID_REQUEST
        elif request.epoch < self.epoch:
            error = E.FENCED_LEADER_EPOCH
        elif request.candidate.id < 0 or request.candidate.id == self.me.id:
            error = E.INVALID_REQUEST
        else:
            if request.epoch > self.epoch:
                self.enter_epoch(request.epoch)
            if not self.is_meant(request.voter):
                error = E.INVALID_VOTER_KEY
            elif why := self.objection(request):
                self.refuse(request, why)
            else:
                granted = True
                if not request.pre_vote:
                    self.vote_for(request.candidate)
        self.settle()
        return VoteAnswer(error=error, leader_id=self.leader_id, epoch=self.epoch, granted=granted)

    def wants_check(self, request: Vote) -> bool:
        """A pre-vote that only a leader stands against, who may be gone."""
        role, end = self.role, self.log.end
        return (
            isinstance(role, Follower)
            and request.pre_vote
            and request.epoch == role.epoch
            and request.candidate.id != role.leader_id
            and (request.log_end.epoch, request.log_end.offset) >= (end.epoch, end.offset)
            and self.objection(request) != ""
        )

    def from_leader(self, leader_id: int, epoch: int) -> ErrorCode:
        if epoch < self.epoch:
            return E.FENCED_LEADER_EPOCH
        if leader_id < 0 or leader_id == self.me.id:
            return E.INVALID_REQUEST
        self.believe(leader_id, epoch)
        return E.NONE if self.leader_id == leader_id else E.INVALID_REQUEST

    def begin_quorum_epoch(self, request: BeginQuorumEpoch) -> QuorumEpochAnswer:
        error = self.from_leader(request.leader_id, request.epoch)
        if error is E.NONE and not self.is_meant(request.voter):
            error = E.INVALID_VOTER_KEY
        self.settle()
        return QuorumEpochAnswer(error=error, leader_id=self.leader_id, epoch=self.epoch)

    def end_quorum_epoch(self, request: EndQuorumEpoch) -> QuorumEpochAnswer:
        error = self.from_leader(request.leader_id, request.epoch)
        if error is E.NONE and isinstance(self.role, Follower):
            keys = request.preferred_candidates
            places = [place for place, key in enumerate(keys) if key.matches(self.me)]
            self.doubt([*places, len(keys)][0], f"controller {request.leader_id} has resigned")
        self.settle()
        return QuorumEpochAnswer(error=error, leader_id=self.leader_id, epoch=self.epoch)

    def leader_error(self, epoch: int) -> ErrorCode:
        if epoch != self.epoch:
            return E.FENCED_LEADER_EPOCH if epoch < self.epoch else E.UNKNOWN_LEADER_EPOCH
        return E.NONE if isinstance(self.role, Leader) else E.NOT_LEADER_OR_FOLLOWER

    def fetch(self, request: Fetch) -> FetchAnswer:
        answer = self.fetch_answer(request)
        if answer.error is E.NONE and request.replica.id >= 0 and not (answer.diverging or answer.snapshot):
            assert self.lead is not None
            offset = request.fetch_offset
            self.lead.progress.fetched(request.replica, offset, self.log.end_offset, self.now_ms)
            self.raise_leaders_mark()
            answer = self.fetch_answer(request)
        self.settle()
        return answer

    def fetch_answer(self, request: Fetch) -> FetchAnswer:
        error = self.leader_error(request.epoch)
        if request.max_wait_ms < 0 or request.fetch_offset < 0 or request.replica.id == self.me.id:
            error = E.INVALID_REQUEST
        if request.last_fetched_epoch not in range(request.epoch + 1):
            error = E.INVALID_REQUEST
        answer = FetchAnswer(
            error=error, leader_id=self.leader_id, epoch=self.epoch, log_start_offset=self.log.start.offset
        )
        if error is not E.NONE:
            return answer
        assert self.lead is not None
        answer = replace(answer, high_watermark=self.lead.high_watermark)
        offset, epoch = request.fetch_offset, request.last_fetched_epoch
        if self.snapshot is not None and (offset == 0 or self.log.needs_snapshot(offset, epoch)):
            return replace(answer, snapshot=self.snapshot)
        if (diverging := self.log.divergence(offset, epoch)) is not None:
            return replace(answer, diverging=diverging)
        return replace(answer, readable=(offset, self.log.end_offset) if offset < self.log.end_offset else None)

    def fetch_snapshot(self, request: FetchSnapshot, size: int | None) -> FetchSnapshotAnswer:
        error = self.leader_error(request.epoch)
        if error is E.NONE and size is None:
            error = E.SNAPSHOT_NOT_FOUND
        elif error is E.NONE and request.position not in range(size or 0):
            error = E.POSITION_OUT_OF_RANGE
        answer = FetchSnapshotAnswer(error=error, leader_id=self.leader_id, epoch=self.epoch)
        if error is E.NONE and size is not None:
            assert self.lead is not None
            if request.replica.id not in (-1, self.me.id):
                self.lead.progress.contacted(request.replica, self.now_ms)
            rest = size - request.position
            count = max(0, min(rest, request.max_bytes))
            answer = replace(answer, snapshot=request.snapshot, size_bytes=size, position=request.position, count=count)
        self.settle()
        return answer

    def update_voter(self, request: UpdateVoter) -> VoterChangeAnswer:
        error, voter = self.leader_error(request.epoch), request.voter
        if error is E.NONE:
            names = [endpoint.name for endpoint in voter.endpoints]
            is_sound = 0 <= voter.versions[0] <= voter.versions[1] and self.config.listener_name in names
            error = self.update(request) if is_named(voter.key) and is_sound else E.INVALID_REQUEST
        self.settle()
        return VoterChangeAnswer(error=error, leader_id=self.leader_id, epoch=self.epoch)

    # -- outcomes of its own requests

    def answer(self, peer_id: int, request_id: int, answer: Answer) -> None:
        self.requests.answered(peer_id)
        if self.requests.settle(peer_id, request_id):
            self.believe(answer.leader_id, answer.epoch)
            if isinstance(answer, VoterChangeAnswer):
                self.take_change(peer_id, answer)
            elif answer.epoch == self.epoch:
                self.take(peer_id, answer)
            elif answer.epoch < self.epoch:
                self.rest(peer_id)
        self.settle()

    def failed(self, peer_id: int, request_id: int) -> None:
        if self.requests.settle(peer_id, request_id):
            self.requests.failed(peer_id, self.now_ms)
        self.settle()

    def rest(self, peer_id: int) -> None:
        (self.requests.rest if self.may_stand else self.requests.rest_longer)(peer_id, self.now_ms)

    def take_change(self, peer_id: int, answer: VoterChangeAnswer) -> None:
        role, wait_ms = self.role, self.config.fetch_timeout_ms
        if isinstance(role, Follower) and role.leader_id == peer_id:
            if answer.epoch == role.epoch and answer.error in (E.NONE, E.UNSUPPORTED_VERSION):
                role = replace(role, has_updated_leader=True, fetch_deadline_ms=self.now_ms + wait_ms)
            self.role = replace(role, update_voter_at_ms=self.now_ms + wait_ms)

    def take(self, peer_id: int, answer: Answer) -> None:
        """It is from this replica's epoch."""
        role = self.role
        if isinstance(answer, VoteAnswer):
            if answer.error is not E.NONE:
                self.requests.rest(peer_id, self.now_ms)
            elif isinstance(role, Prospective | Candidate):
                self.role = replace(role, votes=role.votes.record(peer_id, answer.granted))
                self.count()
        elif isinstance(answer, QuorumEpochAnswer):
            if answer.error is not E.NONE:
                self.requests.rest(peer_id, self.now_ms)
            elif isinstance(role, Resigned):
                left = [each for each in role.unacknowledged if each != peer_id]
                self.role = replace(role, unacknowledged=tuple(left))
        elif isinstance(answer, FetchAnswer):
            self.take_fetched(peer_id, answer)
        elif isinstance(answer, FetchSnapshotAnswer):
            self.take_chunk(peer_id, answer)

    def leader_is_well(self, role: Follower, download: SnapshotDownload | None = None) -> None:
        self.lost_elections = 0
        self.requests.was_of_use()
        self.is_well()
        deadline = self.now_ms + self.config.fetch_timeout_ms
        self.role = replace(role, fetch_deadline_ms=deadline, has_fetched=True, leader_gone=False, download=download)

    def take_fetched(self, peer_id: int, answer: FetchAnswer) -> None:
        role = self.role
        if not isinstance(role, Follower) or role.leader_id != peer_id:
            return self.rest(peer_id)
        if answer.error is not E.NONE:
            self.rest(peer_id)
            if answer.error is E.NOT_LEADER_OR_FOLLOWER:
                why = f"controller {peer_id} answered that it does not lead epoch {role.epoch} now"
                self.doubt(self.place_without(peer_id), why)
            return None
        if answer.diverging is not None:
            self.truncate(role, self.log.truncation_offset(answer.diverging))
            return self.leader_is_well(role)
        if answer.snapshot is not None:
            return self.take_snapshot_id(role, answer.snapshot)
        log = self.log
        for span in answer.spans:
            fits = span.first_offset == log.end_offset and span.next_offset > span.first_offset
            if not fits or span.epoch not in range(log.last_epoch, role.epoch + 1):
                return self.rest(peer_id)
            log = log.appended(span.epoch, span.next_offset)
        self.log = log
        if answer.spans:
            self.asked["append_fetched"] = True
        self.voters.add(answer.quorum_records)
        if answer.high_watermark is not None:
            self.raise_mark(min(answer.high_watermark, log.end_offset))
        return self.leader_is_well(role)

    def truncate(self, role: Follower, offset: int) -> None:
        if offset < self.high_watermark:
            raise CommittedRecordsLost
        end = self.log.end_offset
        self.voters.truncate_to(offset)
        if offset >= end:
            return
        self.log = self.log.truncated_to(offset)
        self.generation += 1
        self.synced = min(self.synced, offset)
        self.asked["truncate_to"] = offset
        self.note(
            f"{self.name} cuts its metadata log from {end} to {offset}",
            f"from there on controller {role.leader_id}, the leader of epoch {role.epoch}, has other records",
            kind=DecisionKind.TRUNCATION,
            epoch=role.epoch,
            offset_before=end,
            offset=offset,
        )

    def take_snapshot_id(self, role: Follower, snapshot: OffsetAndEpoch) -> None:
        if snapshot.offset < self.high_watermark or snapshot == self.snapshot:
            return self.rest(role.leader_id)
        end = self.log.end_offset
        self.note(
            f"{self.name} replaces its metadata log by a snapshot up to {snapshot.offset}",
            f"controller {role.leader_id} no longer has records as old as {end}, the end of its log",
            kind=DecisionKind.LOG,
            offset=snapshot.offset,
            log_end_offset=end,
        )
        self.asked.setdefault("snapshot_steps", []).append(StartSnapshot(snapshot))
        return self.leader_is_well(role, SnapshotDownload(snapshot=snapshot))

    def take_chunk(self, peer_id: int, answer: FetchSnapshotAnswer) -> None:
        role = self.role
        if not isinstance(role, Follower) or role.leader_id != peer_id or role.download is None:
            return None
        wanted = role.download
        if answer.error in (E.SNAPSHOT_NOT_FOUND, E.POSITION_OUT_OF_RANGE):
            return self.leader_is_well(role)
        is_it = answer.error is E.NONE and answer.snapshot == wanted.snapshot and answer.position == wanted.position
        end = wanted.position + answer.count
        if not is_it or not wanted.position < end <= answer.size_bytes:
            return self.requests.rest(peer_id, self.now_ms)
        steps = self.asked.setdefault("snapshot_steps", [])
        steps.append(WriteSnapshotChunk(wanted.snapshot, wanted.position))
        if end < answer.size_bytes:
            return self.leader_is_well(role, replace(wanted, position=end))
        steps.append(InstallSnapshot(wanted.snapshot))
        self.installing = wanted.snapshot
        return self.leader_is_well(role)

    def leader_process_gone(self, leader_id: int, epoch: int) -> None:
        role = self.role
        if self.may_stand and isinstance(role, Follower) and leader_id == role.leader_id and epoch == role.epoch:
            why = f"the connection to controller {leader_id} ended and dialling it was refused"
            self.doubt(self.place_without(leader_id), why)
        self.settle()

    # -- the disk

    def appended_as_leader(self, end: int) -> None:
        self.log = self.log.appended(self.epoch, end)
        self.asked["wake_fetches"] = True

    def log_synced(self, end: int, generation: int) -> None:
        if generation == self.generation and end > self.synced:
            self.synced = end
            if self.lead is not None:
                self.lead.progress.local_synced(end)
                self.raise_leaders_mark()
        self.settle()

    def snapshot_created(self, snapshot: OffsetAndEpoch) -> None:
        if self.snapshot is None or snapshot.offset > self.snapshot.offset:
            self.snapshot = snapshot

    def log_started_at(self, start: OffsetAndEpoch) -> None:
        self.log = self.log.started_at(start)
        self.voters.started_at(start.offset)

    def snapshot_installed(self, installed: bool, records: tuple[QuorumRecord, ...]) -> None:
        snapshot, self.installing = self.installing, None
        assert snapshot is not None
        if installed:
            self.log = LogHistory.of_snapshot(snapshot)
            self.generation += 1
            self.synced = snapshot.offset
            self.snapshot = snapshot
            self.raise_mark(snapshot.offset)
            self.voters.restart(records)
        self.settle()
