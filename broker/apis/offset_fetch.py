"""OffsetFetch (9), in steps: committed offsets of one or several groups."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from barnabas.broker.apis.coordinator_reads import CoordinatorReads
from barnabas.broker.apis.group_offsets import TOPIC_IDS_FROM_VERSION, GroupOffsetPorts
from barnabas.broker.apis.request_pieces import copy_with, pieces_of
from barnabas.broker.coordinator.coordinator import work_of_key
from barnabas.broker.coordinator.outcome import NOBODY
from barnabas.broker.coordinator.shard import Shard
from barnabas.broker.groups.machine import GroupMachine
from barnabas.broker.metadata_cache import MetadataCache
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from barnabas.protocol.primitives import ZERO_UUID
from barnabas.runtime.dispatch import Call
from barnabas.runtime.meter import ANSWER_TOO_LARGE, STEP_ITEMS, Meter
from barnabas.runtime.server import Steps

GROUP_ERRORS_FROM_VERSION = 2
"""OffsetFetch version. Earlier versions repeat a group's error for each partition."""

MANY_GROUPS_FROM_VERSION = 8
"""OffsetFetch version (KIP-709)."""


def offset_fetch(ports: GroupOffsetPorts, call: Call) -> Steps:
    request: OffsetFetchRequest = call.message
    if call.version >= MANY_GROUPS_FROM_VERSION:
        # All offsets of a group are answered once: such a response is much longer than its request.
        groups = list({(it.group_id, None if it.topics is None else id(it)): it for it in request.groups}.values())
    else:
        groups = [_only_group(request)]
    fetching = _Fetching(ports, call, groups)
    for place in range(len(groups)):
        yield from fetching.fetch(place)
    fetching.reads.settle(fetching.finish)


