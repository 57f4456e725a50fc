"""Offsets of a group: committed by its members, fetched by who takes a partition on. Knows no membership.

A request is asked again until it is answered for good or its time is over. A commit that is not answered may be in
force or not; sent again it says the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import trio

from barnabas.client.cluster import STALE_METADATA, Cluster, TopicPartition, by_topic
from barnabas.client.groups.coordinators import STALE_COORDINATOR, CoordinatorLink
from barnabas.client.groups.membership import GroupSettings, GroupStamp
from protocol.errors import ErrorCode, KafkaError, error_code
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from protocol.primitives import ZERO_UUID
from protocol.schema import Message
from runtime.channel import ChannelError

Stamp = Callable[[], GroupStamp | None]
"""As it is now: the epoch of a KIP-848 member goes on while a request waits to be asked again."""


class GroupOffsets:
    """Of one group."""

    def __init__(self, cluster: Cluster, coordinator: CoordinatorLink, settings: GroupSettings) -> None:
        self._cluster = cluster
        self._coordinator = coordinator
        self._settings = settings

    async def commit(self, offsets: Mapping[TopicPartition, int], stamp: Stamp) -> None:
        """KafkaError of the first partition that was refused; REQUEST_TIMED_OUT if there was no answer in time."""

        def ask(who: GroupStamp | None) -> Message:
            if who is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"not in group {self._settings.group_id} any more")
            return self._commit_request(offsets, who)

        def refused(response: OffsetCommitResponse) -> ErrorCode:
            codes = [error_code(part.error_code) for topic in response.topics for part in topic.partitions]
            return next((code for code in codes if code is not ErrorCode.NONE), ErrorCode.NONE)

        await self._until_answered(list(by_topic(offsets)), ask, refused, stamp)

    async def fetch(
        self, partitions: Sequence[TopicPartition], stamp: Stamp, *, require_stable: bool
    ) -> dict[TopicPartition, int]:
        """-1 where nothing is committed. With `require_stable` it waits for transactions that may commit."""

        def ask(who: GroupStamp | None) -> Message:
            return self._fetch_request(partitions, who, require_stable)

        found: dict[TopicPartition, int] = {}

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
                            found[TopicPartition(name, part.partition_index)] = part.committed_offset
            missing = [partition for partition in partitions if partition not in found]
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if missing else ErrorCode.NONE

        await self._until_answered(list(by_topic(partitions)), ask, refused, stamp)
        return found

    async def _until_answered(
        self,
        topics: Sequence[str],
        ask: Callable[[GroupStamp | None], Message],
        refused: Callable[..., ErrorCode],
        stamp: Stamp,
    ) -> None:
        if any(self._cluster.topic_id(topic) == ZERO_UUID for topic in topics):
            await self._cluster.refresh(topics)
        deadline_ms = self._cluster.now_ms() + self._settings.default_api_timeout_ms
        backoff = self._cluster.backoff()
        last = ErrorCode.REQUEST_TIMED_OUT
        while self._cluster.now_ms() < deadline_ms:
            who = stamp()
            try:
                code = refused(await self._coordinator.call(ask(who)))
            except ChannelError:
                code = ErrorCode.REQUEST_TIMED_OUT
            if code is ErrorCode.NONE:
                return
            if code in STALE_COORDINATOR:
                self._coordinator.forget()
            stale = code is ErrorCode.STALE_MEMBER_EPOCH and stamp() is not None
            if not code.retriable and not stale:
                raise KafkaError(code, f"offsets of group {self._settings.group_id}")
            if code in STALE_METADATA:
                await self._cluster.refresh(topics)
            last = code
            await trio.sleep(backoff.next_ms() / 1000)
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"offsets of group {self._settings.group_id}: {last.name}")

    def _commit_request(self, offsets: Mapping[TopicPartition, int], who: GroupStamp) -> OffsetCommitRequest:
        topics: dict[str, OffsetCommitRequestTopic] = {}
        for partition, offset in offsets.items():
            name = partition.topic
            if name not in topics:
                topics[name] = OffsetCommitRequestTopic(name=name, topic_id=self._cluster.topic_id(name))
            topics[name].partitions.append(
                OffsetCommitRequestPartition(partition_index=partition.partition, committed_offset=offset)
            )
        return OffsetCommitRequest(
            group_id=who.group_id,
            generation_id_or_member_epoch=who.generation_or_epoch,
            member_id=who.member_id,
            group_instance_id=who.group_instance_id,
            topics=list(topics.values()),
        )

    def _fetch_request(
        self, partitions: Sequence[TopicPartition], who: GroupStamp | None, require_stable: bool
    ) -> OffsetFetchRequest:
        group = OffsetFetchRequestGroup(
            group_id=self._settings.group_id,
            topics=[
                OffsetFetchRequestTopics(name=name, topic_id=self._cluster.topic_id(name), partition_indexes=indexes)
                for name, indexes in by_topic(partitions).items()
            ],
        )
        if who is not None and self._settings.group_protocol == "consumer":
            group.member_id, group.member_epoch = who.member_id, who.generation_or_epoch
        return OffsetFetchRequest(groups=[group], require_stable=require_stable)
