"""Decision notes of group coordinators: why groups rebalance, whom they fence, how they end."""

from __future__ import annotations

import pytest

from barnabas.protocol.errors import KafkaError
from barnabas.protocol.messages.group_log import GroupMetadataKey, GroupMetadataValue
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tests.broker.groups.classic_shell import GROUP, INITIAL_DELAY_MS, SESSION_MS, Person, Shell
from tests.broker.groups.consumer_rig import Reader, Rig
from tests.broker.groups.machine_bench import DAY_MS, Bench
from tests.broker.groups.offset_words import commit

pytestmark = pytest.mark.feature("OB-07")


def story(shell: Shell | Rig) -> list[str]:
    return [it.sentence for it in shell.decisions.since(0, f"group {GROUP}")]


# -- classic groups


def test_a_first_generation_from_the_first_who_joins_to_the_assignment() -> None:
    shell = Shell()
    anna, ben = Person(shell), Person(shell)
    shell.stable(anna, ben)
    assert story(shell) == [
        f"group readers rebalances, after generation 0: {anna.member_id} joins; reason given: because",
        f"group readers begins generation 1 with 2 members, {anna.member_id} assigns: all have joined",
        f"group readers is stable in generation 1: {anna.member_id} has assigned the partitions to 2 members",
    ]
    assert [it.facts["generation"] for it in shell.decisions.since(0)] == [0, 1, 1]


def test_a_silent_member_is_fenced_and_the_others_share() -> None:
    shell = Shell()
    anna, ben = Person(shell), Person(shell)
    shell.stable(anna, ben)
    shell.pass_ms(SESSION_MS - 1)
    anna.heartbeat()
    shell.pass_ms(1)
    silent = f"it sent nothing for {SESSION_MS} ms; session timeout {SESSION_MS} ms"
    assert story(shell)[-2:] == [
        f"member {ben.member_id} of group readers is fenced: {silent}",
        f"group readers rebalances, after generation 1: the session of {ben.member_id} expired; {silent}",
    ]
    assert [it.kind.value for it in shell.decisions.since(0)][-2:] == ["fencing", "rebalance"]


def test_notes_of_a_member_that_leaves_and_of_an_empty_group() -> None:
    shell = Shell()
    anna = Person(shell)
    shell.stable(anna)
    shell.leave(LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id=anna.member_id)]))
    shell.pass_ms(INITIAL_DELAY_MS)
    assert story(shell)[-2:] == [
        f"group readers rebalances, after generation 1: {anna.member_id} left",
        "group readers is empty in generation 2: no member remains",
    ]


def test_a_static_member_that_returns_fences_its_former_id() -> None:
    shell = Shell()
    anna = Person(shell, instance_id="shelf-1")
    shell.stable(anna)
    before = anna.member_id
    again = Person(shell, instance_id="shelf-1")
    again.join()
    assert story(shell)[-1] == (
        f"member {before} of group readers is fenced: static member shelf-1 returned as {again.member_id}"
    )


def test_heartbeats_and_refused_requests_leave_no_notes() -> None:
    shell = Shell()
    anna = Person(shell)
    shell.stable(anna)
    count = len(story(shell))
    for _ in range(100):
        anna.heartbeat()
    shell.leave(LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id="nobody")]))
    assert len(story(shell)) == count


# -- consumer groups (KIP-848)


def test_epochs_and_targets_of_a_consumer_group_with_their_causes() -> None:
    rig = Rig()
    rig.create_topic("news", 4)
    anna, ben = Reader(rig, "anna", "news"), Reader(rig, "ben", "news")
    anna.join()
    ben.join()
    assert story(rig) == [
        "group readers begins epoch 2: anna joined",
        "group readers has a new target assignment of epoch 2 for 1 members: "
        "the previous one had epoch 1; assignor uniform",
        "group readers begins epoch 3: ben joined",
        "group readers has a new target assignment of epoch 3 for 2 members: "
        "the previous one had epoch 2; assignor uniform",
    ]
    rig.add_partitions("news", 2)
    anna.beat()
    assert story(rig)[4] == "group readers begins epoch 4: partitions or racks of its topics have changed"
    ben.leave()
    assert story(rig)[-1] == "group readers begins epoch 5: ben left; 1 members remain"
    rig.pass_ms(45_000)
    assert story(rig)[-2:] == [
        "member anna of group readers is fenced: it sent nothing for 45000 ms",
        "group readers begins epoch 6: anna is fenced, it sent nothing for 45000 ms; no members remain",
    ]


def test_only_a_successful_deletion_of_a_group_is_noted() -> None:
    bench = Bench()
    commit(bench, "t", 1, group="etl")
    bench.ask(bench.machine.delete, "etl")
    assert [it.sentence for it in bench.decisions.since(0)] == [
        "group etl is deleted, with its offsets: requested by DeleteGroups"
    ]
    with pytest.raises(KafkaError):
        bench.ask(bench.machine.delete, "etl")
    assert len(bench.decisions.since(0)) == 1


def test_a_group_whose_last_offsets_expire() -> None:
    bench = Bench()
    bench.create_topic("t", 1)
    bench.reload()
    commit(bench, "t", 1)
    value = GroupMetadataValue(protocol_type="consumer", generation=3, current_state_timestamp=bench.now.wall_ms)
    bench.write(GroupMetadataKey(group="g"), value, 3)
    bench.advance(8 * DAY_MS)
    assert [it.sentence for it in bench.decisions.since(0, "group g")] == [
        "group g is forgotten: it was empty, and the last of its offsets has expired"
    ]
