"""Reads given partitions from given offsets, following their leaders. Knows no groups."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager

import trio

from barnabas.client.cluster import Cluster
from barnabas.client.consumer.fetcher import Fetcher, FetchMetrics
from barnabas.client.consumer.offset_listing import FoundOffset, find_offsets, is_passing, list_offsets
from barnabas.client.consumer.partition_state import FetchState, PartitionState
from barnabas.client.consumer.position_keeper import PositionKeeper
from barnabas.client.consumer.reading_settings import ReadingSettings
from barnabas.client.consumer.record import ConsumerRecord
from barnabas.client.consumer.reset_policy import ResetPolicy
from barnabas.client.errors import IllegalStateException
from barnabas.client.metadata import TopicPartition
from barnabas.client.offset_lookup import LATEST, Isolation
from barnabas.client.offsets import OffsetAndMetadata
from barnabas.protocol.errors import ErrorCode, KafkaError

Start = int | OffsetAndMetadata | None
"""First offset to read: an offset, one with the leader epoch before it, or None: not known yet."""

NO_LIMIT = 2**31 - 1

LOOK_MS = 50
"""Interval of checks of all partitions while some have records to return."""


@asynccontextmanager
async def open_reader(cluster: Cluster, settings: ReadingSettings | None = None) -> AsyncIterator[PartitionReader]:
    """A reader for the length of the block."""
    nursery = await cluster.open_nursery()
    reader = PartitionReader(cluster, nursery, settings or ReadingSettings())
    try:
        yield reader
    finally:
        await reader.close()
        nursery.cancel_scope.cancel()


class PartitionReader:
    """Reads assigned partitions. Coroutines are for one task at a time, and may be cancelled: a cancelled `poll` has
    taken nothing.

    IllegalStateException for a partition that is not assigned.
    """

    def __init__(self, cluster: Cluster, nursery: trio.Nursery, settings: ReadingSettings) -> None:
        """`nursery` runs the requests. See `open_reader`."""
        self._cluster = cluster
        self._nursery = nursery
        self._settings = settings
        self._states: dict[TopicPartition, PartitionState] = {}
        """Partitions move to the end after records of them were returned, so that each has its turn."""
        self._fetcher = Fetcher(cluster, nursery, settings, self._states, self._changed)
        self._keeper = PositionKeeper(cluster, nursery, settings, self._states, self._changed)
        self._news = trio.Event()
        self._is_stale = False
        self._is_learning = False
        self._look_at_ms = 0
        self._ends_asked: dict[TopicPartition, None] = {}
        self.records_given = 0

    # ---- which partitions

    def assign(self, starts: Mapping[TopicPartition, Start]) -> None:
        """Read exactly these partitions, from there."""
        self._states.clear()
        self.add(starts)

    def add(self, starts: Mapping[TopicPartition, Start]) -> None:
        """Read these partitions as well. Those whose start is None wait for `seek` or `reset`."""
        for partition, start in starts.items():
            self._states[partition] = PartitionState(partition, self._cluster.backoff())
            if start is not None:
                self.seek(partition, start)
        self._look_soon()

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop reading these partitions, and drop records read ahead."""
        for partition in partitions:
            self._states.pop(partition, None)
            self._ends_asked.pop(partition, None)

    @property
    def assigned(self) -> list[TopicPartition]:
        return list(self._states)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """`poll` returns nothing of these until `resume`; records read ahead are kept."""
        for state in self._all(partitions):
            state.is_paused = True

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        for state in self._all(partitions):
            state.is_paused = False
        self._look_soon()

    def paused(self) -> list[TopicPartition]:
        return [partition for partition, state in self._states.items() if state.is_paused]

    # ---- positions

    def seek(self, partition: TopicPartition, start: int | OffsetAndMetadata) -> None:
        """Continue from there. With a leader epoch the leader is asked first whether its log still has that record."""
        state = self._state(partition)
        offset, epoch = (start, None) if isinstance(start, int) else (start.offset, start.leader_epoch)
        if offset < 0:
            raise ValueError(f"offset must be at least 0; {partition} got {offset}")
        if epoch is None:
            state.seek(offset)
        else:
            state.seek(offset, epoch)
        self._look_soon()

    def reset(self, partitions: Iterable[TopicPartition], policy: ResetPolicy | None = None) -> None:
        """Continue as `policy` says, or the reader's own policy if it is None; the leaders are asked for the offset."""
        for state in self._all(partitions):
            state.request_reset(policy or self._settings.reset)
        self._look_soon()

    def uninitialized(self) -> list[TopicPartition]:
        """Partitions without a position and without a pending reset."""
        return [partition for partition, state in self._states.items() if state.state is FetchState.INITIALIZING]

    def position(self, partition: TopicPartition) -> int:
        """Offset of the next record, or of the first one after it that exists. IllegalStateException while it is
        unknown.
        """
        position = self._state(partition).position
        if position is None:
            raise IllegalStateException(f"the position of {partition} is not known yet")
        return position.offset

    async def wait_for_position(self, partition: TopicPartition, timeout_ms: int) -> int:
        """Like `position`, waiting until it is known. TimeoutException after `timeout_ms`; KafkaError if it cannot be
        looked up.
        """
        await trio.lowlevel.checkpoint()
        deadline = trio.current_time() + timeout_ms / 1000
        while True:
            state = self._state(partition)
            if state.state is FetchState.FETCHING and state.position is not None:
                return state.position.offset
            if state.error is not None:
                raise self._error_of(state)
            if trio.current_time() >= deadline:
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"no position of {partition} within {timeout_ms} ms")
            await self._wait(deadline)

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Known positions, in the form for a commit."""
        return {
            partition: OffsetAndMetadata(
                state.position.offset, state.position.epoch if state.position.epoch >= 0 else None
            )
            for partition, state in self._states.items()
            if state.position is not None
        }

    def high_watermark(self, partition: TopicPartition) -> int:
        """From the last fetch; -1 before the first."""
        return self._state(partition).high_watermark

    def lag(self, partition: TopicPartition) -> int | None:
        """Number of offsets between the position and the end that may be read; None while it is unknown: then the
        leader is asked.
        """
        state = self._state(partition)
        lag = state.lag(committed_only=self._settings.isolation is Isolation.READ_COMMITTED)
        if lag is None and state.position is not None and partition not in self._ends_asked:
            self._ends_asked[partition] = None
            self._nursery.start_soon(self._ask_end, state)
        return lag

    async def _ask_end(self, state: PartitionState) -> None:
        try:
            found = await self.find_offsets({state.partition: LATEST})
        except KafkaError:
            return  # the next call of `lag` asks again
        finally:
            self._ends_asked.pop(state.partition, None)
        offset = found[state.partition].offset
        if self._settings.isolation is Isolation.READ_COMMITTED:
            state.last_stable_offset = max(state.last_stable_offset, offset)
        else:
            state.high_watermark = max(state.high_watermark, offset)

    def reads_from(self, partition: TopicPartition) -> int | None:
        """The node to fetch from: the leader, or a replica in client.rack; None while it is unknown."""
        state = self._state(partition)
        preferred = state.preferred(self._cluster.now_ms())
        if preferred is not None:
            return preferred
        return state.leader if state.leader >= 0 else None

    async def offsets_at(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The first offset at or after each timestamp (also EARLIEST, LATEST); -1 where there is none. Raises as
        `find_offsets`.
        """
        settings = self._settings
        return await list_offsets(self._cluster, timestamps, settings.default_api_timeout_ms, settings.isolation)

    async def find_offsets(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, FoundOffset]:
        """Like `offsets_at`, with timestamps and leader epochs; the partitions need not be assigned. KafkaError if they
        are not known within default.api.timeout.ms.
        """
        settings = self._settings
        return await find_offsets(self._cluster, timestamps, settings.default_api_timeout_ms, settings.isolation)

    # ---- records

    async def poll(self, timeout_ms: int, max_records: int = NO_LIMIT) -> list[ConsumerRecord]:
        """Up to `max_records` fetched records, in order within each partition; [] after `timeout_ms` without any.

        KafkaError if a partition cannot be read; the others go on, and so does this one with a later call. A permanent
        error is raised again until a `seek`. A cancelled poll has taken nothing.
        """
        await trio.lowlevel.checkpoint()  # fetches go on while the application processes records
        deadline = trio.current_time() + timeout_ms / 1000
        if self._cluster.now_ms() >= self._look_at_ms:
            self._look()
        while True:
            records = self._take(max_records)
            if records or trio.current_time() >= deadline:
                return records
            await self._wait(deadline)

    def _take(self, max_records: int) -> list[ConsumerRecord]:
        taken: list[ConsumerRecord] = []
        givers: list[PartitionState] = []
        unpacking = self._settings.unpacking
        for partition, state in list(self._states.items()):
            if not state.can_give:
                continue
            turn = state.waiting[0]
            givers.append(state)
            try:
                given = state.give(max_records - len(taken), unpacking)
            except KafkaError:
                self._states[partition] = self._states.pop(partition)
                if taken:
                    break  # the next call raises it
                raise
            taken += given
            if state.waiting and state.waiting[0] is turn:
                break
            if given:
                self._states[partition] = self._states.pop(partition)
            if len(taken) >= max_records:
                break
        if taken:
            self.records_given += len(taken)
            self._fetcher.feed(givers, self._cluster.now_ms())
            return taken
        for state in self._states.values():
            if state.error is not None:
                raise self._error_of(state)
        return taken

    def _error_of(self, state: PartitionState) -> KafkaError:
        """Raised once; a permanent error comes back with the next attempt."""
        error, state.error = state.error, None
        assert error is not None
        return error

    async def close(self) -> None:
        """End the fetch sessions, as far as that needs no waiting, also if cancelled. The nursery belongs to its
        opener.
        """
        self._states.clear()
        await self._fetcher.close()

    @property
    def fetch_metrics(self) -> FetchMetrics:
        return self._fetcher.metrics

    # ---- inside

    def _state(self, partition: TopicPartition) -> PartitionState:
        state = self._states.get(partition)
        if state is None:
            raise IllegalStateException(f"{partition} is not assigned to this consumer")
        return state

    def _all(self, partitions: Iterable[TopicPartition]) -> list[PartitionState]:
        return [self._state(partition) for partition in partitions]

    def _changed(self, stale: bool) -> None:
        """Called after a response."""
        self._is_stale = self._is_stale or stale
        if stale:
            self._learn_soon()
        self._look_soon()

    def _look_soon(self) -> None:
        self._look_at_ms = 0
        self._news.set()

    async def _wait(self, deadline: float) -> None:
        """Until a broker answers, something is due, or `deadline`, in seconds of trio's clock."""
        self._news = trio.Event()
        self._look()
        now_ms = self._cluster.now_ms()
        times = [state.not_before_ms for state in self._states.values() if state.not_before_ms > now_ms]
        node_at_ms = self._fetcher.wake_at_ms(now_ms)
        if node_at_ms is not None:
            times.append(node_at_ms)
        wake_at = trio.current_time() + (min(times) - now_ms) / 1000 if times else deadline
        with trio.move_on_at(min(deadline, wake_at)):
            await self._news.wait()

    def _look(self) -> None:
        """Follow the leaders, and start all requests that are due."""
        now_ms = self._cluster.now_ms()
        self._look_at_ms = now_ms + LOOK_MS
        leaderless = False
        for state in self._states.values():
            leadership = self._cluster.leadership(state.partition)
            if leadership is not None:
                state.follow(leadership)
            elif now_ms >= state.not_before_ms and state.error is None:
                leaderless = True
        if leaderless:
            self._learn_soon()
        self._keeper.look(now_ms)
        self._fetcher.look(now_ms)

    def _learn_soon(self) -> None:
        if not self._is_learning:
            self._is_learning = True
            self._nursery.start_soon(self._learn)

    async def _learn(self) -> None:
        """Refresh the metadata; check again later where there is still no leader."""
        refused: KafkaError | None = None
        try:
            while True:
                self._is_stale = False
                await self._cluster.refresh(dict.fromkeys(partition.topic for partition in self._states))
                if not self._is_stale:
                    break
        except KafkaError as error:
            refused = error
        self._is_learning = False
        now_ms = self._cluster.now_ms()
        for state in self._states.values():
            if refused is not None:
                state.fail(refused, now_ms)
            elif self._cluster.leadership(state.partition) is None and now_ms >= state.not_before_ms:
                self._has_no_leader(state, now_ms)
        self._look_soon()

    def _has_no_leader(self, state: PartitionState, now_ms: int) -> None:
        view = self._cluster.topics.get(state.partition.topic)
        code = ErrorCode.NONE if view is None else view.error
        if code is ErrorCode.NONE or is_passing(code):
            state.put_off(now_ms)
        else:
            state.fail(KafkaError(code, f"topic {state.partition.topic}"), now_ms)
