"""Decision notes of elections of the metadata quorum: candidacies and reasons, votes, leaders, resignations."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from barnabas.kraft.raft.config import RaftConfig
from barnabas.kraft.raft.election_notes import MAX_REFUSED
from barnabas.kraft.raft.history import OffsetAndEpoch
from barnabas.kraft.raft.messages import BeginQuorumEpoch, EndQuorumEpoch, FetchAnswer, Vote, VoteAnswer
from barnabas.kraft.raft.raft import Raft
from barnabas.kraft.raft.ready import Ready
from barnabas.kraft.raft.roles import ElectionState
from barnabas.kraft.raft.voters import VoterSet
from barnabas.protocol.errors import ErrorCode
from barnabas.runtime.decisions import RING_SIZE, Decisions, Note
from tests.kraft.raft.test_rules import NOW, at, fetch, follower, key, leader, log, replica, sent, vote

pytestmark = pytest.mark.feature("OB-07")


def lines_of(notes: Sequence[Note] | Ready) -> list[str]:
    decisions = Decisions("controller-1", lambda: NOW)
    decisions.take(notes.notes if isinstance(notes, Ready) else notes)
    return [it.sentence for it in decisions.since(0)]


def refuse_all(raft: Raft, ready: Ready, now_ms: int) -> list[str]:
    for send in sent(ready, Vote):
        raft.handle_answer(send.peer_id, send.request_id, VoteAnswer(epoch=raft.epoch, granted=False), now_ms)
    return lines_of(raft.take_ready())


def fresh() -> Raft:
    return Raft(
        RaftConfig(local=key(1)),
        VoterSet.of_ids((1, 2, 3)),
        ElectionState(),
        log(1, 1),
        latest_snapshot=None,
        chance=random.Random(1),
        now_ms=NOW,
    )


def test_an_election_at_the_start_from_the_pre_vote_to_the_leader() -> None:
    raft = fresh()
    raft.tick(NOW + 100)
    stories = []
    for _ in range(2):
        ready = raft.take_ready()
        stories += lines_of(ready)
        (send,) = [send for send in ready.requests if send.peer_id == 2]
        raft.handle_answer(2, send.request_id, VoteAnswer(epoch=raft.epoch, granted=True), NOW + 100)
    stories += lines_of(raft.take_ready())
    why = "it has just started and knows no leader"
    assert stories == [
        f"controller 1 asks in epoch 1 whether it would be elected: {why}",
        f"controller 1 stands for election in epoch 2: {why}; [1, 2] would vote for it",
        f"controller 1 leads the quorum in epoch 2: {why}; elected by [1, 2]",
    ]


def test_a_leader_whose_process_is_gone() -> None:
    raft = follower(epoch=5, leader_id=2)
    raft.take_ready()
    raft.leader_process_gone(2, 5, NOW)
    raft.tick(NOW + 100)
    assert lines_of(raft.take_ready()) == [
        "controller 1 asks in epoch 5 whether it would be elected: "
        "the connection to controller 2 ended and dialling it was refused"
    ]


def test_a_leader_that_does_not_answer() -> None:
    raft = follower(epoch=5, leader_id=2)
    assert lines_of(raft.take_ready()) == [
        "controller 2 leads the quorum in epoch 5: controller 1 learned of it, and fetches from it"
    ]
    raft.tick(NOW + 2_000)
    assert lines_of(raft.take_ready()) == [
        "controller 1 asks in epoch 5 whether it would be elected: controller 2 did not answer a fetch for 2000 ms"
    ]


def test_a_leader_that_resigned() -> None:
    raft = follower(epoch=5, leader_id=2)
    raft.take_ready()
    raft.handle_end_quorum_epoch(EndQuorumEpoch(leader_id=2, epoch=5, preferred_candidates=(key(1),)), NOW)
    raft.tick(NOW + 100)
    (line,) = lines_of(raft.take_ready())
    assert line.endswith("controller 2 has resigned")


def test_repeated_candidacies_are_noted_ever_more_rarely_with_their_first_cause() -> None:
    raft = follower(epoch=5, leader_id=2)
    raft.take_ready()
    raft.leader_process_gone(2, 5, NOW)
    now_ms, lines = NOW, []
    for _ in range(40):
        deadline = raft.next_deadline_ms()
        assert deadline is not None
        now_ms = max(now_ms + 1, deadline)
        raft.tick(now_ms)
        ready = raft.take_ready()
        lines += lines_of(ready) + refuse_all(raft, ready, now_ms)
    attempts = [line for line in lines if "asks in epoch 5" in line]
    cause = "the connection to controller 2 ended and dialling it was refused"
    again = "controller 1 asks in epoch 5 whether it would be elected, its attempt"
    assert len(attempts) >= 4
    assert attempts[1:] == [f"{again} {1 << place}: {cause}" for place in range(1, len(attempts))]


def test_a_vote_is_noted_once_and_a_pre_vote_is_not() -> None:
    raft = replica(1, log(1, 2))
    raft.handle_vote(vote(2, 3, at(2, 2), pre_vote=True), NOW)
    raft.handle_vote(vote(2, 3, at(2, 2)), NOW)
    raft.handle_vote(vote(2, 3, at(2, 2)), NOW)
    assert lines_of(raft.take_ready()) == [
        "controller 1 votes for controller 2 in epoch 3: "
        "it had no vote in that epoch yet, and the candidate's log has all that its own has"
    ]


def test_a_resignation_is_noted_with_its_cause() -> None:
    raft = leader()
    raft.take_ready()
    raft.tick(NOW + 60_000)
    assert lines_of(raft.take_ready())[0] == (
        "controller 1 resigns as leader of epoch 5: no majority of the voters has fetched from it for 3000 ms"
    )
    raft = leader()
    raft.take_ready()
    raft.resign(NOW + 200)
    assert lines_of(raft.take_ready()) == ["controller 1 resigns as leader of epoch 5: it stops, or its disk failed"]


def test_a_truncation_is_noted_with_the_epoch_of_the_leader() -> None:
    raft = follower(log(1, 1, 2, 2), epoch=5, leader_id=2)
    (send,) = [it for it in raft.take_ready().requests if it.peer_id == 2]
    answer = FetchAnswer(leader_id=2, epoch=5, diverging=OffsetAndEpoch(offset=2, epoch=1))
    raft.handle_answer(2, send.request_id, answer, NOW)
    assert lines_of(raft.take_ready()) == [
        "controller 1 cuts its metadata log from 4 to 2: "
        "from there on controller 2, the leader of epoch 5, has other records"
    ]


def test_a_snapshot_in_place_of_the_log_is_noted() -> None:
    raft = follower(log(1, 1, 2, 2), epoch=5, leader_id=2)
    (send,) = [it for it in raft.take_ready().requests if it.peer_id == 2]
    snapshot = OffsetAndEpoch(offset=20, epoch=4)
    raft.handle_answer(2, send.request_id, FetchAnswer(leader_id=2, epoch=5, snapshot=snapshot), NOW)
    ready = raft.take_ready()
    assert lines_of(ready) == [
        "controller 1 replaces its metadata log by a snapshot up to 20: "
        "controller 2 no longer has records as old as 4, the end of its log"
    ]
    assert facts(ready) == [{"offset": 20, "log_end_offset": 4}]


def test_normal_operation_is_not_noted() -> None:
    raft = leader()
    raft.take_ready()
    for number in range(100):
        raft.appended_as_leader(raft.log.end_offset + 1)
        raft.log_synced(raft.log.end_offset, 0, NOW + number)
        for voter in (2, 3):
            answer = raft.handle_fetch(fetch(voter, 5, raft.log.end_offset, 5), NOW + number)
            assert answer.error is ErrorCode.NONE
        assert not raft.take_ready().notes


def test_an_observer_goes_by_the_name_of_a_broker() -> None:
    raft = replica(7, log(1))
    raft.handle_begin_quorum_epoch(BeginQuorumEpoch(voter=key(7), leader_id=2, epoch=5), NOW)
    ready = raft.take_ready()
    assert lines_of(ready) == ["controller 2 leads the quorum in epoch 5: broker 7 learned of it, and fetches from it"]
    assert facts(ready) == [{"leader_epoch": 5, "leader": 2, "log_end_offset": 1, "hearsay": 2}]


def facts(ready: Ready) -> list[dict[str, object]]:
    return [dict(it.facts) for it in ready.notes]


def test_a_refused_vote_is_noted_once_with_its_cause() -> None:
    raft = replica(1, log(1, 2))
    for _ in range(3):
        raft.handle_vote(vote(2, 3, at(2, 2), pre_vote=True), NOW)
        raft.handle_vote(vote(3, 3, at(1, 1), pre_vote=True), NOW)
        raft.handle_vote(vote(2, 3, at(2, 2)), NOW)
        raft.handle_vote(vote(3, 3, at(2, 2)), NOW)
    ready = raft.take_ready()
    behind, _, taken = lines_of(ready)
    assert behind == (
        "controller 1 would not vote for controller 3 in epoch 3: its log lacks records that this one has"
    )
    assert taken == "controller 1 does not vote for controller 3 in epoch 3: its vote went to controller 2"
    assert facts(ready)[0] == {
        "epoch": 3,
        "log_end_offset": 2,
        "log_end_epoch": 2,
        "its_log_end_offset": 1,
        "its_log_end_epoch": 1,
    }
    raft.handle_vote(vote(3, 4, at(1, 1)), NOW)
    assert len(lines_of(raft.take_ready())) == 1, "another epoch is another story"


def test_a_vote_is_refused_because_of_a_live_leader() -> None:
    raft = leader()
    raft.take_ready()
    raft.handle_vote(vote(2, 5, at(90, 5), pre_vote=True), NOW)
    assert lines_of(raft.take_ready()) == [
        "controller 1 would not vote for controller 2 in epoch 5: this one leads that epoch"
    ]
    raft = follower(epoch=5, leader_id=2)
    raft.take_ready()
    raft.handle_vote(vote(3, 5, at(90, 4)), NOW)
    assert lines_of(raft.take_ready()) == [
        "controller 1 does not vote for controller 3 in epoch 5: controller 2 leads that epoch"
    ]


def test_repeated_requests_for_votes_push_out_no_other_decisions() -> None:
    raft = replica(1, log(1, 2))
    decisions = Decisions("controller-1", lambda: NOW)
    raft.handle_vote(vote(2, 3, at(2, 2)), NOW)
    decisions.take(raft.take_ready().notes)
    first = decisions.since(0)
    for candidate in range(3, 3_000):
        raft.handle_vote(vote(candidate, 3, at(2, 2)), NOW)
    assert len(decisions.since(0)) == 1
    decisions.take(raft.take_ready().notes)
    assert len(decisions.since(0)) == 1 + MAX_REFUSED, "so many in one epoch"
    for epoch in range(4, 3 * RING_SIZE):
        raft.handle_vote(vote(3, epoch, at(1, 1)), NOW)
        decisions.take(raft.take_ready().notes)
    assert decisions.since(0)[:1] == first
    assert len(decisions.since(0)) <= RING_SIZE
