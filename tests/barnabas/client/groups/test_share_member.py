"""A member of a share group (KIP-932): its heartbeats say little, and the broker assigns."""

from __future__ import annotations

import pytest

from barnabas.client.groups.membership import Change, ChangeKind, GroupSettings, Subscription
from barnabas.client.groups.share_member import ShareMember
from barnabas.client.groups.topic_directory import TopicDirectory
from barnabas.client.metadata import TopicPartition
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

pytestmark = pytest.mark.feature("CL-03")

A = b"a" * 16
A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


class Script:
    def __init__(self) -> None:
        self.now_ms = 1_000
        self.member = ShareMember(GroupSettings("g", group_protocol="share"), Subscription(("a",)), "me", 1_000)

    def beats(self) -> tuple[int, list[str] | None]:
        """Epoch and subscription in the next heartbeat."""
        request = self.member.next_request(self.now_ms)
        assert isinstance(request, ShareGroupHeartbeatRequest)
        return request.member_epoch, request.subscribed_topic_names

    def is_given(self, epoch: int, *partitions: int) -> None:
        topics = [TopicPartitions(topic_id=A, partitions=list(partitions))]
        response = ShareGroupHeartbeatResponse(
            member_epoch=epoch, heartbeat_interval_ms=5_000, assignment=Assignment(topic_partitions=topics)
        )
        assert self.member.answered(response, self.now_ms) is ErrorCode.NONE
        self.member.learnt(TopicDirectory(_names={A: "a"}))

    def follows(self) -> list[ChangeKind]:
        """Carry out all changes."""
        kinds = []
        while (change := self.member.change) is not None:
            kinds.append(change.kind)
            self.member.changed(change)
        return kinds


def test_it_joins_follows_and_says_its_topics_once() -> None:
    it = Script()
    assert it.beats() == (0, ["a"])
    it.is_given(1, 0, 1)
    assert it.follows() == [ChangeKind.ASSIGN]
    assert list(it.member.owned) == [A0, A1]
    assert it.beats() == (1, None)
    it.is_given(2, 1)
    assert it.follows() == [ChangeKind.REVOKE]
    assert list(it.member.owned) == [A1]
    it.member.subscribe(Subscription(("a", "b")))
    assert it.beats() == (2, ["a", "b"])


@pytest.mark.parametrize("code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
def test_a_fenced_member_joins_again(code: ErrorCode) -> None:
    it = Script()
    it.beats()
    it.is_given(4, 0)
    it.follows()
    it.beats()
    it.member.answered(ShareGroupHeartbeatResponse(error_code=code), it.now_ms)
    assert it.member.change == Change(ChangeKind.LOSE, (A0,))
    it.follows()
    it.now_ms += 1_000
    assert it.beats() == (0, ["a"])


def test_it_leaves_with_epoch_minus_one() -> None:
    it = Script()
    assert it.member.leave() is None, "it never joined"
    it = Script()
    it.beats()
    it.is_given(1, 0)
    request = it.member.leave()
    assert isinstance(request, ShareGroupHeartbeatRequest)
    assert (request.member_id, request.member_epoch) == ("me", -1)


def test_a_cluster_without_share_groups_is_fatal() -> None:
    it = Script()
    it.beats()
    it.member.answered(ShareGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION), it.now_ms)
    assert it.member.fatal is not None and it.member.fatal.code is ErrorCode.UNSUPPORTED_VERSION
