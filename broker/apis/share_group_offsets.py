"""DescribeShareGroupOffsets (90), AlterShareGroupOffsets (91), DeleteShareGroupOffsets (92): where a share group reads.

The offsets are in the states at the share coordinators; the group coordinator asks for them, or changes them, and keeps
the list of the group's share partitions (KIP-932, KIP-1226).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import trio

from barnabas.broker.apis.group_calls import GroupShards, run_on_group
from barnabas.broker.apis.rights import may_on_topics
from barnabas.broker.coordinator.outcome import Operation, Outcome, Reply
from barnabas.broker.groups.machine import GroupMachine
from barnabas.broker.groups.share_topics import TopicStates
from barnabas.broker.shares.group_states import divided, for_each, keys_of
from barnabas.broker.shares.state import (
    NO_EPOCH,
    UNINITIALIZED_OFFSET,
    UNKNOWN_COUNT,
    SharePartitionKey,
    ShareStateStore,
    ShareStateSummary,
)
from barnabas.kraft.authorizer.refusals import refusal_on
from barnabas.kraft.metadata.image import MetadataImage
from barnabas.protocol.acls import AclOperation, AclResourceType
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import alter_share_group_offsets as alter
from barnabas.protocol.messages import delete_share_group_offsets as delete
from barnabas.protocol.messages import describe_share_group_offsets as describe
from barnabas.protocol.offset_times import PartitionEnds
from barnabas.runtime.dispatch import Call
from barnabas.runtime.meter import ANSWER_TOO_LARGE, MOST_ANSWER_BYTES

UNKNOWN_LAG = -1
PARTITION_BYTES = 300
"""Memory of one partition of an answer, and of the work on it."""
MOST_PARTITIONS = MOST_ANSWER_BYTES // PARTITION_BYTES

TopicPartition = tuple[str, int]
EndOffsets = Callable[[Iterable[TopicPartition]], Awaitable[Mapping[TopicPartition, PartitionEnds]]]


@dataclass(frozen=True, slots=True)
class ShareOffsetPorts:
    groups: GroupShards
    store: ShareStateStore
    image: Callable[[], MetadataImage]
    end_offsets: EndOffsets
    """Log ends of partitions, wherever their leaders are."""
    is_enabled: Callable[[], bool]
    """Whether share groups are."""


async def ask_group(groups: GroupShards, group_id: str, command: Callable[[GroupMachine, Reply], Operation]) -> Any:
    """The answer of the group's state machine, once it is replicated. Raises KafkaError."""
    answered = trio.Event()
    answers: list[Any] = []
    codes: list[ErrorCode] = []

    def answer(value: Any) -> None:
        answers.append(value)
        answered.set()

    def refuse(code: ErrorCode) -> None:
        codes.append(code)
        answered.set()

    reply = Reply(answer, refuse)
    run_on_group(groups, group_id, reply, lambda machine: command(machine, reply))
    await answered.wait()
    if codes:
        raise KafkaError(codes[0])
    return answers[0]


# -- DescribeShareGroupOffsets


def describe_share_group_offsets(ports: ShareOffsetPorts, call: Call) -> None:
    call.spawn(_describe, ports, call)


async def _describe(ports: ShareOffsetPorts, call: Call) -> None:
    request: describe.DescribeShareGroupOffsetsRequest = call.message
    response = describe.DescribeShareGroupOffsetsResponse()
    call.is_large = True
    for asked in {group.group_id: group for group in request.groups}.values():
        group = describe.DescribeShareGroupOffsetsResponseGroup(group_id=asked.group_id)
        response.groups.append(group)
        try:
            group.topics = await _described(ports, call, asked)
        except KafkaError as error:
            group.error_code, group.error_message = error.code, error.message
    call.answer(response)


async def _described(
    ports: ShareOffsetPorts, call: Call, asked: describe.DescribeShareGroupOffsetsRequestGroup
) -> list[describe.DescribeShareGroupOffsetsResponseTopic]:
    """Raises KafkaError."""
    if not ports.is_enabled():
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    if not call.may(AclOperation.DESCRIBE, AclResourceType.GROUP, asked.group_id):
        raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    may_describe = may_on_topics(call, AclOperation.DESCRIBE)
    wanted: dict[str, Sequence[int]]
    if asked.topics is None:
        known = await ask_group(ports.groups, asked.group_id, partial(_initialized, asked.group_id))
        topics = ports.image().topics.by_id
        wanted = {
            topics[topic_id].name: sorted(indexes)
            for topic_id, indexes in known.items()
            if topic_id in topics and may_describe(topics[topic_id].name)
        }
    else:
        wanted = {topic.topic_name: topic.partitions for topic in asked.topics}
    if sum(map(len, wanted.values())) > MOST_PARTITIONS:
        raise KafkaError(ANSWER_TOO_LARGE, f"a group must have at most {MOST_PARTITIONS} partitions in one answer")
    described = [
        await _described_topic(ports, asked.group_id, name, indexes)
        for name, indexes in wanted.items()
        if may_describe(name)
    ]
    denied = [name for name in wanted if not may_describe(name)]
    return described + [_denied_topic(name, wanted[name]) for name in denied]


