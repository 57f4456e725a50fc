"""Stories on the election of the registry that writes."""

from __future__ import annotations

import json

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from barnabas.registry.candidate import Candidate, CandidateState, ElectionSettings, Identity, elect

SETTINGS = ElectionSettings()
ONE, TWO = Identity("one", 8081), Identity("two", 8081)


def joined(
    candidate: Candidate, now_ms: int = 0, *, leads_group: bool = True, others: tuple[Identity, ...] = ()
) -> None:
    """The coordinator takes it in, the second time with an id."""
    request = candidate.next_request(now_ms)
    assert isinstance(request, JoinGroupRequest)
    assert (request.protocol_type, request.protocols[0].name) == ("sr", "v0")
    candidate.answered(JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="me"), now_ms, now_ms)
    request = candidate.next_request(now_ms)
    assert isinstance(request, JoinGroupRequest)
    assert request.member_id == "me"
    members = [JoinGroupResponseMember(member_id="me", metadata=request.protocols[0].metadata)]
    for index, each in enumerate(others):
        metadata = json.dumps(each.to_json()).encode()
        members.append(JoinGroupResponseMember(member_id=f"other-{index}", metadata=metadata))
    leader = "me" if leads_group else "other-0"
    candidate.answered(
        JoinGroupResponse(generation_id=1, member_id="me", leader=leader, members=members), now_ms, now_ms
    )


def synced(candidate: Candidate, assignment: bytes | None = None, now_ms: int = 0) -> None:
    request = candidate.next_request(now_ms)
    assert isinstance(request, SyncGroupRequest)
    own = next((each.assignment for each in request.assignments if each.member_id == "me"), b"")
    candidate.answered(SyncGroupResponse(assignment=own if assignment is None else assignment), now_ms, now_ms)


def test_a_registry_alone_leads_as_long_as_its_session_lasts() -> None:
    candidate = Candidate(SETTINGS, ONE)
    assert not candidate.leads(0)
    joined(candidate)
    synced(candidate)
    assert candidate.leads(0)
    assert candidate.leads(SETTINGS.session_timeout_ms - 1)
    assert not candidate.leads(SETTINGS.session_timeout_ms), "another may have been elected by now"
    request = candidate.next_request(3_000)
    assert isinstance(request, HeartbeatRequest)
    candidate.answered(HeartbeatResponse(), 3_000, 3_010)
    assert candidate.leads(3_000 + SETTINGS.session_timeout_ms - 1)


def test_a_rebalance_ends_the_leadership_until_the_next_election() -> None:
    candidate = Candidate(SETTINGS, ONE)
    joined(candidate)
    synced(candidate)
    candidate.next_request(3_000)
    candidate.answered(HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS), 3_000, 3_000)
    assert not candidate.leads(3_000)
    request = candidate.next_request(3_000)
    assert isinstance(request, JoinGroupRequest)
    metadata = json.loads(request.protocols[0].metadata)
    assert metadata == {
        "version": 1,
        "host": "one",
        "port": 8081,
        "master_eligibility": True,
        "scheme": "http",
        "leader": True,
    }, "it asks to stay the leader"


def test_a_member_that_was_put_out_forgets_who_it_was() -> None:
    candidate = Candidate(SETTINGS, ONE)
    joined(candidate)
    synced(candidate)
    candidate.next_request(3_000)
    candidate.answered(HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID), 3_000, 3_000)
    assert (candidate.member_id, candidate.leader, candidate.state) == ("", None, CandidateState.UNJOINED)
    assert candidate.next_request(3_000) is None, "it waits before it tries again"
    assert candidate.next_request(3_100) is not None


def test_the_smallest_address_wins_unless_somebody_leads() -> None:
    assert elect({"a": TWO, "b": ONE})["master"] == "b"
    assert elect({"a": Identity("two", 8081, leads=True), "b": ONE})["master"] == "a"
    both = {"a": Identity("two", 8081, leads=True), "b": Identity("one", 8081, leads=True)}
    assert elect(both)["master"] == "b", "two that say so are none"
    assert "master" not in elect({"a": Identity("one", 8081, is_eligible=False)})
    assert elect({"a": ONE, "b": None})["master"] == "a", "what is no registry is passed over"


def test_a_follower_knows_where_to_pass_writes_on() -> None:
    candidate = Candidate(SETTINGS, TWO)
    joined(candidate, leads_group=False, others=(ONE,))
    assignment = json.dumps({"version": 1, "error": 0, "master": "x", "master_identity": ONE.to_json()}).encode()
    synced(candidate, assignment)
    assert not candidate.leads(0)
    assert candidate.leader is not None
    assert candidate.leader.url == "http://one:8081"


def test_nobody_leads_if_two_have_one_address() -> None:
    candidate = Candidate(SETTINGS, ONE)
    joined(candidate, others=(ONE,))
    synced(candidate)
    assert candidate.leader is None
    assert candidate.error == "two registries of the group have the same address; this one is http://one:8081"


def test_an_assignment_that_is_none_leaves_nobody_to_lead() -> None:
    for assignment in (b"", b"\xff", b"[]", b'{"master_identity":{"host":1}}', b'{"error":7}'):
        candidate = Candidate(SETTINGS, ONE)
        joined(candidate, leads_group=False, others=(TWO,))
        synced(candidate, assignment)
        assert (candidate.leader, candidate.leads(0)) == (None, False)
        assert candidate.error


def test_a_refusal_of_the_coordinator_is_reported() -> None:
    candidate = Candidate(SETTINGS, ONE)
    candidate.next_request(0)
    candidate.answered(JoinGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED), 0, 0)
    assert candidate.error == "the coordinator answered GROUP_AUTHORIZATION_FAILED"
    assert isinstance(candidate.next_request(100), JoinGroupRequest), "rights may be given later"


def test_without_an_answer_it_joins_again() -> None:
    candidate = Candidate(SETTINGS, ONE)
    candidate.next_request(0)
    assert candidate.wake_at_ms() is None
    candidate.unanswered(0)
    assert candidate.next_request(0) is None
    assert isinstance(candidate.next_request(100), JoinGroupRequest)
