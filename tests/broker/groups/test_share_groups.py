"""Share groups (KIP-932) as their coordinator's machine keeps them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from barnabas.broker.coordinator.outcome import Operation, Outcome
from barnabas.broker.groups.group import Client
from barnabas.broker.groups.share_topics import TopicStates
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.list_groups import ListGroupsRequest
from barnabas.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from tests.broker.groups.machine_bench import DAY_MS, Bench

pytestmark = pytest.mark.feature("CG-17", "CG-18")

CLIENT = Client("story", "/10.0.0.1")
TURN = ("share-assignment", "work")


class Group:
    """One share group, and a member id by name."""

    def __init__(self, **settings: str) -> None:
        self.bench = Bench(group__share__assignment__interval__ms="0", **settings)
        self.bench.run(self.bench.machine.loaded)

    def beat(
        self, member_id: str, epoch: int, topics: list[str] | None = None, group_id: str = "work"
    ) -> ShareGroupHeartbeatResponse:
        request = ShareGroupHeartbeatRequest(
            group_id=group_id, member_id=member_id, member_epoch=epoch, subscribed_topic_names=topics
        )
        response = self.bench.ask(self.bench.machine.shares.heartbeat, request, CLIENT)
        assert isinstance(response, ShareGroupHeartbeatResponse)
        return response

    def join(self, member_id: str, *topics: str) -> ShareGroupHeartbeatResponse:
        response = self.beat(member_id, 0, list(topics))
        assert response.error_code == ErrorCode.NONE, response
        return response

    def initialize(self, fails: bool = False) -> None:
        """The share coordinators have initialized what they were asked for, or could not."""
        asked, self.bench.share_states.asked = self.bench.share_states.asked, []
        for group_id, _, states in asked:
            done, failed = ({}, states) if fails else (states, {})
            self.bench.run(partial(self.bench.machine.shares.initialization_ended, group_id, done, failed))

    def assigned(self, response: ShareGroupHeartbeatResponse) -> dict[bytes, list[int]] | None:
        if response.assignment is None:
            return None
        return {topic.topic_id: topic.partitions for topic in response.assignment.topic_partitions}


def test_a_large_assignment_is_computed_and_written_in_turns() -> None:
    group = Group()
    topic_id = group.bench.create_topic("orders", partitions=2_400)
    joined = group.join("m1", "orders")
    group.initialize()
    epoch = group.beat("m1", joined.member_epoch).member_epoch
    turns = 0
    while group.bench.timers.deadline_ms(TURN) is not None:
        group.bench.take_turn(TURN)
        turns += 1
    assert turns >= 4
    assert group.assigned(group.beat("m1", epoch)) == {topic_id: list(range(2_400))}


def test_partitions_are_assigned_once_their_states_are_initialized() -> None:
    group = Group()
    topic_id = group.bench.create_topic("orders", partitions=2)
    first = group.join("a", "orders")
    assert (first.member_epoch, group.assigned(first)) == (2, {})
    ((group_id, epoch, states),) = group.bench.share_states.asked
    assert (group_id, epoch, states) == ("work", 2, {topic_id: TopicStates("orders", frozenset([0, 1]))})
    assert group.assigned(group.beat("a", 2)) is None, "nothing is new, and nothing is asked for twice"
    assert len(group.bench.share_states.asked) == 1
    group.initialize()
    second = group.beat("a", 2)
    assert (second.member_epoch, group.assigned(second)) == (3, {topic_id: [0, 1]})
    assert second.heartbeat_interval_ms == 5000
    assert group.bench.share_states.asked == []


def test_two_members_that_join_at_once_initialize_states_once() -> None:
    """The second one comes before the records of the first are replicated."""
    group = Group()
    group.bench.create_topic("orders")
    held: list[Callable[[], None]] = []
    run = group.bench.run

    def hold(operation: Operation) -> Outcome:
        outcome = operation(group.bench.now)
        if outcome.committed is not None:
            held.append(outcome.committed)
            outcome.committed = None
        return run(lambda _: outcome)

    group.bench.run = hold  # type: ignore[method-assign]
    group.join("a", "orders")
    group.join("b", "orders")
    for committed in held:
        committed()
    assert [epoch for _, epoch, _ in group.bench.share_states.asked] == [2]


def test_a_heartbeat_that_cannot_be_written_initializes_nothing() -> None:
    group = Group()
    group.bench.create_topic("orders")
    group.bench.broken = KafkaError(ErrorCode.NOT_COORDINATOR)
    with pytest.raises(KafkaError):
        group.join("a", "orders")
    group.bench.broken = None
    group.join("a", "orders")
    assert len(group.bench.share_states.asked) == 1


def test_a_failed_initialization_is_tried_again_by_the_next_heartbeat() -> None:
    group = Group()
    topic_id = group.bench.create_topic("orders")
    group.join("a", "orders")
    group.initialize(fails=True)
    assert group.assigned(group.beat("a", 2)) is None
    assert len(group.bench.share_states.asked) == 1
    group.bench.reload()
    group.bench.share_states.asked.clear()
    group.beat("a", 2)
    assert len(group.bench.share_states.asked) == 1, "the next coordinator begins again, too"
    group.initialize()
    assert group.assigned(group.beat("a", 2)) == {topic_id: [0]}


def test_members_share_partitions_and_a_lost_one_is_replaced() -> None:
    group = Group()
    topic_id = group.bench.create_topic("orders", partitions=2)
    group.join("a", "orders")
    group.initialize()
    group.beat("a", 2)
    three = [group.join(member_id, "orders") for member_id in ("b", "c")]
    assert [group.assigned(response) for response in three] == [{topic_id: [1]}, {topic_id: [0]}]
    mine = group.beat("a", 3)
    assert group.assigned(mine) is None, "each partition has two members now, and the first one keeps both"
    epochs = {"a": mine.member_epoch, "c": three[1].member_epoch}
    group.bench.advance(30_000)
    for member_id, epoch in epochs.items():
        epochs[member_id] = group.beat(member_id, epoch).member_epoch
    group.bench.advance(20_000)
    answers = [group.beat(member_id, epoch) for member_id, epoch in epochs.items()]
    assert group.beat("b", 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID, "it sent nothing for 45 s"
    described = group.bench.machine.describe_share("work").complete()
    owned = sorted(
        index for member in described.members for it in member.assignment.topic_partitions for index in it.partitions
    )
    assert (owned, len(described.members)) == ([0, 1], 2)
    assert all(answer.error_code == ErrorCode.NONE for answer in answers)
    gone = group.beat("a", -1)
    assert (gone.error_code, gone.member_epoch) == (ErrorCode.NONE, -1)


def test_the_state_survives_a_change_of_the_coordinator() -> None:
    group = Group()
    topic_id = group.bench.create_topic("orders", partitions=3)
    group.join("a", "orders")
    group.initialize()
    group.beat("a", 2)
    before = group.bench.machine.describe_share("work").complete()
    group.bench.reload()
    assert group.bench.machine.describe_share("work").complete() == before
    assert group.assigned(group.beat("a", 3, ["orders"])) == {topic_id: [0, 1, 2]}, "a full request repeats it"
    group.bench.advance(45_001)
    after = group.bench.machine.describe_share("work").complete()
    assert (after.group_state, after.members) == ("Empty", [])


def test_new_partitions_and_deleted_topics() -> None:
    group = Group()
    first, second = (group.bench.create_topic(name) for name in ("one", "two"))
    group.join("a", "one", "two")
    group.initialize()
    response = group.beat("a", 2)
    assert group.assigned(response) == {first: [0], second: [0]}
    group.bench.delete_topic("one")
    response = group.beat("a", response.member_epoch)
    assert group.assigned(response) == {second: [0]}
    assert group.bench.machine.shares.group("work").topics.partitions() == {second: frozenset([0])}
    again = group.bench.create_topic("one", partitions=2)
    response = group.beat("a", response.member_epoch)
    group.initialize()
    response = group.beat("a", response.member_epoch)
    assert group.assigned(response) == {again: [0, 1], second: [0]}


def test_epochs_fence_a_member() -> None:
    group = Group()
    group.bench.create_topic("orders")
    group.join("a", "orders")
    group.initialize()
    assert group.beat("a", 2).member_epoch == 3
    assert group.beat("a", 2).member_epoch == 3, "the answer with the new epoch may have been lost"
    for epoch in (1, 4):
        assert group.beat("a", epoch).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert group.beat("b", 3).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert group.beat("b", -1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert group.beat("a", 1, group_id="other").error_code == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"member_id": " "}, "MemberId can't be empty."),
        ({"group_id": ""}, "GroupId can't be empty."),
        ({"rack_id": ""}, "RackId can't be empty."),
        ({"subscribed_topic_names": []}, "SubscribedTopicNames must be set in first request."),
        ({"member_epoch": -2}, "MemberEpoch is invalid."),
    ],
)
def test_invalid_requests(changes: dict[str, object], message: str) -> None:
    group = Group()
    fields = {"group_id": "work", "member_id": "a", "member_epoch": 0, "subscribed_topic_names": ["t"], **changes}
    request = ShareGroupHeartbeatRequest(**fields)
    response = group.bench.ask(group.bench.machine.shares.heartbeat, request, CLIENT)
    assert (response.error_code, response.error_message) == (ErrorCode.INVALID_REQUEST, message)


def test_a_group_is_full_at_its_maximum_size() -> None:
    group = Group(group__share__max__size="2")
    group.bench.create_topic("orders")
    group.join("a", "orders")
    group.join("b", "orders")
    assert group.beat("c", 0, ["orders"]).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert group.beat("a", 0, ["orders"]).error_code == ErrorCode.NONE


def test_a_share_group_is_listed_described_and_deleted_but_does_not_expire() -> None:
    group = Group()
    topic_id = group.bench.create_topic("orders")
    group.join("a", "orders")
    group.initialize()
    machine = group.bench.machine
    (listed,) = machine.listed(ListGroupsRequest(types_filter=["SHARE"]))
    assert listed is not None
    assert (listed.group_id, listed.group_type, listed.group_state) == ("work", "share", "Stable")
    assert machine.describe_consumer("work").complete().error_message == "Group work is not a consumer group."
    assert machine.describe_share("other").complete().error_message == "Group other not found."
    with pytest.raises(KafkaError) as refused:
        group.bench.ask(machine.shares.begin_deletion, "work")
    assert refused.value.code is ErrorCode.NON_EMPTY_GROUP
    group.beat("a", -1)
    group.bench.advance(30 * DAY_MS)
    assert machine.shares.find("work") is not None, "its positions are not in its offsets"
    assert group.bench.ask(machine.shares.begin_deletion, "work") == {topic_id: frozenset([0])}
    group.bench.reload()
    machine = group.bench.machine
    assert group.bench.ask(machine.shares.begin_deletion, "work") == {topic_id: frozenset([0])}, "the retry goes on"
    group.bench.ask(machine.delete, "work")
    assert machine.shares.find("work") is None
    group.bench.reload()
    assert group.bench.machine.shares.find("work") is None


def test_offsets_are_altered_and_deleted_in_steps() -> None:
    group = Group()
    topic_id = group.bench.create_topic("orders", partitions=2)
    shares = group.bench.machine.shares
    states = {topic_id: TopicStates("orders", frozenset([1]))}
    epoch = group.bench.ask(shares.begin_alteration, "work", states)
    assert epoch == 2, "writes of earlier states are fenced"
    group.bench.run(lambda now: shares.initialization_ended("work", states, {}, now))
    assert shares.group("work").topics.partitions() == {topic_id: frozenset([1])}
    assert group.bench.ask(shares.begin_topic_deletion, "work", [topic_id]) == {topic_id: frozenset([0, 1])}
    assert shares.group("work").topics.partitions() == {}
    group.bench.ask(shares.end_topic_deletion, "work", [topic_id])
    assert shares.group("work").topics.deleting == {}
    group.join("a", "orders")
    with pytest.raises(KafkaError) as refused:
        group.bench.ask(shares.begin_alteration, "work", states)
    assert refused.value.code is ErrorCode.NON_EMPTY_GROUP
