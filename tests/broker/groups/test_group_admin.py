"""Groups as admin clients see them: listed, described and deleted, of every kind."""

from __future__ import annotations

import pytest

from barnabas.broker.groups.group import GroupType
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import consumer_group_describe
from barnabas.protocol.messages.delete_groups import DeletableGroupResult
from barnabas.protocol.messages.describe_groups import DescribedGroup
from barnabas.protocol.messages.group_log import GroupMetadataKey, GroupMetadataValue, MemberMetadata, OffsetCommitKey
from barnabas.protocol.messages.list_groups import ListedGroup, ListGroupsRequest
from tests.broker.groups.machine_bench import Bench
from tests.broker.groups.offset_words import FakeGroup, commit, txn_commit


def with_three_groups() -> Bench:
    """A classic group with a member, a consumer group, and one that has only offsets."""
    bench = Bench()
    bench.create_topic("t")
    member = MemberMetadata(member_id="m", client_id="c", client_host="/h", subscription=b"s", assignment=b"a")
    value = GroupMetadataValue(protocol_type="connect", generation=3, protocol="p", leader="m", members=[member])
    bench.machine.replay(GroupMetadataKey(group="classic"), value, None, 0)
    bench.machine.groups.put(FakeGroup("modern", kind=GroupType.CONSUMER, state="Reconciling"))
    commit(bench, "t", 1, group="simple")
    return bench


@pytest.mark.feature("CG-08")
@pytest.mark.parametrize(
    ("states", "types", "expected"),
    [
        ([], [], ["classic", "modern", "simple"]),
        (["Stable"], [], ["classic"]),
        ([" stable ", "EMPTY"], [], ["classic", "simple"]),
        ([], ["Classic"], ["classic", "simple"]),
        ([], ["consumer", "share"], ["modern"]),
        (["Empty"], ["consumer"], []),
        (["Sleepy"], [], []),
        ([], ["knitting"], []),
    ],
)
def test_groups_are_listed_by_state_and_type(states: list[str], types: list[str], expected: list[str]) -> None:
    bench = with_three_groups()
    listed = bench.machine.listed(ListGroupsRequest(states_filter=states, types_filter=types))
    assert [group.group_id for group in listed if group is not None] == expected


def test_the_fields_of_a_listed_group() -> None:
    bench = with_three_groups()
    assert list(bench.machine.listed(ListGroupsRequest())) == [
        ListedGroup(group_id="classic", protocol_type="connect", group_state="Stable", group_type="classic"),
        ListedGroup(group_id="modern", protocol_type="consumer", group_state="Reconciling", group_type="consumer"),
        ListedGroup(group_id="simple", protocol_type="", group_state="Empty", group_type="classic"),
    ]


def test_classic_groups_are_described_and_those_without_members_too() -> None:
    bench = with_three_groups()
    described = bench.machine.describe_classic("classic", 6).complete()
    assert (described.error_code, described.group_state, described.protocol_type) == (0, "Stable", "connect")
    assert [member.member_assignment for member in described.members] == [b"a"]
    simple = bench.machine.describe_classic("simple", 6).complete()
    assert simple == DescribedGroup(group_id="simple", group_state="Empty")


@pytest.mark.parametrize(
    ("group_id", "message"),
    [("nobody", "Group nobody not found."), ("modern", "Group modern is not a classic group.")],
)
def test_other_groups_are_described_as_dead_classic_groups(group_id: str, message: str) -> None:
    bench = with_three_groups()
    old = bench.machine.describe_classic(group_id, 5).complete()
    assert old == DescribedGroup(group_id=group_id, group_state="Dead")
    new = bench.machine.describe_classic(group_id, 6).complete()
    assert new == DescribedGroup(
        group_id=group_id, group_state="Dead", error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message=message
    )


@pytest.mark.parametrize(
    ("group_id", "message"),
    [
        ("nobody", "Group nobody not found."),
        ("classic", "Group classic is not a consumer group."),
        ("simple", "Group simple is not a consumer group."),
    ],
)
@pytest.mark.feature("CG-13")
def test_other_groups_cannot_be_described_as_consumer_groups(group_id: str, message: str) -> None:
    bench = with_three_groups()
    assert bench.machine.describe_consumer(group_id).complete() == consumer_group_describe.DescribedGroup(
        group_id=group_id, error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message=message
    )


@pytest.mark.feature("CG-05")
def test_deleting_a_group_deletes_its_offsets() -> None:
    bench = with_three_groups()
    bench.machine.groups.put(FakeGroup("left", state="Empty"))
    commit(bench, "t", 1, group="left")
    txn_commit(bench, "t", 2, 7, group="left")
    place = len(bench.log)
    assert bench.ask(bench.machine.delete, "left") == DeletableGroupResult(group_id="left")
    assert bench.written_since(place) == [
        (OffsetCommitKey(group="left", topic="t", partition=0), None),
        (GroupMetadataKey(group="left"), None),
    ]
    assert "left" not in bench.machine.offsets.committed


@pytest.mark.parametrize(
    ("group_id", "error"),
    [("nobody", ErrorCode.GROUP_ID_NOT_FOUND), ("classic", ErrorCode.NON_EMPTY_GROUP)],
)
def test_a_group_in_use_or_unknown_cannot_be_deleted(group_id: str, error: ErrorCode) -> None:
    bench = with_three_groups()
    place = len(bench.log)
    with pytest.raises(KafkaError) as refused:
        bench.ask(bench.machine.delete, group_id)
    assert refused.value.code is error
    assert len(bench.log) == place


def test_a_deleted_group_is_unknown_to_a_new_coordinator() -> None:
    bench = with_three_groups()
    bench.ask(bench.machine.delete, "simple")
    bench.reload()
    assert bench.machine.offsets.group("simple") is None
