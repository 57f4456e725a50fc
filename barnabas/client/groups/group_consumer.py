"""The consumer of a group: its partitions are what the group gives it, its positions what the group has committed.

A task of its own speaks to the coordinator for the `Member`; what changes for the application happens inside of
`poll` only, so that a partition is never given up while its records are being worked on.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import trio

from barnabas.client.cluster import Cluster, TopicPartition
from barnabas.client.consumer.list_offsets import list_offsets
from barnabas.client.consumer.partition_reader import PartitionReader
from barnabas.client.consumer.reading_settings import Isolation, ReadingSettings
from barnabas.client.consumer.record import ConsumerRecord
from barnabas.client.consumer.reset_policy import FROM_LATEST
from barnabas.client.groups.classic_member import ClassicMember
from barnabas.client.groups.consumer_member import ConsumerMember
from barnabas.client.groups.coordinators import STALE_COORDINATOR, CoordinatorLink, CoordinatorType
from barnabas.client.groups.membership import Change, ChangeKind, GroupSettings, GroupStamp, Member
from barnabas.client.groups.offsets import GroupOffsets
from protocol.errors import ErrorCode, KafkaError
from protocol.primitives import uuid_to_string
from protocol.schema import Message
from runtime.channel import ChannelError

log = logging.getLogger(__name__)

CLOSE_TIMEOUT_MS = 30_000

OnPartitions = Callable[[Sequence[TopicPartition]], Awaitable[None]]


async def _do_nothing(partitions: Sequence[TopicPartition]) -> None:
    pass


@dataclass(frozen=True, slots=True)
class RebalanceListener:
    """What the application wants to hear. All are called inside of `poll`, or at the end."""

    on_assigned: OnPartitions = _do_nothing
    """It owns these, and their positions are known."""
    on_revoked: OnPartitions = _do_nothing
    """It is about to give these up: the last moment to commit what it did with them."""
    on_lost: OnPartitions = _do_nothing
    """These may be somebody else's already."""


@asynccontextmanager
async def open_group_consumer(
    cluster: Cluster,
    settings: GroupSettings,
    topics: Iterable[str],
    reading: ReadingSettings | None = None,
    listener: RebalanceListener | None = None,
) -> AsyncIterator[GroupConsumer]:
    """A member of a group for the length of the block. At its end it leaves, so that the others take over at once.

    Where the group has committed nothing, reading begins as `reading.reset` says; at the end if that is `none`.
    """
    nursery = await cluster.open_nursery()
    consumer = GroupConsumer(cluster, nursery, settings, list(topics), reading or ReadingSettings(), listener)
    nursery.start_soon(consumer.run)
    try:
        yield consumer
    finally:
        with trio.move_on_after(CLOSE_TIMEOUT_MS / 1000):
            await consumer.close()
        nursery.cancel_scope.cancel()


