"""A large consumer group becomes a classic group in turns: no step is long, and the log always has a whole group."""

from __future__ import annotations

import pytest

from barnabas.broker.groups.classic_group import ClassicGroup
from barnabas.protocol.errors import ErrorCode
from tests.broker.groups.consumer_rig import GROUP, Reader
from tests.broker.groups.large_groups import NEW, TURN, LargeRig, longest_step
from tests.broker.groups.test_migration import Old

pytestmark = pytest.mark.feature("CG-16")

MEMBERS = 140
MOST_CALLS = 100_000
"""Calls of a step: ten milliseconds. The longest writes the one record of the classic group, as each of its rebalances
does."""


def turns_of_a_downgrade() -> range:
    """One for each turn after which the coordinator may be lost, and one for before the first."""
    whole = LargeRig(MEMBERS).upgraded()
    whole.leave()
    return range(whole.finish() + 1)


def downgraded_by(turns: int) -> LargeRig:
    rig = LargeRig(MEMBERS).upgraded()
    assert rig.leave() is ErrorCode.NONE
    for _ in range(turns):
        rig.take_turn(TURN)
    return rig


def test_no_step_of_the_downgrade_of_3000_members_is_long() -> None:
    rig = LargeRig(3_000)
    rig.is_checked = False
    rig.join()
    rig.finish()
    assert longest_step(rig, rig.leave) <= MOST_CALLS
    group = rig.directory.get(GROUP)
    assert isinstance(group, ClassicGroup) and len(group.members) == 3_000
    assert {key[0] for key in rig.timers.due} == {"classic session", "classic join"}  # type: ignore[index]


def test_a_group_does_not_change_while_it_is_downgraded() -> None:
    rig = LargeRig(MEMBERS).upgraded()
    a, b = rig.members[:2]
    before = {member.member_id: member.partitions for member in rig.members}
    assert rig.leave() is ErrorCode.NONE
    while rig.timers.deadline_ms(TURN) is not None:
        assert rig.kind == "consumer" and not rig.unknown()
        assert rig.join("late")[0].error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert a.join() == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
        assert b.leave() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert a.sync() is ErrorCode.REBALANCE_IN_PROGRESS
        assert a.beat() in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)
        rig.check_commits([a, b])
        rig.take_turn(TURN)
    group = rig.directory.get(GROUP)
    assert isinstance(group, ClassicGroup) and not rig.unknown()
    assert group.state_name() == "PreparingRebalance"
    assert {member.member_id: member.partitions for member in rig.members} == before
    assert a.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    assert b.leave() is ErrorCode.NONE
    rig.fail_over(compacted=True)
    assert rig.kind == "classic" and not rig.unknown(), "the log says the same"


@pytest.mark.parametrize("compacted", [False, True])
def test_another_coordinator_asks_members_that_are_removed_to_join_again(compacted: bool) -> None:
    unknown = []
    for turns in turns_of_a_downgrade():
        rig = downgraded_by(turns)
        rig.fail_over(compacted)
        if rig.kind == "classic":
            assert not rig.unknown()
            continue
        unknown.append(MEMBERS if rig.kind == "none" else len(rig.unknown()))
        if unknown[-1] < MEMBERS:
            rig.join()
            assert rig.rejoin() == unknown[-1]
            rig.check_all_read()
    assert 0 < unknown[0] < unknown[-1] == MEMBERS and unknown == sorted(unknown)


def test_a_downgrade_that_cannot_be_begun_changes_nothing_and_is_tried_again() -> None:
    rig = LargeRig(MEMBERS).upgraded()
    rig.broken = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert rig.leave() is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not rig.directory.is_frozen(GROUP) and TURN not in rig.timers.due
    assert NEW in rig.group.members
    rig.broken = None
    assert all(member.beat() is ErrorCode.NONE for member in rig.members)
    rig.pass_ms(1_000)
    assert rig.kind == "classic" and not rig.unknown()


def test_a_downgrade_that_cannot_be_written_ends_with_the_group_of_the_log() -> None:
    unknown = []
    for turns in turns_of_a_downgrade():
        rig = downgraded_by(turns)
        if rig.kind == "classic":
            break
        rig.broken = ErrorCode.COORDINATOR_NOT_AVAILABLE
        rig.finish()
        rig.broken = None
        assert not rig.directory.is_frozen(GROUP)
        if rig.kind == "classic":
            assert not rig.unknown(), "everything was written"
            continue
        rig.check()
        unknown.append(len(rig.unknown()))
        assert rig.join()[0].error_code == ErrorCode.NONE
        assert rig.rejoin() == unknown[-1]
        rig.check_all_read()
    assert 0 < unknown[0] < unknown[-1] == MEMBERS


def test_a_static_member_that_returns_with_the_classic_protocol_downgrades_a_large_group() -> None:
    rig = LargeRig(MEMBERS)
    new = Reader(rig, NEW, "news", instance_id="one")
    first = rig.join("first")
    rig.finish()
    assert first[0].error_code == ErrorCode.NONE
    new.join()
    assert new.error is ErrorCode.NONE
    Reader(rig, "first", "news").leave()
    assert rig.kind == "consumer"
    for member in rig.members:
        member.follow()
    again = Old(rig, "news", instance_id="one")
    again.join()
    assert rig.directory.is_frozen(GROUP)
    rig.finish()
    group = rig.directory.get(GROUP)
    assert isinstance(group, ClassicGroup) and len(group.members) == MEMBERS + 1
    assert group.static_members == {"one": again.member_id}
    rig.fail_over()
    assert rig.kind == "classic" and not rig.unknown()
