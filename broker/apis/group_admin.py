"""ListGroups (16), DescribeGroups (15), ConsumerGroupDescribe (69), DeleteGroups (42): groups as tools see them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from broker.apis.group_calls import GROUP_OPERATIONS, consumer_protocol_is_enabled
from broker.apis.looks import Looks
from broker.coordinator.coordinator import work_of_key
from broker.coordinator.outcome import NOBODY
from broker.coordinator.shard import ShardState
from broker.groups.description import Description
from broker.groups.machine import ClassicDescription, ConsumerDescription
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import consumer_group_describe as consumer
from protocol.messages import describe_groups as classic
from protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from runtime.dispatch import Call
from runtime.meter import ANSWER_TOO_LARGE, STEP_ITEMS, Meter
from runtime.server import Steps

if TYPE_CHECKING:
    from broker.services import BrokerServices

Group = TypeVar("Group", classic.DescribedGroup, consumer.DescribedGroup)
Member = TypeVar("Member", classic.DescribedGroupMember, consumer.Member)


def list_groups(broker: BrokerServices, call: Call) -> Steps:
    request: ListGroupsRequest = call.message
    shards = broker.groups.shards
    if broker.groups.may_be_deposed:
        call.answer(ListGroupsResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE))
        return
    if any(shard.state is not ShardState.ACTIVE for shard in shards):
        # What can be told now would not be all.
        call.answer(ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        return
    meter = Meter(call)
    looks: Looks[list[ListedGroup] | ErrorCode] = Looks(call, lambda _, code: code)
    for shard in shards:
        groups = []
        for listed in shard.machine.listed(request):
            if listed is not None:
                groups.append(listed)
                meter.answer_grows()
            if meter.step_ends():
                yield None
        looks.rests_on(shard)
        looks.put(groups)

    def finish(parts: Sequence[list[ListedGroup] | ErrorCode]) -> None:
        call.answer(_listed(parts))

    looks.settle(finish)


def _listed(parts: Sequence[list[ListedGroup] | ErrorCode]) -> ListGroupsResponse:
    response = ListGroupsResponse()
    for part in parts:
        if isinstance(part, list):
            response.groups += part
        elif part is not ErrorCode.NOT_COORDINATOR:
            return ListGroupsResponse(error_code=part)
    return response


def describe_groups(broker: BrokerServices, call: Call) -> Steps:
    request: classic.DescribeGroupsRequest = call.message

    def look(group_id: str, looks: Looks[classic.DescribedGroup]) -> ClassicDescription:
        shard = broker.groups.shard(group_id)
        looks.rests_on(shard)
        return shard.machine.describe_classic(group_id, call.version)

    def error(group_id: str, code: ErrorCode) -> classic.DescribedGroup:
        return classic.DescribedGroup(group_id=group_id, error_code=code)

    def finish(groups: Sequence[classic.DescribedGroup]) -> None:
        call.answer(classic.DescribeGroupsResponse(groups=list(groups)))

    yield from _describe_all(call, _Describing(request.groups, look, error, _size_of_classic, finish))


def _size_of_classic(member: classic.DescribedGroupMember) -> tuple[int, int]:
    return 1, len(member.member_metadata) + len(member.member_assignment) + len(member.member_id)


def consumer_group_describe(broker: BrokerServices, call: Call) -> Steps:
    request: consumer.ConsumerGroupDescribeRequest = call.message
    is_enabled = consumer_protocol_is_enabled(broker)

    def look(group_id: str, looks: Looks[consumer.DescribedGroup]) -> ConsumerDescription:
        if not is_enabled:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        shard = broker.groups.shard(group_id)
        looks.rests_on(shard)
        return shard.machine.describe_consumer(group_id)

    def error(group_id: str, code: ErrorCode) -> consumer.DescribedGroup:
        return consumer.DescribedGroup(group_id=group_id, error_code=code)

    def finish(groups: Sequence[consumer.DescribedGroup]) -> None:
        call.answer(consumer.ConsumerGroupDescribeResponse(groups=list(groups)))

    yield from _describe_all(call, _Describing(request.group_ids, look, error, _size_of_consumer, finish))


def _size_of_consumer(member: consumer.Member) -> tuple[int, int]:
    partitions = [*member.assignment.topic_partitions, *member.target_assignment.topic_partitions]
    size_bytes = sum(4 * len(it.partitions) for it in partitions)
    size_bytes += sum(map(len, member.subscribed_topic_names)) + len(member.subscribed_topic_regex or "")
    return 1 + len(partitions) + len(member.subscribed_topic_names), size_bytes


@dataclass(frozen=True, slots=True)
class _Describing(Generic[Group, Member]):
    """A request that asks for groups by their ids."""

    group_ids: Sequence[str]
    look: Callable[[str, Looks[Group]], Description[Group, Member]]
    """Describes one group. Raises KafkaError if its coordinator is not here."""
    error: Callable[[str, ErrorCode], Group]
    size: Callable[[Member], tuple[int, int]]
    """The elements of a member, and the bytes of its strings."""
    finish: Callable[[Sequence[Group]], None]


def _describe_all(call: Call, asked: _Describing[Group, Member]) -> Steps:
    """Describe one group after the other, and one member after the other. A group that is named twice is described
    once: an answer is much longer than its question."""
    group_ids = list(dict.fromkeys(asked.group_ids))
    authorizes = call.message.include_authorized_operations
    meter = Meter(call)
    looks: Looks[Group] = Looks(call, lambda place, code: asked.error(group_ids[place], code))
    for group_id in group_ids:
        meter.answer_grows(1, len(group_id))
        if meter.step_ends(2 + work_of_key(group_id)):
            yield None
        try:
            group, members = asked.look(group_id, looks)
        except KafkaError as error:
            looks.refuse(error.code)
            continue
        looks.put(group)
        if authorizes and group.error_code == ErrorCode.NONE:
            group.authorized_operations = GROUP_OPERATIONS
        described: list[Any] = group.members
        for member in members:
            described.append(member)
            elements, size_bytes = asked.size(member)
            meter.answer_grows(elements, size_bytes)
            if meter.step_ends(1 + elements):
                yield None
            if meter.is_full:
                break
        if meter.is_full:
            looks.parts[-1] = asked.error(group_id, ANSWER_TOO_LARGE)
    looks.settle(asked.finish)


def delete_groups(broker: BrokerServices, call: Call) -> Steps:
    """The offsets of a group go first, so many with one batch; with the last of them goes the group."""
    request: DeleteGroupsRequest = call.message
    group_ids = list(dict.fromkeys(request.groups_names))
    meter = Meter(call)

    def error(place: int, code: ErrorCode) -> DeletableGroupResult:
        return DeletableGroupResult(group_id=group_ids[place], error_code=code)

    looks: Looks[DeletableGroupResult] = Looks(call, error)
    for group_id in group_ids:
        try:
            shard = broker.groups.shard(group_id)
            while (deleted := shard.carry_out_now(partial(shard.machine.delete, group_id, NOBODY))) is None:
                yield None
            looks.rests_on(shard)
            looks.put(deleted)
            meter.step_ends(STEP_ITEMS - 1)
        except KafkaError as refusal:
            looks.refuse(refusal.code)
        meter.answer_grows(1, len(group_id))
        if meter.step_ends(1 + work_of_key(group_id)):
            yield None

    def finish(results: Sequence[DeletableGroupResult]) -> None:
        call.answer(DeleteGroupsResponse(results=list(results)))

    looks.settle(finish)
