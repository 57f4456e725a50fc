"""ListGroups (16), DescribeGroups (15), ConsumerGroupDescribe (69), ShareGroupDescribe (77), StreamsGroupDescribe (89),
DeleteGroups (42)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Generic, TypeVar

from barnabas.broker.apis.coordinator_reads import CoordinatorReads
from barnabas.broker.apis.group_calls import GroupShards
from barnabas.broker.apis.rights import May, may_on_groups, may_on_topics, parted
from barnabas.broker.apis.share_group_offsets import delete_states_of_group
from barnabas.broker.authorized_operations import group_operations
from barnabas.broker.coordinator.coordinator import work_of_key
from barnabas.broker.coordinator.outcome import NOBODY
from barnabas.broker.coordinator.shard import ShardState
from barnabas.broker.groups.description import Description
from barnabas.broker.groups.machine import ClassicDescription, ConsumerDescription, ShareDescription
from barnabas.broker.groups.streams.description import StreamsDescription
from barnabas.broker.shares.state import ShareStateStore
from barnabas.protocol.acls import AclOperation
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import consumer_group_describe as consumer
from barnabas.protocol.messages import describe_groups as classic
from barnabas.protocol.messages import share_group_describe as share
from barnabas.protocol.messages import streams_group_describe as streams
from barnabas.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from barnabas.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from barnabas.runtime.dispatch import Call
from barnabas.runtime.meter import ANSWER_TOO_LARGE, STEP_ITEMS, Meter
from barnabas.runtime.server import Steps

Group = TypeVar(
    "Group", classic.DescribedGroup, consumer.DescribedGroup, share.DescribedGroup, streams.DescribedGroup
)
Member = TypeVar(
    "Member", classic.DescribedGroupMember, consumer.Member, share.Member, streams.Member | streams.Subtopology
)


def list_groups(groups: GroupShards, call: Call) -> Steps:
    request: ListGroupsRequest = call.message
    shards = groups.shards
    if groups.may_be_deposed:
        call.answer(ListGroupsResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE))
        return
    if any(shard.state is not ShardState.ACTIVE for shard in shards):
        # The list would be incomplete.
        call.answer(ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        return
    meter = Meter(call)
    may_describe = _may_list(call)
    reads: CoordinatorReads[list[ListedGroup] | ErrorCode] = CoordinatorReads(call, lambda _, code: code)
    for shard in shards:
        found = []
        for listed in shard.machine.listed(request):
            if listed is not None and may_describe(listed.group_id):
                found.append(listed)
                meter.answer_grows()
            if meter.step_ends():
                yield None
        reads.depends_on(shard)
        reads.put(found)

    def finish(parts: Sequence[list[ListedGroup] | ErrorCode]) -> None:
        call.answer(_listed(parts))

    reads.settle(finish)


def _may_list(call: Call) -> May:
    """True for a group that the client gets to see. All of them, if it may describe the cluster."""
    if call.may_on_cluster(AclOperation.DESCRIBE, audited=False):
        return lambda _: True
    return may_on_groups(call, AclOperation.DESCRIBE, audited=False)


def _listed(parts: Sequence[list[ListedGroup] | ErrorCode]) -> ListGroupsResponse:
    response = ListGroupsResponse()
    for part in parts:
        if isinstance(part, list):
            response.groups += part
        elif part is not ErrorCode.NOT_COORDINATOR:
            return ListGroupsResponse(error_code=part)
    return response


def describe_groups(groups: GroupShards, call: Call) -> Steps:
    request: classic.DescribeGroupsRequest = call.message

    def read(group_id: str, reads: CoordinatorReads[classic.DescribedGroup]) -> ClassicDescription:
        shard = groups.shard(group_id)
        reads.depends_on(shard)
        return shard.machine.describe_classic(group_id, call.version)

    def error(group_id: str, code: ErrorCode) -> classic.DescribedGroup:
        return classic.DescribedGroup(group_id=group_id, error_code=code)

    def finish(described: Sequence[classic.DescribedGroup]) -> None:
        call.answer(classic.DescribeGroupsResponse(groups=list(described)))

    yield from _describe_all(call, _Describing(request.groups, read, error, _size_of_classic, finish, _no_topics))


def _no_topics(_: classic.DescribedGroupMember) -> Iterable[str]:
    """The descriptions of classic groups contain topics in bytes that only clients read."""
    return ()


def _size_of_classic(member: classic.DescribedGroupMember) -> tuple[int, int]:
    return 1, len(member.member_metadata) + len(member.member_assignment) + len(member.member_id)


def consumer_group_describe(groups: GroupShards, is_enabled: Callable[[], bool], call: Call) -> Steps:
    """`is_enabled`: whether the consumer protocol is."""
    request: consumer.ConsumerGroupDescribeRequest = call.message
    enabled = is_enabled()

    def read(group_id: str, reads: CoordinatorReads[consumer.DescribedGroup]) -> ConsumerDescription:
        if not enabled:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        shard = groups.shard(group_id)
        reads.depends_on(shard)
        return shard.machine.describe_consumer(group_id)

    def error(group_id: str, code: ErrorCode) -> consumer.DescribedGroup:
        return consumer.DescribedGroup(group_id=group_id, error_code=code)

    def finish(described: Sequence[consumer.DescribedGroup]) -> None:
        call.answer(consumer.ConsumerGroupDescribeResponse(groups=list(described)))

    asked = _Describing(request.group_ids, read, error, _size_of_consumer, finish, _topics_of, is_checked=enabled)
    yield from _describe_all(call, asked)


def _topics_of(member: consumer.Member) -> Iterable[str]:
    assigned = chain(member.assignment.topic_partitions, member.target_assignment.topic_partitions)
    return (it.topic_name for it in assigned)


def _size_of_consumer(member: consumer.Member) -> tuple[int, int]:
    partitions = [*member.assignment.topic_partitions, *member.target_assignment.topic_partitions]
    size_bytes = sum(4 * len(it.partitions) for it in partitions)
    size_bytes += sum(map(len, member.subscribed_topic_names)) + len(member.subscribed_topic_regex or "")
    return 1 + len(partitions) + len(member.subscribed_topic_names), size_bytes


def share_group_describe(groups: GroupShards, is_enabled: Callable[[], bool], call: Call) -> Steps:
    """`is_enabled`: whether share groups are."""
    request: share.ShareGroupDescribeRequest = call.message
    enabled = is_enabled()

    def read(group_id: str, reads: CoordinatorReads[share.DescribedGroup]) -> ShareDescription:
        if not enabled:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        shard = groups.shard(group_id)
        reads.depends_on(shard)
        return shard.machine.describe_share(group_id)

    def error(group_id: str, code: ErrorCode) -> share.DescribedGroup:
        return share.DescribedGroup(group_id=group_id, error_code=code)

    def finish(described: Sequence[share.DescribedGroup]) -> None:
        call.answer(share.ShareGroupDescribeResponse(groups=list(described)))

    asked = _Describing(request.group_ids, read, error, _size_of_share, finish, _topics_of_share, is_checked=enabled)
    yield from _describe_all(call, asked)


def _topics_of_share(member: share.Member) -> Iterable[str]:
    return (it.topic_name for it in member.assignment.topic_partitions)


def _size_of_share(member: share.Member) -> tuple[int, int]:
    partitions = member.assignment.topic_partitions
    size_bytes = sum(4 * len(it.partitions) for it in partitions) + sum(map(len, member.subscribed_topic_names))
    return 1 + len(partitions) + len(member.subscribed_topic_names), size_bytes


def streams_group_describe(groups: GroupShards, is_enabled: Callable[[], bool], call: Call) -> Steps:
    """`is_enabled`: whether streams groups are."""
    request: streams.StreamsGroupDescribeRequest = call.message
    enabled = is_enabled()

    def read(group_id: str, reads: CoordinatorReads[streams.DescribedGroup]) -> StreamsDescription:
        if not enabled:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        shard = groups.shard(group_id)
        reads.depends_on(shard)
        return shard.machine.describe_streams(group_id)

    def error(group_id: str, code: ErrorCode) -> streams.DescribedGroup:
        return streams.DescribedGroup(group_id=group_id, error_code=code)

    def finish(described: Sequence[streams.DescribedGroup]) -> None:
        call.answer(streams.StreamsGroupDescribeResponse(groups=list(described)))

    size, topics = _size_of_streams, _topics_of_streams
    asked = _Describing(request.group_ids, read, error, size, finish, topics, is_checked=enabled)
    yield from _describe_all(call, asked)


def _topics_of_streams(part: streams.Member | streams.Subtopology) -> Iterable[str]:
    if isinstance(part, streams.Member):
        return ()
    internal = (it.name for it in chain(part.repartition_source_topics, part.state_changelog_topics))
    return chain(part.source_topics, part.repartition_sink_topics, internal)


def _size_of_streams(part: streams.Member | streams.Subtopology) -> tuple[int, int]:
    if isinstance(part, streams.Subtopology):
        infos = [*part.repartition_source_topics, *part.state_changelog_topics]
        names = [*part.source_topics, *part.repartition_sink_topics, *(it.name for it in infos)]
        configs = [text for it in infos for config in it.topic_configs for text in (config.key, config.value)]
        return 1 + len(names) + len(configs), sum(map(len, names)) + sum(map(len, configs))
    now, target = part.assignment, part.target_assignment
    tasks = [it for each in (now, target) for it in (*each.active_tasks, *each.standby_tasks, *each.warmup_tasks)]
    size_bytes = sum(4 * len(it.partitions) + len(it.subtopology_id) for it in tasks)
    size_bytes += sum(len(tag.key) + len(tag.value) for tag in part.client_tags)
    return 1 + len(tasks) + len(part.client_tags), size_bytes


@dataclass(frozen=True, slots=True)
class _Describing(Generic[Group, Member]):
    """A request that describes groups by id."""

    group_ids: Sequence[str]
    read: Callable[[str, CoordinatorReads[Group]], Description[Group, Member]]
    """Describes one group. Raises KafkaError if its coordinator is not here."""
    error: Callable[[str, ErrorCode], Group]
    size: Callable[[Member], tuple[int, int]]
    """Elements of a member (or of another part of a group), and bytes of its strings."""
    finish: Callable[[Sequence[Group]], None]
    topics: Callable[[Member], Iterable[str]]
    """Topics that the description of a member names."""
    is_checked: bool = True
    """False: all groups have an error that anybody may see."""


def _describe_all(call: Call, asked: _Describing[Group, Member]) -> Steps:
    """Describes one group and one member at a time. A group named twice is described once: the response is much longer
    than the request. Groups that the client may not describe come first."""
    group_ids = list(dict.fromkeys(asked.group_ids))
    authorizes = call.message.include_authorized_operations
    meter = Meter(call)
    may_describe_topic = may_on_topics(call, AclOperation.DESCRIBE)
    refused: list[str] = []
    if asked.is_checked:
        group_ids, refused = yield from parted(group_ids, may_on_groups(call, AclOperation.DESCRIBE), meter)
        group_ids[:0] = refused
    reads: CoordinatorReads[Group] = CoordinatorReads(call, lambda place, code: asked.error(group_ids[place], code))
    for place, group_id in enumerate(group_ids):
        meter.answer_grows(1, len(group_id))
        if place < len(refused):
            reads.refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED)
            if meter.step_ends():
                yield None
            continue
        if meter.step_ends(2 + work_of_key(group_id)):
            yield None
        try:
            group, members = asked.read(group_id, reads)
        except KafkaError as error:
            reads.refuse(error.code)
            continue
        reads.put(group)
        if authorizes and group.error_code == ErrorCode.NONE:
            group.authorized_operations = group_operations(call, group_id)
        for member in members:
            if call.has_authorizer and (yield from parted(asked.topics(member), may_describe_topic, meter))[1]:
                reads.parts[-1] = _hidden(asked.error(group_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
                break
            _list_of(group, member).append(member)
            elements, size_bytes = asked.size(member)
            meter.answer_grows(elements, size_bytes)
            if meter.step_ends(1 + elements):
                yield None
            if meter.is_full:
                break
        if meter.is_full:
            reads.parts[-1] = asked.error(group_id, ANSWER_TOO_LARGE)
    reads.settle(asked.finish)


def _list_of(group: Group, part: Member) -> list[Any]:
    """The list of the group's description that `part` belongs to."""
    if isinstance(part, streams.Subtopology):
        assert isinstance(group, streams.DescribedGroup) and group.topology is not None
        assert group.topology.subtopologies is not None
        return group.topology.subtopologies
    return group.members


