"""The public consumer: records come from `poll`, or from `async for`.

It may be a member of a group, which assigns partitions and keeps offsets, or have partitions assigned by hand. All work
is done by tasks of the `async with` block; none outlives it.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Self, Unpack

import trio

from barnabas.client.consumer.consumer_coordinator import ConsumerCoordinator
from barnabas.client.consumer.listener import RebalanceListener
from barnabas.client.consumer.meters import PollMeter
from barnabas.client.consumer.metrics import consumer_metrics, consumer_samples
from barnabas.client.consumer.partition_reader import PartitionReader
from barnabas.client.consumer.read_ahead import ReadAhead
from barnabas.client.consumer.record import ConsumerRecord
from barnabas.client.consumer.reset_policy import FROM_EARLIEST, FROM_LATEST
from barnabas.client.consumer.settings import ConsumerOptions, ConsumerSettings
from barnabas.client.errors import IllegalStateException, InvalidGroupIdException
from barnabas.client.groups.membership import ConsumerGroupMetadata, Leaving
from barnabas.client.groups.participant import Participant, Wanted
from barnabas.client.groups.topic_directory import find_topics
from barnabas.client.interceptors import ConsumerInterceptors
from barnabas.client.life import CLOSE_TIMEOUT_MS, Life, time_to_close
from barnabas.client.metadata import PartitionInfo, TopicPartition
from barnabas.client.offset_lookup import EARLIEST, LATEST
from barnabas.client.offsets import OffsetAndMetadata, OffsetAndTimestamp
from barnabas.client.telemetry.metrics_push import MetricsPush, pushing
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.otlp import Sample
from barnabas.runtime.world import World

ITERATION_POLL_MS = 1_000
Place = int | OffsetAndMetadata
Partitions = Collection[TopicPartition]


class Consumer(Life):
    """`async with Consumer("flights", group_id="etl", bootstrap_servers=…) as consumer:`
    `async for record in consumer: …`

    For one task at a time. All coroutines may be cancelled: records that were not returned are returned later. At the
    end of the block the consumer commits (enable_auto_commit) and leaves its group. A block that ends with an exception
    commits only what was processed before the last `poll`, so that the records it failed on are read again.

    Any call may raise IllegalStateException (closed, not open yet, or used by two tasks at once); KafkaError of a class
    named as in Kafka (`barnabas.errors`) for a broker's error, and TimeoutException after default.api.timeout.ms.
    """

    _reader: PartitionReader

    def __init__(self, *topics: str, world: World | None = None, **options: Unpack[ConsumerOptions]) -> None:
        """No connection is made before the block begins. With `topics` it subscribes to them.

        ConfigException: a setting is unknown, missing, or invalid. InvalidGroupIdException: topics without group_id.
        """
        self.settings = ConsumerSettings.of(options)
        super().__init__(self.settings, world)
        if topics:
            self._require_group()
        self._reading_settings = self.settings.reading
        self._commits_by_itself = self.settings.commits_by_itself
        self._topics = topics
        self._interceptors = ConsumerInterceptors(self.settings.interceptors)
        self._wanted: Wanted | None = None
        self._group: ConsumerCoordinator | None = None
        self._reading: trio.CancelScope | None = None
        self._push: MetricsPush | None = None
        self._polls = PollMeter()
        self._ahead = ReadAhead()
        """Records that `async for` has polled and not returned yet."""
        self._done: dict[TopicPartition, OffsetAndMetadata] = {}
        """Positions at the begin of the last poll: records before them are processed."""

    # ---- life

    def _begin(self) -> None:
        self._reader = PartitionReader(self._cluster, self._nursery, self._reading_settings)
        if self.settings.group_id is not None:
            self._group = ConsumerCoordinator(self._cluster, self._nursery, self.settings, self._reader, self.positions)
            self._group.interceptors = self._interceptors
            self._group.on_change = self._interrupt
        if self.settings.enable_metrics_push:
            self._push = MetricsPush(self._cluster, self._samples, self._describe)
            self._nursery.start_soon(self._push.run)
        if self._topics:
            self.subscribe(self._topics)

    async def _end(self, *, in_good_order: bool) -> None:
        await self._close_in_time(CLOSE_TIMEOUT_MS, Leaving.DEFAULT, in_good_order=in_good_order)

    async def close(self, timeout_ms: int = CLOSE_TIMEOUT_MS, leaving: Leaving = Leaving.DEFAULT) -> None:
        """Commit (enable_auto_commit), call the listener, leave the group: within `timeout_ms`. The end of the block
        does the same. A cancelled close still has two seconds for it; a member that cannot leave stays in the group
        until its session times out.
        """
        await self._close_in_time(timeout_ms, leaving, in_good_order=True)

    async def _close_in_time(self, timeout_ms: int, leaving: Leaving, *, in_good_order: bool) -> None:
        if not self._is_open:
            return
        done = self.positions() if in_good_order else self._still_owned(self._done)
        try:
            with time_to_close(timeout_ms):
                if self._group is not None:
                    await self._group.close(done, leaving)
                if self._push is not None:
                    await self._push.close()
        finally:
            self._is_open = False
            self._ahead.clear()
            await self._reader.close()
            self._interceptors.close()

    def _still_owned(
        self, places: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        owned = dict.fromkeys(self._reader.assigned)
        return {partition: place for partition, place in places.items() if partition in owned}

    # ---- what to read

    def subscribe(
        self,
        topics: Iterable[str] = (),
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Subscribe to these topics, in place of those before. Without topics: `unsubscribe`.

        A `pattern` matches whole topic names. As text it is matched by the broker in a consumer group
        (group_protocol="consumer"; RE2), and by the client in a classic one, as is a compiled `re.Pattern` in both:
        every metadata.max.age.ms, and without internal topics (exclude_internal_topics).

        InvalidGroupIdException without group_id; IllegalStateException while partitions are assigned by hand.
        """
        self._check_open()
        group = self._require_coordinator()
        names = (topics,) if isinstance(topics, str) else tuple(dict.fromkeys(topics))
        if names and pattern is not None:
            raise ValueError(f"subscribe takes either topics or a pattern; got {names} and {pattern!r}")
        if not all(isinstance(name, str) and name.strip() for name in names):
            raise ValueError(f"topics must be names that are not empty; got {names}")
        if not names and pattern is None:
            self.unsubscribe()
            return
        if self._wanted is None and self._reader.assigned:
            raise IllegalStateException(
                "subscribe is not possible while partitions are assigned by hand: unsubscribe first"
            )
        self._wanted = self._as_wanted(names, pattern)
        group.subscribe(self._wanted, listener)

    def _as_wanted(self, topics: tuple[str, ...], pattern: str | re.Pattern[str] | None) -> Wanted:
        if pattern is None:
            return Wanted(tuple(sorted(topics)))
        if isinstance(pattern, str) and self.settings.group_protocol == "consumer":
            return Wanted(pattern=pattern)
        try:
            matcher = re.compile(pattern)
        except re.error as error:
            raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, f"{pattern}: {error}") from error
        return Wanted(matcher=matcher, with_internal=not self.settings.exclude_internal_topics)

    def unsubscribe(self) -> None:
        """Read nothing any longer, and leave the group. The listener is called, and the group left, in the background;
        only the listener may commit. An exception of the listener is raised by the next `poll`.
        """
        self._check_open()
        places = self.positions()
        self._wanted = None
        self._ahead.clear()
        if self._group is not None:
            self._group.unsubscribe(places)
        else:
            self._reader.remove(self._reader.assigned)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, outside of group management. Partitions that were read before keep their
        positions; the others begin at the group's committed offset, if there is a group_id, or as auto_offset_reset
        says.

        IllegalStateException while topics are subscribed to.
        """
        self._check_open()
        if self._wanted is not None:
            raise IllegalStateException("assign is not possible while topics are subscribed to: unsubscribe first")
        wanted = dict.fromkeys(TopicPartition(*partition) for partition in partitions)
        known = dict.fromkeys(self._reader.assigned)
        gone = [partition for partition in known if partition not in wanted]
        new = [partition for partition in wanted if partition not in known]
        self._ahead.drop(gone)
        if self._group is not None:
            self._group.forget(gone)
            self._group.start_by_hand(new)
        else:
            self._reader.remove(gone)
            self._reader.add(dict.fromkeys(new))
            self._reader.reset(new)

    def assignment(self) -> tuple[TopicPartition, ...]:
        """Partitions that it reads now."""
        self._check_open()
        return tuple(sorted(self._reader.assigned))

    def subscription(self) -> tuple[str, ...]:
        """Subscribed topics; for a pattern the topics that are known to match."""
        self._check_open()
        participant = None if self._group is None else self._group.participant
        if self._wanted is None or participant is None:
            return ()
        if self._wanted.pattern is not None:
            return tuple(sorted({partition.topic for partition in self._reader.assigned}))
        return participant.topics

    def enforce_rebalance(self, reason: str = "the application requested it") -> None:
        """Start a rebalance of a classic group; in a consumer group the broker decides, and this does nothing."""
        self._check_open()
        participant = None if self._group is None else self._group.participant
        if participant is None:
            raise IllegalStateException("enforce_rebalance needs a subscription")
        participant.rejoin(reason)

    @property
    def membership(self) -> Participant | None:
        """The membership in its group; None without a subscription."""
        return None if self._group is None else self._group.participant

    def group_metadata(self) -> ConsumerGroupMetadata:
        """For `send_offsets_to_transaction`. After the consumer has left its group, its last membership, so that its
        offsets are refused. InvalidGroupIdException without group_id.
        """
        self._check_open()
        return self._require_coordinator().transaction_stamp

    # ---- reading

    async def poll(self, timeout_ms: int = 0) -> list[ConsumerRecord]:
        """Up to max_poll_records, in order within each partition; [] after `timeout_ms` without any. Carries out the
        group's rebalances meanwhile: the listener is called from here.

        Raises the listener's exceptions; NoOffsetForPartitionException, OffsetOutOfRangeException and
        LogTruncationException with auto_offset_reset="none"; RecordDeserializationException until a seek past that
        record, UnreadableBatchException until a seek past that batch; the fatal error of its membership. It can be
        polled again after any of them. A cancelled poll has returned nothing, and a listener that it cancelled is
        called again.
        """
        with self._one_task():
            if self._ahead:
                await trio.lowlevel.checkpoint()
                records = self._ahead.take(self.settings.max_poll_records)
            else:
                records = await self._poll(timeout_ms)
            return records

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerRecord:
        """The next record; waits without a limit. Positions and commits count returned records, not those read ahead.
        Raises as `poll`."""
        if self._ahead:
            return self._ahead.popleft()
        with self._one_task():
            while not self._ahead:
                self._ahead.extend(await self._poll(ITERATION_POLL_MS))
            return self._ahead.popleft()

    async def take_ahead(self) -> deque[ConsumerRecord]:
        """The next records, at least one, as a block of `__anext__`: for callers in other threads, which `put_back`
        those that they have not returned before they do anything else with the consumer."""
        if not self._ahead:
            self._ahead.appendleft(await self.__anext__())
        return deque(self._ahead.take(self.settings.max_poll_records))

    def put_back(self, records: Iterable[ConsumerRecord]) -> None:
        """Take back records of `take_ahead` that were not returned."""
        self._ahead.extendleft(reversed(list(records)))

    async def _poll(self, timeout_ms: int) -> list[ConsumerRecord]:
        if not self._cluster.meters.is_measuring:
            return await self._poll_until(timeout_ms)
        began_ms = self._cluster.now_ms()
        try:
            return await self._poll_until(timeout_ms)
        finally:
            self._polls.polled(began_ms, self._cluster.now_ms())

    async def _poll_until(self, timeout_ms: int) -> list[ConsumerRecord]:
        await trio.lowlevel.checkpoint()
        if self._wanted is None and not self._reader.assigned:
            raise IllegalStateException("poll needs a subscription or assigned partitions")
        deadline = trio.current_time() + timeout_ms / 1000
        if self._commits_by_itself:
            self._done = self._reader.positions()
        if self._group is not None:
            self._group.polled(self._cluster.now_ms())
        while True:
            if self._group is not None and not await self._group.follow(deadline):
                return []
            records = await self._read(deadline)
            if records:
                return self._interceptors.on_consume(records) if self._interceptors else records
            if trio.current_time() >= deadline:
                return []

    async def _read(self, deadline: float) -> list[ConsumerRecord]:
        """[] at `deadline`, or earlier if the group has a change."""
        with trio.CancelScope() as self._reading:
            timeout_ms = max(0, math.ceil((deadline - trio.current_time()) * 1000))
            return await self._reader.poll(timeout_ms, self.settings.max_poll_records)
        return []

    def _interrupt(self) -> None:
        if self._reading is not None:
            self._reading.cancel()

    def pause(self, partitions: Partitions) -> None:
        """`poll` returns nothing of these until `resume`. Pausing ends when a rebalance takes the partition away."""
        self._check_open()
        for partition, place in self._ahead.positions(partitions).items():
            self._reader.seek(partition, place)
        self._ahead.drop(partitions)
        self._reader.pause(partitions)

    def resume(self, partitions: Partitions) -> None:
        self._check_open()
        self._reader.resume(partitions)

    def paused(self) -> tuple[TopicPartition, ...]:
        self._check_open()
        return tuple(sorted(self._reader.paused()))

    # ---- positions

    def seek(self, partition: TopicPartition, place: Place) -> None:
        """Continue from that offset at the next `poll`. With a leader epoch the log is first checked for truncation
        (KIP-320). ValueError below 0; IllegalStateException if the partition is not assigned.
        """
        self._check_open()
        self._reader.seek(partition, place)
        self._ahead.drop([partition])

    def seek_to_beginning(self, partitions: Partitions = ()) -> None:
        """Continue from the first record that exists; for all partitions if none are given. The offset is looked up at
        the next `poll` or `position`."""
        self._check_open()
        self._reader.reset(partitions or self._reader.assigned, FROM_EARLIEST)
        self._ahead.drop(partitions or self._reader.assigned)

    def seek_to_end(self, partitions: Partitions = ()) -> None:
        """Continue from the end of the log; for read_committed, from the last stable offset. Otherwise as
        `seek_to_beginning`."""
        self._check_open()
        self._reader.reset(partitions or self._reader.assigned, FROM_LATEST)
        self._ahead.drop(partitions or self._reader.assigned)

    async def position(self, partition: TopicPartition, timeout_ms: int | None = None) -> int:
        """The offset of the next record, looked up if it is unknown. TimeoutException if that takes too long."""
        self._check_open()
        ahead = self._ahead.positions([partition])
        if ahead:
            await trio.lowlevel.checkpoint()
            return ahead[partition].offset
        if self._group is not None:
            self._group.find_positions()
        return await self._reader.wait_for_position(
            partition, self.settings.default_api_timeout_ms if timeout_ms is None else timeout_ms
        )

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Known positions of the assigned partitions, in the form for `commit` and `send_offsets_to_transaction`."""
        self._check_open()
        leaving = {} if self._group is None else self._group.leaving_positions
        return leaving | self._reader.positions() | self._ahead.positions(self._reader.assigned)

    def current_lag(self, partition: TopicPartition) -> int | None:
        """Number of offsets between the position and the end that may be read; None while it is unknown."""
        self._check_open()
        lag = self._reader.lag(partition)
        ahead = self._ahead.positions([partition])
        return lag if lag is None or not ahead else lag + self._reader.position(partition) - ahead[partition].offset

    # ---- offsets of the group

    async def commit(self, offsets: Mapping[TopicPartition, Place] | None = None) -> None:
        """Commit `offsets` for the group; without them, the current positions.

        CommitFailedException if the group has rebalanced without this consumer. RebalanceInProgressException: poll, and
        commit again. TimeoutException, or a cancel: the commit may have happened or not. InvalidGroupIdException
        without group_id.
        """
        self._check_open()
        group = self._require_coordinator()
        committed = self.positions() if offsets is None else _with_metadata(offsets)
        if committed:
            await group.commit(committed)
        else:
            await trio.lowlevel.checkpoint()

    async def committed(self, partitions: Partitions) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The group's committed offsets; None without one. Waits for transactions that are about to commit."""
        self._check_open()
        group = self._require_coordinator()
        if not partitions:
            await trio.lowlevel.checkpoint()
            return {}
        return await group.committed([TopicPartition(*partition) for partition in partitions])

    # ---- the log and the cluster

    async def offsets_for_times(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after each time, in milliseconds since the epoch; None where there is none."""
        self._check_open()
        if any(time_ms < 0 for time_ms in times.values()):
            raise ValueError(f"timestamps must be at least 0; got {min(times.values())}")
        found = await self._reader.find_offsets(times)
        return {
            partition: OffsetAndTimestamp(offset, timestamp_ms, None if epoch < 0 else epoch) if offset >= 0 else None
            for partition, (offset, timestamp_ms, epoch) in found.items()
        }

    async def beginning_offsets(self, partitions: Partitions) -> dict[TopicPartition, int]:
        """Offset of the first record that still exists."""
        self._check_open()
        return await self._reader.offsets_at(dict.fromkeys(partitions, EARLIEST))

    async def end_offsets(self, partitions: Partitions) -> dict[TopicPartition, int]:
        """Offset of the next record to be written; for read_committed, the last stable offset."""
        self._check_open()
        return await self._reader.offsets_at(dict.fromkeys(partitions, LATEST))

    async def partitions_for(self, topic: str) -> list[PartitionInfo]:
        """Partitions of one topic; [] if it does not exist. With allow_auto_create_topics the call may create it."""
        self._check_open()
        directory = await find_topics(self._cluster, [topic], self.settings.default_api_timeout_ms)
        code = directory.errors.get(topic, ErrorCode.NONE)
        if code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE):
            raise KafkaError(code, f"topic {topic}")
        return directory.topics.get(topic, [])

    async def list_topics(self) -> dict[str, list[PartitionInfo]]:
        """All topics that this client may see."""
        self._check_open()
        return await self._cluster.list_topics(self.settings.default_api_timeout_ms)

    def metrics(self) -> dict[str, float]:
        """Metrics under Kafka's names, as far as Kafka has them; totals since the consumer was opened."""
        self._check_open()
        return consumer_metrics(self._reader, self._group)

    async def client_instance_id(self, timeout_ms: int = 60_000) -> str:
        """The id that brokers give this client to push its metrics (KIP-714), in base64. TimeoutException after
        `timeout_ms`; UnsupportedVersionException if the brokers take no metrics; IllegalStateException with
        enable_metrics_push=False.
        """
        self._check_open()
        return await pushing(self._push).client_instance_id(timeout_ms)

    # ---- inside

    def _samples(self, now_ms: int) -> Iterator[Sample]:
        yield from self._cluster.meters.samples("consumer", now_ms)
        yield from consumer_samples(self._reader, self._group, self._polls, now_ms)

    def _describe(self) -> dict[str, str]:
        settings = self.settings
        stamp = None if self._group is None or self._group.participant is None else self._group.participant.stamp
        described = {
            "client_rack": settings.client_rack,
            "group_id": settings.group_id,
            "group_instance_id": settings.group_instance_id,
            "group_member_id": None if stamp is None else stamp.member_id,
        }
        return {key: text for key, text in described.items() if text}

    def _require_group(self) -> None:
        if self.settings.group_id is None:
            raise InvalidGroupIdException(ErrorCode.INVALID_GROUP_ID, "subscribing and committing need a group_id")

    def _require_coordinator(self) -> ConsumerCoordinator:
        self._require_group()
        assert self._group is not None
        return self._group


def _with_metadata(offsets: Mapping[TopicPartition, Place]) -> dict[TopicPartition, OffsetAndMetadata]:
    places = {
        TopicPartition(*partition): place if isinstance(place, OffsetAndMetadata) else OffsetAndMetadata(place)
        for partition, place in offsets.items()
    }
    for partition, place in places.items():
        if place.offset < 0:
            raise ValueError(f"offsets to commit must be at least 0; {partition} got {place.offset}")
    return places
