"""A follower downloads its leader's snapshot: chunk by chunk, and again from the start if the leader has another."""

from __future__ import annotations

from dataclasses import replace

import pytest

from barnabas.kraft.raft.messages import Fetch, FetchAnswer, FetchSnapshot, FetchSnapshotAnswer
from barnabas.kraft.raft.raft import Raft
from barnabas.kraft.raft.ready import InstallSnapshot, Send, StartSnapshot, WriteSnapshotChunk
from barnabas.kraft.raft.roles import Follower
from barnabas.kraft.raft.voters import ReplicaKey
from barnabas.protocol.errors import ErrorCode
from tests.kraft.raft.test_rules import NOW, at, follower, key, leader, log

pytestmark = pytest.mark.feature("KR-11")

E = ErrorCode
SNAPSHOT = at(20, 4)
CHUNK = FetchSnapshotAnswer(leader_id=2, epoch=5, snapshot=SNAPSHOT, size_bytes=100, position=0, count=60)


def next_request(raft: Raft) -> Send:
    (send,) = [it for it in raft.take_ready().requests if it.peer_id == 2]
    return send


def downloading() -> tuple[Raft, Send]:
    """A follower whose log ends at 4, which has just asked for the first chunk."""
    raft = follower(log(1, 1, 2, 2), epoch=5, leader_id=2)
    fetch = next_request(raft)
    raft.handle_answer(2, fetch.request_id, FetchAnswer(leader_id=2, epoch=5, snapshot=SNAPSHOT), NOW)
    ready = raft.take_ready()
    assert ready.snapshot_steps == (StartSnapshot(SNAPSHOT),)
    (send,) = ready.requests
    assert isinstance(send.request, FetchSnapshot)
    assert (send.request.snapshot, send.request.position) == (SNAPSHOT, 0)
    return raft, send


def test_the_last_chunk_completes_the_snapshot() -> None:
    raft, first = downloading()
    raft.handle_answer(2, first.request_id, CHUNK, NOW + 5)
    ready = raft.take_ready()
    assert ready.snapshot_steps == (WriteSnapshotChunk(SNAPSHOT, 0),)
    (second,) = ready.requests
    assert isinstance(second.request, FetchSnapshot) and second.request.position == 60
    raft.handle_answer(2, second.request_id, replace(CHUNK, position=60, count=40), NOW + 10)
    ready = raft.take_ready()
    assert ready.snapshot_steps == (WriteSnapshotChunk(SNAPSHOT, 60), InstallSnapshot(SNAPSHOT))
    assert ready.requests == (), "nothing is asked before the log is replaced"
    raft.snapshot_installed(SNAPSHOT, True, NOW + 20)
    request = next_request(raft).request
    assert isinstance(request, Fetch) and (request.fetch_offset, request.last_fetched_epoch) == (20, 4)
    assert (raft.log.start, raft.log.end_offset, raft.high_watermark) == (SNAPSHOT, 20, 20)


def test_a_damaged_snapshot_is_fetched_again() -> None:
    raft, first = downloading()
    raft.handle_answer(2, first.request_id, replace(CHUNK, count=100), NOW + 5)
    raft.take_ready()
    raft.snapshot_installed(SNAPSHOT, False, NOW + 20)
    request = next_request(raft).request
    assert isinstance(request, Fetch) and request.fetch_offset == 4
    assert raft.high_watermark == 0


@pytest.mark.parametrize("error", [E.SNAPSHOT_NOT_FOUND, E.POSITION_OUT_OF_RANGE])
def test_a_leader_that_has_replaced_its_snapshot_is_asked_at_once_for_the_newer_one(error: ErrorCode) -> None:
    raft, first = downloading()
    gone = FetchSnapshotAnswer(leader_id=2, epoch=5, error=error, snapshot=SNAPSHOT, position=0)
    raft.handle_answer(2, first.request_id, gone, NOW + 900)
    ready = raft.take_ready()
    assert ready.snapshot_steps == ()
    (send,) = ready.requests
    assert isinstance(send.request, Fetch) and send.request.fetch_offset == 4
    assert isinstance(raft.role, Follower) and raft.role.download is None
    assert raft.role.fetch_deadline_ms == NOW + 900 + 2_000, "the leader is well"


@pytest.mark.parametrize(
    "answer",
    [
        replace(CHUNK, error=E.UNKNOWN_SERVER_ERROR),
        replace(CHUNK, snapshot=at(21, 4)),
        replace(CHUNK, snapshot=at(20, 3)),
        replace(CHUNK, position=1),
        replace(CHUNK, count=0),
        replace(CHUNK, count=-1),
        replace(CHUNK, count=101),
    ],
)
def test_a_chunk_that_does_not_fit_is_asked_for_again_later(answer: FetchSnapshotAnswer) -> None:
    raft, first = downloading()
    raft.handle_answer(2, first.request_id, answer, NOW + 5)
    ready = raft.take_ready()
    assert ready.snapshot_steps == () and ready.requests == ()
    assert ready.next_deadline_ms == NOW + 25
    raft.tick(NOW + 24)
    assert raft.take_ready().requests == ()
    raft.tick(NOW + 25)
    request = next_request(raft).request
    assert isinstance(request, FetchSnapshot) and request.position == 0
    assert isinstance(raft.role, Follower) and raft.role.fetch_deadline_ms == NOW + 2_000, "nothing came of it"


@pytest.mark.parametrize("snapshot", [at(3, 2), at(4, 2)])
def test_a_snapshot_of_what_is_known_already_is_not_downloaded(snapshot: object) -> None:
    """The leader's answer was late, or is wrong."""
    raft = follower(log(1, 1, 2, 2), epoch=5, leader_id=2)
    raft.handle_answer(2, next_request(raft).request_id, FetchAnswer(leader_id=2, epoch=5, high_watermark=4), NOW)
    assert raft.high_watermark == 4
    raft.snapshot_created(at(4, 2))
    answer = FetchAnswer(leader_id=2, epoch=5, snapshot=snapshot)  # type: ignore[arg-type]
    raft.handle_answer(2, next_request(raft).request_id, answer, NOW + 10)
    ready = raft.take_ready()
    assert (ready.snapshot_steps, ready.requests, list(ready.notes)) == ((), (), [])
    assert isinstance(raft.role, Follower) and raft.role.download is None
    assert raft.role.fetch_deadline_ms == NOW + 2_000
    raft.tick(NOW + 30)
    assert isinstance(next_request(raft).request, Fetch)


@pytest.mark.feature("KR-05")
@pytest.mark.parametrize(("node_id", "leads"), [(2, True), (3, True), (1, False), (-1, False), (9, False)])
def test_a_voter_that_downloads_a_snapshot_takes_this_node_for_the_leader(node_id: int, leads: bool) -> None:
    """One that gives no name, or the leader's own, says nothing about the others."""
    raft = leader()
    name = ReplicaKey(-1) if node_id < 0 else key(node_id)
    request = FetchSnapshot(replica=name, epoch=5, snapshot=SNAPSHOT, position=0)
    assert raft.handle_fetch_snapshot(request, 100, NOW + 2_000).error is E.NONE
    raft.tick(NOW + 100 + 3_000)
    assert raft.is_leader == leads
