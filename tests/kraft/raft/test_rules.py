"""The rules of the quorum one by one: a single core, its input, its answers and effects."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from barnabas.kraft.raft.config import RaftConfig
from barnabas.kraft.raft.fetch_answers import must_wait
from barnabas.kraft.raft.history import LogHistory, OffsetAndEpoch
from barnabas.kraft.raft.messages import (
    BeginQuorumEpoch,
    EndQuorumEpoch,
    Fetch,
    FetchAnswer,
    FetchedSpan,
    FetchSnapshot,
    QuorumEpochAnswer,
    Vote,
    VoteAnswer,
)
from barnabas.kraft.raft.own_log import CommittedRecordsLost
from barnabas.kraft.raft.raft import Raft
from barnabas.kraft.raft.ready import Ready, Send
from barnabas.kraft.raft.roles import Candidate, ElectionState, Follower, Leader, Prospective, Resigned, Unattached
from barnabas.kraft.raft.voters import NO_DIRECTORY, ReplicaKey, VoterSet
from barnabas.protocol.errors import ErrorCode

NOW = 10_000


def key(node_id: int) -> ReplicaKey:
    return ReplicaKey(node_id, bytes([node_id % 256]) * 16)


def log(*epochs: int) -> LogHistory:
    """A log with one record for each epoch named."""
    history = LogHistory()
    for offset, epoch in enumerate(epochs):
        history = history.appended(epoch, offset + 1)
    return history


def replica(
    node_id: int = 1,
    history: LogHistory | None = None,
    election: ElectionState | None = None,
    voters: tuple[int, ...] = (1, 2, 3),
) -> Raft:
    raft = Raft(
        RaftConfig(local=key(node_id)),
        VoterSet.of_ids(voters),
        election or ElectionState(),
        history or LogHistory(),
        latest_snapshot=None,
        chance=random.Random(1),
        now_ms=NOW,
    )
    raft.take_ready()
    return raft


def follower(history: LogHistory | None = None, *, epoch: int = 5, leader_id: int = 2) -> Raft:
    raft = replica(1, history, ElectionState(epoch=epoch))
    raft.handle_begin_quorum_epoch(BeginQuorumEpoch(voter=key(1), leader_id=leader_id, epoch=epoch), NOW)
    return raft


def leader(history: LogHistory | None = None, *, epoch: int = 5, voters: tuple[int, ...] = (1, 2, 3)) -> Raft:
    """Node 1, elected by node 2 in `epoch`, with everything synced."""
    raft = replica(1, history, ElectionState(epoch=epoch - 1), voters)
    raft.tick(NOW + 100)
    for _ in range(2):
        (send,) = [send for send in raft.take_ready().requests if send.peer_id == 2]
        raft.handle_answer(2, send.request_id, VoteAnswer(epoch=raft.epoch, granted=True), NOW + 100)
    assert raft.is_leader and raft.epoch == epoch
    raft.log_synced(raft.log.end_offset, 0, NOW + 100)
    return raft


def vote(candidate: int, epoch: int, end: OffsetAndEpoch, *, pre_vote: bool = False) -> Vote:
    return Vote(voter=key(1), candidate=key(candidate), epoch=epoch, log_end=end, pre_vote=pre_vote)


def fetch(replica_id: int, epoch: int, offset: int, last_epoch: int, high_watermark: int | None = None) -> Fetch:
    return Fetch(
        replica=key(replica_id),
        epoch=epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        high_watermark=high_watermark,
        max_wait_ms=500,
    )


def sent(ready: Ready, kind: type) -> list[Send]:
    return [send for send in ready.requests if isinstance(send.request, kind)]


def at(offset: int, epoch: int) -> OffsetAndEpoch:
    return OffsetAndEpoch(offset=offset, epoch=epoch)


# ---- votes


@pytest.mark.feature("KR-03")
@pytest.mark.parametrize(
    ("candidate_end", "granted"),
    [
        (at(3, 2), True),
        (at(4, 2), True),
        (at(1, 3), True),  # fewer records, but of a later epoch
        (at(2, 2), False),
        (at(9, 1), False),  # more records, but of an earlier epoch
    ],
)
def test_a_vote_needs_a_log_at_least_as_complete(candidate_end: OffsetAndEpoch, granted: bool) -> None:
    raft = replica(1, log(1, 2, 2))
    assert raft.handle_vote(vote(2, 5, candidate_end), NOW).granted is granted


@pytest.mark.feature("KR-03", "KR-05")
def test_one_vote_per_epoch_saved_before_it_leaves_and_kept_over_a_restart() -> None:
    raft = replica()
    assert raft.handle_vote(vote(2, 5, at(0, 0)), NOW).granted
    saved = raft.take_ready().election
    assert saved == ElectionState(epoch=5, voted=key(2))
    assert not raft.handle_vote(vote(3, 5, at(0, 0)), NOW).granted
    assert raft.handle_vote(vote(2, 5, at(0, 0)), NOW).granted, "asked again, the answer is the same"

    restarted = replica(election=saved)
    assert not restarted.handle_vote(vote(3, 5, at(0, 0)), NOW).granted
    assert restarted.handle_vote(vote(2, 5, at(0, 0)), NOW).granted
    assert restarted.handle_vote(vote(3, 6, at(0, 0)), NOW).granted


@pytest.mark.feature("KR-03")
def test_a_follower_that_restarts_follows_its_leader_unless_its_log_knows_a_later_epoch() -> None:
    saved = ElectionState(epoch=5, leader_id=2)
    restarted = replica(history=log(4, 5), election=saved)
    assert isinstance(restarted.role, Follower) and restarted.leader_id == 2
    later = replica(history=log(5, 6), election=saved)
    assert later.epoch == 6, "its election state was lost, and it may have voted in that epoch for anybody"
    assert later.leader_id is None


@pytest.mark.feature("KR-03")
def test_a_vote_remembered_without_a_directory_id_counts_for_the_node() -> None:
    """Data version 0 of the quorum-state file has no directory id."""
    raft = replica(election=ElectionState(epoch=5, voted=ReplicaKey(2, NO_DIRECTORY)))
    assert raft.handle_vote(vote(2, 5, at(0, 0)), NOW).granted
    assert not raft.handle_vote(vote(3, 5, at(0, 0)), NOW).granted


@pytest.mark.feature("KR-03", "KR-09")
def test_malformed_requests_change_nothing() -> None:
    raft = replica(1, log(1), ElectionState(epoch=3))
    before = raft.role
    assert raft.handle_vote(vote(2, 2, at(0, 0)), NOW).error is ErrorCode.FENCED_LEADER_EPOCH
    for bad in (vote(2, 5, at(-1, 0)), vote(2, 5, at(3, 5)), vote(-1, 5, at(3, 1)), vote(1, 5, at(3, 1))):
        assert raft.handle_vote(bad, NOW).error is ErrorCode.INVALID_REQUEST
    stale = BeginQuorumEpoch(voter=None, leader_id=2, epoch=2)
    assert raft.handle_begin_quorum_epoch(stale, NOW).error is ErrorCode.FENCED_LEADER_EPOCH
    own = BeginQuorumEpoch(voter=None, leader_id=1, epoch=7)
    assert raft.handle_begin_quorum_epoch(own, NOW).error is ErrorCode.INVALID_REQUEST
    assert raft.role == before
    assert raft.take_ready().election is None


@pytest.mark.feature("KR-03")
def test_a_vote_meant_for_another_directory_is_refused() -> None:
    raft = replica()
    meant_for_other = replace(vote(2, 5, at(0, 0)), voter=ReplicaKey(1, bytes([9]) * 16))
    answer = raft.handle_vote(meant_for_other, NOW)
    assert (answer.error, answer.granted) == (ErrorCode.INVALID_VOTER_KEY, False)


# ---- pre-votes


@pytest.mark.feature("KR-04")
def test_a_pre_vote_bumps_no_epoch_and_costs_no_vote() -> None:
    raft = replica(election=ElectionState(epoch=4))
    assert raft.handle_vote(vote(2, 4, at(0, 0), pre_vote=True), NOW).granted
    assert raft.handle_vote(vote(3, 4, at(0, 0), pre_vote=True), NOW).granted
    assert raft.take_ready().election is None
    assert raft.handle_vote(vote(2, 5, at(0, 0)), NOW).granted


@pytest.mark.feature("KR-04")
def test_a_follower_of_a_live_leader_refuses_pre_votes_until_that_process_is_gone() -> None:
    raft = follower()
    ask = vote(3, 5, at(0, 0), pre_vote=True)
    assert raft.handle_vote(ask, NOW).granted, "it has not fetched from its leader yet"
    (send,) = sent(raft.take_ready(), Fetch)
    raft.handle_answer(2, send.request_id, FetchAnswer(leader_id=2, epoch=5, high_watermark=0), NOW + 1)
    assert raft.wants_leader_check(ask)
    assert not raft.handle_vote(ask, NOW + 1).granted

    raft.leader_process_gone(3, 5, NOW + 2)
    raft.leader_process_gone(2, 4, NOW + 2)
    assert not raft.handle_vote(ask, NOW + 2).granted, "that was no news of its leader"
    raft.leader_process_gone(2, 5, NOW + 3)
    assert not raft.wants_leader_check(ask)
    assert raft.handle_vote(ask, NOW + 3).granted

    (send,) = sent(raft.take_ready(), Fetch)
    raft.handle_answer(2, send.request_id, FetchAnswer(leader_id=2, epoch=5, high_watermark=0), NOW + 4)
    assert not raft.handle_vote(ask, NOW + 4).granted, "the leader lives after all"
    assert raft.epoch == 5


@pytest.mark.feature("KR-04", "KR-16")
def test_voters_that_lose_their_leader_stand_one_after_the_other() -> None:
    """The first place stands at once, the next 30 ms later; nobody waits for the fetch timeout."""
    stood = {}
    for node_id in (1, 3, 4):
        raft = Raft(
            RaftConfig(local=key(node_id)),
            VoterSet.of_ids((1, 2, 3, 4)),
            ElectionState(epoch=5, leader_id=2),
            LogHistory(),
            latest_snapshot=None,
            chance=random.Random(node_id),
            now_ms=NOW,
        )
        raft.leader_process_gone(2, 5, NOW)
        while isinstance(raft.role, Follower):
            deadline = raft.next_deadline_ms()
            assert deadline is not None
            raft.tick(deadline)
            stood[node_id] = deadline - NOW
    assert 0 <= stood[1] < 10
    assert 30 <= stood[3] < 40
    assert 60 <= stood[4] < 70


@pytest.mark.feature("KR-04")
def test_a_prospective_that_loses_follows_its_leader_again_in_the_same_epoch() -> None:
    raft = follower()
    raft.take_ready()
    raft.tick(NOW + 2_000)
    assert isinstance(raft.role, Prospective)
    ready = raft.take_ready()
    assert ready.election is None
    for send in sent(ready, Vote):
        refusal = VoteAnswer(leader_id=2, epoch=5, granted=False)
        raft.handle_answer(send.peer_id, send.request_id, refusal, NOW + 2_001)
    assert isinstance(raft.role, Follower)
    assert raft.role.fetch_deadline_ms == NOW + 4_001


@pytest.mark.feature("KR-03")
def test_a_candidate_that_loses_backs_off_and_keeps_its_vote() -> None:
    raft = replica()
    raft.tick(NOW + 100)
    for send in sent(raft.take_ready(), Vote)[:1]:
        raft.handle_answer(send.peer_id, send.request_id, VoteAnswer(epoch=0, granted=True), NOW + 100)
    assert isinstance(raft.role, Candidate)
    for send in sent(raft.take_ready(), Vote):
        raft.handle_answer(send.peer_id, send.request_id, VoteAnswer(epoch=1, granted=False), NOW + 101)
    assert isinstance(raft.role, Unattached)
    assert raft.role.voted == key(1)
    assert raft.role.election_deadline_ms is not None
    assert NOW + 101 + 25 <= raft.role.election_deadline_ms <= NOW + 101 + 1000


# ---- leading


@pytest.mark.feature("KR-07")
def test_a_leader_opens_its_epoch_with_a_leader_change_record() -> None:
    raft = leader(log(1, 1))
    change = raft.take_ready().append_leader_change
    assert change is not None
    assert (change.offset, change.epoch, change.leader_id, change.granting_voters) == (2, 5, 1, (1, 2))
    assert raft.log.end == at(3, 5)


@pytest.mark.feature("KR-07", "KR-13")
def test_records_of_older_epochs_commit_only_with_one_of_the_own_epoch() -> None:
    """Raft §5.4.2: a majority that has the old records is not enough."""
    raft = leader(log(1, 2, 2))
    assert isinstance(raft.role, Leader)
    raft.handle_fetch(fetch(2, 5, 3, 2), NOW + 200)
    raft.handle_fetch(fetch(3, 5, 3, 2), NOW + 200)
    assert raft.shown_high_watermark is None, "all three have the old records, but that may be undone"
    raft.handle_fetch(fetch(2, 5, 4, 5), NOW + 201)
    assert raft.shown_high_watermark == 4


@pytest.mark.feature("KR-13")
def test_a_leader_counts_itself_only_as_far_as_it_is_synced() -> None:
    raft = leader()
    raft.handle_fetch(fetch(2, 5, 1, 5), NOW + 200)
    raft.appended_as_leader(3)
    raft.handle_fetch(fetch(2, 5, 3, 5), NOW + 201)
    assert raft.high_watermark == 1
    raft.log_synced(3, 0, NOW + 202)
    assert raft.high_watermark == 3


@pytest.mark.feature("KR-06")
def test_observers_are_remembered_and_never_counted() -> None:
    raft = leader()
    for observer_id in (101, 102, 103, -1):  # -1: it has no id
        raft.handle_fetch(fetch(observer_id, 5, 1, 5), NOW + 200)
    assert raft.shown_high_watermark is None
    assert raft.progress is not None
    assert [o.key.id for o in raft.progress.active_observers(NOW + 200)] == [101, 102, 103]
    assert raft.progress.active_observers(NOW + 200 + 300_000) == ()


@pytest.mark.feature("KR-06")
def test_a_fetch_waits_for_news_and_a_newer_high_watermark_is_news() -> None:
    """KIP-1166: a replica whose high watermark is behind is answered at once, though there are no records for
    it."""
    raft = leader()
    raft.handle_fetch(fetch(2, 5, 1, 5), NOW + 200)
    assert raft.high_watermark == 1
    knows = fetch(3, 5, 1, 5, high_watermark=1)
    assert must_wait(knows, raft.handle_fetch(knows, NOW + 201))
    lags = fetch(3, 5, 1, 5, high_watermark=0)
    assert not must_wait(lags, raft.handle_fetch(lags, NOW + 201))
    too_old_to_say = fetch(3, 5, 1, 5)
    assert must_wait(too_old_to_say, raft.handle_fetch(too_old_to_say, NOW + 201))


@pytest.mark.feature("KR-06", "KR-09")
def test_fetches_of_another_epoch_or_to_no_leader_get_kafkas_errors() -> None:
    raft = leader()
    cases = {
        ErrorCode.FENCED_LEADER_EPOCH: fetch(2, 4, 0, 0),
        ErrorCode.UNKNOWN_LEADER_EPOCH: fetch(2, 6, 0, 0),
        ErrorCode.INVALID_REQUEST: fetch(2, 5, -1, 0),
    }
    for error, request in cases.items():
        assert raft.handle_fetch(request, NOW + 200).error is error
    assert raft.handle_fetch(fetch(2, 5, 0, 6), NOW + 200).error is ErrorCode.INVALID_REQUEST
    assert follower().handle_fetch(fetch(3, 5, 0, 0), NOW).error is ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.feature("KR-09")
def test_a_leader_that_no_majority_fetches_from_resigns() -> None:
    """KAFKA-15489: after 1.5 fetch timeouts; one other voter of three is enough to go on."""
    raft = leader()
    raft.handle_fetch(fetch(2, 5, 1, 5), NOW + 2_000)
    raft.tick(NOW + 100 + 3_000)
    assert raft.is_leader
    raft.tick(NOW + 2_000 + 3_000)
    assert isinstance(raft.role, Resigned)
    assert {send.peer_id for send in sent(raft.take_ready(), EndQuorumEpoch)} == {2, 3}


@pytest.mark.feature("KR-09")
@pytest.mark.parametrize("voters", [(1, 2), (1, 2, 3), (1, 2, 3, 4), (1, 2, 3, 4, 5)])
def test_a_leader_without_fetches_of_a_majority_resigns(voters: tuple[int, ...]) -> None:
    raft = replica(1, None, ElectionState(epoch=4), voters)
    raft.tick(NOW + 100)
    for _ in range(2):
        for send in raft.take_ready().requests:
            raft.handle_answer(send.peer_id, send.request_id, VoteAnswer(epoch=raft.epoch, granted=True), NOW + 100)
    assert raft.is_leader
    raft.tick(NOW + 100 + 2_999)
    assert raft.is_leader
    raft.tick(NOW + 100 + 3_000)
    assert isinstance(raft.role, Resigned)


@pytest.mark.feature("KR-09")
def test_an_only_voter_never_resigns_for_lack_of_fetches() -> None:
    raft = replica(1, None, ElectionState(epoch=4), (1,))
    raft.tick(NOW + 100)
    assert raft.is_leader
    raft.tick(NOW + 1_000_000)
    assert raft.is_leader


@pytest.mark.feature("KR-04")
def test_a_leader_that_expects_another_directory_gets_an_error_and_is_followed() -> None:
    raft = replica()
    stranger = ReplicaKey(1, bytes([9]) * 16)
    answer = raft.handle_begin_quorum_epoch(BeginQuorumEpoch(voter=stranger, leader_id=2, epoch=5), NOW)
    assert (answer.error, answer.leader_id, answer.epoch) == (ErrorCode.INVALID_VOTER_KEY, 2, 5)
    meant = raft.handle_begin_quorum_epoch(BeginQuorumEpoch(voter=key(1), leader_id=2, epoch=5), NOW)
    assert (meant.error, meant.leader_id, meant.epoch) == (ErrorCode.NONE, 2, 5)
    late = raft.handle_begin_quorum_epoch(BeginQuorumEpoch(voter=key(1), leader_id=3, epoch=4), NOW)
    assert (late.error, late.leader_id, late.epoch) == (ErrorCode.FENCED_LEADER_EPOCH, 2, 5)


@pytest.mark.feature("KR-09")
def test_a_resigning_leader_names_the_most_complete_voter_first_and_it_stands_first() -> None:
    raft = leader()
    raft.appended_as_leader(9)
    raft.handle_fetch(fetch(2, 5, 1, 5), NOW + 200)
    raft.handle_fetch(fetch(3, 5, 9, 5), NOW + 200)
    raft.resign(NOW + 201)
    end = sent(raft.take_ready(), EndQuorumEpoch)[0].request
    assert isinstance(end, EndQuorumEpoch)
    assert [candidate.id for candidate in end.preferred_candidates] == [3, 2]

    stood = {}
    for node_id in (2, 3):
        other = replica(node_id, log(5), ElectionState(epoch=5, leader_id=1))
        other.handle_end_quorum_epoch(end, NOW)
        deadline = other.next_deadline_ms()
        assert deadline is not None
        stood[node_id] = deadline
    assert stood[3] < stood[2] < NOW + 50


@pytest.mark.feature("KR-09", "KR-16")
def test_a_leader_of_an_epoch_never_leads_it_again() -> None:
    raft = replica(1, log(5), ElectionState(epoch=5, leader_id=1, voted=key(1)))
    assert not raft.is_leader
    assert not raft.handle_vote(vote(2, 5, at(9, 4)), NOW).granted, "nor does it vote for another in it"
    raft.tick(NOW + 100)
    assert isinstance(raft.role, Prospective)
    assert raft.role.epoch == 5


@pytest.mark.feature("KR-09")
def test_a_new_leader_announces_itself_until_each_voter_fetches() -> None:
    raft = leader()
    first = sent(raft.take_ready(), BeginQuorumEpoch)
    raft.handle_fetch(fetch(2, 5, 0, 0), NOW + 900)
    for send in first:
        raft.request_failed(send.peer_id, send.request_id, NOW + 200)
    raft.tick(NOW + 1_100)
    assert {send.peer_id for send in first} == {2, 3}
    assert [send.peer_id for send in sent(raft.take_ready(), BeginQuorumEpoch)] == [3]


@pytest.mark.feature("KR-09")
def test_a_leader_that_learns_of_a_higher_epoch_stops_leading() -> None:
    raft = leader()
    raft.handle_vote(vote(3, 9, at(0, 0), pre_vote=True), NOW + 200)
    assert isinstance(raft.role, Unattached)
    assert raft.epoch == 9
    assert raft.take_ready().election == ElectionState(epoch=9)


# ---- following


@pytest.mark.feature("KR-08", "KR-16")
def test_an_observer_goes_on_fetching_when_an_answer_comes_that_it_had_given_up() -> None:
    """It comes in the very millisecond in which the leader may be asked again, before the clock was looked at."""
    raft = replica(101, log(1), ElectionState(epoch=5, leader_id=2), voters=(2,))
    raft.tick(NOW + 2_000)
    (again,) = sent(raft.take_ready(), Fetch)
    given_up = again.request_id - 1
    no_use = FetchAnswer(error=ErrorCode.NOT_LEADER_OR_FOLLOWER, leader_id=2, epoch=5)
    raft.handle_answer(2, again.request_id, no_use, NOW + 2_001)
    assert raft.take_ready().next_deadline_ms == NOW + 2_021
    raft.handle_answer(2, given_up, no_use, NOW + 2_021)
    assert len(sent(raft.take_ready(), Fetch)) == 1


def answered(raft: Raft, answer: FetchAnswer) -> Ready:
    (send,) = sent(raft.take_ready(), Fetch)
    raft.handle_answer(2, send.request_id, replace(answer, leader_id=2, epoch=5), NOW + 1)
    return raft.take_ready()


@pytest.mark.feature("KR-13")
def test_a_voter_fetches_on_only_after_the_sync() -> None:
    raft = follower()
    ready = answered(raft, FetchAnswer(spans=(FetchedSpan(5, 0, 2),), high_watermark=0))
    assert ready.append_fetched
    assert not ready.requests
    raft.log_synced(2, 0, NOW + 2)
    (send,) = raft.take_ready().requests
    assert isinstance(send.request, Fetch)
    assert send.request.fetch_offset == 2


@pytest.mark.feature("KR-08")
def test_a_follower_truncates_records_that_its_leader_does_not_have() -> None:
    raft = follower(log(1, 2, 2, 2))
    ready = answered(raft, FetchAnswer(diverging=at(1, 1)))
    assert ready.truncate_to == 1
    assert raft.log.end == at(1, 1)
    (send,) = ready.requests
    assert isinstance(send.request, Fetch)
    assert (send.request.fetch_offset, send.request.last_fetched_epoch) == (1, 1)


@pytest.mark.feature("KR-08")
def test_committed_records_are_never_truncated() -> None:
    raft = follower(log(1, 2, 2, 2))
    (send,) = answered(raft, FetchAnswer(high_watermark=3)).requests
    with pytest.raises(CommittedRecordsLost):
        raft.handle_answer(2, send.request_id, FetchAnswer(diverging=at(1, 1), leader_id=2, epoch=5), NOW + 2)


@pytest.mark.feature("KR-06")
@pytest.mark.parametrize(
    "spans",
    [
        (FetchedSpan(5, 1, 2),),
        (FetchedSpan(6, 0, 2),),
        (FetchedSpan(5, 0, 2), FetchedSpan(5, 3, 4)),
        (FetchedSpan(5, 0, 2), FetchedSpan(4, 2, 4)),
        (FetchedSpan(5, 0, 0),),
        (FetchedSpan(-1, 0, 2),),
    ],
)
def test_records_that_do_not_continue_the_log_are_not_appended(spans: tuple[FetchedSpan, ...]) -> None:
    raft = follower()
    ready = answered(raft, FetchAnswer(spans=spans, high_watermark=9))
    assert not ready.append_fetched
    assert raft.log == LogHistory()
    assert raft.high_watermark == 0


@pytest.mark.feature("KR-08")
def test_a_sync_from_before_a_truncation_does_not_count_for_later_records() -> None:
    raft = follower(log(1, 1, 1))
    old_generation = raft.log_generation
    (send,) = answered(raft, FetchAnswer(diverging=at(1, 1))).requests
    raft.handle_answer(
        2,
        send.request_id,
        FetchAnswer(spans=(FetchedSpan(5, 1, 3),), leader_id=2, epoch=5),
        NOW + 2,
    )
    raft.log_synced(3, old_generation, NOW + 3)
    assert raft.synced_end_offset == 1
    raft.log_synced(3, raft.log_generation, NOW + 4)
    assert raft.synced_end_offset == 3


@pytest.mark.feature("KR-09")
def test_a_leader_that_answers_not_leader_is_believed() -> None:
    """It restarted: no dial is refused, but its epoch is over."""
    raft = follower()
    (send,) = answered(raft, FetchAnswer(high_watermark=0)).requests
    raft.handle_answer(
        2,
        send.request_id,
        FetchAnswer(error=ErrorCode.NOT_LEADER_OR_FOLLOWER, epoch=5),
        NOW + 2,
    )
    assert isinstance(raft.role, Follower)
    assert raft.role.leader_gone
    assert raft.role.fetch_deadline_ms < NOW + 50, "it need not wait for the fetch timeout"


@pytest.mark.feature("KR-09")
def test_answers_to_requests_of_an_earlier_role_are_strangers() -> None:
    raft = follower()
    (send,) = sent(raft.take_ready(), Fetch)
    raft.handle_begin_quorum_epoch(BeginQuorumEpoch(voter=None, leader_id=3, epoch=6), NOW + 1)
    raft.handle_answer(
        2,
        send.request_id,
        FetchAnswer(spans=(FetchedSpan(5, 0, 2),), leader_id=2, epoch=5),
        NOW + 2,
    )
    assert raft.log == LogHistory()


# ---- snapshots


@pytest.mark.feature("KR-11")
def test_a_leader_refers_an_empty_replica_to_its_snapshot() -> None:
    raft = leader(log(1, 2, 2))
    raft.handle_fetch(fetch(2, 5, 4, 5), NOW + 200)
    raft.snapshot_created(at(2, 2))
    assert raft.handle_fetch(fetch(3, 5, 0, 0), NOW + 201).snapshot == at(2, 2)
    assert raft.handle_fetch(fetch(3, 5, 3, 2), NOW + 201).readable == (3, 4)
    raft.log_started_at(at(2, 2))
    assert raft.handle_fetch(fetch(3, 5, 1, 1), NOW + 202).snapshot == at(2, 2)


@pytest.mark.feature("KR-11")
def test_snapshot_chunks_are_bounded_and_bad_positions_refused() -> None:
    raft = leader()

    def ask(position: int, epoch: int = 5) -> FetchSnapshot:
        return FetchSnapshot(replica=key(2), epoch=epoch, snapshot=at(1, 5), position=position, max_bytes=100)

    answer = raft.handle_fetch_snapshot(ask(50), 120, NOW + 200)
    assert (answer.position, answer.count, answer.size_bytes) == (50, 70, 120)
    assert raft.handle_fetch_snapshot(ask(0), 120, NOW + 200).count == 100
    assert raft.handle_fetch_snapshot(ask(120), 120, NOW).error is ErrorCode.POSITION_OUT_OF_RANGE
    assert raft.handle_fetch_snapshot(ask(-1), 120, NOW).error is ErrorCode.POSITION_OUT_OF_RANGE
    assert raft.handle_fetch_snapshot(ask(0), None, NOW).error is ErrorCode.SNAPSHOT_NOT_FOUND
    assert raft.handle_fetch_snapshot(ask(0, 4), 120, NOW).error is ErrorCode.FENCED_LEADER_EPOCH


def test_an_acknowledged_resignation_is_not_sent_again() -> None:
    raft = leader()
    raft.resign(NOW + 200)
    for send in sent(raft.take_ready(), EndQuorumEpoch):
        raft.handle_answer(send.peer_id, send.request_id, QuorumEpochAnswer(epoch=5), NOW + 201)
    assert isinstance(raft.role, Resigned)
    assert raft.role.unacknowledged == ()
    raft.tick(NOW + 300)
    assert not raft.take_ready().requests
