"""Time in the steps of the quorum: each one notices a deadline that has passed, whichever it is."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable

import pytest

from barnabas.kraft.raft.config import RaftConfig
from barnabas.kraft.raft.election_times import ElectionTimes
from barnabas.kraft.raft.messages import (
    AddVoter,
    BeginQuorumEpoch,
    EndQuorumEpoch,
    FetchAnswer,
    FetchSnapshot,
    QuorumEpochAnswer,
    RemoveVoter,
    UpdateVoter,
)
from barnabas.kraft.raft.raft import Raft
from barnabas.kraft.raft.ready import Send
from barnabas.kraft.raft.roles import ElectionState, Prospective, Resigned, Unattached
from barnabas.kraft.raft.voter_history import VoterHistory
from barnabas.kraft.raft.voters import Voter, VoterSet
from barnabas.protocol.errors import ErrorCode
from tests.kraft.raft.test_rules import NOW, at, fetch, follower, key, leader, sent, vote

LATE = NOW + 60_000
OLD = 1
"""An epoch that nobody answers any more."""

STEPS: dict[str, Callable[[Raft], object]] = {
    "tick": lambda raft: raft.tick(LATE),
    "handle_vote": lambda raft: raft.handle_vote(vote(3, OLD, at(0, 0)), LATE),
    "handle_begin_quorum_epoch": lambda raft: raft.handle_begin_quorum_epoch(
        BeginQuorumEpoch(voter=key(1), leader_id=3, epoch=OLD), LATE
    ),
    "handle_end_quorum_epoch": lambda raft: raft.handle_end_quorum_epoch(
        EndQuorumEpoch(leader_id=3, epoch=OLD, preferred_candidates=()), LATE
    ),
    "handle_fetch": lambda raft: raft.handle_fetch(fetch(3, OLD, 0, 0), LATE),
    "handle_fetch_snapshot": lambda raft: raft.handle_fetch_snapshot(
        FetchSnapshot(replica=key(3), epoch=OLD, snapshot=at(1, 1), position=0), None, LATE
    ),
    "handle_add_voter": lambda raft: raft.handle_add_voter(
        AddVoter(voter=Voter(key(4)), ack_when_committed=False), 1, LATE
    ),
    "voter_probed": lambda raft: raft.voter_probed(1, ErrorCode.NONE, None, LATE),
    "handle_remove_voter": lambda raft: raft.handle_remove_voter(RemoveVoter(voter=key(-1)), 1, LATE),
    "handle_update_voter": lambda raft: raft.handle_update_voter(UpdateVoter(epoch=OLD, voter=Voter(key(3))), LATE),
    "upgrade_kraft_version": lambda raft: raft.upgrade_kraft_version(9, LATE, validate_only=True),
    "handle_answer": lambda raft: raft.handle_answer(3, 999, QuorumEpochAnswer(epoch=OLD), LATE),
    "request_failed": lambda raft: raft.request_failed(3, 999, LATE),
    "leader_process_gone": lambda raft: raft.leader_process_gone(3, OLD, LATE),
    "log_synced": lambda raft: raft.log_synced(0, -1, LATE),
    "resign": lambda raft: raft.resign(LATE),
}
FOLLOWERS_DO_NOT = {"upgrade_kraft_version"}


def test_the_table_has_every_step_that_takes_the_time() -> None:
    methods = inspect.getmembers(Raft, inspect.isfunction)
    timed = {name for name, each in methods if "now_ms" in inspect.signature(each).parameters}
    assert timed - {"__init__", "snapshot_installed"} == set(STEPS)


@pytest.mark.feature("KR-05")
@pytest.mark.parametrize("name", sorted(STEPS.keys() - FOLLOWERS_DO_NOT))
def test_a_follower_of_a_silent_leader_stands_at_the_next_step(name: str) -> None:
    raft = follower(epoch=5, leader_id=2)
    STEPS[name](raft)
    assert isinstance(raft.role, Prospective)
    assert raft.role.election_deadline_ms > LATE


@pytest.mark.feature("KR-05")
@pytest.mark.parametrize("name", STEPS)
def test_a_leader_without_a_majority_resigns_at_the_next_step(name: str) -> None:
    raft = leader()
    STEPS[name](raft)
    assert isinstance(raft.role, Resigned)
    assert raft.role.election_deadline_ms > LATE


def announced(raft: Raft) -> list[Send]:
    return sent(raft.take_ready(), BeginQuorumEpoch)


@pytest.mark.feature("KR-04")
def test_a_leader_makes_itself_known_once_a_period_to_voters_that_do_not_fetch() -> None:
    raft = leader()
    period_ms = RaftConfig(local=key(1)).announce_period_ms
    first = announced(raft)
    assert [it.peer_id for it in first] == [2, 3]
    for send in first:
        raft.handle_answer(send.peer_id, send.request_id, QuorumEpochAnswer(leader_id=1, epoch=5), NOW + 110)
    raft.tick(NOW + 99 + period_ms)
    assert announced(raft) == []
    raft.handle_fetch(fetch(2, 5, 1, 5), NOW + 99 + period_ms)
    raft.tick(NOW + 100 + period_ms)
    assert [it.peer_id for it in announced(raft)] == [3]


@pytest.mark.feature("KR-04")
def test_a_voter_that_is_left_alone_for_a_moment_learns_of_the_leader_after_it() -> None:
    raft = leader()
    period_ms = RaftConfig(local=key(1)).announce_period_ms
    failed = announced(raft)[1]
    raft.request_failed(3, failed.request_id, NOW + 90 + period_ms)
    raft.tick(NOW + 100 + period_ms)
    assert announced(raft) == []
    assert raft.next_deadline_ms() == NOW + 110 + period_ms
    raft.tick(NOW + 110 + period_ms)
    assert [it.peer_id for it in announced(raft)] == [3]


@pytest.mark.feature("KR-03")
@pytest.mark.parametrize("error", [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NONE])
def test_an_answer_of_a_higher_epoch_without_a_leader_is_believed(error: ErrorCode) -> None:
    """The one before it is over, for followers and for its leader."""
    following = follower(epoch=5, leader_id=2)
    (send,) = [it for it in following.take_ready().requests if it.peer_id == 2]
    following.handle_answer(2, send.request_id, FetchAnswer(error=error, leader_id=None, epoch=9), NOW + 10)
    assert isinstance(following.role, Unattached) and following.epoch == 9
    assert following.take_ready().election == ElectionState(epoch=9)
    leading = leader()
    send = announced(leading)[0]
    leading.handle_answer(2, send.request_id, QuorumEpochAnswer(error=error, leader_id=None, epoch=9), NOW + 110)
    assert isinstance(leading.role, Unattached) and leading.epoch == 9 and leading.progress is None


@pytest.mark.feature("KR-03")
@pytest.mark.parametrize("drawn", ["least", "most"])
def test_an_election_timeout_is_drawn_between_one_and_two(drawn: str) -> None:
    class Drawing(random.Random):
        def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
            assert stop is not None
            return start if drawn == "least" else stop - 1

    config = RaftConfig(local=key(1))
    times = ElectionTimes(config, VoterHistory(VoterSet.of_ids((1, 2, 3)), key(1)), Drawing())
    timeout_ms = config.election_timeout_ms
    assert times.timeout_ms() == (timeout_ms if drawn == "least" else 2 * timeout_ms - 1)
