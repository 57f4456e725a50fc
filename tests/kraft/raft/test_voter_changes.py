"""Changes of the voters at their leader, check by check (KIP-853)."""

from __future__ import annotations

import random

import pytest

from barnabas.kraft.raft.config import RaftConfig
from barnabas.kraft.raft.history import LogHistory
from barnabas.kraft.raft.messages import AddVoter, Fetch, RemoveVoter, UpdateVoter, VoterChangeAnswer
from barnabas.kraft.raft.raft import Raft
from barnabas.kraft.raft.ready import Ready
from barnabas.kraft.raft.roles import ElectionState, Resigned
from barnabas.kraft.raft.voter_history import QuorumRecord
from barnabas.kraft.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from barnabas.protocol.errors import ErrorCode


def voter(node_id: int, directory: int | None = None) -> Voter:
    key = ReplicaKey(node_id, bytes([node_id if directory is None else directory]) * 16)
    return Voter(key, (Endpoint("CONTROLLER", f"node-{node_id}", 9093),), (0, 1))


class Leader:
    """Controller 1, alone in its voter set, at its first epoch."""

    def __init__(self, level: int = 1) -> None:
        local = voter(1)
        first = VoterSet((local,))
        records = (QuorumRecord(offset=-1, kraft_version=1), QuorumRecord(offset=-1, voters=first))
        self.now_ms = 1000
        self.tickets = 0
        self.raft = Raft(
            RaftConfig(local=local.key, endpoints=local.endpoints, can_vote=True),
            VoterSet.of_ids((1,)),
            ElectionState(),
            LogHistory(),
            latest_snapshot=None,
            quorum_records=records if level else (),
            chance=random.Random(1),
            now_ms=self.now_ms,
        )
        self.first = self.raft.take_ready()
        assert self.raft.is_leader

    def sync(self) -> Ready:
        self.raft.log_synced(self.raft.log.end_offset, self.raft.log_generation, self.now_ms)
        return self.raft.take_ready()

    def add(self, new: Voter, *, ack_when_committed: bool = True) -> Ready:
        self.tickets += 1
        request = AddVoter(voter=new, ack_when_committed=ack_when_committed)
        self.raft.handle_add_voter(request, self.tickets, self.now_ms)
        return self.raft.take_ready()

    def remove(self, key: ReplicaKey) -> Ready:
        self.tickets += 1
        self.raft.handle_remove_voter(RemoveVoter(voter=key), self.tickets, self.now_ms)
        return self.raft.take_ready()

    def fetched_by(self, replica: Voter) -> Ready:
        end = self.raft.log.end
        request = Fetch(
            replica=replica.key, epoch=1, fetch_offset=end.offset, last_fetched_epoch=end.epoch, max_wait_ms=100
        )
        self.raft.handle_fetch(request, self.now_ms)
        return self.raft.take_ready()

    def probed(self, versions: tuple[int, int] | None = (0, 1), error: ErrorCode = ErrorCode.NONE) -> Ready:
        self.raft.voter_probed(self.tickets, error, versions, self.now_ms)
        return self.raft.take_ready()


def answer(ready: Ready) -> VoterChangeAnswer:
    (done,) = ready.voter_changes
    return done.answer


@pytest.mark.feature("KR-14")
def test_the_first_leader_writes_the_voters_of_format_into_its_log() -> None:
    leader = Leader()
    change = leader.first.append_leader_change
    assert change is not None
    assert [record.offset for record in change.quorum_records] == [1, 2]
    assert change.quorum_records[1].voters == VoterSet((voter(1),))
    assert leader.raft.log.end_offset == 3


@pytest.mark.feature("KR-14")
def test_no_change_before_a_record_of_the_own_epoch_has_committed() -> None:
    """The bug in single-server changes that Ongaro reported in 2015."""
    leader = Leader()
    for ready in (leader.add(voter(2)), leader.remove(voter(1).key)):
        assert answer(ready).error is ErrorCode.REQUEST_TIMED_OUT
        assert "establish HWM" in (answer(ready).message or "")


@pytest.mark.feature("KR-14")
def test_level_0_has_fixed_voters() -> None:
    leader = Leader(level=0)
    leader.sync()
    assert answer(leader.add(voter(2))).error is ErrorCode.UNSUPPORTED_VERSION
    assert answer(leader.remove(voter(1).key)).error is ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.feature("KR-14")