def _initialized(group_id: str, machine: GroupMachine, reply: Reply) -> Operation:
    group = machine.shares.find(group_id)
    partitions = {} if group is None else group.topics.partitions()
    return lambda now: Outcome(answers=[(reply, partitions)])


async def _described_topic(
    ports: ShareOffsetPorts, group_id: str, name: str, indexes: Sequence[int]
) -> describe.DescribeShareGroupOffsetsResponseTopic:
    topic = ports.image().topics.by_name.get(name)
    described = describe.DescribeShareGroupOffsetsResponseTopic(topic_name=name)
    if topic is None:
        described.partitions = [
            describe.DescribeShareGroupOffsetsResponsePartition(partition_index=index, start_offset=-1)
            for index in indexes
        ]
        return described
    described.topic_id = topic.id
    summaries: dict[SharePartitionKey, ShareStateSummary] = {}

    async def read(key: SharePartitionKey) -> None:
        summaries[key] = await ports.store.summary(key, NO_EPOCH)

    # An error is the absence of data, as in OffsetFetch.
    await for_each(keys_of(group_id, {topic.id: indexes}), read)
    with_lag = [
        (name, key.partition)
        for key, it in summaries.items()
        if it.start_offset != UNINITIALIZED_OFFSET and it.delivery_complete_count != UNKNOWN_COUNT
    ]
    ends = await ports.end_offsets(with_lag) if with_lag else {}
    for index in indexes:
        summary = summaries.get(SharePartitionKey(group_id, topic.id, index))
        partition = describe.DescribeShareGroupOffsetsResponsePartition(partition_index=index, start_offset=-1)
        described.partitions.append(partition)
        if summary is None:
            continue
        if (name, index) not in with_lag:
            partition.start_offset, partition.leader_epoch = summary.start_offset, summary.leader_epoch
        elif (name, index) not in ends:
            partition.start_offset = 0
            partition.error_code = ErrorCode.LEADER_NOT_AVAILABLE
        else:
            partition.start_offset, partition.leader_epoch = summary.start_offset, summary.leader_epoch
            end_offset = ends[name, index].high_watermark
            partition.lag = end_offset - summary.start_offset - summary.delivery_complete_count
    return described


def _denied_topic(name: str, indexes: Sequence[int]) -> describe.DescribeShareGroupOffsetsResponseTopic:
    refusal = refusal_on(AclResourceType.TOPIC)
    return describe.DescribeShareGroupOffsetsResponseTopic(
        topic_name=name,
        partitions=[
            describe.DescribeShareGroupOffsetsResponsePartition(
                partition_index=index,
                start_offset=UNINITIALIZED_OFFSET,
                lag=UNKNOWN_LAG,
                error_code=refusal.code,
                error_message=refusal.message,
            )
            for index in indexes
        ],
    )


# -- AlterShareGroupOffsets


def alter_share_group_offsets(ports: ShareOffsetPorts, call: Call) -> None:
    request: alter.AlterShareGroupOffsetsRequest = call.message
    if not ports.is_enabled():
        call.refuse(ErrorCode.UNSUPPORTED_VERSION)
    elif not call.may(AclOperation.READ, AclResourceType.GROUP, request.group_id):
        call.refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    elif not request.group_id:
        call.refuse(ErrorCode.INVALID_GROUP_ID)
    else:
        call.spawn(_alter, ports, call)


async def _alter(ports: ShareOffsetPorts, call: Call) -> None:
    request: alter.AlterShareGroupOffsetsRequest = call.message
    group_id = request.group_id
    may_read = may_on_topics(call, AclOperation.READ)
    topics = ports.image().topics.by_name
    offsets: dict[SharePartitionKey, int] = {}
    results: dict[SharePartitionKey, alter.AlterShareGroupOffsetsResponsePartition] = {}
    response = alter.AlterShareGroupOffsetsResponse()
    for asked in {topic.topic_name: topic for topic in request.topics}.values():
        topic = topics.get(asked.topic_name)
        answered = alter.AlterShareGroupOffsetsResponseTopic(topic_name=asked.topic_name)
        response.responses.append(answered)
        if topic is not None:
            answered.topic_id = topic.id
        for wanted in {it.partition_index: it for it in asked.partitions}.values():
            result = alter.AlterShareGroupOffsetsResponsePartition(partition_index=wanted.partition_index)
            answered.partitions.append(result)
            if not may_read(asked.topic_name):
                refusal = refusal_on(AclResourceType.TOPIC)
                result.error_code, result.error_message = refusal.code, refusal.message
            elif topic is None or wanted.partition_index not in topic.partitions:
                result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                key = SharePartitionKey(group_id, topic.id, wanted.partition_index)
                offsets[key], results[key] = wanted.start_offset, result
    try:
        errors = await _change_offsets(ports, group_id, offsets)
    except KafkaError as error:
        call.refuse(error.code, error.message)
        return
    for key, code in errors.items():
        results[key].error_code = code
    call.answer(response)