class _Fetching:
    """One OffsetFetch until its response."""

    def __init__(self, ports: GroupOffsetPorts, call: Call, groups: Sequence[OffsetFetchRequestGroup]) -> None:
        self.reads = CoordinatorReads(call, self._refused)
        self._ports = ports
        self._call = call
        self._groups = groups
        self._meter = Meter(call)
        self._by_id = call.version >= TOPIC_IDS_FROM_VERSION

    def fetch(self, place: int) -> Steps:
        """Read the offsets of one group, one piece of its partitions in each step."""
        group, meter = self._groups[place], self._meter
        unknown: list[OffsetFetchRequestTopics] = []
        if self._by_id and group.topics is not None:
            group.topics, unknown = yield from self._named(group.topics)
        try:
            shard = self._ports.groups.shard(group.group_id)
        except KafkaError as error:
            self.reads.refuse(error.code)
            meter.answer_grows(1, len(group.group_id))
            if meter.step_ends(1 + work_of_key(group.group_id)):
                yield None
            return
        self.reads.depends_on(shard)
        answer = OffsetFetchResponseGroup(group_id=group.group_id)
        try:
            if group.topics is None:
                yield from self._fetch_all(shard, group, answer)
            else:
                if not group.topics:
                    # A member is checked even if its request names no topic.
                    self._take(shard, group, [], answer)
                for piece in pieces_of(group.topics, "partition_indexes"):
                    yield from self._fetch_piece(shard, group, piece, answer)
        except KafkaError as error:
            self.reads.refuse(error.code)
        else:
            for piece in pieces_of(unknown, "partition_indexes"):
                answer.topics += [_fetch_error(topic, ErrorCode.UNKNOWN_TOPIC_ID) for topic in piece]
                if meter.step_ends(STEP_ITEMS if len(unknown) > 1 else 1):
                    yield None
            self.reads.put(answer)
        if meter.step_ends(1 + work_of_key(group.group_id)):
            yield None

    def _named(
        self, topics: Sequence[OffsetFetchRequestTopics]
    ) -> Generator[Any, Any, tuple[list[OffsetFetchRequestTopics], list[OffsetFetchRequestTopics]]]:
        """The topics that exist, by name, and those that do not."""
        known: list[OffsetFetchRequestTopics] = []
        unknown: list[OffsetFetchRequestTopics] = []
        for topic in topics:
            topic.name = self._ports.metadata.topic_name(topic.topic_id) or ""
            (known if topic.name else unknown).append(topic)
            if self._meter.step_ends():
                yield None
        return known, unknown

    def _fetch_all(
        self, shard: Shard[GroupMachine], group: OffsetFetchRequestGroup, answer: OffsetFetchResponseGroup
    ) -> Steps:
        # Members are checked even if there are no offsets.
        self._take(shard, group, [], answer)
        all_topics = shard.machine.offsets.all_topics(group.group_id)
        for piece in pieces_of(all_topics, "partition_indexes"):
            yield from self._fetch_piece(shard, group, piece, answer)

    def _fetch_piece(
        self,
        shard: Shard[GroupMachine],
        group: OffsetFetchRequestGroup,
        topics: list[OffsetFetchRequestTopics],
        answer: OffsetFetchResponseGroup,
    ) -> Steps:
        if self._meter.is_full:
            raise KafkaError(ANSWER_TOO_LARGE)
        self._take(shard, group, topics, answer)
        partitions = sum(len(topic.partition_indexes) for topic in topics)
        if self._meter.step_ends(len(topics) + partitions):
            yield None

    def _take(
        self,
        shard: Shard[GroupMachine],
        group: OffsetFetchRequestGroup,
        topics: list[OffsetFetchRequestTopics],
        answer: OffsetFetchResponseGroup,
    ) -> None:
        asked = copy_with(group, topics=topics)
        found = shard.look(
            lambda now: shard.machine.offsets.fetch(asked, self._call.message.require_stable, NOBODY, now)
        )
        if self._by_id:
            found.topics = [topic for topic in found.topics if _fill_id(self._ports.metadata, topic)]
        answer.topics += found.topics
        for topic in found.topics:
            size_bytes = sum(len(it.metadata or "") for it in topic.partitions)
            self._meter.answer_grows(1 + len(topic.partitions), size_bytes)

    def _refused(self, place: int, code: ErrorCode) -> OffsetFetchResponseGroup:
        group = self._groups[place]
        if code is ErrorCode.COORDINATOR_NOT_AVAILABLE:
            # Clients expect that code only from FindCoordinator; on NOT_COORDINATOR they look for the coordinator.
            code = ErrorCode.NOT_COORDINATOR
        if self._call.version >= GROUP_ERRORS_FROM_VERSION:
            return OffsetFetchResponseGroup(group_id=group.group_id, error_code=code)
        topics = [_fetch_error(topic, code) for topic in group.topics or []]
        return OffsetFetchResponseGroup(group_id=group.group_id, topics=topics)

    def finish(self, groups: Sequence[OffsetFetchResponseGroup]) -> None:
        self._call.answer(_fetch_response(list(groups), self._call.version))


def _only_group(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    """A request of a version before 8 in the form of version 8."""
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    return OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)


def _fetch_response(groups: list[OffsetFetchResponseGroup], version: int) -> OffsetFetchResponse:
    if version >= MANY_GROUPS_FROM_VERSION:
        return OffsetFetchResponse(groups=groups)
    (group,) = groups
    response = OffsetFetchResponse(error_code=group.error_code)
    for topic in group.topics:
        partitions = [
            OffsetFetchResponsePartition(
                partition_index=it.partition_index,
                committed_offset=it.committed_offset,
                committed_leader_epoch=it.committed_leader_epoch,
                metadata=it.metadata,
                error_code=it.error_code,
            )
            for it in topic.partitions
        ]
        response.topics.append(OffsetFetchResponseTopic(name=topic.name, partitions=partitions))
    return response


def _fill_id(metadata: MetadataCache, topic: OffsetFetchResponseTopics) -> bool:
    """Fill in the topic's id. Returns whether it has one: a response by ids cannot contain other topics."""
    if topic.topic_id == ZERO_UUID:
        image = metadata.image.topics.by_name.get(topic.name)
        topic.topic_id = ZERO_UUID if image is None else image.id
    return topic.topic_id != ZERO_UUID


def _fetch_error(topic: OffsetFetchRequestTopics, code: ErrorCode) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(partition_index=index, committed_offset=-1, error_code=code)
            for index in topic.partition_indexes
        ],
    )
