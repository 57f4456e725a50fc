"""DescribeShareGroupOffsets (90): where share groups read, and how far they are behind (KIP-932, KIP-1226).

What a request names is gone through in steps. The states are read at the share coordinators, of one topic at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from barnabas.broker.apis.rights import may_on_topics
from barnabas.broker.apis.share_group_offsets import ShareOffsetPorts, ask_group
from barnabas.broker.coordinator.outcome import Operation, Outcome, Reply
from barnabas.broker.groups.machine import GroupMachine
from barnabas.broker.shares.group_states import for_each, keys_of
from barnabas.broker.shares.state import (
    NO_EPOCH,
    UNINITIALIZED_OFFSET,
    UNKNOWN_COUNT,
    SharePartitionKey,
    ShareStateSummary,
)
from barnabas.kraft.authorizer.refusals import refusal_on
from barnabas.protocol.acls import AclOperation, AclResourceType
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from barnabas.protocol.offset_times import PartitionEnds
from barnabas.runtime.dispatch import Call
from barnabas.runtime.meter import ANSWER_TOO_LARGE, Meter
from barnabas.runtime.server import Steps

UNKNOWN_LAG = -1


def describe_share_group_offsets(ports: ShareOffsetPorts, call: Call) -> Steps:
    description = _Description(ports, call)
    yield from description.asking()
    call.spawn(description.read)


class _Topic(NamedTuple):
    """A topic of a group whose states have to be read."""

    group_id: str
    answer: DescribeShareGroupOffsetsResponseTopic
    indexes: Sequence[int]


class _Found(NamedTuple):
    """The states of a topic, by partition."""

    summaries: Mapping[int, ShareStateSummary]
    """Without those that cannot be read: an error is the absence of data, as in OffsetFetch."""
    ends: Mapping[int, PartitionEnds]
    """Log ends of the partitions whose lag may be known; without those whose leader did not answer."""


_NOTHING = _Found({}, {})


class _Description:
    """One request until its response."""

    def __init__(self, ports: ShareOffsetPorts, call: Call) -> None:
        self._ports = ports
        self._call = call
        self._meter = Meter(call)
        self._may_describe = may_on_topics(call, AclOperation.DESCRIBE)
        self._response = DescribeShareGroupOffsetsResponse()
        self._whole: list[DescribeShareGroupOffsetsResponseGroup] = []
        """Groups of which all topics are asked for."""
        self._topics: list[_Topic] = []

    def asking(self) -> Steps:
        """Answer what needs no coordinator, and note the rest. A group, topic or partition that is named twice is
        answered once."""
        request: DescribeShareGroupOffsetsRequest = self._call.message
        groups: dict[str, DescribeShareGroupOffsetsRequestGroup] = {}
        for asked in request.groups:
            groups[asked.group_id] = asked
            if self._meter.step_ends():
                yield None
        for asked in groups.values():
            group = DescribeShareGroupOffsetsResponseGroup(group_id=asked.group_id)
            self._response.groups.append(group)
            try:
                self._check(asked.group_id)
            except KafkaError as error:
                group.error_code, group.error_message = error.code, error.message
            else:
                if asked.topics is None:
                    self._whole.append(group)
                else:
                    wanted: dict[str, Sequence[int]] = {}
                    for topic in asked.topics:
                        wanted[topic.topic_name] = list(dict.fromkeys(topic.partitions))
                        if self._meter.step_ends():
                            yield None
                    yield from self._ask(group, wanted)
            self._meter.answer_grows(1, len(asked.group_id))
            if self._meter.step_ends():
                yield None

    def _check(self, group_id: str) -> None:
        """Raises KafkaError."""
        if not self._ports.is_enabled():
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        if not self._call.may(AclOperation.DESCRIBE, AclResourceType.GROUP, group_id):
            raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        if self._meter.is_full:
            raise KafkaError(ANSWER_TOO_LARGE, "the answer would be too large; ask for fewer groups at a time")

    def _ask(self, group: DescribeShareGroupOffsetsResponseGroup, wanted: Mapping[str, Sequence[int]]) -> Steps:
        """Note the topics of a group that have to be read, and answer the others: those that the client may not
        describe come last."""
        denied: list[str] = []
        for name, indexes in wanted.items():
            self._meter.answer_grows(1 + len(indexes), len(name))
            if not self._may_describe(name):
                denied.append(name)
            else:
                answer = DescribeShareGroupOffsetsResponseTopic(topic_name=name)
                group.topics.append(answer)
                topic = self._ports.image().topics.by_name.get(name)
                if topic is None:
                    yield from self._fill(answer, indexes, _NOTHING)
                else:
                    answer.topic_id = topic.id
                    self._topics.append(_Topic(group.group_id, answer, indexes))
            if self._meter.step_ends():
                yield None
        for name in denied:
            answer = DescribeShareGroupOffsetsResponseTopic(topic_name=name)
            group.topics.append(answer)
            yield from self._deny(answer, wanted[name])
            if self._meter.step_ends():
                yield None

    async def read(self) -> None:
        """Read what is missing, and answer."""
        for group in self._whole:
            try:
                known = await ask_group(self._ports.groups, group.group_id, partial(_initialized, group.group_id))
                if self._meter.is_full:
                    raise KafkaError(ANSWER_TOO_LARGE, "the answer would be too large; ask for fewer groups at a time")
            except KafkaError as error:
                group.error_code, group.error_message = error.code, error.message
                continue
            topics = self._ports.image().topics.by_id
            names = {
                topics[topic_id].name: sorted(indexes)
                for topic_id, indexes in known.items()
                if topic_id in topics and self._may_describe(topics[topic_id].name)
            }
            await self._call.take_steps(self._ask(group, names))
        for topic in self._topics:
            found = await self._find(topic)
            await self._call.take_steps(self._fill(topic.answer, topic.indexes, found))
        self._call.answer(self._response)

    async def _find(self, topic: _Topic) -> _Found:
        image = self._ports.image().topics.by_id.get(topic.answer.topic_id)
        there = [] if image is None else [index for index in topic.indexes if index in image.partitions]
        summaries: dict[int, ShareStateSummary] = {}

        async def read(key: SharePartitionKey) -> None:
            summaries[key.partition] = await self._ports.store.summary(key, NO_EPOCH)

        await for_each(keys_of(topic.group_id, {topic.answer.topic_id: there}), read)
        name = topic.answer.topic_name
        with_lag = [(name, index) for index, it in summaries.items() if _has_lag(it)]
        ends = await self._ports.end_offsets(with_lag) if with_lag else {}
        return _Found(summaries, {index: it for (_, index), it in ends.items()})

    def _fill(self, answer: DescribeShareGroupOffsetsResponseTopic, indexes: Sequence[int], found: _Found) -> Steps:
        for index in indexes:
            answer.partitions.append(_described(index, found))
            if self._meter.step_ends():
                yield None

    def _deny(self, answer: DescribeShareGroupOffsetsResponseTopic, indexes: Sequence[int]) -> Steps:
        refusal = refusal_on(AclResourceType.TOPIC)
        for index in indexes:
            answer.partitions.append(
                DescribeShareGroupOffsetsResponsePartition(
                    partition_index=index,
                    start_offset=UNINITIALIZED_OFFSET,
                    lag=UNKNOWN_LAG,
                    error_code=refusal.code,
                    error_message=refusal.message,
                )
            )
            if self._meter.step_ends():
                yield None


def _initialized(group_id: str, machine: GroupMachine, reply: Reply) -> Operation:
    group = machine.shares.find(group_id)
    partitions = {} if group is None else group.topics.partitions()
    return lambda now: Outcome(answers=[(reply, partitions)])


def _has_lag(summary: ShareStateSummary) -> bool:
    return summary.start_offset != UNINITIALIZED_OFFSET and summary.delivery_complete_count != UNKNOWN_COUNT


def _described(index: int, found: _Found) -> DescribeShareGroupOffsetsResponsePartition:
    described = DescribeShareGroupOffsetsResponsePartition(partition_index=index, start_offset=UNINITIALIZED_OFFSET)
    summary, ends = found.summaries.get(index), found.ends.get(index)
    if summary is None:
        return described
    if _has_lag(summary) and ends is None:
        described.start_offset = 0
        described.error_code = ErrorCode.LEADER_NOT_AVAILABLE
        return described
    described.start_offset, described.leader_epoch = summary.start_offset, summary.leader_epoch
    if ends is not None:
        described.lag = ends.high_watermark - summary.start_offset - summary.delivery_complete_count
    return described
