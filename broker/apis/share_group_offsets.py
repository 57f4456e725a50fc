"""AlterShareGroupOffsets (91) and DeleteShareGroupOffsets (92): they change where a share group reads (KIP-932).

The offsets are in the states at the share coordinators; the group coordinator changes them, and keeps the list of the
group's share partitions. What a request names is gone through in steps.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial
from typing import Any

import trio

from barnabas.broker.apis.group_calls import GroupShards, run_on_group
from barnabas.broker.apis.rights import may_on_topics
from barnabas.broker.coordinator.outcome import Operation, Reply
from barnabas.broker.groups.machine import GroupMachine
from barnabas.broker.groups.share_topics import TopicStates
from barnabas.broker.shares.group_states import divided, for_each, keys_of
from barnabas.broker.shares.state import SharePartitionKey, ShareStateStore
from barnabas.kraft.authorizer.refusals import refusal_on
from barnabas.kraft.metadata.image import MetadataImage
from barnabas.protocol.acls import AclOperation, AclResourceType
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import alter_share_group_offsets as alter
from barnabas.protocol.messages import delete_share_group_offsets as delete
from barnabas.protocol.offset_times import PartitionEnds
from barnabas.protocol.refusals import refusal_of
from barnabas.runtime.dispatch import Call
from barnabas.runtime.meter import Meter
from barnabas.runtime.server import Steps

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


def _check(ports: ShareOffsetPorts, call: Call, operation: AclOperation) -> None:
    """Raises KafkaError if the client may not change the offsets of the group."""
    if not ports.is_enabled():
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    group_id: str = call.message.group_id
    if not call.may(operation, AclResourceType.GROUP, group_id):
        raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)


def _refuse(call: Call, error: KafkaError) -> None:
    """Answer with an error that has no place for topics."""
    call.answer(refusal_of(call.message, call.version, error.code, error.message))


# -- AlterShareGroupOffsets


def alter_share_group_offsets(ports: ShareOffsetPorts, call: Call) -> Steps:
    """A topic or partition that is named twice is altered once, as it was named last."""
    try:
        _check(ports, call, AclOperation.READ)
    except KafkaError as error:
        _refuse(call, error)
        return
    request: alter.AlterShareGroupOffsetsRequest = call.message
    meter = Meter(call)
    topics: dict[str, dict[int, int]] = {}
    for asked in request.topics:
        offsets = topics[asked.topic_name] = {}
        for wanted in asked.partitions:
            offsets[wanted.partition_index] = wanted.start_offset
            if meter.step_ends():
                yield None
        if meter.step_ends():
            yield None
    alteration = _Alteration(ports, call)
    for name, offsets in topics.items():
        yield from alteration.begin(name, offsets, meter)
    call.spawn(alteration.carry_out)


class _Alteration:
    """One AlterShareGroupOffsets until its response."""

    def __init__(self, ports: ShareOffsetPorts, call: Call) -> None:
        self._ports = ports
        self._call = call
        self._topics = ports.image().topics.by_name
        self._may_read = may_on_topics(call, AclOperation.READ)
        self._offsets: dict[SharePartitionKey, int] = {}
        self._results: dict[SharePartitionKey, alter.AlterShareGroupOffsetsResponsePartition] = {}
        self._response = alter.AlterShareGroupOffsetsResponse()

    def begin(self, name: str, offsets: Mapping[int, int], meter: Meter) -> Steps:
        """Answer what cannot be altered; note the rest."""
        topic = self._topics.get(name)
        answered = alter.AlterShareGroupOffsetsResponseTopic(topic_name=name)
        self._response.responses.append(answered)
        meter.answer_grows(1 + len(offsets), len(name))
        if topic is not None:
            answered.topic_id = topic.id
        refusal = None if self._may_read(name) else refusal_on(AclResourceType.TOPIC)
        for index, offset in offsets.items():
            result = alter.AlterShareGroupOffsetsResponsePartition(partition_index=index)
            answered.partitions.append(result)
            if refusal is not None:
                result.error_code, result.error_message = refusal.code, refusal.message
            elif topic is None or index not in topic.partitions:
                result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                key = SharePartitionKey(self._call.message.group_id, topic.id, index)
                self._offsets[key], self._results[key] = offset, result
            if meter.step_ends():
                yield None
        if meter.step_ends():
            yield None

    async def carry_out(self) -> None:
        try:
            errors = await _change_offsets(self._ports, self._call.message.group_id, self._offsets)
        except KafkaError as error:
            _refuse(self._call, error)
            return
        for key, code in errors.items():
            self._results[key].error_code = code
        self._call.answer(self._response)


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


def delete_share_group_offsets(ports: ShareOffsetPorts, call: Call) -> Steps:
    """A topic that is named twice is answered once."""
    try:
        _check(ports, call, AclOperation.DELETE)
    except KafkaError as error:
        _refuse(call, error)
        return
    request: delete.DeleteShareGroupOffsetsRequest = call.message
    meter = Meter(call)
    may_read = may_on_topics(call, AclOperation.READ)
    topics = ports.image().topics.by_name
    results: dict[str, delete.DeleteShareGroupOffsetsResponseTopic] = {}
    wanted: dict[bytes, str] = {}
    for asked in request.topics:
        name = asked.topic_name
        result = results[name] = delete.DeleteShareGroupOffsetsResponseTopic(topic_name=name)
        if not may_read(name):
            refusal = refusal_on(AclResourceType.TOPIC)
            result.error_code, result.error_message = refusal.code, refusal.message
        elif name not in topics:
            result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            wanted[topics[name].id] = name
            result.topic_id = topics[name].id
        meter.answer_grows(1, len(name))
        if meter.step_ends():
            yield None
    call.spawn(_delete, ports, call, results, wanted)


async def _delete(
    ports: ShareOffsetPorts,
    call: Call,
    results: Mapping[str, delete.DeleteShareGroupOffsetsResponseTopic],
    wanted: Mapping[bytes, str],
) -> None:
    """`wanted`: names by topic id."""
    try:
        codes = await _delete_states(ports, call.message.group_id, wanted.keys())
    except KafkaError as error:
        _refuse(call, error)
        return
    for topic_id, name in wanted.items():
        if topic_id not in codes:
            results[name].error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            results[name].error_message = "There is no offset information to delete."
        else:
            results[name].error_code = codes[topic_id]
    call.answer(delete.DeleteShareGroupOffsetsResponse(responses=list(results.values())))


async def _delete_states(
    ports: ShareOffsetPorts, group_id: str, topic_ids: AbstractSet[bytes]
) -> dict[bytes, ErrorCode]:
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
