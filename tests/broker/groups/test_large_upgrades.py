"""A large classic group becomes a consumer group in turns: no step is long, and it always is one kind or the other."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from barnabas.broker.coordinator.outcome import CoordinatorRecord, Outcome, Reply
from barnabas.broker.groups.group import Client
from barnabas.protocol.embedded_consumer import write_assignment
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from barnabas.protocol.messages.group_log import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from barnabas.protocol.messages.join_group import JoinGroupResponse
from barnabas.runtime.simulated.work import WorkCounter
from tests.broker.groups.consumer_rig import GROUP
from tests.broker.groups.test_migration import REBALANCE_MS, SESSION_MS, MixedRig, Old

TURN = ("consumer-upgrade", GROUP)
MOST_CALLS = 25_000
"""Calls of a turn: some milliseconds."""
GENERATION = 7


class LargeRig(MixedRig):
    """Begins with a Stable classic group of so many members; each has one partition of `news`."""

    def __init__(self, members: int, shares: dict[int, list[int]] | None = None) -> None:
        super().__init__()
        self.is_checked = False
        self.create_topic("news", members)
        self.members = [self._member(number) for number in range(members)]
        key, value = GroupMetadataKey(group=GROUP), self._group(shares or {})
        self.run(lambda now: Outcome([CoordinatorRecord(key, value, 3)]))
        self.run(self.machine.classic.loaded)
        self.is_checked = True

    def check(self) -> None:
        if self.is_checked:
            super().check()

    def _member(self, number: int) -> Old:
        member = Old(self, "news")
        member.member_id, member.generation = f"consumer-readers-{number}-0123456789abcdef0123", GENERATION
        member.owned, member.joined = {"news": [number]}, JoinGroupResponse(protocol_name="cooperative-sticky")
        return member

    def _group(self, shares: dict[int, list[int]]) -> GroupMetadataValue:
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

    def join(self, member_id: str = "new") -> list[Any]:
        """A member with the consumer protocol joins; the list receives the answer."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=member_id,
            rebalance_timeout_ms=REBALANCE_MS,
            subscribed_topic_names=["news"],
            topic_partitions=[],
        )
        answers: list[Any] = []
        reply = Reply(answers.append, answers.append)
        self.run(partial(self.core.heartbeat, request, Client("client", "/127.0.0.1"), 1, reply), reply)
        return answers

    def finish(self) -> int:
        turns = 0
        while self.take_turn(TURN):
            turns += 1
        return turns

    def written_members(self) -> int:
        """Members of a consumer group in the log."""
        last = dict(self.log)
        return sum(value is not None and key[:2] == b"\0\5" for key, value in last.items())

    def check_all_own_the_same(self) -> None:
        assert self.kind == "consumer" and len(self.group.members) == len(self.members) + 1
        topic_id = self.image.topics.by_name["news"].id
        for number, member in enumerate(self.members):
            assert self.group.members[member.member_id].assigned == {topic_id: {number: GENERATION}}


@pytest.mark.feature("CG-16")
def test_no_step_of_the_upgrade_of_3000_members_is_long() -> None:
    rig = LargeRig(3_000)
    rig.is_checked = False
    calls: list[int] = []
    counter = WorkCounter(lambda _name, made: calls.append(made))
    answers: list[Any] = counter("", rig.join)
    assert not answers
    while not answers:
        assert counter("", lambda: rig.take_turn(TURN))
    assert answers[0].error_code == ErrorCode.NONE
    assert max(calls) <= MOST_CALLS
    rig.is_checked = True
    rig.check_all_own_the_same()


@pytest.mark.feature("CG-16")
def test_a_group_does_not_change_while_it_is_upgraded() -> None:
    rig = LargeRig(110)
    a, b = rig.members[:2]
    answers = rig.join()
    rig.take_turn(TURN)
    late = rig.join("late")
    assert late[0].error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert a.join() == [ErrorCode.REBALANCE_IN_PROGRESS] and a.sync() is ErrorCode.REBALANCE_IN_PROGRESS
    assert a.beat() is b.leave() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    unfinished = rig.timers.due.pop(TURN)
    rig.pass_ms(2 * SESSION_MS)
    assert rig.directory.get(GROUP).state_name() == "Stable", "nobody can have sent a heartbeat"  # type: ignore[union-attr]
    rig.timers.due[TURN] = unfinished
    rig.finish()
    assert answers[0].error_code == ErrorCode.NONE
    rig.check_all_own_the_same()
    assert not any("classic" in str(key) for key in rig.timers.due)
    assert rig.join("late")[0].error_code == ErrorCode.NONE


@pytest.mark.feature("CG-16")
def test_members_in_a_rebalance_are_asked_to_join_again() -> None:
    rig = LargeRig(110)
    a = rig.members[0]
    waiting = a.join()
    assert not waiting
    rig.join()
    rig.finish()
    assert waiting[0].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    rig.check_all_own_the_same()


@pytest.mark.feature("CG-16")
@pytest.mark.parametrize("compacted", [False, True])
def test_another_coordinator_finds_one_kind_or_the_other(compacted: bool) -> None:
    whole = LargeRig(110)
    whole.join()
    kinds = []
    for turns in range(whole.finish() + 1):
        rig = LargeRig(110)
        answers = rig.join()
        for _ in range(turns):
            rig.take_turn(TURN)
        written = rig.written_members()
        waiting = rig.machine.give_up()
        assert len(waiting) == (not answers), "the heartbeat is refused"
        rig.fail_over(compacted)
        kinds.append(rig.kind)
        if rig.kind == "classic":
            assert all(member.beat() is ErrorCode.NONE for member in rig.members)
            rig.finish()
            assert rig.written_members() == 0, f"{written} were written before"
            answers = rig.join()
            rig.finish()
            assert answers[0].error_code == ErrorCode.NONE
        elif not rig.group.members.keys() & {"new"}:
            rig.join()
        rig.check_all_own_the_same()
    assert kinds == sorted(kinds) and kinds.count("consumer") == 2


@pytest.mark.feature("CG-16")
def test_an_upgrade_that_cannot_be_written_leaves_a_classic_group() -> None:
    whole = LargeRig(110)
    whole.join()
    for turns in range(whole.finish() - 1):
        rig = LargeRig(110)
        answers = rig.join()
        for _ in range(turns):
            rig.take_turn(TURN)
        rig.broken = ErrorCode.COORDINATOR_NOT_AVAILABLE
        rig.pass_ms(1_200)
        assert answers[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert rig.kind == "classic" and all(member.beat() is ErrorCode.NONE for member in rig.members)
        if rig.written_members():
            assert rig.join("late")[0].error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        rig.broken = None
        rig.pass_ms(1_000)
        assert rig.written_members() == 0
        answers = rig.join()
        rig.finish()
        assert answers[0].error_code == ErrorCode.NONE
        rig.check_all_own_the_same()


@pytest.mark.feature("CG-16")
def test_a_large_group_that_cannot_be_upgraded_stays_as_it_is() -> None:
    rig = LargeRig(110, shares={109: [0]})
    answers = rig.join()
    rig.finish()
    assert isinstance(answers[0], ConsumerGroupHeartbeatResponse)
    assert answers[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert "more than one member" in (answers[0].error_message or "")
    assert rig.kind == "classic" and rig.members[0].beat() is ErrorCode.NONE
    rig.set_setting("group_consumer_migration_policy", "disabled")
    assert rig.join()[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert TURN not in rig.timers.due
