"""Consumer groups (KIP-848) as stories: joins, assignments, and handovers of partitions."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.broker.groups.consumer_group import GroupState
from barnabas.broker.groups.consumer_member import MemberState
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.consumer_group_heartbeat import TopicPartitions
from barnabas.protocol.messages.group_log import ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue
from barnabas.protocol.records.coordinator import encode_key, encode_versioned
from tests.broker.groups.consumer_rig import GROUP, HEARTBEAT_MS, REBALANCE_MS, SESSION_MS, Reader, Rig, settle


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.create_topic("news", 4)
    return rig


def kinds(rig: Rig) -> list[int]:
    """Types of the records of the last command; negative for tombstones."""
    return [record.key.API_KEY if record.value is not None else -record.key.API_KEY for record in rig.written]


@pytest.mark.feature("CG-13")
def test_the_first_member_gets_all_at_once(rig: Rig) -> None:
    reader = Reader(rig, "a", "news")
    answer = reader.join()
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (0, "a", 2)
    assert answer.heartbeat_interval_ms == HEARTBEAT_MS
    assert reader.partitions == {("news", number) for number in range(4)}
    assert rig.group.state is GroupState.STABLE
    # Subscription, group epoch, the member's target, target epoch, the member's assignment.
    assert kinds(rig) == [5, 3, 7, 6, 8]


@pytest.mark.feature("CG-13")
def test_a_client_of_the_first_version_is_given_its_id(rig: Rig) -> None:
    answer = rig.heartbeat(
        version=0, rebalance_timeout_ms=1, subscribed_topic_names=["news"], topic_partitions=[], member_epoch=0
    )
    assert answer.error_code == 0
    assert len(answer.member_id or "") == 22
    assert answer.member_id in rig.group.members


@pytest.mark.feature("CG-13")
def test_a_heartbeat_without_changes_writes_nothing(rig: Rig) -> None:
    reader = Reader(rig, "a", "news")
    reader.join()
    answer = reader.just_beat()
    assert (answer.error_code, answer.member_epoch, answer.assignment) == (0, 2, None)
    assert rig.written == []


@pytest.mark.feature("CG-13", "CG-14")
def test_a_partition_moves_only_after_its_owner_revoked_it(rig: Rig) -> None:
    a, b = Reader(rig, "a", "news"), Reader(rig, "b", "news")
    a.join()
    b.join()
    assert b.partitions == set(), "all still belongs to a"
    assert rig.group.members["b"].state is MemberState.UNRELEASED_PARTITIONS
    had = a.owned
    a.just_beat()
    assert (rig.group.members["a"].state, a.epoch) == (MemberState.UNREVOKED_PARTITIONS, 2)
    assert len(a.partitions) == 2, "the answer has what it keeps"
    keeps, a.owned = a.owned, had
    a.beat()
    b.beat()
    assert a.epoch == 2, "it has not given up anything yet"
    assert b.partitions == set()
    a.owned = keeps
    a.beat()
    assert a.epoch == 3
    b.beat()
    assert len(b.partitions) == 2
    assert a.partitions | b.partitions == {("news", number) for number in range(4)}
    assert rig.group.state is GroupState.STABLE


@pytest.mark.feature("CG-13")
def test_no_member_waits_for_one_that_has_nothing_to_revoke(rig: Rig) -> None:
    """There is no barrier: a member that a move does not concern continues alone."""
    a, b, c = (Reader(rig, name, "news") for name in "abc")
    a.join()
    b.join()
    settle(a, b)
    c.join()
    b.beat()
    b.beat()
    assert rig.group.state is GroupState.RECONCILING
    c.beat()
    assert len(c.partitions) == 1 and a.epoch < c.epoch, "a sent nothing meanwhile"


@pytest.mark.feature("CG-13")
def test_a_member_that_leaves_is_removed_at_once(rig: Rig) -> None:
    a, b = Reader(rig, "a", "news"), Reader(rig, "b", "news")
    a.join()
    b.join()
    settle(a, b)
    answer = b.leave()
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (0, "b", -1)
    assert kinds(rig) == [-8, -7, -5, 3]
    assert rig.group.state_name() == "Assigning"
    assert not any("b" in key for key in rig.timers.due if isinstance(key, tuple))
    a.beat()
    assert len(a.partitions) == 4
    a.leave()
    assert rig.group.state is GroupState.EMPTY
    assert rig.heartbeat(member_id="a", member_epoch=3).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.feature("CG-13")
def test_an_empty_group_can_be_deleted_without_a_trace(rig: Rig) -> None:
    reader = Reader(rig, "a", "news")
    reader.join()
    with pytest.raises(Exception, match="NON_EMPTY_GROUP"):
        rig.group.check_delete()
    reader.leave()
    rig.group.check_delete()
    tombstones = rig.group.tombstones()
    assert [record.key.API_KEY for record in tombstones] == [6, 4, 3]
    assert all(record.value is None for record in tombstones)
    for record in tombstones:
        rig.core.replay(record.key, None)
        rig.log.append((encode_key(record.key), None))
    assert rig.directory.get(GROUP) is None
    rig.fail_over()
    assert rig.directory.get(GROUP) is None


@pytest.mark.feature("CG-13")
def test_a_silent_member_is_fenced_after_its_session_timeout(rig: Rig) -> None:
    a, b = Reader(rig, "a", "news"), Reader(rig, "b", "news")
    a.join()
    b.join()
    settle(a, b)
    for _ in range(SESSION_MS // HEARTBEAT_MS - 1):
        rig.pass_ms(HEARTBEAT_MS)
        a.beat()
    assert "b" in rig.group.members
    rig.pass_ms(HEARTBEAT_MS)
    assert "b" not in rig.group.members
    a.beat()
    assert len(a.partitions) == 4
    assert b.beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.feature("CG-13", "CG-14")
def test_a_member_that_does_not_revoke_in_time_is_fenced(rig: Rig) -> None:
    a, b = Reader(rig, "a", "news"), Reader(rig, "b", "news")
    a.join()
    b.join()
    a.just_beat()
    for _ in range(REBALANCE_MS // HEARTBEAT_MS):
        assert "a" in rig.group.members
        rig.pass_ms(HEARTBEAT_MS)
        a.just_beat()
        b.beat()
    assert "a" not in rig.group.members
    b.beat()
    assert len(b.partitions) == 4
    assert a.just_beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.feature("CG-13")
def test_a_member_that_sends_all_fields_gets_its_assignment_again(rig: Rig) -> None:
    """It has missed an answer."""
    a = Reader(rig, "a", "news")
    a.join()
    settle(a)
    owned = {topic_id: sorted(partitions) for topic_id, partitions in a.owned.items()}
    assert a.just_beat().assignment is None and a.beat().assignment is None
    a.missed_an_answer = True
    again = a.beat().assignment
    assert again is not None
    assert {topic.topic_id: topic.partitions for topic in again.topic_partitions} == owned
    everything = {"rebalance_timeout_ms": REBALANCE_MS, "subscribed_topic_names": a.topics}
    for name in everything:
        fields = {each: value for each, value in everything.items() if each != name}
        assert a.beat(**fields).assignment is None, f"without {name}"
    assert a.just_beat().assignment is None


@pytest.mark.feature("CG-13")
def test_an_answer_that_was_lost_does_not_fence(rig: Rig) -> None:
    a, b = Reader(rig, "a", "news"), Reader(rig, "b", "news")
    a.join()
    b.join()
    had, epoch = a.owned, a.epoch
    a.just_beat()
    keeps = a.owned
    a.beat()
    assert a.epoch == epoch + 1
    a.epoch = epoch
    a.beat()
    assert a.error is ErrorCode.NONE, "the previous epoch, and nothing but what it may have"
    a.epoch, a.owned = epoch - 1, keeps
    assert a.beat().error_code == ErrorCode.FENCED_MEMBER_EPOCH, "older"
    a.epoch, a.owned = epoch, had
    assert a.beat().error_code == ErrorCode.FENCED_MEMBER_EPOCH, "owns what it has given up"
    a.epoch = epoch + 5
    assert a.beat().error_code == ErrorCode.FENCED_MEMBER_EPOCH, "newer"
    a.join()
    assert (a.error, a.owned) == (ErrorCode.NONE, keeps)


@pytest.mark.feature("CG-13")
def test_assignments_are_not_made_too_often() -> None:
    rig = Rig(group_consumer_assignment_interval_ms=1_000)
    rig.create_topic("news", 4)
    readers = [Reader(rig, name, "news") for name in "abcd"]
    for reader in readers:
        reader.join()
        assert reader.error is ErrorCode.NONE
        rig.pass_ms(100)
    assert rig.group.state is GroupState.ASSIGNING
    assert [reader.epoch for reader in readers] == [2, 2, 2, 2], "those who came later wait for the next assignment"
    assert (rig.group.epoch, rig.group.assignment_epoch) == (5, 2)
    rig.pass_ms(700)
    settle(*readers)
    assert [len(reader.partitions) for reader in readers] == [1, 1, 1, 1]
    assert rig.group.assignment_epoch == 5, "one assignment for all three"
    rig.set_config("consumer.assignment.interval.ms", "0")
    readers[0].leave()
    readers[1].beat()
    assert rig.group.assignment_epoch == 6, "this group does not want to wait"


@pytest.mark.feature("CG-15")
def test_a_group_has_intervals_of_its_own(rig: Rig) -> None:
    rig.set_config("consumer.heartbeat.interval.ms", "7000")
    rig.set_config("consumer.session.timeout.ms", "50000")
    reader = Reader(rig, "a", "news")
    assert reader.join().heartbeat_interval_ms == 7000
    assert rig.timers.deadline_ms(("consumer-session", GROUP, "a")) == rig.monotonic_ms + 50_000
    rig.set_config("consumer.heartbeat.interval.ms", "90000")
    assert reader.beat().heartbeat_interval_ms == 15_000, "the broker's bound"


@pytest.mark.feature("CG-13")
def test_a_static_member_comes_back_to_its_partitions(rig: Rig) -> None:
    a, b = Reader(rig, "a", "news", instance_id="one"), Reader(rig, "b", "news")
    a.join()
    b.join()
    settle(a, b)
    had, epoch = a.partitions, rig.group.epoch
    answer = a.leave(-2)
    assert (answer.error_code, answer.member_epoch) == (0, -2)
    assert kinds(rig) == [8]
    rig.pass_ms(SESSION_MS - HEARTBEAT_MS - 1)
    b.beat()
    again = Reader(rig, "c", "news", instance_id="one")
    again.join()
    assert kinds(rig)[:6] == [-8, -7, -5, 5, 7, 8]
    assert again.partitions == had
    assert (rig.group.epoch, rig.group.state) == (epoch, GroupState.STABLE), "nobody else noticed"
    assert "a" not in rig.group.members


@pytest.mark.feature("CG-13")
def test_a_static_member_that_does_not_return_is_removed_after_its_session(rig: Rig) -> None:
    a = Reader(rig, "a", "news", instance_id="one")
    a.join()
    a.leave(-2)
    rig.pass_ms(SESSION_MS)
    assert rig.group.state is GroupState.EMPTY


@pytest.mark.feature("CG-13")
def test_an_instance_id_has_one_member(rig: Rig) -> None:
    a, twin = Reader(rig, "a", "news", instance_id="one"), Reader(rig, "b", "news", instance_id="one")
    a.join()
    assert twin.join().error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    twin.epoch = 2
    assert twin.beat().error_code == ErrorCode.FENCED_INSTANCE_ID
    assert twin.leave().error_code == ErrorCode.FENCED_INSTANCE_ID
    nobody = Reader(rig, "c", "news", instance_id="two")
    nobody.epoch = 2
    assert nobody.beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert nobody.leave(-2).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    a.leave()
    assert twin.join().error_code == ErrorCode.NONE


@pytest.mark.feature("CG-13")
def test_new_partitions_and_deleted_topics_reach_the_group(rig: Rig) -> None:
    rig.create_topic("sport", 2)
    a, b = Reader(rig, "a", "news", "sport"), Reader(rig, "b", "news", "sport")
    a.join()
    b.join()
    settle(a, b)
    rig.add_partitions("news", 2)
    assert rig.group.state is GroupState.STABLE, "with the next heartbeat"
    settle(a, b)
    assert len(a.partitions | b.partitions) == 8
    rig.delete_topic("sport")
    # A deleted topic cannot be revoked, only removed.
    settle(a, b)
    assert a.partitions | b.partitions == {("news", number) for number in range(6)}


@pytest.mark.feature("CG-13")
def test_a_subscription_to_a_future_topic(rig: Rig) -> None:
    reader = Reader(rig, "a", "later")
    reader.join()
    assert (reader.error, reader.partitions) == (ErrorCode.NONE, set())
    rig.create_topic("later", 1)
    reader.beat()
    assert reader.partitions == {("later", 0)}


@pytest.mark.feature("CG-13")
def test_a_recreated_topic_is_another_topic(rig: Rig) -> None:
    reader = Reader(rig, "a", "news")
    reader.join()
    before = set(reader.owned)
    rig.delete_topic("news")
    rig.create_topic("news", 4)
    settle(reader)
    assert len(reader.partitions) == 4
    assert not before & set(reader.owned)


@pytest.mark.feature("CG-13")
def test_leader_changes_do_not_affect_the_group(rig: Rig) -> None:
    from barnabas.protocol.messages.metadata_log import PartitionChangeRecord

    reader = Reader(rig, "a", "news")
    reader.join()
    deadline = rig.group.refresh_deadline
    topic_id = rig.image.topics.by_name["news"].id
    rig.change_metadata(PartitionChangeRecord(topic_id=topic_id, partition_id=0, isr=[1], leader=1))
    assert rig.group.refresh_deadline == deadline


@pytest.mark.feature("CG-13", "CG-14")
def test_unsubscribed_partitions_are_revoked_before_the_next_assignment() -> None:
    rig = Rig(group_consumer_assignment_interval_ms=15_000)
    rig.create_topic("news", 2)
    rig.create_topic("sport", 2)
    reader = Reader(rig, "a", "news", "sport")
    reader.join()
    assert len(reader.partitions) == 4
    had = reader.owned
    reader.beat(subscribed_topic_names=["news"])
    assert rig.group.state is GroupState.ASSIGNING
    assert rig.group.members["a"].state is MemberState.UNREVOKED_PARTITIONS
    assert reader.partitions == {("news", 0), ("news", 1)}
    assert had != reader.owned
    reader.beat()
    assert (rig.group.members["a"].state, reader.epoch) == (MemberState.STABLE, 2)
    rig.pass_ms(15_000)
    reader.beat()
    assert reader.epoch == 3


@pytest.mark.feature("CG-13")
def test_most_members_choose_the_assignor(rig: Rig) -> None:
    rig.create_topic("sport", 4)
    a = Reader(rig, "a", "news", "sport", server_assignor="range")
    b = Reader(rig, "b", "news", "sport", server_assignor="range")
    a.join()
    b.join()
    settle(a, b)
    assert rig.group.preferred_assignor() == "range"
    assert a.partitions == {("news", 0), ("news", 1), ("sport", 0), ("sport", 1)}
    described = rig.core.describe(GROUP).complete()
    assert (described.assignor_name, described.group_state, described.group_epoch) == ("range", "Stable", 3)


@pytest.mark.feature("CG-13")
def test_assignors_may_be_configured_by_the_names_of_kafkas_classes(rig: Rig) -> None:
    assignors = "org.apache.kafka.coordinator.group.assignor"
    rig.set_setting("group_consumer_assignors", [f"{assignors}.RangeAssignor", f"{assignors}.UniformAssignor", "range"])
    assert rig.core.assignments.assignor_names() == ["range", "uniform"]
    rig.create_topic("sport", 4)
    a, b = Reader(rig, "a", "news", "sport"), Reader(rig, "b", "news", "sport", server_assignor="uniform")
    a.join()
    assert rig.core.describe(GROUP).complete().assignor_name == "range", "the first is the default"
    b.join()
    assert b.error is ErrorCode.NONE, "members ask by name"


@pytest.mark.feature("CG-13")
def test_no_assignor_is_left_when_the_last_member_that_asked_for_one_goes(rig: Rig) -> None:
    a = Reader(rig, "a", "news", server_assignor="range")
    b = Reader(rig, "b", "news", server_assignor="range")
    a.join()
    b.join()
    first = rig.group.members["a"]
    assert rig.group.preferred_assignor(before=first) == "range", "the other one still asks for it"
    b.leave()
    assert rig.group.preferred_assignor() == "range"
    assert rig.group.preferred_assignor(before=first) is None


@pytest.mark.feature("CG-13")
def test_a_new_coordinator_continues_where_the_old_one_stopped(rig: Rig) -> None:
    a, b, c = Reader(rig, "a", "news"), Reader(rig, "b", "news", instance_id="one"), Reader(rig, "c", "news")
    a.join()
    b.join()
    a.just_beat()
    assert rig.group.members["a"].state is MemberState.UNREVOKED_PARTITIONS
    before = rig.core.describe(GROUP).complete()
    rig.fail_over()
    assert rig.core.describe(GROUP).complete() == before
    assert rig.timers.deadline_ms(("consumer-rebalance", GROUP, "a")) == rig.monotonic_ms + REBALANCE_MS
    settle(a, b)
    rig.fail_over(compacted=True)
    c.join()
    settle(a, b, c)
    assert sorted(len(reader.partitions) for reader in (a, b, c)) == [1, 1, 2]


@pytest.mark.feature("CG-13")
def test_a_restored_static_member_takes_nothing_from_its_successor(rig: Rig) -> None:
    """A replica was away for longer than delete.retention.ms: it has the records of a former member, and not the
    tombstones, which were cleaned away before it caught up. Then it becomes the leader.
    """
    b = Reader(rig, "b", "news")
    b.join()
    Reader(rig, "gone", "news", instance_id="one").join()
    rig.pass_ms(SESSION_MS - 1)
    b.just_beat()
    rig.pass_ms(1)
    assert list(rig.group.members) == ["b"]
    a = Reader(rig, "a", "news", instance_id="one")
    a.join()
    settle(a, b)
    had = a.partitions
    assert len(had) == 2

    rig.log = [(key, value) for key, value in rig.log if value is not None]
    rig.fail_over()
    assert sorted(rig.group.members) == ["a", "b", "gone"]
    for _ in range(SESSION_MS // HEARTBEAT_MS):
        a.beat()
        b.beat()
        rig.pass_ms(HEARTBEAT_MS)
    assert sorted(rig.group.members) == ["a", "b"], "it never sent anything, so its session has expired"
    settle(b, a)
    assert a.partitions | b.partitions == {("news", number) for number in range(4)}
    assert a.partitions == had
    # A coordinator that reads all of that now agrees.
    rig.fail_over()
    settle(a, b)
    assert a.partitions == had


@pytest.mark.feature("CG-13")
def test_a_member_with_a_new_instance_id_releases_its_former_one(rig: Rig) -> None:
    Reader(rig, "a", "news", instance_id="one").join()
    Reader(rig, "a", "news", instance_id="two").join()
    rig.fail_over()
    b = Reader(rig, "b", "news", instance_id="one")
    b.join()
    assert sorted(rig.group.members) == ["a", "b"]
    assert b.epoch > 0


@pytest.mark.feature("CG-13")
@pytest.mark.parametrize("others", [(), ("b",)], ids=["what the dead had stays with them", "the dead get less"])
def test_partitions_assigned_to_former_members_are_reassigned(rig: Rig, others: tuple[str, ...]) -> None:
    """A replica that was away for longer than delete.retention.ms becomes the leader and assigns partitions to a former
    member; before it notices, a broker that has seen the tombstones becomes the leader.
    """
    a, gone = Reader(rig, "a", "news"), Reader(rig, "gone", "news")
    a.join()
    gone.join()
    settle(a, gone)
    gone.leave()
    seen_out = list(rig.log)
    lacking = [(key, value) for key, value in rig.log if value is not None]

    rig.log = list(lacking)
    rig.fail_over()
    living = [a, *(Reader(rig, name, "news") for name in others)]
    for reader in living[1:]:
        reader.join()
    for reader in living * 3:
        reader.beat()
    assert sorted(rig.group.members) == sorted(["a", "gone", *others])
    assert rig.group.assignment_epoch == rig.group.epoch
    assert sum(map(len, rig.group.targets["gone"].values())) == 2 - len(others)

    rig.log = seen_out + rig.log[len(lacking) :]
    rig.fail_over()
    assert sorted(rig.group.members) == sorted(["a", *others])
    settle(*living)
    assert {it for reader in living for it in reader.partitions} == {("news", number) for number in range(4)}
    assert sorted(rig.group.targets) == sorted(rig.group.members)
    epoch = rig.group.epoch
    rig.fail_over()
    settle(*living)
    assert rig.group.epoch == epoch, "now it is a whole one"


@pytest.mark.feature("CG-13")
def test_a_failed_write_changes_nothing(rig: Rig) -> None:
    a, b = Reader(rig, "a", "news"), Reader(rig, "b", "news")
    a.join()
    rig.broken = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert b.join().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert list(rig.group.members) == ["a"]
    rig.broken = None
    b.join()
    settle(a, b)
    assert len(b.partitions) == 2


@pytest.mark.feature("CG-13")
def test_partition_counts_of_an_older_version_are_removed(rig: Rig) -> None:
    reader = Reader(rig, "a", "news")
    reader.join()
    key = encode_key(ConsumerGroupPartitionMetadataKey(group_id=GROUP))
    rig.log.append((key, encode_versioned(ConsumerGroupPartitionMetadataValue(), 0)))
    rig.fail_over()
    reader.beat()
    assert -4 in kinds(rig)
    reader.beat()
    assert rig.written == []


BAD_JOINS = {
    "no group": ({"group_id": " "}, ErrorCode.INVALID_REQUEST),
    "no member id": ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
    "an empty instance id": ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
    "an empty rack": ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
    "no rebalance timeout": ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
    "partitions nobody gave it": (
        {"topic_partitions": [TopicPartitions(topic_id=bytes(16), partitions=[0])]},
        ErrorCode.INVALID_REQUEST,
    ),
    "nothing about partitions": ({"topic_partitions": None}, ErrorCode.INVALID_REQUEST),
    "no subscription": ({"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
    "an epoch below all": ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST),
    "a static leave without an instance": ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST),
    "an unknown assignor": ({"server_assignor": "mine"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
    "a pattern that is none": ({"subscribed_topic_regex": "("}, ErrorCode.INVALID_REGULAR_EXPRESSION),
    "a pattern that looks ahead": ({"subscribed_topic_regex": "(?=a)"}, ErrorCode.INVALID_REGULAR_EXPRESSION),
    "an epoch in a group that does not exist": (
        {"member_epoch": 7, "group_id": "none"},
        ErrorCode.GROUP_ID_NOT_FOUND,
    ),
    "a leave from a group that does not exist": (
        {"member_epoch": -1, "group_id": "none"},
        ErrorCode.GROUP_ID_NOT_FOUND,
    ),
    "a member nobody knows": ({"member_epoch": 7}, ErrorCode.UNKNOWN_MEMBER_ID),
    "one member too many": ({}, ErrorCode.GROUP_MAX_SIZE_REACHED),
}


@pytest.mark.feature("CG-13")
@pytest.mark.parametrize(("changes", "error"), BAD_JOINS.values(), ids=BAD_JOINS.keys())
def test_bad_requests_are_refused_and_change_nothing(changes: dict[str, object], error: ErrorCode) -> None:
    rig = Rig(group_consumer_max_size=2 if changes else 1)
    rig.create_topic("news", 1)
    Reader(rig, "a", "news").join()
    log = list(rig.log)
    fields: dict[str, Any] = {
        "member_id": "b",
        "member_epoch": 0,
        "rebalance_timeout_ms": 1000,
        "subscribed_topic_names": ["news"],
        "topic_partitions": [],
        **changes,
    }
    answer = rig.heartbeat(**fields)
    assert answer.error_code == error
    assert answer.error_message
    assert rig.log == log
