"""A replica of the metadata log beside a plain one: after every step both answer the same, ask for the same, note the
same, and are the same. Peers answer well, badly, late and with lies; disks sync when they like.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

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
    FetchSnapshotAnswer,
    QuorumEpochAnswer,
    RemoveVoter,
    UpdateVoter,
    Vote,
    VoteAnswer,
    VoterChangeAnswer,
)
from barnabas.kraft.raft.own_log import CommittedRecordsLost
from barnabas.kraft.raft.raft import Raft
from barnabas.kraft.raft.ready import Send
from barnabas.kraft.raft.requests import Requests
from barnabas.kraft.raft.roles import ElectionState, Follower
from barnabas.kraft.raft.voter_history import QuorumRecord, VoterHistory
from barnabas.kraft.raft.voters import NO_DIRECTORY, Endpoint, ReplicaKey, Voter, VoterSet
from barnabas.protocol.errors import ErrorCode
from tests.kraft.raft.plain_raft import PlainRaft
from tests.kraft.raft.test_rules import at, key

E = ErrorCode
LISTENER = Endpoint("CONTROLLER", "here", 9093)
IDS = (1, 2, 3, 4, 5)
STEPS = 60
GAMES = 120
"""In each test."""


class Steady(random.Random):
    """Draws the same part of each range."""

    def __init__(self, part: float) -> None:
        super().__init__(0)
        self.part = part

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        assert stop is not None and start < stop
        return start + int((stop - 1 - start) * self.part)


def voter(node_id: int) -> Voter:
    endpoint = LISTENER if node_id == 1 else Endpoint("CONTROLLER", f"node-{node_id}", 9093)
    return Voter(key(node_id), (endpoint,), (0, 1))


class Game:
    """One replica, number 1, and its plain twin."""

    def __init__(self, seed: int) -> None:
        self.seed, self.chance = seed, random.Random(seed)
        self.now_ms = 10_000
        self.steps_taken: list[str] = []
        self.waiting: list[Send] = []
        self.tickets = 0
        self.probed: list[int] = [0]
        self.is_dynamic = self.chance.random() < 0.5
        config = self.config()
        ids = () if self.is_dynamic else self.chance.choice([(1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), (2, 3), (2,)])
        static = VoterSet.of_ids(ids)
        log, snapshot = self.log()
        records = self.records(log) if self.is_dynamic else ()
        epoch = max(0, log.last_epoch + self.chance.choice([-1, 0, 0, 1, 2]))
        saved = ElectionState(
            epoch=epoch,
            leader_id=self.chance.choice([None, None, 1, 2, 3, 9]),
            voted=self.chance.choice([None, None, key(2), key(3), ReplicaKey(2)]),
        )
        part = self.chance.choice([0.0, 0.5, 1.0])
        self.real = Raft(
            config,
            static,
            saved,
            log,
            latest_snapshot=snapshot,
            quorum_records=records,
            chance=Steady(part),
            now_ms=self.now_ms,
        )
        self.plain = PlainRaft(
            config,
            VoterHistory(static, config.local, records),
            log,
            log.start.offset if snapshot is None else snapshot.offset,
            self.now_ms,
            part,
            Requests(config.retry_backoff_ms, config.request_timeout_ms),
            snapshot=snapshot,
        )
        self.plain.start(saved)
        self.compare()

    def some(self, *choices: Any) -> Any:
        return self.chance.choice(choices)

    # -- its beginning

    def config(self) -> RaftConfig:
        return RaftConfig(
            local=key(1),
            bootstrap_ids=self.some((), (), (2, 3), (1, -1, 3)),
            endpoints=self.some((LISTENER,), (LISTENER,), (Endpoint("CONTROLLER", "moved", 1),), ()),
            can_vote=self.some(True, False),
            joins=self.some(True, False),
            election_timeout_ms=self.some(1000, 1000, 7, 1, 0),
            fetch_timeout_ms=self.some(2000, 2001, 900),
            election_backoff_max_ms=self.some(1000, 30, 5_000_000),
            request_timeout_ms=self.some(2000, 300, 7_000),
        )

    def log(self) -> tuple[LogHistory, OffsetAndEpoch | None]:
        log = LogHistory()
        for epoch in range(1, self.chance.randrange(1, 5)):
            if self.chance.random() < 0.7:
                log = log.appended(epoch, log.end_offset + self.chance.randrange(1, 4))
        if not log.end_offset or self.chance.random() < 0.6:
            return log, None
        offset = self.chance.randrange(1, log.end_offset + 1)
        snapshot = at(offset, log.epoch_of(offset - 1))
        return (log.started_at(snapshot) if self.chance.random() < 0.7 else log), snapshot

    def voter_set(self) -> VoterSet:
        """One, two, three, or four voters; number 1 is often among them, perhaps with another disk."""
        ids = self.chance.sample(IDS[1:], self.chance.randrange(0, 4))
        voters = [voter(each) for each in ids]
        if not ids or self.chance.random() < 0.75:
            voters.append(self.some(voter(1), voter(1), voter(1), Voter(key(1)), Voter(ReplicaKey(1, b"\xff" * 16))))
        return VoterSet.of(voters)

    def records(self, log: LogHistory) -> tuple[QuorumRecord, ...]:
        first = self.voter_set()
        found = [QuorumRecord(offset=-1, kraft_version=1), QuorumRecord(offset=-1, voters=first)]
        if log.end_offset and self.chance.random() < 0.5:
            found.append(QuorumRecord(offset=log.end_offset - 1, voters=self.voter_set()))
        return tuple(found)

    # -- both replicas

    def compare(self) -> None:
        real, plain = self.real, self.plain
        expected, found = plain.ready(), real.take_ready()
        assert found == expected, self.story()
        assert (real.role, real.epoch, real.leader_id) == (plain.role, plain.epoch, plain.leader_id), self.story()
        assert (real.log, real.high_watermark) == (plain.log, plain.high_watermark), self.story()
        assert (real.synced_end_offset, real.log_generation) == (plain.synced, plain.generation), self.story()
        assert (real.latest_snapshot, real.voters) == (plain.snapshot, plain.voters.current), self.story()
        shown = plain.high_watermark if plain.lead is None else plain.lead.high_watermark
        assert (real.shown_high_watermark, real.is_leader) == (shown, plain.lead is not None), self.story()
        votes = plain.may_stand
        assert (real.is_voter, real.must_sync) == (votes, votes or plain.config.can_vote), self.story()
        self.waiting = (self.waiting + list(expected.requests))[-6:]
        if expected.probe_voter is not None:
            self.probed.append(expected.probe_voter.ticket)

    def story(self) -> str:
        return "\n".join([f"seed {self.seed}: {self.plain.config}", *self.steps_taken[-12:], f"{self.real}"])

    def at_once(self, what: object, step: Callable[[Any], None]) -> None:
        """One step that does not take the time: the disk has changed."""
        self.steps_taken.append(f"{self.now_ms} {what}")
        step(self.plain)
        step(self.real)
        self.compare()

    def both(self, what: object, real: Callable[[Raft], Any], plain: Callable[[PlainRaft], Any]) -> None:
        """One step. A deadline may have passed unnoticed by then."""
        due_ms = self.real.next_deadline_ms()
        if due_ms is not None and self.chance.random() < 0.05:
            self.now_ms = max(due_ms, self.now_ms)
        self.now_ms += self.some(0, 0, 1, 5)
        self.steps_taken.append(f"{self.now_ms} {what}")
        self.plain.now_ms = self.now_ms
        expected = plain(self.plain)
        assert real(self.real) == expected, self.story()
        self.compare()

    def play(self) -> None:
        actions = [self.time] * 4 + [self.answer] * 9 + [self.sync] * 3
        actions += [self.vote, self.begin, self.end, self.gone, self.resign, self.fail, self.snapshot]
        actions += [self.time, self.answer, self.change_voters, self.vote, self.fetch_snapshot]
        leading = [self.fetch] * 9 + [self.append] * 2 + [self.change_voters] * 4 + [self.sync] * 3
        leads = self.some(0.5, 0.9)
        for _ in range(self.some(0, 0, 8)):
            self.be_elected()
        for _ in range(STEPS):
            try:
                self.chance.choice(leading if self.real.is_leader and self.chance.random() < leads else actions)()
            except CommittedRecordsLost:
                return

    def be_elected(self) -> None:
        """Wait until it stands, and grant it a vote."""
        votes = [send for send in self.waiting if isinstance(send.request, Vote)]
        if not votes:
            self.time()
            return
        send = votes[-1]
        self.waiting.remove(send)
        answer = VoteAnswer(epoch=self.real.epoch, granted=True)
        self.both(
            f"to {send}: {answer}",
            lambda it: it.handle_answer(send.peer_id, send.request_id, answer, self.now_ms),
            lambda it: it.answer(send.peer_id, send.request_id, answer),
        )

    # -- time and the disk

    def time(self) -> None:
        due_ms = self.real.next_deadline_ms()
        self.now_ms += self.some(1, 10, 100, 500)
        if due_ms is not None and self.chance.random() < 0.7:
            self.now_ms = max(self.now_ms - 100, due_ms - self.some(0, 0, 0, 1))
        self.both("time", lambda it: it.tick(self.now_ms), lambda it: it.settle())

    def sync(self) -> None:
        end = self.real.log.end_offset
        offset = self.some(end, end, end, max(end - 1, 0))
        generation = self.real.log_generation - self.some(0, 0, 0, 0, 1)
        self.both(
            f"synced {offset} of {generation}",
            lambda it: it.log_synced(offset, generation, self.now_ms),
            lambda it: it.log_synced(offset, generation),
        )

    def append(self) -> None:
        if self.real.is_leader:
            end = self.real.log.end_offset + self.some(1, 2)
            self.at_once(f"append to {end}", lambda it: it.appended_as_leader(end))

    def snapshot(self) -> None:
        """One of its own; or the downloaded one is checked."""
        installing = self.plain.installing
        if installing is not None:
            if self.real.is_leader:
                return
            installed = self.chance.random() < 0.8
            records: tuple[QuorumRecord, ...] = ()
            if self.is_dynamic:
                before = installing.offset - 1
                level = QuorumRecord(offset=before, kraft_version=1)
                records = (level, QuorumRecord(offset=before, voters=self.voter_set()))
            self.both(
                f"installed {installing} {installed} {records}",
                lambda it: it.snapshot_installed(installing, installed, self.now_ms, records),
                lambda it: it.snapshot_installed(installed, records),
            )
            return
        log, mark = self.real.log, self.real.high_watermark
        if log.start.offset < mark <= log.end_offset:
            offset = self.chance.randrange(log.start.offset + 1, mark + 1)
            snapshot = at(offset, log.epoch_of(offset - 1))
            self.at_once(f"snapshot {snapshot}", lambda it: it.snapshot_created(snapshot))
            if self.chance.random() < 0.6:
                self.at_once("the log starts there", lambda it: it.log_started_at(snapshot))

    def resign(self) -> None:
        def plain(it: PlainRaft) -> None:
            if it.lead is not None:
                it.resign("it stops, or its disk failed")
            it.settle()

        if self.chance.random() < 0.4:
            self.both("resign", lambda it: it.resign(self.now_ms), plain)

    # -- requests of others

    def an_epoch(self) -> int:
        epoch: int = max(0, self.real.epoch + self.some(0, 0, 0, 0, 0, 0, 0, 0, -1, 1))
        return epoch

    def a_peer(self) -> ReplicaKey:
        peer: ReplicaKey = self.some(
            *map(key, IDS[1:]), key(2), key(3), key(2), key(3), key(1), key(101), ReplicaKey(2, b"\xfe" * 16)
        )
        return peer

    def an_end(self) -> OffsetAndEpoch:
        end = self.real.log.end
        return at(end.offset + self.some(0, 0, 0, 1, -1), end.epoch + self.some(0, 0, 0, 1, -1))

    def me(self) -> ReplicaKey | None:
        named: ReplicaKey | None = self.some(key(1), key(1), key(1), None, ReplicaKey(1), ReplicaKey(1, b"\xff" * 16))
        return named

    def vote(self) -> None:
        is_pre = self.some(True, False)
        request = Vote(
            voter=self.me(),
            candidate=self.some(self.a_peer(), self.a_peer(), ReplicaKey(-1), ReplicaKey(0)),
            epoch=self.an_epoch() + self.some(0, 0, not is_pre),
            log_end=self.an_end(),
            pre_vote=is_pre,
        )
        assert self.real.wants_leader_check(request) == self.plain.wants_check(request), self.story()
        self.both(request, lambda it: it.handle_vote(request, self.now_ms), lambda it: it.vote(request))

    def a_leader(self) -> int:
        known = self.real.leader_id
        leader_id: int = self.some(2, 3, 4, known if known is not None else 2, 1, -1, 0)
        return leader_id

    def begin(self) -> None:
        request = BeginQuorumEpoch(
            voter=self.me(), leader_id=self.a_leader(), epoch=self.an_epoch() + self.some(0, 0, 1)
        )
        self.both(
            request,
            lambda it: it.handle_begin_quorum_epoch(request, self.now_ms),
            lambda it: it.begin_quorum_epoch(request),
        )

    def end(self) -> None:
        keys = tuple(self.chance.sample([key(1), key(2), key(3), ReplicaKey(1)], self.some(0, 1, 2, 3)))
        request = EndQuorumEpoch(leader_id=self.a_leader(), epoch=self.an_epoch(), preferred_candidates=keys)
        self.both(
            request,
            lambda it: it.handle_end_quorum_epoch(request, self.now_ms),
            lambda it: it.end_quorum_epoch(request),
        )

    def fetch(self) -> None:
        log = self.real.log
        offset = self.some(log.end_offset, log.end_offset, log.end_offset, self.chance.randrange(log.end_offset + 3))
        offset = self.some(offset, offset, offset, 0, log.start.offset)
        inside = log.start.offset < offset <= log.end_offset
        epoch = log.epoch_of(offset - 1) if inside else log.start.epoch
        mark = self.real.high_watermark
        request = Fetch(
            replica=self.some(self.a_peer(), *self.real.voters.keys, *self.real.voters.keys, key(101), ReplicaKey(-1)),
            epoch=self.an_epoch(),
            fetch_offset=offset - self.some(0, 0, 0, 0, 0, offset + 1),
            last_fetched_epoch=epoch + self.some(0, 0, 0, 0, 0, 0, 1, -1),
            high_watermark=self.some(None, mark, mark, mark - 1, mark + 1),
            max_wait_ms=self.some(500, 500, 1, 0, -1),
        )
        self.both(request, lambda it: it.handle_fetch(request, self.now_ms), lambda it: it.fetch(request))
        answer = self.plain.fetch_answer(request)
        shown = answer.high_watermark
        is_news = None not in (shown, request.high_watermark) and shown > request.high_watermark  # type: ignore[operator]
        is_empty = not (answer.readable or answer.diverging or answer.snapshot or answer.error is not E.NONE)
        assert self.real.answer_fetch(request) == answer
        assert must_wait(request, answer) == (is_empty and not is_news and request.max_wait_ms > 0)

    def fetch_snapshot(self) -> None:
        size = self.some(None, 0, 10, 10, 10)
        request = FetchSnapshot(
            replica=self.some(self.a_peer(), ReplicaKey(-1)),
            epoch=self.an_epoch(),
            snapshot=self.real.latest_snapshot or LOG_ORIGIN,
            position=self.some(0, 5, 9, 10, -1),
            max_bytes=self.some(0x7FFFFFFF, 3, 0, -1),
        )
        self.both(
            request,
            lambda it: it.handle_fetch_snapshot(request, size, self.now_ms),
            lambda it: it.fetch_snapshot(request, size),
        )

    def gone(self) -> None:
        leader_id, epoch = self.a_leader(), self.an_epoch()
        self.both(
            f"process of {leader_id} is gone",
            lambda it: it.leader_process_gone(leader_id, epoch, self.now_ms),
            lambda it: it.leader_process_gone(leader_id, epoch),
        )

    # -- changes of the voters

    def a_voter(self) -> Voter:
        sound = voter(self.some(2, 3, 4, 5, 1))
        chosen: Voter = self.some(
            *[sound] * 8,
            Voter(sound.key, sound.endpoints, self.some((0, 0), (1, 1), (1, 2), (2, 1), (-1, 1))),
            Voter(sound.key, (Endpoint("CONTROLLER", "moved", 1),), (0, 1)),
            Voter(sound.key),
            Voter(sound.key, (Endpoint("PLAINTEXT", "x", 1),), (0, 1)),
            Voter(ReplicaKey(sound.id, b"\xfd" * 16), sound.endpoints, (0, 1)),
            Voter(ReplicaKey(sound.id, NO_DIRECTORY), sound.endpoints, (0, 1)),
            Voter(ReplicaKey(-1, b"\xfd" * 16), sound.endpoints, (0, 1)),
        )
        return chosen

    def change_voters(self) -> None:
        self.tickets += 1
        ticket, level, only = self.tickets, self.some(0, 1, 1, 2), self.some(True, False)
        last = self.some(self.probed[-1], self.probed[-1], self.probed[-1], self.probed[0], 999)
        error, versions = (
            self.some(E.NONE, E.NONE, E.NONE, E.REQUEST_TIMED_OUT),
            self.some((0, 1), (0, 1), (0, 0), None),
        )
        add = AddVoter(voter=self.a_voter(), ack_when_committed=self.some(True, False))
        remove = RemoveVoter(voter=self.some(self.a_voter().key, *self.real.voters.keys))
        update = UpdateVoter(epoch=self.an_epoch(), voter=self.a_voter())
        steps: list[tuple[object, Callable[[Raft], Any], Callable[[PlainRaft], Any]]] = [
            (add, lambda it: it.handle_add_voter(add, ticket, self.now_ms), lambda it: it.add(add, ticket)),
            (
                f"probed {last} {error} {versions}",
                lambda it: it.voter_probed(last, error, versions, self.now_ms),
                lambda it: it.probed(last, error, versions),
            ),
            (
                remove,
                lambda it: it.handle_remove_voter(remove, ticket, self.now_ms),
                lambda it: it.remove(remove, ticket),
            ),
            (
                f"upgrade to {level} {only}",
                lambda it: it.upgrade_kraft_version(level, self.now_ms, validate_only=only),
                lambda it: it.upgrade(level, validate_only=only),
            ),
        ]
        if self.chance.random() < 0.2:
            self.both(
                update, lambda it: it.handle_update_voter(update, self.now_ms), lambda it: it.update_voter(update)
            )
            return
        what, real, plain = self.some(*steps, steps[1], steps[1])
        leads = self.plain.lead is not None

        def settled(it: PlainRaft) -> Any:
            result = plain(it)
            if leads or what != steps[3][0]:
                it.settle()
            return result

        self.both(what, real, settled)

    # -- answers to its requests

    def fail(self) -> None:
        if self.waiting:
            send = self.chance.choice(self.waiting)
            self.both(
                f"no answer to {send}",
                lambda it: it.request_failed(send.peer_id, send.request_id, self.now_ms),
                lambda it: it.failed(send.peer_id, send.request_id),
            )

    def answer(self) -> None:
        if not self.waiting:
            return
        send = self.waiting[self.chance.randrange(len(self.waiting))]
        if self.chance.random() < 0.9:
            self.waiting.remove(send)
        answer = self.answer_to(send)
        self.both(
            f"to {send}: {answer}",
            lambda it: it.handle_answer(send.peer_id, send.request_id, answer, self.now_ms),
            lambda it: it.answer(send.peer_id, send.request_id, answer),
        )

    def answer_to(self, send: Send) -> Answer:
        epoch, leader_id = self.an_epoch(), self.some(*[self.real.leader_id] * 7, self.a_leader())
        if isinstance(send.request, Fetch) and self.real.leader_id is None:
            leader_id = self.some(None, 2, send.peer_id)
        error = self.some(*[E.NONE] * 11, E.NOT_LEADER_OR_FOLLOWER, E.UNSUPPORTED_VERSION, E.FENCED_LEADER_EPOCH)
        match send.request:
            case Vote():
                granted = self.chance.random() < 0.75
                return VoteAnswer(error=error, leader_id=leader_id, epoch=epoch, granted=granted)
            case BeginQuorumEpoch() | EndQuorumEpoch():
                return QuorumEpochAnswer(error=error, leader_id=leader_id, epoch=epoch)
            case Fetch():
                return self.fetched(error, leader_id, epoch)
            case FetchSnapshot() as request:
                size = self.some(12, 12, 12, request.position + 6)
                return FetchSnapshotAnswer(
                    error=self.some(*[error] * 8, E.SNAPSHOT_NOT_FOUND, E.POSITION_OUT_OF_RANGE),
                    leader_id=leader_id,
                    epoch=epoch,
                    snapshot=self.some(*[request.snapshot] * 8, LOG_ORIGIN),
                    size_bytes=size,
                    position=request.position + self.some(*[0] * 9, 1),
                    count=self.some(6, 6, 6, 6, size - request.position, 7, 13, 0),
                )
            case _:
                return VoterChangeAnswer(error=error, leader_id=leader_id, epoch=epoch)

    def fetched(self, error: ErrorCode, leader_id: int | None, epoch: int) -> FetchAnswer:
        log, role = self.real.log, self.real.role
        answer: dict[str, Any] = {"error": error, "leader_id": leader_id, "epoch": epoch}
        mark = self.some(None, log.end_offset, log.end_offset + 5, self.real.high_watermark, 0)
        most = role.epoch if isinstance(role, Follower) else epoch
        draw = self.chance.random()
        if draw < 0.15:
            offset = self.chance.randrange(self.real.high_watermark, log.end_offset + 2)
            offset -= self.some(*[0] * 12, 1)
            return FetchAnswer(**answer, diverging=at(max(offset, 0), max(0, log.last_epoch - self.some(0, 0, 1, 2))))
        if draw < 0.3:
            offset = self.real.high_watermark + self.some(0, 3, 9, -1)
            snapshot = self.some(*[at(max(offset, 1), most)] * 3, self.real.latest_snapshot)
            return FetchAnswer(**answer, snapshot=snapshot)
        if draw < 0.5:
            return FetchAnswer(**answer, high_watermark=mark)
        spans, records, end = [], [], log.end_offset + self.some(*[0] * 14, 1)
        last = log.last_epoch
        for _ in range(self.some(1, 1, 2)):
            last = min(last + self.some(0, 0, 1), most) + self.some(*[0] * 14, 1, -1)
            after = end + self.some(1, 2, 3, 1, 2, 3, 0)
            spans.append(FetchedSpan(last, end, after))
            end = after
        if self.is_dynamic and self.chance.random() < 0.3:
            records.append(QuorumRecord(offset=end - 1, voters=self.voter_set()))
        return FetchAnswer(**answer, spans=tuple(spans), quorum_records=tuple(records), high_watermark=mark)


@pytest.mark.feature("KR-03", "KR-04", "KR-05", "KR-06", "KR-08", "KR-09", "KR-11", "KR-14", "OB-07")
@pytest.mark.parametrize("block", range(4))
def test_every_step_is_that_of_a_plain_replica(block: int) -> None:
    for seed in range(block * GAMES, (block + 1) * GAMES):
        Game(seed).play()
