"""A member of a consumer group (KIP-848): heartbeats and their consequences."""

from __future__ import annotations

import pytest

from barnabas.client.groups.consumer_member import ConsumerMember, MemberState
from barnabas.client.groups.membership import Change, ChangeKind, GroupSettings, Leaving, Subscription
from barnabas.client.metadata import TopicPartition
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

pytestmark = pytest.mark.feature("CG-13", "CG-14")

A = b"a" * 16
A0, A1, A2 = (TopicPartition("a", index) for index in range(3))
WANTED = Subscription(("a",))


class Metadata:
    def __init__(self, known: bool = True) -> None:
        self.known = known

    def partitions_count(self, topic: str) -> int:
        return 3

    def topic_name(self, topic_id: bytes) -> str | None:
        return "a" if self.known and topic_id == A else None

    def racks(self, topic: str) -> dict[int, frozenset[str]]:
        return {}


class Story:
    def __init__(self) -> None:
        self.now_ms = 1_000
        self.member = ConsumerMember(GroupSettings("g", group_protocol="consumer"), WANTED, "me", self.now_ms)

    def beats(self) -> ConsumerGroupHeartbeatRequest:
        request = self.member.next_request(self.now_ms)
        assert isinstance(request, ConsumerGroupHeartbeatRequest), f"{self.member} sends {request}"
        assert self.member.next_request(self.now_ms) is None, "one request is under way at a time"
        return request

    def receives(self, epoch: int, *partitions: int, same: bool = False) -> None:
        topics = [TopicPartitions(topic_id=A, partitions=list(partitions))] if partitions else []
        self.member.answered(
            ConsumerGroupHeartbeatResponse(
                member_id="me",
                member_epoch=epoch,
                heartbeat_interval_ms=5_000,
                assignment=None if same else Assignment(topic_partitions=topics),
            ),
            self.now_ms,
        )

    def refused(self, code: ErrorCode) -> None:
        self.member.answered(ConsumerGroupHeartbeatResponse(error_code=code), self.now_ms)

    def wants(self, kind: ChangeKind, *partitions: TopicPartition) -> None:
        change = self.member.change
        assert change == Change(kind, partitions)
        self.member.changed(change)

    def is_given(self, epoch: int, *partitions: int) -> None:
        """The application has yet to take them on."""
        self.beats()
        self.receives(epoch, *partitions)
        assert self.member.ids_to_learn() == [A]
        self.member.learnt(Metadata())

    def is_fenced_while_it_takes_on(self, *partitions: int) -> Change:
        """The pending change of the application."""
        self.is_given(1, *partitions)
        change = self.member.change
        assert change is not None
        self.now_ms += 5_000
        self.beats()
        self.refused(ErrorCode.FENCED_MEMBER_EPOCH)
        return change

    def joins(self, epoch: int, *partitions: int) -> None:
        self.is_given(epoch, *partitions)
        self.wants(ChangeKind.ASSIGN, *(TopicPartition("a", index) for index in partitions))
        self.acknowledges(epoch, *partitions)

    def acknowledges(self, epoch: int, *partitions: int) -> None:
        assert self.member.state is MemberState.ACKNOWLEDGING
        request = self.beats()
        assert request.member_epoch == epoch
        assert owned(request) == list(partitions)
        self.receives(epoch, same=True)


def owned(request: ConsumerGroupHeartbeatRequest) -> list[int] | None:
    if request.topic_partitions is None:
        return None
    return [index for topic in request.topic_partitions for index in topic.partitions]


def test_it_joins_takes_on_its_assignment_and_reports_it() -> None:
    story = Story()
    request = story.beats()
    assert (request.member_epoch, request.subscribed_topic_names, owned(request)) == (0, ["a"], [])
    story.receives(1, 0, 1)
    story.member.learnt(Metadata())
    story.wants(ChangeKind.ASSIGN, A0, A1)
    story.acknowledges(1, 0, 1)
    assert story.member.state is MemberState.STABLE
    story.now_ms += 5_000
    request = story.beats()
    assert (request.subscribed_topic_names, request.topic_partitions) == (None, None), "nothing is new"
    assert story.member.stamp == ("g", "me", 1, None)


