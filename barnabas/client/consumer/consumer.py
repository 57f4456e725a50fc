"""The consumer that users see: what is read is given by `poll`, or by `async for`.

It may be in a group, which assigns it partitions and keeps its offsets, or be assigned partitions by hand. All work is
done by tasks of the block that opens it; none outlives that.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from types import TracebackType
from typing import Self, Unpack

import trio

from barnabas.client.cluster import Cluster, NoBrokerAvailable
from barnabas.client.consumer.consumer_coordinator import ConsumerCoordinator
from barnabas.client.consumer.listener import RebalanceListener
from barnabas.client.consumer.partition_reader import PartitionReader
from barnabas.client.consumer.record import ConsumerRecord
from barnabas.client.consumer.reset_policy import FROM_EARLIEST, FROM_LATEST
from barnabas.client.consumer.settings import ConsumerOptions, ConsumerSettings
from barnabas.client.errors import IllegalStateException, InvalidGroupIdException
from barnabas.client.groups.membership import ConsumerGroupMetadata, Leaving
from barnabas.client.groups.participant import Participant, Wanted
from barnabas.client.groups.topic_directory import TopicDirectory, ask_topics
from barnabas.client.interceptors import ConsumerInterceptors
from barnabas.client.metadata import PartitionInfo, TopicPartition
from barnabas.client.offset_lookup import EARLIEST, LATEST
from barnabas.client.offsets import OffsetAndMetadata, OffsetAndTimestamp
from barnabas.client.session import first_failure, open_cluster
from protocol.errors import ErrorCode, KafkaError
from runtime.channel import ChannelError
from runtime.world import World

CLOSE_TIMEOUT_MS = 30_000
CANCELLED_CLOSE_MS = 2_000
"""How long a block that is cancelled may still take to commit and to leave its group."""
ITERATION_POLL_MS = 1_000
Place = int | OffsetAndMetadata
Partitions = Collection[TopicPartition]


class Consumer:
    """`async with Consumer("flights", group_id="etl", bootstrap_servers=…) as consumer:`
    `async for record in consumer: …`

    For one task at a time. All coroutines may be cancelled: what was not given then is given later. At the end of the
    block the consumer commits (enable_auto_commit) and leaves its group. A block that ends by an exception commits only
    what was done before the last `poll`, so that what it failed on is read again.

    Any call may raise IllegalStateException (closed, or not open yet, or used by two tasks at once); KafkaError of a
    class named as in Kafka (`barnabas.errors`) for what brokers refuse, and TimeoutException for what takes longer than
    default.api.timeout.ms.
    """

    _cluster: Cluster
    _nursery: trio.Nursery
    _reader: PartitionReader

    def __init__(self, *topics: str, world: World | None = None, **options: Unpack[ConsumerOptions]) -> None:
        """Nothing is dialled before the block begins. With `topics` it subscribes to them.

        ConfigException: a setting is unknown, missing, or cannot be. InvalidGroupIdException: topics without group_id.
        """
        self.settings = ConsumerSettings.of(options)
        if topics:
            self._require_group()
        self._reading_settings = self.settings.reading
        self._commits_by_itself = self.settings.commits_by_itself
        self._topics = topics
        self._world = world
        self._interceptors = ConsumerInterceptors(self.settings.interceptors)
        self._life: AbstractAsyncContextManager[None] | None = None
        self._scope = trio.CancelScope()
        self._is_open = False
        self._in_use = False
        self._wanted: Wanted | None = None
        self._group: ConsumerCoordinator | None = None
        self._reading: trio.CancelScope | None = None
        self._ahead: deque[ConsumerRecord] = deque()
        """Polled by `async for`, not given yet."""
        self._done: dict[TopicPartition, OffsetAndMetadata] = {}
        """Positions at the begin of the last poll: what was given before was done with."""

    # ---- life

    async def __aenter__(self) -> Self:
        if self._life is not None:
            raise IllegalStateException("a consumer is opened once")
        self._life = self._open()
        await self._life.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._life is not None
        try:
            return await self._life.__aexit__(kind, error, trace)
        except BaseExceptionGroup as group:
            # Who uses a client does not see its tasks.
            told = first_failure(group)
            if told is None:
                raise
            if told is error:
                return False
            raise told from told.__cause__

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[None]:
        async with trio.open_nursery() as nursery:
            self._cluster, self._nursery = await nursery.start(self._hold)
            self._reader = PartitionReader(self._cluster, self._nursery, self._reading_settings)
            if self.settings.group_id is not None:
                self._group = ConsumerCoordinator(
                    self._cluster, self._nursery, self.settings, self._reader, self.positions
                )
                self._group.interceptors = self._interceptors
                self._group.on_news = self._interrupt
            self._is_open = True
            if self._topics:
                self.subscribe(self._topics)
            in_good_order = False
            try:
                yield
                in_good_order = True
            finally:
                try:
                    await self._close_in_time(CLOSE_TIMEOUT_MS, Leaving.DEFAULT, in_good_order=in_good_order)
                finally:
                    self._scope.cancel()

    async def _hold(self, task_status: trio.TaskStatus[tuple[Cluster, trio.Nursery]]) -> None:
        """What it needs of the network goes on after a cancel from outside, for as long as it takes to say goodbye."""
        with self._scope:
            async with open_cluster(self.settings, self._world) as cluster, trio.open_nursery() as nursery:
                task_status.started((cluster, nursery))
                # If the opening was cancelled, nobody will ever end this.
                await trio.lowlevel.checkpoint_if_cancelled()
                self._scope.shield = True
                await trio.sleep_forever()

    async def close(self, timeout_ms: int = CLOSE_TIMEOUT_MS, leaving: Leaving = Leaving.DEFAULT) -> None:
        """Commit (enable_auto_commit), tell the listener, leave the group: within `timeout_ms`. The end of the block
        does it as well. Cancelled, it still has two seconds for that; of a member that could not leave the others hear
        when its session times out.
        """
        await self._close_in_time(timeout_ms, leaving, in_good_order=True)

    async def _close_in_time(self, timeout_ms: int, leaving: Leaving, *, in_good_order: bool) -> None:
        if not self._is_open:
            return
        if trio.current_effective_deadline() == -float("inf"):
            timeout_ms = min(timeout_ms, CANCELLED_CLOSE_MS)
        done = self.positions() if in_good_order else self._still_owned(self._done)
        try:
            with trio.CancelScope(deadline=trio.current_time() + timeout_ms / 1000, shield=True):
                if self._group is not None:
                    await self._group.close(done, leaving)
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
        """Read these topics, in place of those before, as far as the group assigns them. No topics: `unsubscribe`.

        A `pattern` takes topics by their whole names. As text it is matched by the broker in a consumer group
        (group_protocol="consumer"; RE2), and by the client in a classic one, as is a compiled `re.Pattern` in both:
        each metadata.max.age.ms, and without internal topics (exclude_internal_topics).

        InvalidGroupIdException without group_id; IllegalStateException while partitions are assigned by hand.
        """
        self._check_open()
        group = self._require_coordinator()
        names = (topics,) if isinstance(topics, str) else tuple(dict.fromkeys(topics))
        if names and pattern is not None:
            raise ValueError("subscribe: either topics or a pattern")
        if not all(isinstance(name, str) and name.strip() for name in names):
            raise ValueError(f"subscribe: {names} are not all names of topics")
        if not names and pattern is None:
            self.unsubscribe()
            return
        if self._wanted is None and self._reader.assigned:
            raise IllegalStateException("partitions are assigned by hand: unsubscribe first")
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
        """Read nothing any more, and leave the group. The listener is told, and the group left, in the background;
        nothing is committed but by the listener. What the listener raises comes out of the next `poll`.
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
        """Read these partitions, and no others; no group has a say in it. Those that were read before keep their
        positions, the others begin where the group has come to, if there is a group_id, or as auto_offset_reset says.

        IllegalStateException while topics are subscribed to.
        """
        self._check_open()
        if self._wanted is not None:
            raise IllegalStateException("topics are subscribed to: unsubscribe first")
        wanted = dict.fromkeys(TopicPartition(*partition) for partition in partitions)
        known = dict.fromkeys(self._reader.assigned)
        gone = [partition for partition in known if partition not in wanted]
        new = [partition for partition in wanted if partition not in known]
        self._drop(gone)
        if self._group is not None:
            self._group.forget(gone)
            self._group.place_by_hand(new)
        else:
            self._reader.remove(gone)
            self._reader.add(dict.fromkeys(new))
            self._reader.reset(new)

    def assignment(self) -> tuple[TopicPartition, ...]:
        """What it reads now."""
        self._check_open()
        return tuple(sorted(self._reader.assigned))

    def subscription(self) -> tuple[str, ...]:
        """The topics that it subscribed to; of a pattern those that are known to match."""
        self._check_open()
        participant = None if self._group is None else self._group.participant
        if self._wanted is None or participant is None:
            return ()
        if self._wanted.pattern is not None:
            return tuple(sorted({partition.topic for partition in self._reader.assigned}))
        return participant.topics

    def enforce_rebalance(self, reason: str = "the application asked for it") -> None:
        """Have a classic group assign anew; in a consumer group the broker decides, and nothing happens."""
        self._check_open()
        participant = None if self._group is None else self._group.participant
        if participant is None:
            raise IllegalStateException("nothing is subscribed to")
        participant.rejoin(reason)

    @property
    def membership(self) -> Participant | None:
        """How it stands in its group; None while nothing is subscribed to."""
        return None if self._group is None else self._group.participant

    def group_metadata(self) -> ConsumerGroupMetadata:
        """For `send_offsets_to_transaction`. Of a consumer that is out of its group: as it was last in it, so that its
        offsets are refused. InvalidGroupIdException without group_id.
        """
        self._check_open()
        return self._require_coordinator().transaction_stamp

    # ---- reading

    async def poll(self, timeout_ms: int = 0) -> list[ConsumerRecord]:
        """Up to max_poll_records, in order within each partition; [] after `timeout_ms` without any. Follows what the
        group wants meanwhile: the listener is called from here.

        Raises what the listener raises; NoOffsetForPartitionException, OffsetOutOfRangeException and
        LogTruncationException with auto_offset_reset="none"; RecordDeserializationException until somebody seeks past
        that record, UnreadableBatchException until somebody seeks past that batch; what keeps this consumer out of its
        group for ever. After any of them it can be polled again. Cancelled, it has taken nothing; a callback
        of the listener that was cancelled is called again.
        """
        with self._one_task():
            if self._ahead:
                await trio.lowlevel.checkpoint()
                records = [self._ahead.popleft() for _ in range(min(len(self._ahead), self.settings.max_poll_records))]
            else:
                records = await self._poll(timeout_ms)
            return records

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerRecord:
        """The next record, whenever there is one. Positions and commits count what was given here, not what was read
        ahead for it. Raises as `poll`."""
        if self._ahead:
            return self._ahead.popleft()
        with self._one_task():
            while not self._ahead:
                self._ahead.extend(await self._poll(ITERATION_POLL_MS))
            return self._ahead.popleft()

    async def _poll(self, timeout_ms: int) -> list[ConsumerRecord]:
        await trio.lowlevel.checkpoint()
        if self._wanted is None and not self._reader.assigned:
            raise IllegalStateException("nothing is subscribed to, and no partition is assigned")
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
        """[] at `deadline`, or before that if the group wants something."""
        with trio.CancelScope() as self._reading:
            timeout_ms = max(0, math.ceil((deadline - trio.current_time()) * 1000))
            return await self._reader.poll(timeout_ms, self.settings.max_poll_records)
        return []

    def _interrupt(self) -> None:
        if self._reading is not None:
            self._reading.cancel()

    def pause(self, partitions: Partitions) -> None:
        """`poll` gives nothing of these until `resume`. A rebalance that takes a partition away forgets it."""
        self._check_open()
        for partition, place in self._ahead_of(partitions).items():
            self._reader.seek(partition, place)
        self._drop(partitions)
        self._reader.pause(partitions)

    def resume(self, partitions: Partitions) -> None:
        self._check_open()
        self._reader.resume(partitions)

    def paused(self) -> tuple[TopicPartition, ...]:
        self._check_open()
        return tuple(sorted(self._reader.paused()))

    # ---- positions

    def seek(self, partition: TopicPartition, place: Place) -> None:
        """Read on from there: the next `poll` gives that record. With a leader epoch it is checked first that the log
        is still the one that was read (KIP-320). ValueError below 0; IllegalStateException if it is not assigned.
        """
        self._check_open()
        self._reader.seek(partition, place)
        self._drop([partition])

    def seek_to_beginning(self, partitions: Partitions = ()) -> None:
        """Read on from the first record that is there; of all partitions if none are named. It is looked for at the
        next `poll` or `position`."""
        self._check_open()
        self._reader.reset(partitions or self._reader.assigned, FROM_EARLIEST)
        self._drop(partitions or self._reader.assigned)

    def seek_to_end(self, partitions: Partitions = ()) -> None:
        """Read on from what is written from now on; for read_committed: from the last stable offset. As
        `seek_to_beginning`."""
        self._check_open()
        self._reader.reset(partitions or self._reader.assigned, FROM_LATEST)
        self._drop(partitions or self._reader.assigned)

    async def position(self, partition: TopicPartition, timeout_ms: int | None = None) -> int:
        """The offset that is given next, found out if need be. TimeoutException if that takes too long."""
        self._check_open()
        ahead = self._ahead_of([partition])
        if ahead:
            await trio.lowlevel.checkpoint()
            return ahead[partition].offset
        if self._group is not None:
            self._group.find_places()
        return await self._reader.wait_for_position(
            partition, self.settings.default_api_timeout_ms if timeout_ms is None else timeout_ms
        )

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Of all assigned partitions where it is known: as `commit` and `send_offsets_to_transaction` take them."""
        self._check_open()
        going = {} if self._group is None else self._group.going
        return going | self._reader.positions() | self._ahead_of(self._reader.assigned)

    def current_lag(self, partition: TopicPartition) -> int | None:
        """How many offsets its position is behind the end that may be read; None while that is not known."""
        self._check_open()
        lag = self._reader.lag(partition)
        ahead = self._ahead_of([partition])
        return lag if lag is None or not ahead else lag + self._reader.position(partition) - ahead[partition].offset

    def _ahead_of(self, partitions: Partitions) -> dict[TopicPartition, OffsetAndMetadata]:
        """Where those stand of which `async for` has records that it has not given."""
        if not self._ahead:
            return {}
        wanted = dict.fromkeys(partitions)
        first = {TopicPartition(each.topic, each.partition): each.offset for each in reversed(self._ahead)}
        return {partition: OffsetAndMetadata(offset) for partition, offset in first.items() if partition in wanted}

    def _drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget what `async for` has ahead of these."""
        if self._ahead:
            gone = dict.fromkeys(partitions)
            kept = [each for each in self._ahead if TopicPartition(each.topic, each.partition) not in gone]
            self._ahead = deque(kept)

    # ---- offsets of the group

    async def commit(self, offsets: Mapping[TopicPartition, Place] | None = None) -> None:
        """The group has come so far: to the positions, if `offsets` does not say otherwise.

        CommitFailedException if the group went on without this consumer: its partitions are, or will be, another's.
        RebalanceInProgressException: poll, and commit again. TimeoutException, or a cancel: it may be in force or not.
        InvalidGroupIdException without group_id.
        """
        self._check_open()
        group = self._require_coordinator()
        committed = self.positions() if offsets is None else _with_metadata(offsets)
        if committed:
            await group.commit(committed)
        else:
            await trio.lowlevel.checkpoint()

    async def committed(self, partitions: Partitions) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed; None where that is nothing. Waits for transactions that are about to commit."""
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
            raise ValueError(f"offsets_for_times: {min(times.values())} is no time")
        found = await self._reader.find_offsets(times)
        return {
            partition: OffsetAndTimestamp(offset, timestamp_ms, None if epoch < 0 else epoch) if offset >= 0 else None
            for partition, (offset, timestamp_ms, epoch) in found.items()
        }

    async def beginning_offsets(self, partitions: Partitions) -> dict[TopicPartition, int]:
        """Of the first record that is still there."""
        self._check_open()
        return await self._reader.offsets_at(dict.fromkeys(partitions, EARLIEST))

    async def end_offsets(self, partitions: Partitions) -> dict[TopicPartition, int]:
        """Of the next record that will be there; for read_committed, the last stable offset."""
        self._check_open()
        return await self._reader.offsets_at(dict.fromkeys(partitions, LATEST))

    async def partitions_for(self, topic: str) -> list[PartitionInfo]:
        """Of one topic; [] if there is none of that name. It may be created by that (allow_auto_create_topics)."""
        directory = await self._ask(topic)
        code = directory.errors.get(topic, ErrorCode.NONE)
        if code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE):
            raise KafkaError(code, f"topic {topic}")
        return directory.topics.get(topic, [])

    async def list_topics(self) -> dict[str, list[PartitionInfo]]:
        """All topics that this client may see."""
        self._check_open()
        return await self._cluster.list_topics(self.settings.default_api_timeout_ms)

    async def _ask(self, topic: str) -> TopicDirectory:
        self._check_open()
        backoff, timeout_ms = self._cluster.backoff(), self.settings.default_api_timeout_ms
        reason = ""
        with trio.move_on_after(timeout_ms / 1000):
            while True:
                try:
                    return await ask_topics(self._cluster, [topic])
                except (ChannelError, NoBrokerAvailable) as error:
                    reason = str(error)
                await trio.sleep(backoff.next_ms() / 1000)
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"no metadata in {timeout_ms} ms: {reason}")

    def metrics(self) -> dict[str, float]:
        """Named as in Kafka, as far as it has them; totals since the consumer was opened."""
        self._check_open()
        fetches, participant = self._reader.fetch_metrics, self.membership
        lags = [lag for partition in self._reader.assigned if (lag := self._reader.lag(partition)) is not None]
        metrics: dict[str, float] = {
            "records-consumed-total": self._reader.records_given,
            "bytes-consumed-total": fetches.bytes,
            "fetch-total": fetches.fetches,
            "fetch-latency-avg": fetches.latency_ms / fetches.fetches if fetches.fetches else 0.0,
            "fetch-latency-max": fetches.latency_max_ms,
            "fetch-throttle-time-total": fetches.throttle_ms,
            "assigned-partitions": len(self._reader.assigned),
            "records-lag-max": max(lags, default=0),
        }
        if self._group is not None:
            metrics["commit-total"] = self._group.commits
        if participant is not None:
            metrics["rebalance-total"] = participant.rebalances
            metrics["heartbeat-total"] = participant.heartbeats
            metrics["last-heartbeat-seconds-ago"] = participant.unheard_ms() / 1000
        return metrics

    # ---- inside

    def _check_open(self) -> None:
        if not self._is_open:
            state = "not open yet: use it in an `async with`" if self._life is None else "closed"
            raise IllegalStateException(f"this consumer is {state}")

    @contextmanager
    def _one_task(self) -> Iterator[None]:
        self._check_open()
        if self._in_use:
            raise IllegalStateException("two tasks poll one consumer at once")
        self._in_use = True
        try:
            yield
        finally:
            self._in_use = False

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
            raise ValueError(f"commit: {partition}: there is no offset {place.offset}")
    return places
