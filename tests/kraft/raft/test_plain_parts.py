"""Parts of the quorum beside plain ones, which keep all that has happened and compute every answer from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.kraft.raft.messages import BeginQuorumEpoch
from barnabas.kraft.raft.progress import CATCH_UP_MS, OBSERVER_SESSION_TIMEOUT_MS, Progress
from barnabas.kraft.raft.quorum import majority_offset
from barnabas.kraft.raft.requests import MAX_BACKOFF_DOUBLINGS, PROMPT_ANSWERS, Requests
from barnabas.kraft.raft.voter_history import QuorumRecord, VoterHistory
from barnabas.kraft.raft.voters import ReplicaKey, Voter, VoterSet
from tests.examples import examples
from tests.kraft.raft.test_rules import key

SELF = key(1)
IDS = st.integers(1, 4)


# -- the voters in the log


def sets_of_voters() -> st.SearchStrategy[VoterSet]:
    """Ids 1 to 4; number 1 may have another directory than this replica."""
    keys = st.sampled_from([SELF, ReplicaKey(1, b"\xff" * 16), key(2), key(3), key(4)])
    return st.lists(keys, min_size=1, unique_by=lambda it: it.id).map(lambda found: VoterSet.of(map(Voter, found)))


@dataclass
class PlainHistory:
    """Its records, from which every answer is computed."""

    static: VoterSet
    records: list[QuorumRecord] = field(default_factory=list)

    def last(self, name: str, before: int | None = None) -> Any:
        """(offset, value) of the last record that sets `name`, below an offset if one is given."""
        values = [(each.offset, getattr(each, name)) for each in self.records]
        known = [it for it in values if it[1] is not None and (before is None or it[0] < before)]
        return known[-1] if known else (None, None)

    def forget_before(self, offset: int) -> None:
        """The log starts there: of earlier records the last of each kind stays known."""
        kept = {id(self.records[place]) for place in self.last_places(offset)}
        self.records = [each for each in self.records if each.offset >= offset or id(each) in kept]

    def last_places(self, offset: int) -> list[int]:
        found = []
        for name in ("voters", "kraft_version"):
            places = [
                place
                for place, each in enumerate(self.records)
                if each.offset < offset and getattr(each, name) is not None
            ]
            found += places[-1:]
        return found

    def check(self, real: VoterHistory, offset: int, high_watermark: int) -> None:
        at, voters = self.last("voters")
        current = self.static if voters is None else voters
        level = self.last("kraft_version")[1] or 0
        assert (real.current, real.offset, real.kraft_version) == (current, at, level)
        assert real.is_dynamic == (level > 0)
        is_voter = SELF in current.keys
        _, before = self.last("voters", at)
        was_voter = SELF in (self.static if before is None else before).keys
        assert real.is_voter == is_voter
        assert real.may_stand(high_watermark) == (is_voter or (at is not None and at >= high_watermark and was_voter))
        at, voters = self.last("voters", offset)
        assert real.before(offset) == ((-1, self.static) if voters is None else (at, voters))
        level, voters = self.last("kraft_version", offset + 1)[1], self.last("voters", offset + 1)[1]
        expected = [QuorumRecord(offset=offset, kraft_version=level)] if level is not None else []
        expected += [QuorumRecord(offset=offset, voters=voters)] if voters is not None else []
        assert real.at(offset) == tuple(expected)


@pytest.mark.feature("KR-14")
@settings(max_examples=examples(100))
@given(st.data())
def test_the_voters_of_a_log_are_those_of_its_records(data: st.DataObject) -> None:
    draw = data.draw
    plain = PlainHistory(draw(sets_of_voters()))
    real = VoterHistory(plain.static, SELF)
    start = end = 0
    for _ in range(draw(st.integers(1, 15))):
        how = draw(st.sampled_from(["add", "add", "add", "truncate", "start", "restart"]))
        if how == "truncate":
            end = draw(st.integers(start, end))
            plain.records = [each for each in plain.records if each.offset < end]
            real.truncate_to(end)
        elif how == "start":
            start = draw(st.integers(start, end))
            plain.forget_before(start)
            real.started_at(start)
        else:
            if how == "restart":
                start = end = end + draw(st.integers(0, 2))
                plain.records = []
            records = []
            for _ in range(draw(st.integers(0, 2))):
                level = draw(st.one_of(st.none(), st.integers(0, 1)))
                records.append(
                    QuorumRecord(
                        offset=end, voters=None if level is not None else draw(sets_of_voters()), kraft_version=level
                    )
                )
                end += draw(st.integers(1, 2))
            plain.records += records
            (real.restart if how == "restart" else real.add)(records)
        plain.check(real, draw(st.integers(start, end + 1)), draw(st.integers(start, end)))


@pytest.mark.feature("KR-14")
@pytest.mark.parametrize("level", range(4))
def test_a_voter_supports_the_levels_from_its_lowest_to_its_highest(level: int) -> None:
    assert Voter(key(2), versions=(1, 2)).supports(level) == (level in (1, 2))


# -- requests in flight

BACKOFF_MS, TIMEOUT_MS = 20, 500
PEERS = st.integers(1, 3)


@dataclass
class PlainPeer:
    """One peer."""

    asked: tuple[int, int] | None = None
    """Request id, and when it was sent, while it is waited for."""
    failures: int = 0
    rests_until_ms: int = 0

    def free_at_ms(self, now_ms: int) -> int:
        until_ms = self.rests_until_ms if self.asked is None else self.asked[1] + TIMEOUT_MS
        return max(until_ms, now_ms)


@pytest.mark.feature("KR-04")
@settings(max_examples=examples(100))
@given(st.data())
def test_one_request_to_a_peer_at_a_time_and_rests_that_grow(data: st.DataObject) -> None:
    draw = data.draw
    real = Requests(BACKOFF_MS, TIMEOUT_MS)
    plain = {peer: PlainPeer() for peer in (1, 2, 3)}
    ids: list[int] = []
    useless = 0
    now_ms = 1_000
    request = BeginQuorumEpoch(voter=key(2), leader_id=1, epoch=1)
    for _ in range(draw(st.integers(1, 25))):
        number = draw(PEERS)
        peer = plain[number]
        match draw(
            st.sampled_from(["send", "send", "send", "settle", "fail", "rest", "useless", "use", "time", "reset"])
        ):
            case "send":
                may = peer.free_at_ms(now_ms) <= now_ms
                assert real.is_free(number, now_ms) == may
                assert real.send_if_free(number, request, now_ms) == may
                sends = real.take_sends()
                assert [(it.peer_id, it.request) for it in sends] == [(number, request)] * may
                for send in sends:
                    assert send.request_id not in ids
                    peer.asked = (send.request_id, now_ms)
                    ids.append(send.request_id)
            case "settle" | "fail" as how:
                request_id = draw(st.sampled_from([*ids, (ids or [0])[-1] + 1]))
                waits = peer.asked is not None and peer.asked[0] == request_id
                assert real.settle(number, request_id) == waits
                if waits:
                    peer.asked, peer.rests_until_ms = None, 0
                if how == "fail":
                    real.failed(number, now_ms)
                    peer.rests_until_ms = now_ms + BACKOFF_MS * 2 ** min(peer.failures, MAX_BACKOFF_DOUBLINGS)
                    peer.failures += 1
                else:
                    real.answered(number)
                    peer.failures = 0
            case "rest":
                real.rest(number, now_ms)
                peer.rests_until_ms = now_ms + BACKOFF_MS
            case "useless":
                for _ in range(draw(st.sampled_from([1, 2, PROMPT_ANSWERS]))):
                    real.rest_longer(number, now_ms)
                    useless += 1
                doublings = min(max(0, useless - PROMPT_ANSWERS), MAX_BACKOFF_DOUBLINGS)
                peer.rests_until_ms = now_ms + BACKOFF_MS * 2**doublings
            case "use":
                real.was_of_use()
                useless = 0
            case "time":
                now_ms += draw(st.sampled_from([1, BACKOFF_MS, TIMEOUT_MS - 1, TIMEOUT_MS]))
                real.expire(now_ms)
                for each in plain.values():
                    if each.asked is not None and each.asked[1] + TIMEOUT_MS <= now_ms:
                        each.asked = None
            case "reset":
                real.reset()
                for each in plain.values():
                    each.asked, each.rests_until_ms = None, 0
        times = {each: it.free_at_ms(now_ms) for each, it in plain.items()}
        assert {each: real.free_at_ms(each, now_ms) for each in plain} == times
        assert real.free_times_ms((1, 2, 3), now_ms) == [at_ms for at_ms in times.values() if at_ms > now_ms]
        assert real.any_in_flight() == any(it.asked is not None for it in plain.values())


# -- progress of the others


class Fetched(NamedTuple):
    """A fetch of a replica."""

    at_ms: int
    offset: int
    leader_end: int


@dataclass
class PlainReplica:
    """All fetches of a replica."""

    fetches: list[Fetched] = field(default_factory=list)

    @property
    def caught_up_ms(self) -> int | None:
        found = None
        for place, fetch in enumerate(self.fetches):
            if fetch.offset >= fetch.leader_end:
                found = fetch.at_ms
            elif place and fetch.offset >= self.fetches[place - 1].leader_end:
                found = self.fetches[place - 1].at_ms
        return found

    @property
    def last_ms(self) -> int | None:
        return self.fetches[-1].at_ms if self.fetches else None

    @property
    def offset(self) -> int | None:
        return self.fetches[-1].offset if self.fetches else None


OTHERS = [key(2), key(3), key(4), key(5), ReplicaKey(2, b"\xfe" * 16)]


class PlainProgress:
    """All fetches of all replicas, whether they vote or observe; voters come and go."""

    def __init__(self, voters: list[ReplicaKey], now_ms: int) -> None:
        self.real = Progress(SELF, VoterSet.of(map(Voter, voters)), 3_000, now_ms)
        self.replicas = {each: PlainReplica() for each in OTHERS}
        self.voters = voters
        self.were_voters: set[ReplicaKey] = set()
        """Voters that were removed. The leader knows them though they may never have fetched."""
        self.now_ms = self.majority_ms = now_ms
        self.end, self.synced = 1, 0
        self.own_end: int | None = None
        self.lately: set[ReplicaKey] = set()
        """Voters that were in contact since the last majority was."""

    def fetched(self, replica: ReplicaKey, offset: int) -> None:
        self.replicas[replica].fetches.append(Fetched(self.now_ms, offset, self.end))
        self.real.fetched(replica, offset, self.end, self.now_ms)
        self.contacted(replica)

    def contacted(self, replica: ReplicaKey) -> None:
        if replica in self.voters:
            self.lately.add(replica)
            if len(self.lately) + (SELF in self.voters) > len(self.voters) // 2:
                self.lately, self.majority_ms = set(), self.now_ms

    def sync(self, offset: int) -> None:
        self.synced = offset
        self.real.local_synced(offset)
        if SELF in self.voters:
            self.own_end = offset

    def change_voters(self, voters: list[ReplicaKey]) -> None:
        self.were_voters = (self.were_voters | {each for each in self.voters if each != SELF}) - set(voters)
        self.voters, self.majority_ms = voters, self.now_ms
        ids = {each.id for each in voters}
        self.lately = {each for each in voters if each.id in {it.id for it in self.lately if it.id in ids}}
        self.own_end = self.synced if SELF in voters else None
        self.real.set_voters(VoterSet.of(map(Voter, voters)), self.now_ms)

    def forget(self) -> None:
        """Replicas that observe and have not fetched for long."""
        for each, replica in self.replicas.items():
            if each not in self.voters and is_forgotten(replica, self.now_ms):
                self.replicas[each] = PlainReplica()
                self.were_voters.discard(each)

    def end_of(self, voter: ReplicaKey) -> int | None:
        return self.own_end if voter == SELF else self.replicas[voter].offset

    def check(self, since_ms: int) -> None:
        real, others = self.real, [each for each in self.voters if each != SELF]
        is_alone = self.voters == [SELF]
        assert real.check_quorum_deadline_ms() == (None if is_alone else self.majority_ms + 3_000)
        assert list(real.voters) == [each.id for each in self.voters]
        for voter in others:
            known, plain = real.voters[voter.id], self.replicas[voter]
            assert known.key == voter
            expected = (plain.offset, plain.last_ms, plain.caught_up_ms)
            assert (known.end_offset, known.last_fetch_ms, known.last_caught_up_ms) == expected
        assert real.majority_offset() == majority_offset([self.end_of(each) for each in self.voters])
        ranks = sorted(others, key=lambda it: (-(-1 if (at := self.end_of(it)) is None else at), it.id))
        assert real.successors() == tuple(ranks)
        silent = [it.id for it in others if (at_ms := self.replicas[it].last_ms) is None or at_ms < since_ms]
        assert real.silent_voters(since_ms) == tuple(silent)
        self.forget()
        observed = {each.key: each for each in real.active_observers(self.now_ms)}
        watched = {
            it for it in OTHERS if it not in self.voters and (self.replicas[it].fetches or it in self.were_voters)
        }
        assert observed.keys() == watched
        for each in OTHERS:
            plain = self.replicas[each]
            if each in watched:
                found = (observed[each].end_offset, observed[each].last_fetch_ms, observed[each].last_caught_up_ms)
                assert found == (plain.offset, plain.last_ms, plain.caught_up_ms)
            lives = each in watched and plain.last_ms is not None and plain.last_ms > self.now_ms - CATCH_UP_MS
            assert real.is_caught_up(each, self.now_ms) == (plain.caught_up_ms is not None and lives)


@pytest.mark.feature("KR-05", "KR-13", "KR-14")
@settings(max_examples=examples(100))
@given(st.data())
def test_a_leader_computes_from_all_fetches_who_has_come_how_far(data: st.DataObject) -> None:
    """Two of the replicas have the same id, and different directories: at most one of them votes."""
    draw = data.draw
    sets = st.lists(st.sampled_from([SELF, *OTHERS]), min_size=1, max_size=4, unique_by=lambda it: it.id)
    ordered = sets.map(lambda it: sorted(it, key=lambda each: each.id))
    plain = PlainProgress(draw(st.one_of(st.just([SELF, key(2), key(3)]), ordered)), 1_000_000)
    for _ in range(draw(st.integers(1, 20))):
        replica = draw(st.sampled_from(OTHERS))
        match draw(st.sampled_from(["fetch", "fetch", "fetch", "contact", "append", "sync", "time", "voters"])):
            case "fetch":
                plain.fetched(replica, draw(st.integers(max(0, plain.end - 3), plain.end)))
            case "contact":
                plain.real.contacted(replica, plain.now_ms)
                plain.contacted(replica)
            case "append":
                plain.end += draw(st.integers(1, 3))
            case "sync":
                plain.sync(draw(st.integers(plain.synced, plain.end)))
            case "time":
                plain.now_ms += draw(st.sampled_from([1, 2_999, OBSERVER_SESSION_TIMEOUT_MS, CATCH_UP_MS]))
            case "voters":
                plain.change_voters(draw(ordered))
        plain.check(plain.now_ms - draw(st.sampled_from([0, 1, 3_000])))


def is_forgotten(replica: PlainReplica, now_ms: int) -> bool:
    """An observer that has not fetched for so long is forgotten."""
    return replica.last_ms is not None and now_ms - replica.last_ms >= OBSERVER_SESSION_TIMEOUT_MS