def test_a_voter_is_added_once_it_answers_and_has_caught_up() -> None:
    leader = Leader()
    leader.sync()
    assert answer(leader.add(voter(1, directory=9))).error is ErrorCode.DUPLICATE_VOTER
    assert answer(leader.add(Voter(voter(2).key))).error is ErrorCode.INVALID_REQUEST
    assert leader.add(voter(2)).probe_voter is not None
    assert "previous voter change" in (answer(leader.add(voter(3))).message or "")
    leader.tickets -= 1
    assert answer(leader.probed(error=ErrorCode.REQUEST_TIMED_OUT)).error is ErrorCode.REQUEST_TIMED_OUT
    leader.add(voter(2))
    assert answer(leader.probed((0, 0))).error is ErrorCode.INVALID_REQUEST
    leader.add(voter(2))
    assert "lagging" in (answer(leader.probed()).message or "")
    leader.fetched_by(voter(2))
    leader.add(voter(2))
    appended = leader.probed()
    assert appended.append_quorum_records is not None and not appended.voter_changes
    assert leader.raft.voters.ids == (1, 2), "it counts at once"
    assert not leader.sync().voter_changes, "the new majority has two members"
    assert answer(leader.fetched_by(voter(2))).error is ErrorCode.NONE


@pytest.mark.feature("KR-14")
def test_without_waiting_for_the_commit_the_answer_leaves_at_the_append() -> None:
    leader = Leader()
    leader.sync()
    leader.fetched_by(voter(2))
    leader.add(voter(2), ack_when_committed=False)
    assert answer(leader.probed()).error is ErrorCode.NONE
    assert "previous voter change" in (answer(leader.add(voter(3))).message or "")
    leader.sync()
    assert not leader.fetched_by(voter(2)).voter_changes, "answered once"


@pytest.mark.feature("KR-14")
def test_a_leader_that_removes_itself_resigns_when_the_others_have_that() -> None:
    leader = Leader()
    leader.sync()
    assert answer(leader.remove(voter(1).key)).error is ErrorCode.VOTER_NOT_FOUND, "the last voter stays"
    leader.fetched_by(voter(2))
    leader.add(voter(2))
    leader.probed()
    leader.sync()
    leader.fetched_by(voter(2))
    assert answer(leader.remove(voter(1, directory=7).key)).error is ErrorCode.VOTER_NOT_FOUND
    assert not leader.remove(voter(1).key).voter_changes
    leader.sync()
    assert leader.raft.is_leader, "its own disk counts no more"
    assert answer(leader.fetched_by(voter(2))).error is ErrorCode.NONE
    assert isinstance(leader.raft.role, Resigned)


@pytest.mark.feature("KR-14")
def test_a_removal_that_leaves_no_majority_is_refused_with_the_reason() -> None:
    """Voter 2 has died: without voter 3 nothing would ever commit again."""
    leader = Leader()
    leader.sync()
    for node_id in (2, 3):
        leader.fetched_by(voter(node_id))
        leader.add(voter(node_id))
        leader.probed()
        leader.sync()
        for each in (2, 3):
            leader.fetched_by(voter(each))
    leader.now_ms += 1500
    leader.fetched_by(voter(3))
    leader.now_ms += 1000
    refused = answer(leader.remove(voter(3).key))
    assert refused.error is ErrorCode.INVALID_REQUEST
    assert "2 of the voters [1, 2] that would remain are a majority, and only [1] fetch" in (refused.message or "")
    assert answer(leader.remove(voter(1).key)).error is ErrorCode.INVALID_REQUEST
    assert not leader.remove(voter(2).key).voter_changes, "the dead one may go"


@pytest.mark.feature("KR-14")
def test_level_1_needs_the_word_of_every_voter() -> None:
    leader = Leader(level=0)
    leader.sync()
    assert leader.raft.upgrade_kraft_version(1, leader.now_ms, validate_only=True) is None
    assert leader.raft.upgrade_kraft_version(1, leader.now_ms, validate_only=False) is None
    appended = leader.raft.take_ready().append_quorum_records
    assert appended is not None
    assert [(record.kraft_version, record.voters) for record in appended.records] == [
        (1, None),
        (None, VoterSet((voter(1),))),
    ]
    assert leader.raft.kraft_version == 1
    assert "downgrade" in (leader.raft.upgrade_kraft_version(0, leader.now_ms, validate_only=False) or "")


@pytest.mark.feature("KR-14")
def test_a_voter_reports_other_listeners() -> None:
    leader = Leader()
    leader.sync()
    moved = Voter(voter(1).key, (Endpoint("CONTROLLER", "elsewhere", 1),), (0, 1))
    update = UpdateVoter(epoch=1, voter=moved)
    reported = leader.raft.handle_update_voter(update, leader.now_ms)
    assert (reported.error, reported.leader_id, reported.epoch) == (ErrorCode.NONE, 1, 1)
    assert leader.raft.voters == VoterSet((moved,))
    stranger = UpdateVoter(epoch=1, voter=voter(5))
    assert leader.raft.handle_update_voter(stranger, leader.now_ms).error is ErrorCode.REQUEST_TIMED_OUT
    leader.sync()
    assert leader.raft.handle_update_voter(stranger, leader.now_ms).error is ErrorCode.VOTER_NOT_FOUND