class GroupConsumer:
    """All methods are for one task at a time, but for `run`."""

    def __init__(
        self,
        cluster: Cluster,
        nursery: trio.Nursery,
        settings: GroupSettings,
        topics: Sequence[str],
        reading: ReadingSettings,
        listener: RebalanceListener | None = None,
    ) -> None:
        """`nursery` runs fetches and learning; somebody has to run `run`. See `open_group_consumer`."""
        self._cluster = cluster
        self._nursery = nursery
        self._settings = settings
        self._topics = topics
        self._reset = FROM_LATEST if reading.reset.name == "none" else reading.reset
        self._isolation = reading.isolation
        self._listener = listener or RebalanceListener()
        self._consumer = PartitionReader(cluster, nursery, reading)
        self._coordinator = CoordinatorLink(cluster, CoordinatorType.GROUP, settings.group_id)
        self._offsets = GroupOffsets(cluster, self._coordinator, settings)
        self.member: Member = self._new_member()
        self._confirmed_ms = 0
        self._running = trio.CancelScope()
        self._news = trio.Event()
        self._learning = False
        self._polling: trio.CancelScope | None = None

    def _new_member(self) -> Member:
        now_ms = self._cluster.now_ms()
        if self._settings.group_protocol == "classic":
            return ClassicMember(self._settings, self._topics, now_ms)
        member_id = uuid_to_string(self._cluster.world.chance.randbytes(16))
        return ConsumerMember(self._settings, self._topics, member_id, now_ms)

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        return self.member.owned

    @property
    def stamp(self) -> GroupStamp | None:
        """As a transaction needs it to commit offsets of this group; None while it is not in the group."""
        return self.member.stamp

    def unheard_ms(self) -> int:
        """How long ago the last request was sent that the coordinator took well: for session.timeout.ms from then on it
        counts this member in.
        """
        return self._cluster.now_ms() - self._confirmed_ms

    # ---- reading

    async def poll(self, timeout_ms: int) -> list[ConsumerRecord]:
        """Records of some of the partitions it owns; [] after `timeout_ms` without any, or after a rebalance.

        KafkaError if it cannot be in the group, or if a partition cannot be read.
        """
        deadline_ms = self._cluster.now_ms() + timeout_ms
        self.member.polled(self._cluster.now_ms())
        self._news.set()
        if await self._follow_changes(deadline_ms):
            return []
        with trio.CancelScope() as self._polling:
            return await self._consumer.poll(max(0, deadline_ms - self._cluster.now_ms()))
        self._polling = None
        await self._follow_changes(deadline_ms)
        return []

    def position(self, partition: TopicPartition) -> int:
        """The offset that `poll` gives next. KeyError if it is not owned."""
        return self._consumer.position(partition)

    def positions(self) -> dict[TopicPartition, int]:
        return {partition: self._consumer.position(partition) for partition in self._consumer.assigned}

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on from `offset`. KeyError if it is not owned."""
        self._consumer.seek(partition, offset)

    # ---- offsets

    async def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """The group has come so far: to the positions, if `offsets` does not say otherwise.

        KafkaError: REBALANCE_IN_PROGRESS, ILLEGAL_GENERATION or UNKNOWN_MEMBER_ID if the partitions may be another's;
        REQUEST_TIMED_OUT if it is not known whether it was committed.
        """
        committed = self.positions() if offsets is None else dict(offsets)
        if not committed:
            return
        stamp = self.member.stamp
        if stamp is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"not in group {self._settings.group_id}")
        try:
            await self._offsets.commit(committed, lambda: self.member.stamp)
        except KafkaError as error:
            self.member.fenced(error.code, stamp, self._cluster.now_ms())
            self._news.set()
            raise

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """What the group has committed; -1 where that is nothing. KafkaError if it cannot be learnt in time."""
        stable = self._isolation is Isolation.READ_COMMITTED
        return await self._offsets.fetch(list(partitions), lambda: self.member.stamp, require_stable=stable)

    # ---- changes

    async def _follow_changes(self, deadline_ms: int) -> bool:
        """Do what the group wants; True if that was done and was anything."""
        member, followed = self.member, False
        while True:
            if member.fatal is not None:
                raise member.fatal
            change = member.change
            if change is None:
                return followed
            followed = True
            if change.kind is ChangeKind.ASSIGN:
                if not await self._take_on(change, deadline_ms):
                    return False
            elif change.kind is ChangeKind.REVOKE:
                await self._listener.on_revoked(change.partitions)
                self._consumer.remove(change.partitions)
            else:
                self._consumer.remove(change.partitions)
                await self._listener.on_lost(change.partitions)
            if change.kind is not ChangeKind.ASSIGN:
                member.changed(change)
            self._news.set()

    async def _take_on(self, change: Change, deadline_ms: int) -> bool:
        """Begin with partitions; False if their offsets could not be learnt by now."""
        member, partitions = self.member, list(change.partitions)
        offsets: dict[TopicPartition, int] | None = None
        with trio.move_on_after(max(0, deadline_ms - self._cluster.now_ms()) / 1000):
            try:
                offsets = await self._starting_offsets(partitions)
            except KafkaError as error:
                log.debug("%r: %s", member, error)
        if member.change is not change:
            return True  # the group went on meanwhile
        if offsets is None:
            return False
        self._consumer.add(offsets)
        member.changed(change)
        await self._listener.on_assigned(change.partitions)
        return True

    async def _starting_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        if not partitions:
            return {}
        offsets = await self.committed(partitions)
        timestamp = self._reset.timestamp(self._cluster.world.wall_clock.now_ms())
        unknown = {
            partition: timestamp for partition, offset in offsets.items() if offset < 0 and timestamp is not None
        }
        if unknown:
            timeout_ms = self._settings.default_api_timeout_ms
            await self._cluster.refresh(dict.fromkeys(partition.topic for partition in unknown))
            # Where LATEST is, an uncommitted transaction is before it: never skip what will be committed.
            offsets |= await list_offsets(self._cluster, unknown, timeout_ms, self._isolation)
        return offsets

    # ---- the coordinator

    async def run(self) -> None:
        """Be a member until `close`."""
        self._nursery.start_soon(self._watch_metadata)
        with self._running:
            while True:
                self._news = trio.Event()
                member = self.member
                if member.topics_to_learn() and not self._learning:
                    self._learning = True
                    self._nursery.start_soon(self._learn)
                request = member.next_request(self._cluster.now_ms())
                if request is not None:
                    await self._call(member, request)
                    self._interrupt_poll()
                    continue
                wake_at_ms = member.wake_at_ms(self._cluster.now_ms())
                wait_ms = float("inf") if wake_at_ms is None else max(0, wake_at_ms - self._cluster.now_ms())
                with trio.move_on_after(wait_ms / 1000):
                    await self._news.wait()

    def _interrupt_poll(self) -> None:
        if self._polling is not None and (self.member.change is not None or self.member.fatal is not None):
            self._polling.cancel()

    async def _call(self, member: Member, request: Message) -> None:
        timeout_ms = member.answer_timeout_ms(request, self._cluster.settings.request_timeout_ms)
        sent_ms = self._cluster.now_ms()
        try:
            response = await self._coordinator.call(request, timeout_ms)
        except ChannelError as error:
            log.debug("%r: %s", member, error)
            member.unanswered(self._cluster.now_ms())
            return
        code = member.answered(response, self._cluster.now_ms())
        if code is ErrorCode.NONE:
            self._confirmed_ms = sent_ms
        elif code in STALE_COORDINATOR:
            self._coordinator.forget()

    async def _learn(self) -> None:
        """Bring the member the metadata it waits for."""
        backoff = self._cluster.backoff()
        while topics := self.member.topics_to_learn():
            if await self._cluster.refresh(topics):
                self.member.learnt(_Metadata(self._cluster))
                self._news.set()
                self._interrupt_poll()
            if self.member.topics_to_learn():
                await trio.sleep(backoff.next_ms() / 1000)
        self._learning = False

    async def _watch_metadata(self) -> None:
        """Topics appear and grow; the leader of a classic group sees to it that somebody reads them."""
        while True:
            await trio.sleep(self._settings.metadata_max_age_ms / 1000)
            if await self._cluster.refresh(self._topics):
                self.member.learnt(_Metadata(self._cluster))
                self._news.set()

    # ---- the end

    async def close(self) -> None:
        """Give everything up and leave."""
        self._running.cancel()
        try:
            if self.member.owned and self.member.stamp is not None:
                await self._listener.on_revoked(self.member.owned)
        finally:
            self._consumer.remove(self.member.owned)
            await self._leave()

    async def _leave(self) -> None:
        request = self.member.leave()
        if request is not None:
            try:
                await self._coordinator.call(request)
            except ChannelError as error:
                log.debug("%r: leaving: %s", self.member, error)


class _Metadata:
    """A `TopicsView` of what a client knows."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def partitions_count(self, topic: str) -> int:
        view = self._cluster.topics.get(topic)
        return 0 if view is None else len(view.leaders)

    def topic_name(self, topic_id: bytes) -> str | None:
        return self._cluster.topic_name(topic_id)
