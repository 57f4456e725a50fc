"""A member of a classic group: its requests, the responses, and the changes for its application."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from barnabas.client.errors import ConfigException
from barnabas.client.groups.assignor import Assignment, Assignor, GroupTopics, Subscriber
from barnabas.client.groups.assignors import AssignorOption
from barnabas.client.groups.classic_member import ClassicMember, MemberState
from barnabas.client.groups.membership import Change, ChangeKind, GroupSettings, Leaving, Subscription
from barnabas.client.metadata import TopicPartition
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from barnabas.protocol.schema import Message

pytestmark = pytest.mark.feature("CG-07", "CG-08", "CG-09")

A0, A1, A2 = (TopicPartition("a", index) for index in range(3))
WANTED = Subscription(("a",))


class Metadata:
    def __init__(self, count: int) -> None:
        self.count = count

    def partitions_count(self, topic: str) -> int:
        return self.count

    def topic_name(self, topic_id: bytes) -> str | None:
        return None

    def racks(self, topic: str) -> dict[int, frozenset[str]]:
        return {index: frozenset(("x", "y")[index % 2]) for index in range(self.count)}


class Story:
    """One member and its coordinator; other members are named by what they subscribed with."""

    def __init__(self, assignors: tuple[AssignorOption, ...] = ("range",), instance: str | None = None) -> None:
        settings = GroupSettings("g", group_instance_id=instance, partition_assignors=assignors)
        self.now_ms = 1_000
        self.member = ClassicMember(settings, WANTED, self.now_ms)
        self.assignments: dict[str, bytes] = {}

    def sends(self, kind: type[Message]) -> Message:
        request = self.member.next_request(self.now_ms)
        assert type(request) is kind, f"{self.member} sends {request}"
        assert self.member.next_request(self.now_ms) is None, "one request is under way at a time"
        return request

    def quiet(self) -> bool:
        return self.member.next_request(self.now_ms) is None

    def receives(self, response: Message) -> ErrorCode:
        return self.member.answered(response, self.now_ms)

    def joins(self, generation: int, *others: JoinGroupResponseMember, leads: bool = True) -> None:
        request = self.sends(JoinGroupRequest)
        assert isinstance(request, JoinGroupRequest)
        [protocol, *_] = request.protocols
        me = JoinGroupResponseMember(member_id="me", metadata=protocol.metadata)
        self.receives(
            JoinGroupResponse(
                generation_id=generation,
                protocol_name=protocol.name,
                leader="me" if leads else "other",
                member_id="me",
                members=[me, *others] if leads else [],
            )
        )

    def syncs(self, assignment: bytes | None = None) -> None:
        """The coordinator's assignment, or the one that this member, the leader, sent."""
        request = self.sends(SyncGroupRequest)
        assert isinstance(request, SyncGroupRequest)
        self.assignments = {each.member_id: each.assignment for each in request.assignments}
        self.receives(SyncGroupResponse(assignment=self.assignments["me"] if assignment is None else assignment))

    def wants(self, kind: ChangeKind, *partitions: TopicPartition) -> None:
        change = self.member.change
        assert change == Change(kind, partitions)
        self.member.changed(change)

    def joins_alone(self, generation: int = 1, count: int = 2) -> None:
        self.joins(generation)
        assert self.member.topics_to_learn() == ["a"]
        assert self.quiet()
        self.member.learnt(Metadata(count))
        self.syncs()

    def beats(self, code: ErrorCode = ErrorCode.NONE) -> None:
        self.now_ms += 3_000
        self.sends(HeartbeatRequest)
        self.receives(HeartbeatResponse(error_code=code))


def another(name: str, story: Story, assignor: str = "range") -> JoinGroupResponseMember:
    """One with the same subscription that owns nothing."""
    twin = ClassicMember(GroupSettings("g", partition_assignors=(assignor,)), WANTED, 0)
    request = twin.next_request(0)
    assert isinstance(request, JoinGroupRequest)
    return JoinGroupResponseMember(member_id=name, metadata=request.protocols[0].metadata)