def test_nothing_is_acknowledged_before_the_application_has_given_it_up() -> None:
    story = Story()
    story.joins(1, 0, 1)
    story.now_ms += 5_000
    story.beats()
    story.receives(1, 0)
    assert story.member.state is MemberState.RECONCILING
    story.now_ms += 5_000
    assert owned(story.beats()) is None
    story.receives(1, same=True)
    story.wants(ChangeKind.REVOKE, A1)
    story.acknowledges(1, 0)
    story.now_ms += 5_000
    story.beats()
    story.receives(2, 0, 2)
    story.wants(ChangeKind.ASSIGN, A2)
    story.acknowledges(2, 0, 2)


def test_a_newer_target_while_the_application_is_busy_with_an_older_one() -> None:
    story = Story()
    story.joins(1, 0, 1)
    story.now_ms += 5_000
    story.beats()
    story.receives(1, 0)
    story.now_ms += 5_000
    story.beats()
    story.receives(3, 1)
    story.wants(ChangeKind.REVOKE, A1)
    story.acknowledges(3, 0)
    story.wants(ChangeKind.REVOKE, A0)
    story.wants(ChangeKind.ASSIGN, A1)
    assert story.member.state is MemberState.ACKNOWLEDGING


def test_partitions_taken_and_given_up_between_two_heartbeats_are_reported_free() -> None:
    """It has the partitions of its last report: the broker waits for exactly this report."""
    story = Story()
    story.joins(1, 0)
    story.now_ms += 5_000
    story.beats()
    story.receives(2, 0, 1)
    story.now_ms += 5_000
    story.beats()
    story.wants(ChangeKind.ASSIGN, A1)
    story.receives(2, 0)
    story.acknowledges(2, 0, 1)
    story.wants(ChangeKind.REVOKE, A1)
    story.acknowledges(2, 0)


def test_a_response_to_an_earlier_heartbeat_does_not_delay_a_report() -> None:
    story = Story()
    story.joins(1, 0, 1)
    story.now_ms += 5_000
    story.beats()
    story.receives(1, 0)
    story.now_ms += 5_000
    story.beats()
    story.wants(ChangeKind.REVOKE, A1)
    story.receives(1, same=True)
    assert story.member.wake_at_ms(story.now_ms) == story.now_ms
    story.acknowledges(1, 0)


def test_partitions_withdrawn_before_their_names_were_known_are_reported_free() -> None:
    story = Story()
    story.beats()
    story.receives(1, 0)
    story.now_ms += 5_000
    story.beats()
    story.receives(1)
    story.member.learnt(Metadata())
    assert story.member.change is None
    story.acknowledges(1)


def test_a_full_report_includes_partitions_about_to_be_taken_on() -> None:
    """A new coordinator would give it to somebody else."""
    story = Story()
    story.joins(1, 0)
    story.now_ms += 5_000
    story.beats()
    story.receives(2, 0, 1)
    story.now_ms += 5_000
    story.beats()
    story.refused(ErrorCode.NOT_COORDINATOR)
    story.now_ms += 100
    assert owned(story.beats()) == [0, 1]
    story.receives(2, 0)
    story.wants(ChangeKind.ASSIGN, A1)
    story.acknowledges(2, 0, 1)
    story.wants(ChangeKind.REVOKE, A1)
    story.acknowledges(2, 0)


def test_after_a_full_report_nothing_unreported_is_taken_on() -> None:
    story = Story()
    story.beats()
    story.receives(1, 0)
    story.now_ms += 5_000
    story.beats()
    story.member.unanswered(story.now_ms)
    story.now_ms += 100
    assert owned(story.beats()) == []
    story.member.learnt(Metadata())
    assert story.member.change is None, "it may be somebody else's by now"
    story.receives(1, 0)
    story.member.learnt(Metadata())
    story.wants(ChangeKind.ASSIGN, A0)
    story.acknowledges(1, 0)


