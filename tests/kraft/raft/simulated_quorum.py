"""A quorum of Raft cores on one event queue: no trio, no bytes, one seed.

Each replica has a disk with what is synced and what is not. Messages are delayed, lost, cut off one way or
both; replicas crash at any event, losing what was not synced, and come back. After every step the promises of
Raft are checked against a ghost log of everything that was ever committed (`Promises`).
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from barnabas.kraft.raft.config import RaftConfig
from barnabas.kraft.raft.fetch_answers import must_wait
from barnabas.kraft.raft.history import LOG_ORIGIN, LogHistory, OffsetAndEpoch
from barnabas.kraft.raft.messages import (
    AddVoter,
    Answer,
    BeginQuorumEpoch,
    EndQuorumEpoch,
    Fetch,
    FetchAnswer,
    FetchedSpan,
    FetchSnapshot,
    RemoveVoter,
    Request,
    UpdateVoter,
    Vote,
    VoteAnswer,
    VoterChangeAnswer,
)
from barnabas.kraft.raft.quorum import majority
from barnabas.kraft.raft.raft import Raft
from barnabas.kraft.raft.ready import InstallSnapshot, ProbeVoter, Ready, Send, StartSnapshot, WriteSnapshotChunk
from barnabas.kraft.raft.roles import ElectionState, Follower
from barnabas.kraft.raft.voter_history import QuorumRecord
from barnabas.kraft.raft.voters import Endpoint, ReplicaKey, VoterSet
from barnabas.protocol.errors import ErrorCode

CHUNK = 7


@dataclass(frozen=True)
class Entry:
    """A record; `digest` covers it and all before it, so equal digests mean equal logs."""

    epoch: int
    value: int
    digest: int
    record: QuorumRecord | None = None


@dataclass
class Log:
    """Entries from `start` on."""

    start: OffsetAndEpoch = LOG_ORIGIN
    start_digest: int = 0
    entries: list[Entry] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.start.offset + len(self.entries)

    def digest_before(self, offset: int) -> int:
        return self.start_digest if offset == self.start.offset else self.at(offset - 1).digest

    def at(self, offset: int) -> Entry:
        return self.entries[offset - self.start.offset]

    def history(self) -> LogHistory:
        """The history that Raft should have of this log."""
        epochs: list[tuple[int, int]] = []
        for index, entry in enumerate(self.entries):
            if not epochs or epochs[-1][0] != entry.epoch:
                epochs.append((entry.epoch, self.start.offset + index))
        return LogHistory(self.start, tuple(epochs), self.end)

    def quorum_records(self) -> list[QuorumRecord]:
        return [entry.record for entry in self.entries if entry.record is not None]

    def copy(self) -> Log:
        return Log(self.start, self.start_digest, list(self.entries))


@dataclass
class SimulatedDisk:
    """State after a crash: the election as last synced, a log between `durable` and `log`, snapshots."""

    election: ElectionState = field(default_factory=ElectionState)
    log: Log = field(default_factory=Log)
    durable: Log = field(default_factory=Log)
    snapshots: dict[OffsetAndEpoch, int] = field(default_factory=dict)
    """id -> digest of the records it holds"""

    def lose_unsynced(self, chance: random.Random) -> None:
        """After an unsynced truncation either image may come back; after appends, any part of the tail is
        lost."""
        old, new = self.durable, self.log
        grown = (
            new.start == old.start and new.end >= old.end and new.digest_before(old.end) == old.digest_before(old.end)
        )
        if not grown and chance.random() < 0.5:
            self.log = old.copy()
        else:
            kept = old.end if grown else new.start.offset
            self.log = Log(
                new.start,
                new.start_digest,
                new.entries[: chance.randrange(kept, new.end + 1) - new.start.offset],
            )
        self.durable = self.log.copy()

    def recover(self) -> None:
        """Like the shell when it opens: a log that does not reach the newest snapshot is replaced by
        it."""
        newest = max(self.snapshots, key=lambda s: s.offset, default=None)
        if newest is not None and self.log.history().end < newest:
            self.log = Log(newest, self.snapshots[newest])
            self.durable = self.log.copy()


class Promises:
    """Invariants that hold at all times, whatever crashed. Each method is called where its promise could be
    broken."""

    def __init__(self) -> None:
        self.leaders: dict[int, int] = {}
        self.votes: dict[tuple[ReplicaKey, int], int] = {}
        self.shown_epochs: dict[ReplicaKey, int] = {}
        self.entries: dict[tuple[int, int], int] = {}
        self.committed: list[int] = []
        """digest of the log up to and including each committed offset"""

    def leader_elected(self, node_id: int, epoch: int, log: Log) -> None:
        assert self.leaders.setdefault(epoch, node_id) == node_id, f"two leaders in epoch {epoch}"
        if self.committed:
            end = len(self.committed)
            assert log.end >= end, f"leader {node_id} of epoch {epoch} lacks committed records"
            if end > log.start.offset:
                assert log.digest_before(end) == self.committed[-1], "leader's log parts from the committed one"

    def voted(self, key: ReplicaKey, epoch: int, candidate_id: int) -> None:
        assert self.votes.setdefault((key, epoch), candidate_id) == candidate_id, "two votes in one epoch"

    def epoch_shown(self, key: ReplicaKey, epoch: int) -> None:
        assert epoch >= self.shown_epochs.get(key, 0), f"epoch of {key} fell"
        self.shown_epochs[key] = epoch

    def appended(self, offset: int, entry: Entry) -> None:
        known = self.entries.setdefault((entry.epoch, offset), entry.digest)
        assert known == entry.digest, f"log matching broken at {offset}@{entry.epoch}"

    def voters_changed(self, log: Log, record: QuorumRecord) -> None:
        """A leader has appended a set of voters: one voter differs at most, the set before is committed, and so is a
        record of the leader's epoch. Two sets in force then have a majority in common (Ongaro §4.1).
        """
        assert record.voters is not None
        committed = len(self.committed)
        epoch = log.at(record.offset).epoch
        known = [entry.record for entry in log.entries[: record.offset - log.start.offset] if entry.record is not None]
        before = next((each for each in reversed(known) if each.voters is not None), None)
        if before is not None and before.voters is not None:
            assert before.offset < committed, "two changes of the voters at once"
            changed = {*before.voters.keys} ^ {*record.voters.keys}
            assert len(changed) <= 1, f"{len(changed)} voters change in one step"
        first = next(log.start.offset + at for at, entry in enumerate(log.entries) if entry.epoch == epoch)
        assert first < committed or log.start.epoch == epoch, "a change of the voters before a commit in the own epoch"

    def high_watermark_moved(self, node: Node, before: int) -> None:
        raft = node.running
        offset = raft.high_watermark
        assert offset >= before, "high watermark fell"
        log = node.disk.log
        assert offset <= log.end
        for known in range(len(self.committed), offset):
            self.committed.append(log.at(known).digest)
        if offset > log.start.offset:
            assert log.digest_before(offset) == self.committed[offset - 1], "state machines part"


@dataclass
class Parked:
    sender: int
    request_id: int
    request: Fetch
    until_ms: int


class Node:
    """A replica: its disk, and, while it runs, a core with the small shell around it."""

    def __init__(self, quorum: Quorum, node_id: int) -> None:
        self.quorum = quorum
        self.id = node_id
        self.key = ReplicaKey(node_id, bytes([node_id]) * 16)
        self.disk = SimulatedDisk()
        self.raft: Raft | None = None
        self.incarnation = 0
        self.blocked: list[Callable[[], None]] | None = None
        """Inputs that arrived while the election state is being synced."""
        self.installing = False
        """A snapshot is on its way to the disk: nothing else is waited for."""
        self.parked: list[Parked] = []
        self.syncing = False
        self.timer_ms: int | None = None
        self.leader_log: list[tuple[int, int | None]] = []

    @property
    def running(self) -> Raft:
        assert self.raft is not None
        return self.raft

    # ---- life

    def start(self) -> None:
        self.disk.recover()
        self.incarnation += 1
        self.blocked, self.parked, self.syncing, self.timer_ms = None, [], False, None
        self.installing = False
        newest = max(self.disk.snapshots, key=lambda s: s.offset, default=None)
        self.raft = Raft(
            self.quorum.config(self.key),
            VoterSet.of_ids(() if self.quorum.is_dynamic else self.quorum.voter_ids),
            self.disk.election,
            self.disk.log.history(),
            latest_snapshot=newest,
            quorum_records=(*self.quorum.records_of(newest), *self.disk.log.quorum_records()),
            chance=self.quorum.chance,
            now_ms=self.quorum.now_ms,
        )
        assert self.running.epoch >= self.quorum.promises.shown_epochs.get(self.key, 0), "epoch forgotten in a crash"
        self.disk.durable = self.disk.log.copy()
        self.quorum.promises.high_watermark_moved(self, 0)
        self.step(lambda: None)

    def crash(self) -> None:
        self.raft = None
        self.incarnation += 1
        if self.blocked is not None and self.quorum.chance.random() < 0.5:
            self.disk.election = self.pending_election
        self.disk.lose_unsynced(self.quorum.chance)

    def later(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Run an action unless this incarnation has ended by then."""
        incarnation = self.incarnation
        self.quorum.at(delay_ms, lambda: action() if self.incarnation == incarnation else None)

    # ---- one step of the shell

    def step(self, core_input: Callable[[], Callable[[], None] | None], data: list[Entry] | None = None) -> None:
        """Feed the core; what follows waits for the election state, and further inputs wait for that."""
        if self.blocked is not None:
            self.blocked.append(lambda: self.step(core_input, data))
            return
        raft = self.running
        before = raft.high_watermark
        reply = core_input()
        ready = raft.take_ready()
        if ready.election is None:
            self.carry_out(ready, reply, data, before)
            return
        self.pending_election = ready.election
        self.blocked = []

        def synced() -> None:
            assert ready.election is not None and self.blocked is not None
            self.disk.election = ready.election
            waiting, self.blocked = self.blocked, None
            self.carry_out(ready, reply, data, before)
            for index, action in enumerate(waiting):
                if self.blocked is not None:
                    self.blocked.extend(waiting[index:])
                    break
                action()

        self.later(self.quorum.chance.randrange(0, self.quorum.sync_ms), synced)

    def carry_out(
        self,
        ready: Ready,
        reply: Callable[[], None] | None,
        data: list[Entry] | None,
        high_watermark_before: int,
    ) -> None:
        raft, log, promises = self.running, self.disk.log, self.quorum.promises
        if ready.truncate_to is not None:
            assert ready.truncate_to >= high_watermark_before
            del log.entries[ready.truncate_to - log.start.offset :]
        if ready.append_leader_change is not None:
            assert ready.append_leader_change.offset == log.end
            promises.leader_elected(self.id, raft.epoch, log)
            self.append(raft.epoch, -raft.epoch)
            for record in ready.append_leader_change.quorum_records:
                self.append(raft.epoch, -raft.epoch, record)
        if ready.append_quorum_records is not None:
            for record in ready.append_quorum_records.records:
                assert record.offset == log.end
                self.append(raft.epoch, -raft.epoch, record)
        if ready.append_fetched:
            assert data is not None and not raft.is_leader
            for entry in data:
                log.entries.append(entry)
                promises.appended(log.end - 1, entry)
        for snapshot_step in ready.snapshot_steps:
            assert not raft.is_leader
            if isinstance(snapshot_step, InstallSnapshot):
                self.install(snapshot_step.snapshot)
            else:
                assert isinstance(snapshot_step, StartSnapshot | WriteSnapshotChunk)
        if raft.log != log.history():
            raise AssertionError(f"core thinks {raft.log}, disk has {log.history()}")
        if ready.high_watermark is not None:
            promises.high_watermark_moved(self, high_watermark_before)
            self.check_majority()
        for record in ready.append_quorum_records.records if ready.append_quorum_records is not None else ():
            if record.voters is not None:
                promises.voters_changed(log, record)
        promises.epoch_shown(self.key, raft.epoch)
        if ready.election is not None and ready.election.voted is not None:
            promises.voted(self.key, ready.election.epoch, ready.election.voted.id)
        if ready.leader is not None:
            self.leader_log.append((self.quorum.now_ms, ready.leader.leader_id))
        if reply is not None:
            reply()
        if ready.probe_voter is not None:
            self.later(self.quorum.delay_ms, partial(self.probed, ready.probe_voter))
        for change in ready.voter_changes:
            self.quorum.answers[change.answer.error] += 1
        for send in ready.requests:
            self.quorum.send(self, send)
        if ready.wake_fetches:
            self.wake_fetches()
        self.sync()
        waits = raft.is_leader or self.installing or self.syncing or ready.next_deadline_ms is not None
        assert waits, f"nothing will ever wake {raft}"
        self.set_timer(ready.next_deadline_ms)

    def check_majority(self) -> None:
        """A leader's high watermark is on the disks of a majority, in its own epoch."""
        raft = self.running
        if not raft.is_leader:
            return
        offset = raft.high_watermark
        holders = 0
        for key in raft.voters.keys:
            holder = self.quorum.nodes[key.id]
            durable = holder.disk.durable
            if self.quorum.is_dynamic and key != holder.key:
                holders += 1  # its disk was lost after it had acknowledged, or it never counts
                continue
            if durable.start.offset >= offset or (
                durable.end >= offset and durable.digest_before(offset) == self.disk.log.digest_before(offset)
            ):
                holders += 1
        assert holders >= majority(len(raft.voters.keys)), f"{offset} is on {holders} disks only"
        assert self.disk.log.start.offset >= offset or self.disk.log.at(offset - 1).epoch == raft.epoch

    def append(self, epoch: int, value: int, record: QuorumRecord | None = None) -> None:
        log = self.disk.log
        entry = Entry(epoch, value, hash((log.digest_before(log.end), epoch, value, record)), record)
        self.quorum.promises.appended(log.end, entry)
        log.entries.append(entry)

    def probed(self, probe: ProbeVoter) -> None:
        """The replica to be added answered, if it runs and can be reached."""
        peer = self.quorum.nodes[probe.voter.id]
        answers = peer.raft is not None and (self.id, peer.id) not in self.quorum.cut
        error = ErrorCode.NONE if answers else ErrorCode.REQUEST_TIMED_OUT
        self.step(lambda: self.running.voter_probed(probe.ticket, error, (0, 1), self.quorum.now_ms))

    def swap_disk(self) -> None:
        """The machine comes back with an empty disk, and so with another directory."""
        self.crash()
        self.disk = SimulatedDisk()
        self.quorum.disks += 1
        self.key = ReplicaKey(self.id, bytes([self.id, self.quorum.disks]) * 8)

    def sync(self) -> None:
        if self.syncing or self.running.synced_end_offset == self.disk.log.end:
            return
        self.syncing = True
        image, generation = self.disk.log.copy(), self.running.log_generation

        def done() -> None:
            self.syncing = False
            if generation == self.running.log_generation:
                self.disk.durable = image
            self.step(lambda: self.running.log_synced(image.end, generation, self.quorum.now_ms))

        self.later(self.quorum.chance.randrange(0, self.quorum.sync_ms), done)

    def set_timer(self, deadline_ms: int | None) -> None:
        self.timer_ms = deadline_ms
        if deadline_ms is None:
            return

        def fire() -> None:
            if self.timer_ms == deadline_ms:
                self.timer_ms = None
                self.step(self.tick)

        self.later(max(0, deadline_ms - self.quorum.now_ms), fire)

    def tick(self) -> None:
        raft, now_ms = self.running, self.quorum.now_ms
        raft.tick(now_ms)
        raft.tick(now_ms)
        due_ms = raft.next_deadline_ms()
        assert due_ms is None or due_ms > now_ms, f"a tick left something due: {raft}"

    # ---- snapshots

    def make_snapshot(self) -> None:
        """Snapshot everything committed and drop the log before it, and older snapshots, which may be on their way to
        another replica.
        """
        raft, log = self.running, self.disk.log
        if self.blocked is not None or raft.high_watermark <= log.start.offset:
            return
        offset = raft.high_watermark
        snapshot = OffsetAndEpoch(epoch=log.at(offset - 1).epoch, offset=offset)
        records = raft.voter_history.at(offset - 1)
        assert self.quorum.snapshot_records.setdefault(snapshot, records) == records, "snapshots differ"
        digest = log.digest_before(offset)
        self.disk.snapshots = {snapshot: digest}
        cut = Log(snapshot, digest, log.entries[offset - log.start.offset :])
        self.disk.log = cut
        durable = self.disk.durable
        if durable.end >= offset and durable.digest_before(offset) == digest:
            self.disk.durable = Log(snapshot, digest, durable.entries[offset - durable.start.offset :])
        else:
            self.disk.durable = Log(snapshot, digest, [])

        def report() -> None:
            raft.snapshot_created(snapshot)
            raft.log_started_at(snapshot)

        self.step(report)

    def install(self, snapshot: OffsetAndEpoch) -> None:
        self.installing = True

        def done() -> None:
            self.installing = False
            before = self.running.high_watermark
            assert snapshot.offset >= before
            self.disk.snapshots[snapshot] = self.quorum.snapshot_digests[snapshot]
            self.disk.log = Log(snapshot, self.disk.snapshots[snapshot])
            self.disk.durable = self.disk.log.copy()
            self.step(
                lambda: self.running.snapshot_installed(
                    snapshot, True, self.quorum.now_ms, self.quorum.records_of(snapshot)
                )
            )

        def when_free() -> None:
            if self.blocked is None:
                done()
            else:
                self.blocked.append(when_free)

        self.later(self.quorum.chance.randrange(1, self.quorum.sync_ms + 1), when_free)

    # ---- requests of others

    def receive(self, sender: int, request_id: int, request: Request) -> None:
        def answer(message: Answer) -> Callable[[], None]:
            return lambda: self.quorum.reply(self, sender, request_id, message)

        def handle() -> Callable[[], None] | None:
            raft, now_ms = self.running, self.quorum.now_ms
            match request:
                case Vote():
                    if self.quorum.evidence and raft.wants_leader_check(request):
                        leader_id = raft.leader_id
                        assert leader_id is not None
                        if self.quorum.refuses(self.id, leader_id):
                            raft.leader_process_gone(leader_id, raft.epoch, now_ms)
                    vote = raft.handle_vote(request, now_ms)
                    return lambda: self.vote_left(sender, request_id, request, vote)
                case BeginQuorumEpoch():
                    return answer(raft.handle_begin_quorum_epoch(request, now_ms))
                case EndQuorumEpoch():
                    return answer(raft.handle_end_quorum_epoch(request, now_ms))
                case Fetch():
                    fetched = raft.handle_fetch(request, now_ms)
                    if must_wait(request, fetched):
                        parked = Parked(sender, request_id, request, now_ms + request.max_wait_ms)
                        self.parked.append(parked)
                        self.later(request.max_wait_ms, lambda: self.unpark(parked))
                        return None
                    return lambda: self.answer_fetch(sender, request_id, fetched)
                case UpdateVoter():
                    return answer(raft.handle_update_voter(request, now_ms))
                case AddVoter() | RemoveVoter():
                    self.quorum.ask(self, request)
                    return answer(VoterChangeAnswer())
                case FetchSnapshot():
                    known = request.snapshot in self.disk.snapshots
                    size = request.snapshot.offset + 1 if known else None
                    chunk = raft.handle_fetch_snapshot(replace(request, max_bytes=CHUNK), size, now_ms)
                    if chunk.snapshot is not None:
                        self.quorum.snapshot_digests[chunk.snapshot] = self.disk.snapshots[chunk.snapshot]
                    return answer(chunk)

        self.step(handle)

    def vote_left(self, sender: int, request_id: int, request: Vote, answer: VoteAnswer) -> None:
        if answer.granted and not request.pre_vote:
            assert self.disk.election.voted == request.candidate, "a vote left before it was saved"
            self.quorum.promises.voted(self.key, request.epoch, request.candidate.id)
        self.quorum.reply(self, sender, request_id, answer)

    def answer_fetch(self, sender: int, request_id: int, answer: FetchAnswer) -> None:
        data: list[Entry] = []
        if answer.readable is not None:
            first, end = answer.readable
            log = self.disk.log
            end = min(end, first + self.quorum.chance.randrange(1, 20))
            data = [log.at(offset) for offset in range(first, end)]
            spans = tuple(FetchedSpan(log.at(o).epoch, o, o + 1) for o in range(first, end))
            records = tuple(entry.record for entry in data if entry.record is not None)
            answer = replace(answer, spans=spans, quorum_records=records)
        self.quorum.reply(self, sender, request_id, answer, data)

    def unpark(self, parked: Parked) -> None:
        if parked in self.parked:
            self.parked.remove(parked)
            self.answer_fetch(parked.sender, parked.request_id, self.running.answer_fetch(parked.request))

    def wake_fetches(self) -> None:
        for parked in list(self.parked):
            answer = self.running.answer_fetch(parked.request)
            if not must_wait(parked.request, answer):
                self.parked.remove(parked)
                self.answer_fetch(parked.sender, parked.request_id, answer)

    def take_answer(self, sender: int, request_id: int, answer: Answer, data: list[Entry]) -> None:
        self.step(lambda: self.running.handle_answer(sender, request_id, answer, self.quorum.now_ms), data)

    def fail(self, peer: int, request_id: int) -> None:
        """The request failed; a refused connection is evidence that the process is gone."""

        def answered() -> None:
            raft = self.running
            raft.request_failed(peer, request_id, self.quorum.now_ms)
            if self.quorum.evidence and raft.leader_id == peer and self.quorum.refuses(self.id, peer):
                raft.leader_process_gone(peer, raft.epoch, self.quorum.now_ms)

        self.step(answered)