def test_it_is_given_its_name_joins_leads_and_beats() -> None:
    story = Story()
    story.sends(JoinGroupRequest)
    assert story.member.state is MemberState.PREPARING_REBALANCE
    story.receives(JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="me"))
    assert story.member.member_id == "me"
    story.joins(1)
    assert story.member.state.value == "CompletingRebalance"
    story.member.learnt(Metadata(2))
    story.syncs()
    assert story.member.state.value == "Stable"
    story.wants(ChangeKind.ASSIGN, A0, A1)
    assert story.member.owned == (A0, A1)
    assert story.quiet()
    assert story.member.wake_at_ms(story.now_ms) == story.now_ms + 3_000
    story.beats()
    assert story.member.stamp == ("g", "me", 1, None)


def test_an_eager_member_gives_up_everything_before_it_joins_again() -> None:
    story = Story()
    story.joins_alone()
    story.wants(ChangeKind.ASSIGN, A0, A1)
    story.beats(ErrorCode.REBALANCE_IN_PROGRESS)
    story.beats()  # the application takes its time
    story.wants(ChangeKind.REVOKE, A0, A1)
    story.joins(2, another("other", story))
    story.member.learnt(Metadata(2))
    story.syncs()
    assert set(story.assignments) == {"me", "other"}
    story.wants(ChangeKind.ASSIGN, A0)


def test_a_rebalance_while_the_application_still_takes_on_what_it_was_given() -> None:
    story = Story()
    story.joins_alone()
    change = story.member.change
    assert change is not None
    story.beats(ErrorCode.REBALANCE_IN_PROGRESS)
    story.now_ms += 100
    assert story.quiet(), "it does not join with something on its hands"
    story.member.changed(change)
    story.wants(ChangeKind.REVOKE, A0, A1)
    story.sends(JoinGroupRequest)


@pytest.mark.feature("CG-11")
def test_a_cooperative_member_keeps_what_does_not_move() -> None:
    story = Story(("cooperative-sticky",))
    story.joins_alone(count=2)
    story.wants(ChangeKind.ASSIGN, A0, A1)
    story.beats(ErrorCode.REBALANCE_IN_PROGRESS)
    assert story.member.change is None
    story.joins(2, another("other", story))
    story.member.learnt(Metadata(2))
    story.syncs()
    story.wants(ChangeKind.REVOKE, A1)
    story.wants(ChangeKind.ASSIGN)
    assert story.member.owned == (A0,)
    story.sends(JoinGroupRequest)  # so that the other one gets it


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
def test_a_group_that_went_on_without_it(code: ErrorCode) -> None:
    story = Story()
    story.joins_alone()
    story.wants(ChangeKind.ASSIGN, A0, A1)
    story.beats(code)
    assert (story.member.stamp, story.member.last_stamp) == (None, ("g", "me", 1, None))
    assert story.quiet()
    story.wants(ChangeKind.LOSE, A0, A1)
    story.now_ms += 1_000
    request = story.sends(JoinGroupRequest)
    assert isinstance(request, JoinGroupRequest)
    assert request.member_id == ("" if code is ErrorCode.UNKNOWN_MEMBER_ID else "me")


def test_membership_lost_while_the_application_takes_partitions_on() -> None:
    story = Story()
    story.joins_alone()
    change = story.member.change
    assert change is not None
    story.beats(ErrorCode.UNKNOWN_MEMBER_ID)
    story.member.changed(change)
    assert story.quiet()
    story.wants(ChangeKind.LOSE, A0, A1)
    assert story.member.owned == ()


def test_a_lost_answer_to_a_join_leads_to_another_join_under_the_same_name() -> None:
    story = Story()
    story.sends(JoinGroupRequest)
    story.receives(JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="me"))
    story.sends(JoinGroupRequest)
    story.member.unanswered(story.now_ms)
    assert story.quiet()
    assert story.member.wake_at_ms(story.now_ms) == story.now_ms + 100
    story.now_ms += 100
    request = story.sends(JoinGroupRequest)
    assert isinstance(request, JoinGroupRequest) and request.member_id == "me"