def test_after_a_lost_response_it_reports_everything_again() -> None:
    story = Story()
    story.joins(1, 0)
    story.now_ms += 5_000
    story.beats()
    story.member.unanswered(story.now_ms)
    story.now_ms += 100
    request = story.beats()
    assert (request.member_epoch, request.subscribed_topic_names, owned(request)) == (1, ["a"], [0])


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH])
def test_a_fenced_member_loses_what_it_had_and_joins_again(code: ErrorCode) -> None:
    story = Story()
    story.joins(4, 0, 1)
    story.now_ms += 5_000
    story.beats()
    story.refused(code)
    story.now_ms += 1_000
    assert story.member.next_request(story.now_ms) is None
    assert (story.member.stamp, story.member.last_stamp) == (None, ("g", "me", 4, None))
    story.wants(ChangeKind.LOSE, A0, A1)
    request = story.beats()
    assert (request.member_epoch, owned(request)) == (0, [])
    assert story.member.last_stamp == ("g", "me", 4, None), "it is not in the group again yet"
    story.receives(7)
    assert story.member.last_stamp == story.member.stamp == ("g", "me", 7, None)


def test_fenced_while_the_application_takes_partitions_on() -> None:
    story = Story()
    change = story.is_fenced_while_it_takes_on(0)
    story.member.changed(change)
    story.now_ms += 1_000
    assert story.member.next_request(story.now_ms) is None
    story.wants(ChangeKind.LOSE, A0)
    assert story.beats().member_epoch == 0


def test_fenced_and_joining_again_while_the_application_takes_partitions_on() -> None:
    """It is let in while it has yet to lose what it has just taken on."""
    story = Story()
    change = story.is_fenced_while_it_takes_on(0)
    story.now_ms += 1_000
    story.beats()
    story.member.changed(change)
    story.receives(3, 0)
    story.wants(ChangeKind.LOSE, A0)
    assert story.beats().member_epoch == 0
    story.receives(3, 0)
    story.wants(ChangeKind.ASSIGN, A0)
    story.acknowledges(3, 0)


def test_a_commit_refused_while_a_heartbeat_is_under_way_voids_its_answer() -> None:
    story = Story()
    story.joins(1, 0)
    stamp = story.member.stamp
    assert stamp is not None
    story.now_ms += 5_000
    story.beats()
    story.member.fenced(ErrorCode.UNKNOWN_MEMBER_ID, stamp, story.now_ms)
    story.receives(1, same=True)
    assert story.member.stamp is None
    story.wants(ChangeKind.LOSE, A0)
    assert story.beats().member_epoch == 0


def test_a_heartbeat_corrects_a_stale_epoch() -> None:
    story = Story()
    story.joins(1, 0)
    stamp = story.member.stamp
    assert stamp is not None
    story.member.fenced(ErrorCode.STALE_MEMBER_EPOCH, stamp, story.now_ms)
    story.beats()
    story.receives(2, same=True)
    assert story.member.owned == (A0,)


def test_a_topic_without_a_name_waits_for_the_metadata() -> None:
    story = Story()
    story.beats()
    story.receives(1, 0)
    story.member.learnt(Metadata(known=False))
    assert story.member.change is None
    assert story.member.ids_to_learn() == [A]
    story.member.learnt(Metadata())
    story.wants(ChangeKind.ASSIGN, A0)


@pytest.mark.feature("CG-10")
@pytest.mark.parametrize(("instance", "epoch"), [(None, -1), ("one", -2)])
def test_leaving(instance: str | None, epoch: int) -> None:
    settings = GroupSettings("g", group_instance_id=instance, group_protocol="consumer")
    story = Story()
    story.member = ConsumerMember(settings, WANTED, "me", 0)
    story.joins(1, 0)
    request = story.member.leave()
    assert isinstance(request, ConsumerGroupHeartbeatRequest) and request.member_epoch == epoch
    assert story.member.leave() is None