async def _change_offsets(
    ports: ShareOffsetPorts, group_id: str, offsets: Mapping[SharePartitionKey, int]
) -> dict[SharePartitionKey, ErrorCode]:
    """Begin new states at these offsets. Raises KafkaError if the group has members or is of another kind."""
    image = ports.image().topics.by_id
    indexes: dict[bytes, set[int]] = {}
    for key in offsets:
        indexes.setdefault(key.topic_id, set()).add(key.partition)
    states = {
        topic_id: TopicStates(image[topic_id].name, frozenset(some))
        for topic_id, some in indexes.items()
        if topic_id in image
    }
    epoch = await ask_group(
        ports.groups,
        group_id,
        lambda machine, reply: partial(machine.shares.begin_alteration, group_id, states, reply),
    )
    errors = await for_each(offsets, lambda key: ports.store.initialize(key, epoch, offsets[key]))
    done, failed = divided(group_id, states, errors)
    await ask_group(
        ports.groups,
        group_id,
        lambda machine, reply: partial(machine.shares.end_alteration, group_id, done, failed, reply),
    )
    return errors


# -- DeleteShareGroupOffsets


def delete_share_group_offsets(ports: ShareOffsetPorts, call: Call) -> None:
    request: delete.DeleteShareGroupOffsetsRequest = call.message
    if not ports.is_enabled():
        call.refuse(ErrorCode.UNSUPPORTED_VERSION)
    elif not call.may(AclOperation.DELETE, AclResourceType.GROUP, request.group_id):
        call.refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    elif not request.group_id:
        call.refuse(ErrorCode.INVALID_GROUP_ID)
    else:
        call.spawn(_delete, ports, call)


async def _delete(ports: ShareOffsetPorts, call: Call) -> None:
    request: delete.DeleteShareGroupOffsetsRequest = call.message
    group_id = request.group_id
    may_read = may_on_topics(call, AclOperation.READ)
    topics = ports.image().topics.by_name
    results: dict[str, delete.DeleteShareGroupOffsetsResponseTopic] = {}
    wanted: dict[bytes, str] = {}
    for asked in request.topics:
        name = asked.topic_name
        results[name] = delete.DeleteShareGroupOffsetsResponseTopic(topic_name=name)
        if not may_read(name):
            refusal = refusal_on(AclResourceType.TOPIC)
            results[name].error_code, results[name].error_message = refusal.code, refusal.message
        elif name not in topics:
            results[name].error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            wanted[topics[name].id] = name
            results[name].topic_id = topics[name].id
    try:
        codes = await _delete_states(ports, group_id, list(wanted))
    except KafkaError as error:
        call.refuse(error.code, error.message)
        return
    for topic_id, name in wanted.items():
        if topic_id not in codes:
            results[name].error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            results[name].error_message = "There is no offset information to delete."
        else:
            results[name].error_code = codes[topic_id]
    call.answer(delete.DeleteShareGroupOffsetsResponse(responses=list(results.values())))


async def _delete_states(ports: ShareOffsetPorts, group_id: str, topic_ids: Sequence[bytes]) -> dict[bytes, ErrorCode]:
    """Delete the states of these topics; returns a result for each that had some. Raises KafkaError."""
    states: Mapping[bytes, frozenset[int]] = await ask_group(
        ports.groups,
        group_id,
        lambda machine, reply: partial(machine.shares.begin_topic_deletion, group_id, topic_ids, reply),
    )
    chosen = {topic_id: indexes for topic_id, indexes in states.items() if topic_id in topic_ids}
    errors = await for_each(keys_of(group_id, chosen), ports.store.delete)
    codes = dict.fromkeys(chosen, ErrorCode.NONE) | {key.topic_id: code for key, code in errors.items()}
    done = [topic_id for topic_id, code in codes.items() if code is ErrorCode.NONE]
    if done:
        await ask_group(
            ports.groups,
            group_id,
            lambda machine, reply: partial(machine.shares.end_topic_deletion, group_id, done, reply),
        )
    return codes


# -- DeleteGroups


async def delete_states_of_group(groups: GroupShards, store: ShareStateStore, group_id: str) -> None:
    """First part of the deletion of a share group. Raises KafkaError."""
    states: Mapping[bytes, frozenset[int]] = await ask_group(
        groups, group_id, lambda machine, reply: partial(machine.shares.begin_deletion, group_id, reply)
    )
    for code in (await for_each(keys_of(group_id, states), store.delete)).values():
        raise KafkaError(code, "the state of a share partition cannot be deleted")