def _hidden(group: Group) -> Group:
    if isinstance(group, consumer.DescribedGroup | share.DescribedGroup):
        group.error_message = "The group has described topic(s) that the client is not authorized to describe."
    if isinstance(group, streams.DescribedGroup):
        group.error_message = "The described group uses topics that the client is not authorized to describe."
    return group


def delete_groups(groups: GroupShards, share_states: ShareStateStore, call: Call) -> Steps:
    """Deletes the states of share groups first, which takes a while."""
    request: DeleteGroupsRequest = call.message
    meter = Meter(call)
    may_delete = may_on_groups(call, AclOperation.DELETE)
    group_ids, refused = yield from parted(dict.fromkeys(request.groups_names), may_delete, meter)
    share_groups = []
    for group_id in group_ids:
        if _is_share_group(groups, group_id):
            share_groups.append(group_id)
        if meter.step_ends(1 + work_of_key(group_id)):
            yield None
    if share_groups:
        call.spawn(_delete_states_first, groups, share_states, call, (group_ids, refused, share_groups))
    else:
        yield from _delete_all(groups, call, group_ids, refused, {})


def _is_share_group(groups: GroupShards, group_id: str) -> bool:
    try:
        return groups.shard(group_id).machine.shares.find(group_id) is not None
    except KafkaError:
        # The deletion reports it.
        return False