def test_a_refused_commit_reveals_the_lost_membership_unless_a_join_is_in_flight() -> None:
    story = Story(("cooperative-sticky",))
    story.joins_alone()
    story.wants(ChangeKind.ASSIGN, A0, A1)
    stamp = story.member.stamp
    assert stamp is not None
    story.beats(ErrorCode.REBALANCE_IN_PROGRESS)
    story.sends(JoinGroupRequest)
    story.member.fenced(ErrorCode.ILLEGAL_GENERATION, stamp, story.now_ms)
    assert story.member.change is None, "the join may just have ended that generation"
    story.member.unanswered(story.now_ms)
    story.now_ms += 1_000
    story.joins(2)
    story.member.learnt(Metadata(2))
    story.syncs()
    story.wants(ChangeKind.ASSIGN)
    story.member.fenced(ErrorCode.ILLEGAL_GENERATION, stamp, story.now_ms)
    assert story.member.change is None, "the error was about another generation"
    stamp = story.member.stamp
    assert stamp is not None
    story.member.fenced(ErrorCode.UNKNOWN_MEMBER_ID, stamp, story.now_ms)
    story.wants(ChangeKind.LOSE, A0, A1)


@pytest.mark.feature("CG-10")
def test_a_static_member_that_was_replaced_ends() -> None:
    story = Story(instance="one")
    story.joins_alone()
    story.wants(ChangeKind.ASSIGN, A0, A1)
    assert story.member.leave() is None, "a new member with its instance id takes its place"
    story = Story(instance="one")
    story.joins_alone()
    story.beats(ErrorCode.FENCED_INSTANCE_ID)
    assert story.member.fatal is not None and story.member.fatal.code is ErrorCode.FENCED_INSTANCE_ID
    assert (story.member.stamp, story.member.last_stamp) == (None, ("g", "me", 1, "one"))
    assert story.quiet() and story.member.wake_at_ms(story.now_ms) is None


def test_an_application_that_does_not_poll_loses_its_place_until_it_does() -> None:
    story = Story()
    story.joins_alone()
    story.wants(ChangeKind.ASSIGN, A0, A1)
    story.now_ms += 300_001
    request = story.sends(LeaveGroupRequest)
    assert isinstance(request, LeaveGroupRequest) and request.members[0].member_id == "me"
    story.receives(LeaveGroupResponse())
    assert (story.member.stamp, story.member.last_stamp) == (None, ("g", "me", 1, None))
    story.wants(ChangeKind.LOSE, A0, A1)
    assert story.quiet()
    story.member.polled(story.now_ms)
    story.sends(JoinGroupRequest)


def test_the_leader_sees_that_a_topic_has_grown() -> None:
    story = Story()
    story.joins_alone(count=2)
    story.wants(ChangeKind.ASSIGN, A0, A1)
    story.member.learnt(Metadata(2))
    assert story.member.change is None
    story.member.learnt(Metadata(3))
    story.wants(ChangeKind.REVOKE, A0, A1)
    story.joins_alone(2, 3)
    story.wants(ChangeKind.ASSIGN, A0, A1, A2)


def test_an_assignment_that_cannot_be_read_ends_it() -> None:
    story = Story()
    story.joins(1, leads=False)
    story.syncs(b"\x00\x01\xff\xff")
    assert isinstance(story.member.fatal, KafkaError)


def test_no_assignor_of_that_name() -> None:
    with pytest.raises(ConfigException, match="sticky-ish"):
        ClassicMember(GroupSettings("g", partition_assignors=("sticky-ish",)), WANTED, 0)


@pytest.mark.feature("CG-10")
def test_a_static_member_may_leave_for_good_and_a_dynamic_one_may_stay() -> None:
    story = Story(instance="one")
    story.joins_alone()
    request = story.member.leave(Leaving.LEAVE_GROUP, "done")
    assert isinstance(request, LeaveGroupRequest)
    [identity] = request.members
    assert (identity.member_id, identity.group_instance_id, identity.reason) == ("me", "one", "done")
    story = Story()
    story.joins_alone()
    assert story.member.leave(Leaving.REMAIN_IN_GROUP) is None


def test_another_subscription_is_a_rebalance() -> None:
    story = Story()
    story.joins_alone()
    story.wants(ChangeKind.ASSIGN, A0, A1)
    story.member.subscribe(WANTED)
    assert story.member.change is None, "nothing is new"
    story.member.subscribe(Subscription(("b",)))
    story.wants(ChangeKind.REVOKE, A0, A1)
    request = story.sends(JoinGroupRequest)
    assert isinstance(request, JoinGroupRequest) and request.reason == "the subscription has changed"


