"""A large classic group becomes a consumer group in turns: no step is long, and the log always has a whole group."""

from __future__ import annotations

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from tests.broker.groups.consumer_rig import GROUP
from tests.broker.groups.large_groups import NEW, TURN, LargeRig, longest_step
from tests.broker.groups.test_migration import SESSION_MS

pytestmark = pytest.mark.feature("CG-16")

MEMBERS = 140
MOST_CALLS = 25_000
"""Calls of a step: some milliseconds."""


def turns_of_an_upgrade() -> range:
    """One for each turn after which the coordinator may be lost, and one for before the first."""
    whole = LargeRig(MEMBERS)
    whole.join()
    return range(whole.finish() + 1)


def upgraded_by(turns: int) -> tuple[LargeRig, list[ConsumerGroupHeartbeatResponse]]:
    rig = LargeRig(MEMBERS)
    answers = rig.join()
    for _ in range(turns):
        rig.take_turn(TURN)
    return rig, answers


def test_no_step_of_the_upgrade_of_3000_members_is_long() -> None:
    rig = LargeRig(3_000)
    answers: list[list[ConsumerGroupHeartbeatResponse]] = []
    assert longest_step(rig, lambda: answers.append(rig.join())) <= MOST_CALLS
    assert answers[0][0].error_code == ErrorCode.NONE
    assert rig.kind == "consumer" and len(rig.group.members) == 3_001
    for member in rig.members[:20]:
        assert member.sync() is ErrorCode.NONE and member.partitions == {("news", rig.members.index(member))}


def test_a_group_does_not_change_while_it_is_upgraded() -> None:
    rig = LargeRig(MEMBERS)
    a, b = rig.members[:2]
    answers = rig.join()
    while rig.timers.deadline_ms(TURN) is not None:
        assert rig.kind in ("classic", "consumer") and not answers
        assert rig.join("late")[0].error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert a.join() == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
        assert b.leave() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert a.sync() is ErrorCode.REBALANCE_IN_PROGRESS
        assert a.beat() is ErrorCode.NONE, "it is alive, and has nothing to do"
        rig.check_commits([a, b])
        rig.take_turn(TURN)
    assert answers[0].error_code == ErrorCode.NONE
    assert rig.join("late")[0].error_code == ErrorCode.NONE
    assert b.leave() is ErrorCode.NONE


def test_sessions_that_end_during_an_upgrade_end_after_it() -> None:
    rig, answers = upgraded_by(3)
    turn = rig.timers.due.pop(TURN)
    rig.pass_ms(2 * SESSION_MS)
    assert not rig.unknown(), "the group does not change"
    rig.timers.due[TURN] = turn
    rig.finish()
    assert answers[0].error_code == ErrorCode.NONE and not rig.unknown()
    rig.pass_ms(SESSION_MS + 1_000)
    assert len(rig.unknown()) == MEMBERS, "nobody has sent anything"


def test_members_in_a_rebalance_are_asked_to_join_again() -> None:
    rig = LargeRig(MEMBERS)
    waiting = rig.members[0].join()
    assert not waiting
    rig.join()
    rig.finish()
    assert waiting[0].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert rig.rejoin() == 0
    rig.check_all_read()


@pytest.mark.parametrize("compacted", [False, True])
def test_another_coordinator_asks_members_that_are_not_written_to_join_again(compacted: bool) -> None:
    unknown = []
    for turns in turns_of_an_upgrade():
        rig, answers = upgraded_by(turns)
        waiting = rig.machine.give_up()
        assert len(waiting) == (not answers), "the heartbeat is refused"
        rig.fail_over(compacted)
        unknown.append(MEMBERS if rig.kind == "none" else len(rig.unknown()))
        if unknown[-1] in (0, MEMBERS // 2):
            rig.join()
            rig.finish()
            assert rig.rejoin() == unknown[-1]
            rig.check_all_read()
    first = unknown.index(MEMBERS)
    assert unknown[:first] == [0] * first, "it still is the classic group"
    assert unknown[first:] == sorted(unknown[first:], reverse=True) and unknown[-1] == 0
    assert len(set(unknown)) > 4


def test_an_upgrade_that_cannot_be_written_ends_with_the_group_of_the_log() -> None:
    unknown = []
    for turns in turns_of_an_upgrade():
        rig, answers = upgraded_by(turns)
        if answers:
            break
        rig.broken = ErrorCode.COORDINATOR_NOT_AVAILABLE
        rig.finish()
        assert getattr(answers[0], "error_code", answers[0]) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert not rig.directory.is_frozen(GROUP)
        rig.broken = None
        rig.check()
        unknown.append(len(rig.unknown()))
        live = sorted(rig.group.members) if rig.kind == "consumer" else []
        joined = rig.join()
        rig.finish()
        assert joined[0].error_code == ErrorCode.NONE
        assert rig.rejoin() == unknown[-1]
        rig.check_all_read()
        assert set(live) <= set(rig.group.members)
    assert unknown[0] == 0 and MEMBERS in unknown and unknown[-1] == 0


def test_a_large_group_that_cannot_be_upgraded_stays_as_it_is() -> None:
    rig = LargeRig(MEMBERS, shares={MEMBERS - 1: [0]})
    answers = rig.join()
    rig.finish()
    assert answers[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert "more than one member" in (answers[0].error_message or "")
    assert rig.kind == "classic" and rig.members[0].beat() is ErrorCode.NONE and not rig.unknown()
    assert rig.members[0].leave() is ErrorCode.NONE
    rig.set_setting("group_consumer_migration_policy", "disabled")
    assert rig.join()[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert TURN not in rig.timers.due


def test_a_large_group_without_room_for_the_new_member_stays_classic() -> None:
    rig = LargeRig(MEMBERS)
    rig.set_setting("group_consumer_max_size", MEMBERS)
    assert rig.join()[0].error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert rig.kind == "classic" and TURN not in rig.timers.due


def test_a_large_group_stays_classic_if_the_heartbeat_cannot_succeed() -> None:
    rig = LargeRig(MEMBERS)
    assert rig.join(subscribed_topic_regex="news(")[0].error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    rig.directory.memory.most_bytes = rig.directory.memory.held_bytes
    assert rig.join()[0].error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert rig.kind == "classic" and TURN not in rig.timers.due


def test_a_small_group_is_upgraded_by_the_heartbeat() -> None:
    rig = LargeRig(20)
    assert rig.join(NEW)[0].error_code == ErrorCode.NONE
    assert TURN not in rig.timers.due and rig.kind == "consumer"