async def _delete_states_first(
    groups: GroupShards, store: ShareStateStore, call: Call, ids: tuple[list[str], list[str], list[str]]
) -> None:
    group_ids, refused, share_groups = ids
    failed: dict[str, ErrorCode] = {}
    for group_id in share_groups:
        try:
            await delete_states_of_group(groups, store, group_id)
        except KafkaError as error:
            failed[group_id] = error.code
    await call.take_steps(_delete_all(groups, call, group_ids, refused, failed))


def _delete_all(
    groups: GroupShards, call: Call, group_ids: list[str], refused: list[str], failed: Mapping[str, ErrorCode]
) -> Steps:
    """Deletes the offsets of a group first, a bounded number with each batch; the last batch deletes the group. The
    groups in `failed` get their errors."""
    meter = Meter(call)

    def error(place: int, code: ErrorCode) -> DeletableGroupResult:
        return DeletableGroupResult(group_id=group_ids[place], error_code=code)

    reads: CoordinatorReads[DeletableGroupResult] = CoordinatorReads(call, error)
    for group_id in group_ids:
        try:
            if group_id in failed:
                raise KafkaError(failed[group_id])
            shard = groups.shard(group_id)
            while (deleted := shard.carry_out_now(partial(shard.machine.delete, group_id, NOBODY))) is None:
                yield None
            reads.depends_on(shard)
            reads.put(deleted)
            meter.step_ends(STEP_ITEMS - 1)
        except KafkaError as refusal:
            reads.refuse(refusal.code)
        meter.answer_grows(1, len(group_id))
        if meter.step_ends(1 + work_of_key(group_id)):
            yield None

    group_ids += refused
    for group_id in refused:
        reads.refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        meter.answer_grows(1, len(group_id))
        if meter.step_ends():
            yield None

    def finish(results: Sequence[DeletableGroupResult]) -> None:
        call.answer(DeleteGroupsResponse(results=list(results)))

    reads.settle(finish)
