"""Committed offsets of a group: OffsetCommit and OffsetFetch, with retries. Knows no membership.

A request is retried until it has a final response or its time is over. A commit without a response may be in force or
not; a retry commits the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import trio

from barnabas.client.cluster import Cluster
from barnabas.client.groups.coordinators import STALE_COORDINATOR, CoordinatorLink
from barnabas.client.groups.membership import ConsumerGroupMetadata, GroupSettings
from barnabas.client.metadata import STALE_METADATA, TopicPartition, by_topic
from barnabas.client.offsets import OffsetAndMetadata
from barnabas.protocol.errors import ErrorCode, KafkaError, error_code
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from barnabas.protocol.primitives import ZERO_UUID
from barnabas.protocol.schema import Message
from barnabas.runtime.channel import ChannelError

NO_EPOCH = -1

Stamp = Callable[[], ConsumerGroupMetadata | None]
"""The current stamp: the epoch of a KIP-848 member grows while a request waits for its retry."""


class GroupOffsets:
    """The committed offsets of one group."""

    def __init__(self, cluster: Cluster, coordinator: CoordinatorLink, settings: GroupSettings) -> None:
        self._cluster = cluster
        self._coordinator = coordinator
        self._settings = settings

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], stamp: Stamp) -> None:
        """KafkaError of the first partition that was refused; REQUEST_TIMED_OUT without a response in time.

        After a cancel the commit may have happened or not.
        """

        def ask(who: ConsumerGroupMetadata | None) -> Message:
            if who is None:
                raise KafkaError(
                    ErrorCode.UNKNOWN_MEMBER_ID,
                    f"this consumer is no longer a member of group {self._settings.group_id}",
                )
            return self._commit_request(offsets, who)

        def refused(response: OffsetCommitResponse) -> ErrorCode:
            codes = [error_code(part.error_code) for topic in response.topics for part in topic.partitions]
            return next((code for code in codes if code is not ErrorCode.NONE), ErrorCode.NONE)

        await self._until_answered(list(by_topic(offsets)), ask, refused, stamp)

    async def fetch(
        self, partitions: Sequence[TopicPartition], stamp: Stamp
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """None where nothing is committed. Waits for transactions that may commit (KIP-447)."""

        def ask(who: ConsumerGroupMetadata | None) -> Message:
            return self._fetch_request(partitions, who)

        found: dict[TopicPartition, OffsetAndMetadata | None] = {}

        def refused(response: OffsetFetchResponse) -> ErrorCode:
            found.clear()
            for group in response.groups:
                if group.error_code != ErrorCode.NONE:
                    return error_code(group.error_code)
                for topic in group.topics:
                    name = topic.name or self._cluster.topic_name(topic.topic_id)
                    for part in topic.partitions:
                        if part.error_code != ErrorCode.NONE:
                            return error_code(part.error_code)
                        if name is not None:
                            epoch = None if part.committed_leader_epoch < 0 else part.committed_leader_epoch
                            committed = OffsetAndMetadata(part.committed_offset, epoch, part.metadata or "")
                            place = TopicPartition(name, part.partition_index)
                            found[place] = committed if committed.offset >= 0 else None
            missing = [partition for partition in partitions if partition not in found]
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if missing else ErrorCode.NONE

        await self._until_answered(list(by_topic(partitions)), ask, refused, stamp)
        return found

    async def _until_answered(
        self,
        topics: Sequence[str],
        ask: Callable[[ConsumerGroupMetadata | None], Message],
        refused: Callable[..., ErrorCode],
        stamp: Stamp,
    ) -> None:
        group_id, timeout_ms = self._settings.group_id, self._settings.default_api_timeout_ms
        last = ErrorCode.REQUEST_TIMED_OUT
        backoff = self._cluster.backoff()
        with trio.move_on_after(timeout_ms / 1000):
            if any(self._cluster.topic_id(topic) == ZERO_UUID for topic in topics):
                await self._cluster.refresh(topics)
            while True:
                try:
                    code = refused(await self._coordinator.call(ask(stamp())))
                except ChannelError:
                    code = ErrorCode.REQUEST_TIMED_OUT
                if code is ErrorCode.NONE:
                    return
                if code in STALE_COORDINATOR:
                    self._coordinator.forget()
                stale = code is ErrorCode.STALE_MEMBER_EPOCH and stamp() is not None
                if not code.retriable and not stale:
                    raise KafkaError(code, f"offsets of group {group_id}")
                last = code
                if code in STALE_METADATA:
                    await self._cluster.refresh(topics)
                await trio.sleep(backoff.next_ms() / 1000)
        raise KafkaError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"offsets of group {group_id}: no result within {timeout_ms} ms; last error: {last.name}"
            f"{self._cluster.last_failure()}",
        )

    def _commit_request(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], who: ConsumerGroupMetadata
    ) -> OffsetCommitRequest:
        topics: dict[str, OffsetCommitRequestTopic] = {}
        for (name, index), committed in offsets.items():
            if name not in topics:
                topics[name] = OffsetCommitRequestTopic(name=name, topic_id=self._cluster.topic_id(name))
            topics[name].partitions.append(
                OffsetCommitRequestPartition(
                    partition_index=index,
                    committed_offset=committed.offset,
                    committed_leader_epoch=NO_EPOCH if committed.leader_epoch is None else committed.leader_epoch,
                    committed_metadata=committed.metadata,
                )
            )
        return OffsetCommitRequest(
            group_id=who.group_id,
            generation_id_or_member_epoch=who.generation_or_epoch,
            member_id=who.member_id,
            group_instance_id=who.group_instance_id,
            topics=list(topics.values()),
        )

    def _fetch_request(
        self, partitions: Sequence[TopicPartition], who: ConsumerGroupMetadata | None
    ) -> OffsetFetchRequest:
        group = OffsetFetchRequestGroup(
            group_id=self._settings.group_id,
            topics=[
                OffsetFetchRequestTopics(name=name, topic_id=self._cluster.topic_id(name), partition_indexes=indexes)
                for name, indexes in by_topic(partitions).items()
            ],
        )
        if who is not None and who.member_id and self._settings.group_protocol == "consumer":
            group.member_id, group.member_epoch = who.member_id, who.generation_or_epoch
        return OffsetFetchRequest(groups=[group], require_stable=True)
