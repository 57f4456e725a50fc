"""Assignments of large groups are computed and written in turns: no step is long, and members keep what they had."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from barnabas.broker.coordinator.outcome import Outcome
from barnabas.broker.groups.assignors import ASSIGNORS
from barnabas.broker.groups.assignors.assignor import GroupSpec, MemberSpec
from barnabas.broker.groups.assignors.simple import assign_shares
from barnabas.broker.groups.consumer_member import Partitions
from barnabas.broker.groups.group import Client
from barnabas.broker.groups.share_topics import TopicStates
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from barnabas.runtime.at_once import Stepwise
from barnabas.runtime.simulated.work import WorkCounter
from tests.broker.groups.consumer_rig import GROUP, Reader, Rig
from tests.broker.groups.machine_bench import Bench

MEMBERS = 3_000
TOPICS = [bytes([number]) * 16 for number in range(1, 10)]
PARTITIONS = 1_000
MOST_CALLS = 10_000
"""Calls of a step: a few milliseconds."""
TURN = ("consumer-assignment", GROUP)


def taken(work: Stepwise[dict[str, Partitions]]) -> tuple[dict[str, Partitions], list[int]]:
    """The targets, and the calls of each step."""
    calls: list[int] = []
    counter = WorkCounter(lambda _name, made: calls.append(made))
    while True:
        try:
            counter("", lambda: next(work))
        except StopIteration as end:
            return end.value, calls


def specs(last: dict[str, Partitions], *, alike: bool) -> dict[str, MemberSpec]:
    subscriptions = [frozenset(TOPICS)] if alike else [frozenset(TOPICS[first : first + 5]) for first in range(5)]
    return {
        f"m{number}": MemberSpec(None, subscriptions[number % len(subscriptions)], last.get(f"m{number}", {}))
        for number in range(MEMBERS)
    }


@pytest.mark.feature("CG-13")
@pytest.mark.parametrize("alike", [True, False])
@pytest.mark.parametrize("assignor", sorted(ASSIGNORS))
def test_no_step_of_an_assignor_is_long(assignor: str, alike: bool) -> None:
    counts = dict.fromkeys(TOPICS, PARTITIONS)
    targets, calls = taken(ASSIGNORS[assignor](GroupSpec(specs({}, alike=alike), counts)))
    again, more = taken(ASSIGNORS[assignor](GroupSpec(specs(targets, alike=alike), counts)))
    assert len(again) == MEMBERS and sum(len(it) for target in again.values() for it in target.values()) == 9_000
    assert len(calls) > 20 and len(more) > 20
    assert max(calls + more) <= MOST_CALLS


@pytest.mark.feature("CG-18")
@pytest.mark.parametrize("alike", [True, False])
def test_no_step_of_the_assignor_of_share_groups_is_long(alike: bool) -> None:
    assignable = {topic_id: frozenset(range(PARTITIONS)) for topic_id in TOPICS}
    targets, calls = taken(assign_shares(specs({}, alike=alike), assignable))
    again, more = taken(assign_shares(specs(targets, alike=alike), assignable))
    assert again == targets
    assert len(calls) > 20 and len(more) > 20
    assert max(calls + more) <= MOST_CALLS


def owned(*readers: Reader) -> list[int]:
    return [len(reader.partitions) for reader in readers]


@pytest.mark.feature("CG-13")
def test_members_keep_what_they_have_while_a_large_assignment_is_computed() -> None:
    rig = Rig()
    rig.create_topic("words", 2_400)
    a, b = Reader(rig, "a", "words"), Reader(rig, "b", "words")
    a.join()
    assert (a.epoch, owned(a)) == (1, [0]), "it has no target yet"
    turns = 0
    while rig.take_turn(TURN):
        turns += 1
    assert turns >= 4 and rig.group.assignment_epoch == rig.group.epoch == 2
    a.beat()
    assert (a.epoch, owned(a)) == (2, [2_400])
    b.join()
    assert a.beat().error_code == ErrorCode.NONE and owned(a, b) == [2_400, 0]
    rig.pass_ms(1)
    for _ in range(3):
        a.beat()
        b.beat()
    assert (a.epoch, b.epoch, owned(a, b)) == (3, 3, [1_200, 1_200])
    assigned = [it.sentence for it in rig.decisions.since(0) if "new target assignment" in it.sentence]
    assert len(assigned) == 2, "there is a decision note of each assignment"


@pytest.mark.feature("CG-13")
def test_members_that_come_and_go_during_a_large_assignment() -> None:
    rig = Rig()
    rig.create_topic("words", 2_400)
    a, b, c = (Reader(rig, name, "words") for name in "abc")
    a.join()
    b.join()
    rig.take_turn(TURN)
    b.leave()
    c.join()
    rig.pass_ms(1)
    assert (rig.group.assignment_epoch, rig.group.epoch) == (3, 5), "it was computed for a and b"
    assert rig.group.targets.keys() == {"a"}
    c.beat()
    rig.pass_ms(1)
    for _ in range(3):
        a.beat()
        c.beat()
    assert owned(a, c) == [1_200, 1_200]


@pytest.mark.feature("CG-13")
def test_a_static_member_that_returns_during_a_large_assignment_gets_its_target() -> None:
    rig = Rig()
    rig.create_topic("words", 2_400)
    fields: dict[str, Any] = {"instance_id": "one"}
    before, after = Reader(rig, "before", "words", **fields), Reader(rig, "after", "words", **fields)
    before.join()
    rig.take_turn(TURN)
    before.leave(epoch=-2)
    after.join()
    rig.pass_ms(1)
    after.beat()
    assert rig.group.targets.keys() == {"after"}
    assert (rig.group.epoch, after.epoch, owned(after)) == (2, 2, [2_400])


@pytest.mark.feature("CG-13")
def test_a_large_assignment_whose_coordinator_is_gone_begins_again() -> None:
    rig = Rig()
    rig.create_topic("words", 2_400)
    a, b = Reader(rig, "a", "words"), Reader(rig, "b", "words")
    a.join()
    b.join()
    while not rig.group.targets:
        assert rig.take_turn(TURN)
    assert rig.group.assignment_epoch < rig.group.epoch, "only a part of it is written"
    rig.fail_over()
    a.beat()
    rig.pass_ms(1)
    for _ in range(3):
        a.beat()
        b.beat()
    assert owned(a, b) == [1_200, 1_200]


@pytest.mark.feature("CG-13")
def test_a_group_that_is_deleted_and_made_again_gets_no_target_of_the_former() -> None:
    rig = Rig()
    rig.create_topic("words", 2_400)
    a, b = Reader(rig, "a", "words"), Reader(rig, "b", "words")
    a.join()
    rig.take_turn(TURN)
    a.leave()
    rig.run(lambda now: Outcome(rig.group.tombstones()))
    rig.forget_group()
    b.join()
    rig.pass_ms(1)
    assert rig.group.targets.keys() == {"b"} and rig.group.epoch == rig.group.assignment_epoch == 2


@pytest.mark.feature("CG-13", "CG-18")
@pytest.mark.parametrize(("partitions", "is_large"), [(1_999, False), (2_000, True)])
def test_an_assignment_of_more_than_500_members_is_large_and_4_partitions_count_as_one(
    partitions: int, is_large: bool
) -> None:
    rig = Rig()
    rig.create_topic("words", partitions)
    Reader(rig, "a", "words").join()
    assert (rig.timers.deadline_ms(TURN) is not None) == is_large
    bench = Bench(group__share__assignment__interval__ms="0")
    topic_id = bench.create_topic("words", partitions)
    ask = partial(ShareGroupHeartbeatRequest, group_id=GROUP, member_id="a")
    heartbeat, client = bench.machine.shares.heartbeat, Client("story", "/10.0.0.1")
    bench.ask(heartbeat, ask(member_epoch=0, subscribed_topic_names=["words"]), client)
    states = {topic_id: TopicStates("words", frozenset(range(partitions)))}
    bench.run(partial(bench.machine.shares.initialization_ended, GROUP, states, {}))
    bench.ask(heartbeat, ask(member_epoch=2), client)
    assert (bench.timers.deadline_ms(("share-assignment", GROUP)) is not None) == is_large
