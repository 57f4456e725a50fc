"""DescribeGroups (15), ConsumerGroupDescribe (69), ShareGroupDescribe (77), StreamsGroupDescribe (89)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Generic, TypeVar

from barnabas.broker.apis.coordinator_reads import CoordinatorReads
from barnabas.broker.apis.group_calls import GroupShards
from barnabas.broker.apis.rights import may_on_groups, may_on_topics, parted
from barnabas.broker.authorized_operations import group_operations
from barnabas.broker.coordinator.coordinator import work_of_key
from barnabas.broker.groups.description import Description
from barnabas.broker.groups.machine import ClassicDescription, GroupMachine
from barnabas.protocol.acls import AclOperation
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import consumer_group_describe as consumer
from barnabas.protocol.messages import describe_groups as classic
from barnabas.protocol.messages import share_group_describe as share
from barnabas.protocol.messages import streams_group_describe as streams
from barnabas.protocol.schema import Message
from barnabas.runtime.dispatch import Call
from barnabas.runtime.meter import ANSWER_TOO_LARGE, Meter
from barnabas.runtime.server import Steps

Group = TypeVar(
    "Group", classic.DescribedGroup, consumer.DescribedGroup, share.DescribedGroup, streams.DescribedGroup
)
Member = TypeVar(
    "Member", classic.DescribedGroupMember, consumer.Member, share.Member, streams.Member | streams.Subtopology
)


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


@dataclass(frozen=True, slots=True)
class _EpochGroups(Generic[Group, Member]):
    """How groups of one type with a group epoch are described."""

    group: Callable[..., Group]
    response: Callable[..., Message]
    describe: Callable[[GroupMachine, str], Description[Group, Member]]
    size: Callable[[Member], tuple[int, int]]
    topics: Callable[[Member], Iterable[str]]

    def handle(self, groups: GroupShards, is_enabled: Callable[[], bool], call: Call) -> Steps:
        """`is_enabled` returns True if groups of this type are enabled."""
        enabled = is_enabled()

        def read(group_id: str, reads: CoordinatorReads[Group]) -> Description[Group, Member]:
            if not enabled:
                raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
            if not group_id:
                raise KafkaError(ErrorCode.INVALID_GROUP_ID)
            shard = groups.shard(group_id)
            reads.depends_on(shard)
            return self.describe(shard.machine, group_id)

        def error(group_id: str, code: ErrorCode) -> Group:
            return self.group(group_id=group_id, error_code=code)

        def finish(described: Sequence[Group]) -> None:
            call.answer(self.response(groups=list(described)))

        group_ids: list[str] = call.message.group_ids
        asked = _Describing(group_ids, read, error, self.size, finish, self.topics, is_checked=enabled)
        yield from _describe_all(call, asked)


def _topics_of(member: consumer.Member) -> Iterable[str]:
    assigned = chain(member.assignment.topic_partitions, member.target_assignment.topic_partitions)
    return (it.topic_name for it in assigned)


def _size_of_consumer(member: consumer.Member) -> tuple[int, int]:
    partitions = [*member.assignment.topic_partitions, *member.target_assignment.topic_partitions]
    size_bytes = sum(4 * len(it.partitions) for it in partitions)
    size_bytes += sum(map(len, member.subscribed_topic_names)) + len(member.subscribed_topic_regex or "")
    return 1 + len(partitions) + len(member.subscribed_topic_names), size_bytes


def _topics_of_share(member: share.Member) -> Iterable[str]:
    return (it.topic_name for it in member.assignment.topic_partitions)


def _size_of_share(member: share.Member) -> tuple[int, int]:
    partitions = member.assignment.topic_partitions
    size_bytes = sum(4 * len(it.partitions) for it in partitions) + sum(map(len, member.subscribed_topic_names))
    return 1 + len(partitions) + len(member.subscribed_topic_names), size_bytes


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


_CONSUMER: _EpochGroups[consumer.DescribedGroup, consumer.Member] = _EpochGroups(
    consumer.DescribedGroup,
    consumer.ConsumerGroupDescribeResponse,
    GroupMachine.describe_consumer,
    _size_of_consumer,
    _topics_of,
)
_SHARE: _EpochGroups[share.DescribedGroup, share.Member] = _EpochGroups(
    share.DescribedGroup,
    share.ShareGroupDescribeResponse,
    GroupMachine.describe_share,
    _size_of_share,
    _topics_of_share,
)
_STREAMS: _EpochGroups[streams.DescribedGroup, streams.Member | streams.Subtopology] = _EpochGroups(
    streams.DescribedGroup,
    streams.StreamsGroupDescribeResponse,
    GroupMachine.describe_streams,
    _size_of_streams,
    _topics_of_streams,
)
consumer_group_describe = _CONSUMER.handle
share_group_describe = _SHARE.handle
streams_group_describe = _STREAMS.handle