def test_an_application_that_does_not_poll_loses_its_place_until_it_does() -> None:
    story = Story()
    story.joins(1, 0)
    story.now_ms += 300_001
    assert story.beats().member_epoch == -1
    story.receives(-1)
    assert (story.member.stamp, story.member.last_stamp) == (None, ("g", "me", 1, None))
    story.wants(ChangeKind.LOSE, A0)
    assert story.member.next_request(story.now_ms) is None
    story.member.polled(story.now_ms)
    assert story.beats().member_epoch == 0


def test_an_error_for_good() -> None:
    story = Story()
    story.beats()
    story.refused(ErrorCode.GROUP_MAX_SIZE_REACHED)
    assert story.member.fatal is not None
    assert story.member.last_stamp is None, "it never was in the group"
    assert story.member.next_request(story.now_ms + 10_000) is None


def test_a_group_that_changed_its_type_ends_it() -> None:
    story = Story()
    story.joins(1, 0)
    story.now_ms += 5_000
    story.beats()
    story.refused(ErrorCode.GROUP_ID_NOT_FOUND)
    assert story.member.fatal is not None and story.member.fatal.code is ErrorCode.GROUP_ID_NOT_FOUND
    assert story.member.next_request(story.now_ms + 10_000) is None


@pytest.mark.feature("CG-10")
def test_a_static_member_may_leave_for_good_and_a_dynamic_one_may_stay() -> None:
    story = Story()
    story.member = ConsumerMember(GroupSettings("g", "one", "consumer"), WANTED, "me", 0)
    story.joins(1, 0)
    request = story.member.leave(Leaving.LEAVE_GROUP)
    assert isinstance(request, ConsumerGroupHeartbeatRequest) and request.member_epoch == -1
    story = Story()
    story.joins(1, 0)
    assert story.member.leave(Leaving.REMAIN_IN_GROUP) is None


@pytest.mark.feature("CG-10")
def test_an_instance_that_somebody_else_still_is_ends_it() -> None:
    story = Story()
    story.beats()
    story.refused(ErrorCode.UNRELEASED_INSTANCE_ID)
    assert story.member.fatal is not None and story.member.fatal.code is ErrorCode.UNRELEASED_INSTANCE_ID


def test_a_new_subscription_is_sent_by_a_heartbeat_at_once() -> None:
    story = Story()
    story.joins(1, 0)
    story.member.subscribe(Subscription(("b", "a")))
    request = story.beats()
    assert (request.subscribed_topic_names, request.subscribed_topic_regex) == (["a", "b"], None)
    story.receives(2, same=True)
    story.now_ms += 5_000
    assert story.beats().subscribed_topic_names is None, "it is sent once"


def test_another_subscription_while_a_heartbeat_is_under_way() -> None:
    story = Story()
    story.joins(1, 0)
    story.now_ms += 5_000
    story.beats()
    story.member.subscribe(Subscription(("b",)))
    story.receives(1, same=True)
    assert story.beats().subscribed_topic_names == ["b"]


@pytest.mark.feature("CG-15")
def test_a_pattern_is_sent_and_withdrawn() -> None:
    story = Story()
    settings = GroupSettings("g", group_protocol="consumer", client_rack="east")
    story.member = ConsumerMember(settings, Subscription(pattern="a.*"), "me", 0)
    request = story.beats()
    assert (request.subscribed_topic_names, request.subscribed_topic_regex, request.rack_id) == ([], "a.*", "east")
    story.receives(1, same=True)
    story.member.subscribe(WANTED)
    request = story.beats()
    assert (request.subscribed_topic_names, request.subscribed_topic_regex) == (["a"], "")


def test_a_joining_member_leaves_even_without_a_response() -> None:
    story = Story()
    assert story.member.leave() is None, "nobody knows it"
    story = Story()
    story.beats()
    request = story.member.leave()
    assert isinstance(request, ConsumerGroupHeartbeatRequest) and request.member_epoch == -1
