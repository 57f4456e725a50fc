"""OffsetFetch (9), in steps: committed offsets of one or several groups."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from barnabas.broker.apis.coordinator_reads import CoordinatorReads
from barnabas.broker.apis.group_offsets import TOPIC_IDS_FROM_VERSION, GroupOffsetPorts
from barnabas.broker.apis.request_pieces import copy_with, pieces_of
from barnabas.broker.apis.rights import may_on_topics
from barnabas.broker.coordinator.coordinator import work_of_key
from barnabas.broker.coordinator.outcome import NOBODY
from barnabas.broker.coordinator.shard import Shard
from barnabas.broker.groups.machine import GroupMachine
from barnabas.broker.metadata_cache import MetadataCache
from barnabas.protocol.acls import AclOperation, AclResourceType
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
from barnabas.runtime.meter import ANSWER_TOO_LARGE, Meter
from barnabas.runtime.server import Steps

GROUP_ERRORS_FROM_VERSION = 2
"""OffsetFetch version. Earlier versions repeat a group's error for each partition."""

MANY_GROUPS_FROM_VERSION = 8
"""OffsetFetch version (KIP-709)."""


_Refused = list[tuple[ErrorCode, OffsetFetchRequestTopics]]
"""Topics of a request that are not looked up, each with its error."""


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
        self._may_describe = may_on_topics(call, AclOperation.DESCRIBE)

    def fetch(self, place: int) -> Steps:
        """Read the offsets of one group, one piece of its partitions in each step."""
        group, meter = self._groups[place], self._meter
        topics, refused = group.topics, _Refused()
        try:
            if not self._call.may(AclOperation.DESCRIBE, AclResourceType.GROUP, group.group_id):
                raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
            if topics is not None and (self._by_id or self._call.has_authorizer):
                topics, refused = yield from self._checked(topics)
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
            if topics is None:
                yield from self._fetch_all(shard, group, answer)
            else:
                if not topics:
                    # A member is checked even if its request names no topic.
                    self._take(shard, group, [], answer)
                for piece in pieces_of(topics, "partition_indexes"):
                    yield from self._fetch_piece(shard, group, piece, answer)
        except KafkaError as error:
            self.reads.refuse(error.code)
        else:
            for code, topic in refused:
                for piece in pieces_of([topic], "partition_indexes"):
                    answer.topics += [_fetch_error(part, code) for part in piece]
                    if meter.step_ends(1 + sum(len(part.partition_indexes) for part in piece) // 2):
                        yield None
            self.reads.put(answer)
        if meter.step_ends(1 + work_of_key(group.group_id)):
            yield None

    def _checked(
        self, topics: Sequence[OffsetFetchRequestTopics]
    ) -> Generator[Any, Any, tuple[list[OffsetFetchRequestTopics], _Refused]]:
        """The topics, by name, that the client may describe, and the others."""
        known: list[OffsetFetchRequestTopics] = []
        refused: _Refused = []
        for topic in topics:
            if self._by_id:
                topic.name = self._ports.metadata.topic_name(topic.topic_id) or ""
            if self._by_id and not topic.name:
                refused.append((ErrorCode.UNKNOWN_TOPIC_ID, topic))
            elif not self._may_describe(topic.name):
                refused.append((ErrorCode.TOPIC_AUTHORIZATION_FAILED, topic))
            else:
                known.append(topic)
            if self._meter.step_ends():
                yield None
        return known, refused

    def _shown(
        self, topics: Sequence[OffsetFetchRequestTopics]
    ) -> Generator[Any, Any, list[OffsetFetchRequestTopics]]:
        """The topics that the client may describe; the others are left out."""
        shown = []
        for topic in topics:
            if self._may_describe(topic.name):
                shown.append(topic)
            if self._meter.step_ends():
                yield None
        return shown

    def _fetch_all(
        self, shard: Shard[GroupMachine], group: OffsetFetchRequestGroup, answer: OffsetFetchResponseGroup
    ) -> Steps:
        # Members are checked even if there are no offsets.
        self._take(shard, group, [], answer)
        all_topics = shard.machine.offsets.all_topics(group.group_id)
        if self._call.has_authorizer:
            all_topics = yield from self._shown(all_topics)
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