class Quorum:
    """The event queue, the network and the replicas."""

    def __init__(
        self,
        seed: int,
        voters: int,
        observers: int = 0,
        *,
        evidence: bool = True,
        is_dynamic: bool = False,
        joins: bool = False,
    ) -> None:
        """If `is_dynamic`, voters can be added, removed and replaced, and observers may become voters."""
        self.chance = random.Random(seed)
        self.now_ms = 1_000
        self.evidence = evidence
        self.promises = Promises()
        self.voter_ids = tuple(range(1, voters + 1))
        self.nodes = {node_id: Node(self, node_id) for node_id in range(1, voters + observers + 1)}
        self.is_dynamic = is_dynamic
        self.joins = joins
        self.disks = len(self.nodes)
        self.tickets = 0
        self.answers: Counter[ErrorCode] = Counter()
        self.snapshot_digests: dict[OffsetAndEpoch, int] = {}
        self.snapshot_records: dict[OffsetAndEpoch, tuple[QuorumRecord, ...]] = {}
        first = VoterSet.of(self.config(self.nodes[voter_id].key).local_voter for voter_id in self.voter_ids)
        self.bootstrap = (QuorumRecord(offset=-1, kraft_version=1), QuorumRecord(offset=-1, voters=first))
        self.cut: set[tuple[int, int]] = set()
        self.loss = 0.0
        self.delay_ms = 4
        self.sync_ms = 6
        self.steps = 0
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0

    def at(self, delay_ms: int, action: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._queue, (self.now_ms + delay_ms, self._sequence, action))

    def config(self, key: ReplicaKey) -> RaftConfig:
        if not self.is_dynamic:
            return RaftConfig(local=key)
        endpoint = Endpoint("CONTROLLER", f"node-{key.id}", 9093)
        seeds = tuple(self.nodes)
        return RaftConfig(local=key, bootstrap_ids=seeds, endpoints=(endpoint,), can_vote=True, joins=self.joins)

    def records_of(self, snapshot: OffsetAndEpoch | None) -> tuple[QuorumRecord, ...]:
        """Voters in a snapshot, or in the one that `format` wrote."""
        if not self.is_dynamic:
            return ()
        return self.bootstrap if snapshot is None else self.snapshot_records[snapshot]

    def ask(self, node: Node, request: AddVoter | RemoveVoter) -> None:
        """Ask a replica to change the voters."""
        self.tickets += 1
        ticket = self.tickets

        def decide() -> None:
            if isinstance(request, AddVoter):
                node.running.handle_add_voter(request, ticket, self.now_ms)
            else:
                node.running.handle_remove_voter(request, ticket, self.now_ms)

        if node.raft is not None:
            node.step(decide)

    def lost_voters(self, voters: VoterSet) -> list[ReplicaKey]:
        """Voters whose disk is gone."""
        return [key for key in voters.keys if key != self.nodes[key.id].key]

    def change_voters(self, chance: random.Random) -> None:
        """Add, remove or replace a voter, at any replica that takes itself for the leader."""
        leaders = self.self_styled_leaders()
        if not leaders:
            return
        leader = chance.choice(leaders)
        node = chance.choice(list(self.nodes.values()))
        draw = chance.random()
        if draw < 0.45:
            self.ask_to_add(leader, node, ack_when_committed=chance.random() < 0.5)
        elif draw < 0.85:
            candidates = self.removable(leader)
            if candidates:
                self.ask(leader, RemoveVoter(voter=chance.choice(candidates)))
        elif self.may_swap_disk():
            node.swap_disk()

    def self_styled_leaders(self) -> list[Node]:
        """Replicas that take themselves for the leader."""
        return [node for node in self.nodes.values() if node.raft is not None and node.raft.is_leader]

    def ask_to_add(self, leader: Node, node: Node, *, ack_when_committed: bool) -> None:
        self.ask(leader, AddVoter(voter=self.config(node.key).local_voter, ack_when_committed=ack_when_committed))

    def removable(self, leader: Node) -> list[ReplicaKey]:
        """Voters that may be removed: at most one at a time has lost its disk, and it goes first. A quorum survives no
        more.
        """
        lost = self._lost_anywhere()
        return [key for key in leader.running.voters.keys if not lost or key in lost]

    def may_swap_disk(self) -> bool:
        """Everybody runs and knows three voters at least, none of which has lost its disk."""
        known = [each.raft.voters for each in self.nodes.values() if each.raft is not None]
        is_known = len(known) == len(self.nodes) and all(len(each.keys) >= 3 for each in known)
        return is_known and not self._lost_anywhere()

    def _lost_anywhere(self) -> list[ReplicaKey]:
        known = [each.raft.voters for each in self.nodes.values() if each.raft is not None]
        return [key for voters in known for key in self.lost_voters(voters)]

    def start_all(self) -> None:
        for node in self.nodes.values():
            if node.raft is None:
                node.start()

    def run_for(self, duration_ms: int) -> None:
        self.run_until(lambda: False, duration_ms)

    def run_until(self, condition: Callable[[], bool], limit_ms: int) -> bool:
        """Run until the condition holds; False if it did not within the limit."""
        end = self.now_ms + limit_ms
        while self._queue and self._queue[0][0] <= end:
            self.now_ms, _, action = heapq.heappop(self._queue)
            action()
            self.steps += 1
            if condition():
                return True
        self.now_ms = end
        return condition()

    # ---- network

    def refuses(self, sender: int, target: int) -> bool:
        """A dial from here comes back refused: the host answers, and nobody listens."""
        return self.nodes[target].raft is None and (sender, target) not in self.cut and (target, sender) not in self.cut

    def send(self, node: Node, send: Send) -> None:
        target = self.nodes[send.peer_id]
        request = send.request
        if isinstance(request, Fetch) and node.running.must_sync:
            assert node.disk.durable.end >= request.fetch_offset, "a fetch acknowledged records that are not synced"

        def arrive() -> None:
            if target.raft is None:
                self._fail(node, send)
            else:
                target.receive(node.id, send.request_id, request)

        self._carry(node, target.id, arrive, lambda: self._fail(node, send))

    def reply(self, node: Node, target: int, request_id: int, answer: Answer, data: list[Entry] | None = None) -> None:
        sender = self.nodes[target]
        incarnation = sender.incarnation

        def arrive() -> None:
            if sender.incarnation == incarnation and sender.raft is not None:
                sender.take_answer(node.id, request_id, answer, data or [])

        self._carry(node, target, arrive, lambda: None)

    def _carry(self, node: Node, target: int, arrive: Callable[[], None], lost: Callable[[], None]) -> None:
        """Deliver after a delay; a lost message is noticed by its sender half the time, else it just
        hangs."""
        delay = 1 + self.chance.randrange(0, self.delay_ms)
        if (node.id, target) in self.cut or self.chance.random() < self.loss:
            if self.chance.random() < 0.5:
                self.at(delay * 3, lost)
            return
        self.at(delay, arrive)

    def _fail(self, node: Node, send: Send) -> None:
        incarnation = node.incarnation

        def answered() -> None:
            if node.incarnation == incarnation and node.raft is not None:
                node.fail(send.peer_id, send.request_id)

        self.at(1, answered)

    # ---- what tests look at

    def leader(self) -> Node | None:
        """The leader of the highest epoch, if a replica that runs is it."""
        leading = [node for node in self.nodes.values() if node.raft is not None and node.raft.is_leader]
        return max(leading, key=lambda node: node.running.epoch, default=None)

    def append(self, value: int) -> int | None:
        """Append at the leader; gives the offset, None without a leader."""
        node = self.leader()
        if node is None or node.blocked is not None:
            return None
        epoch = node.running.epoch

        def write() -> None:
            if node.running.is_leader and node.running.epoch == epoch:
                node.append(epoch, value)
                node.running.appended_as_leader(node.disk.log.end)

        node.step(write)
        return node.disk.log.end - 1

    def converged(self) -> bool:
        """Everybody runs, follows one leader, and knows its whole log to be committed."""
        leader = self.leader()
        if leader is None:
            return False
        for node in self.nodes.values():
            if node.raft is None or node.blocked is not None:
                return False
            raft = node.raft
            if (raft.leader_id, raft.epoch) != (leader.id, leader.running.epoch):
                return False
            if raft.high_watermark != leader.disk.log.end or raft.log.end_offset != leader.disk.log.end:
                return False
            if isinstance(raft.role, Follower) and raft.role.leader_gone:
                return False
        return True
