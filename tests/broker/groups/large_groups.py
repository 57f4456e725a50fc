"""A test rig with one large group, whose conversions between the kinds take many turns."""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial
from typing import Any

from barnabas.broker.coordinator.outcome import CoordinatorRecord, Outcome, Reply
from barnabas.broker.groups.classic_group import ClassicGroup
from barnabas.broker.groups.consumer_group import ConsumerGroup
from barnabas.broker.groups.group import Client, Commit
from barnabas.protocol.embedded_consumer import write_assignment
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.protocol.messages.group_log import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from barnabas.protocol.messages.join_group import JoinGroupResponse
from barnabas.runtime.simulated.work import WorkCounter
from tests.broker.groups.consumer_rig import GROUP, Reader
from tests.broker.groups.test_migration import REBALANCE_MS, SESSION_MS, MixedRig, Old

TURN = ("group-conversion", GROUP)
GENERATION = 7
NEW = "new"
"""Id of the member with the consumer protocol."""


class LargeRig(MixedRig):
    """Begins with a Stable classic group of so many members; each has one partition of `news`."""

    def __init__(self, members: int, shares: dict[int, list[int]] | None = None) -> None:
        super().__init__()
        self.is_checked = False
        self.create_topic("news", members)
        self.members = [self._member(number) for number in range(members)]
        key, value = GroupMetadataKey(group=GROUP), self._value(shares or {})
        self.run(lambda now: Outcome([CoordinatorRecord(key, value, 3)]))
        self.run(self.machine.classic.loaded)
        self.is_checked = True

    def check(self) -> None:
        if self.is_checked and not self.directory.is_frozen(GROUP):
            super().check()

    def _member(self, number: int) -> Old:
        member = Old(self, "news")
        member.member_id, member.generation = f"consumer-readers-{number}-0123456789abcdef0123", GENERATION
        member.owned, member.joined = {"news": [number]}, JoinGroupResponse(protocol_name="cooperative-sticky")
        return member

    def _value(self, shares: dict[int, list[int]]) -> GroupMetadataValue:
        return GroupMetadataValue(
            protocol_type="consumer",
            generation=GENERATION,
            protocol="cooperative-sticky",
            leader=self.members[0].member_id,
            members=[
                MemberMetadata(
                    member_id=member.member_id,
                    client_id="consumer-readers",
                    client_host="/127.0.0.1",
                    rebalance_timeout=REBALANCE_MS,
                    session_timeout=SESSION_MS,
                    subscription=member.metadata(),
                    assignment=write_assignment({"news": shares.get(number, [number])}, 3),
                )
                for number, member in enumerate(self.members)
            ],
        )

    # -- the member with the consumer protocol

    def join(self, member_id: str = NEW, **fields: Any) -> list[Any]:
        """It joins; the list receives the answer. `fields`: more fields of the request."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=member_id,
            rebalance_timeout_ms=REBALANCE_MS,
            subscribed_topic_names=["news"],
            topic_partitions=[],
            **fields,
        )
        answers: list[Any] = []
        reply = Reply(answers.append, answers.append)
        self.run(partial(self.core.heartbeat, request, Client("client", "/127.0.0.1"), 1, reply), reply)
        return answers

    def leave(self) -> ErrorCode:
        return ErrorCode(Reader(self, NEW, "news").leave().error_code)

    # -- turns

    def take_turn(self, key: Hashable) -> bool:
        """The time of the turn comes; other timers wait."""
        self.monotonic_ms = max(self.monotonic_ms, self.timers.deadline_ms(key) or 0)
        return super().take_turn(key)

    def finish(self) -> int:
        """Take the turns that are left; returns their number."""
        turns = 0
        while self.take_turn(TURN):
            turns += 1
        return turns

    def upgraded(self) -> LargeRig:
        """The same rig, whose group is a consumer group with the new member now. Every member knows its epoch."""
        answers = self.join()
        self.finish()
        assert answers[0].error_code == ErrorCode.NONE
        self.pass_ms(1)
        Reader(self, NEW, "news").epoch = answers[0].member_epoch
        for member in self.members:
            member.follow()
        return self

    # -- what must hold

    def check_commits(self, members: list[Old]) -> None:
        """They may commit offsets."""
        group = self.directory.get(GROUP)
        assert group is not None
        for member in members:
            group.check_commit(Commit(member.member_id, None, member.generation, False, 8), self.now)

    def unknown(self) -> list[int]:
        """Places of the members that the group does not know."""
        group = self.directory.get(GROUP)
        assert isinstance(group, ClassicGroup | ConsumerGroup)
        return [place for place, member in enumerate(self.members) if member.member_id not in group.members]

    def rejoin(self) -> int:
        """Members whose heartbeat is refused join again, as clients do; returns how many did."""
        count = 0
        for place, member in enumerate(self.members):
            code = member.beat()
            assert code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID), code
            if code is ErrorCode.UNKNOWN_MEMBER_ID:
                count += 1
                again = self.members[place] = Old(self, "news")
                again.join()
                assert again.sync() is ErrorCode.NONE
        return count

    def check_all_read(self) -> None:
        """After some heartbeats each partition has one reader."""
        new = Reader(self, NEW, "news")
        new.epoch = self.group.members[NEW].epoch
        for _ in range(4):
            for member in self.members:
                member.follow()
            new.beat()
            assert new.error is ErrorCode.NONE
            self.pass_ms(1)
        assert len(self.group.members) == len(self.members) + 1
        reads = [number for member in self.members for _, number in member.partitions]
        reads += [number for owned in self.group.members[NEW].assigned.values() for number in owned]
        assert sorted(reads) == list(range(len(self.members)))


def longest_step(rig: LargeRig, begin: Any) -> int:
    """Calls of the longest step of a conversion, which `begin` begins."""
    calls: list[int] = []
    counter = WorkCounter(lambda _name, made: calls.append(made))
    rig.is_checked = False
    counter("", begin)
    turns = 0
    while counter("", lambda: rig.take_turn(TURN)):
        turns += 1
    rig.is_checked = True
    assert turns > 10
    return max(calls)