@pytest.mark.feature("CG-11")
def test_a_cooperative_member_gives_up_topics_it_no_longer_subscribes_to() -> None:
    story = Story(("cooperative-sticky",))
    story.joins_alone()
    story.wants(ChangeKind.ASSIGN, A0, A1)
    story.member.subscribe(Subscription(("b",)))
    story.wants(ChangeKind.REVOKE, A0, A1)
    story.sends(JoinGroupRequest)


@pytest.mark.parametrize("when", ["joining", "syncing"])
def test_another_subscription_while_it_joins_is_a_rebalance_after_this_one(when: str) -> None:
    story = Story()
    if when == "joining":
        story.sends(JoinGroupRequest)
        story.member.subscribe(Subscription(("a", "b")))
        story.receives(JoinGroupResponse(generation_id=1, protocol_name="range", leader="other", member_id="me"))
    else:
        story.joins(1, leads=False)
        story.member.subscribe(Subscription(("a", "b")))
    story.syncs(bytes(6) + b"\xff" * 4)
    story.wants(ChangeKind.ASSIGN)
    story.sends(JoinGroupRequest)


def test_an_assignment_by_an_older_subscription_is_not_taken() -> None:
    story = Story()
    story.joins_alone(count=2)
    theirs = story.assignments["me"]
    story.wants(ChangeKind.ASSIGN, A0, A1)
    story.beats(ErrorCode.REBALANCE_IN_PROGRESS)
    story.wants(ChangeKind.REVOKE, A0, A1)
    story.joins(2, leads=False)
    story.member.subscribe(Subscription(("b",)))
    story.syncs(theirs)
    assert story.member.change is None
    story.sends(JoinGroupRequest)


def test_an_asked_for_rebalance() -> None:
    story = Story()
    story.joins_alone()
    story.wants(ChangeKind.ASSIGN, A0, A1)
    story.member.rejoin("balance")
    story.wants(ChangeKind.REVOKE, A0, A1)
    request = story.sends(JoinGroupRequest)
    assert isinstance(request, JoinGroupRequest) and request.reason == "balance"


@pytest.mark.feature("CG-11")
def test_a_sticky_member_notes_what_it_had_for_the_next_leader() -> None:
    story = Story(("sticky",))
    story.joins_alone(count=3)
    story.wants(ChangeKind.ASSIGN, A0, A1, A2)
    story.beats(ErrorCode.REBALANCE_IN_PROGRESS)
    story.wants(ChangeKind.REVOKE, A0, A1, A2)
    story.joins(2, another("a-newcomer", story, "sticky"))
    story.member.learnt(Metadata(3))
    story.syncs()
    story.wants(ChangeKind.ASSIGN, A0, A1)


class Backwards(Assignor):
    """Gives everything to the last."""

    name = "backwards"

    def assign(self, members: Sequence[Subscriber], topics: GroupTopics) -> Assignment:
        last = max(member.member_id for member in members)
        return {last: [TopicPartition(topic, index) for topic in topics.counts for index in range(topics.count(topic))]}

    def user_data(self, topics: Sequence[str]) -> bytes:
        return b"mine"


@pytest.mark.feature("CG-07")
def test_an_assignor_of_ones_own() -> None:
    story = Story((Backwards,))
    story.joins(1, another("other", story))
    story.member.learnt(Metadata(2))
    story.syncs()
    assert set(story.assignments) == {"me", "other"}
    story.wants(ChangeKind.ASSIGN)


def test_racks_reach_the_assignor() -> None:
    settings = GroupSettings("g", client_rack="x")
    story = Story()
    story.member = ClassicMember(settings, WANTED, 0)
    mate = ClassicMember(GroupSettings("g", client_rack="y"), WANTED, 0).next_request(0)
    assert isinstance(mate, JoinGroupRequest)
    story.joins(1, JoinGroupResponseMember(member_id="mate", metadata=mate.protocols[0].metadata))
    story.member.learnt(Metadata(4))
    story.syncs()
    # Even partitions have their replicas in x, odd ones in y.
    story.wants(ChangeKind.ASSIGN, A0, A2)


def test_a_member_that_was_only_named_leaves_so_that_nobody_waits_for_it() -> None:
    story = Story()
    assert story.member.leave() is None, "nobody knows it"
    story = Story()
    story.sends(JoinGroupRequest)
    story.receives(JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="me"))
    assert isinstance(story.member.leave(), LeaveGroupRequest)
