"""Periodic work of a broker: checkpoints, flushing, retention, ISR shrinking, expiry of producers.

Each task is a loop around one method, at the interval of Kafka's configuration key.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import trio

from barnabas.broker.coordinator.coordinator import Coordinator
from barnabas.broker.log_cleaner import LogCleaner
from barnabas.broker.log_store import LogStore
from barnabas.broker.metadata_cache import MetadataCache
from barnabas.broker.replication.partitions import Partitions
from barnabas.protocol.errors import KafkaError
from barnabas.runtime.world import World
from barnabas.settings.broker import BrokerSettings
from barnabas.storage.checkpoints import (
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
)
from barnabas.storage.flushing import FlushWork

log = logging.getLogger(__name__)

Job = Callable[[], Awaitable[None]]
P = TypeVar("P")

SLICE = 100
"""Partitions that are visited in one step of the event loop."""

FILE_DELETE_CHECK_MS = 5_000
"""Interval at which files are removed whose file.delete.delay.ms is over."""

POSTPONED_CHECK_MS = 2_000
"""Interval at which logs are retried that a full disk, or a lack of file descriptors, kept from being created."""

FLUSH_CHECK_MS = 1_000
"""Interval at which rolled segments are synced, and logs with gaps or whose flush.ms is over."""


@dataclass(frozen=True, slots=True)
class PeriodicPorts:
    world: World
    store: LogStore
    partitions: Partitions
    metadata: MetadataCache
    coordinators: Sequence[Coordinator[Any]]
    may_be_fenced: Callable[[], bool]
    cleaner: LogCleaner
    make_room: Callable[[], None]
    """Called before retention."""


class PeriodicWork:
    """All periodic work of one broker."""

    def __init__(self, settings: BrokerSettings, ports: PeriodicPorts) -> None:
        """`settings`: those of the start; intervals do not change at run time."""
        self._settings = settings
        self._ports = ports

    async def run(self) -> None:
        """Run until cancelled."""
        settings = self._settings
        jobs: list[tuple[int, Job]] = [
            (settings.replica_high_watermark_checkpoint_interval_ms, self._checkpoint_high_watermarks),
            (settings.log_flush_offset_checkpoint_interval_ms, self._checkpoint_recovery_points),
            (settings.log_flush_start_offset_checkpoint_interval_ms, self._checkpoint_log_starts),
            (settings.log_retention_check_interval_ms, self._apply_retention),
            (settings.producer_id_expiration_check_interval_ms, self._expire_producers),
            (max(1, settings.replica_lag_time_max_ms // 2), self._shrink_isrs),
            (max(1, settings.broker_session_timeout_ms // 4), self._check_lost_contact),
            (FLUSH_CHECK_MS, self._flush_logs),
            (FILE_DELETE_CHECK_MS, self._delete_files),
            (POSTPONED_CHECK_MS, self._make_postponed_logs),
        ]
        async with trio.open_nursery() as nursery:
            for interval_ms, job in jobs:
                nursery.start_soon(_every, interval_ms, job)
            nursery.start_soon(self._ports.cleaner.run)

    async def _checkpoint_high_watermarks(self) -> None:
        await self._ports.store.checkpoint(REPLICATION_OFFSET_CHECKPOINT)

    async def _checkpoint_recovery_points(self) -> None:
        await self._ports.store.checkpoint(RECOVERY_POINT_CHECKPOINT)
        await self._ports.store.settle()

    async def _checkpoint_log_starts(self) -> None:
        await self._ports.store.checkpoint(LOG_START_OFFSET_CHECKPOINT)

    async def _apply_retention(self) -> None:
        self._ports.make_room()
        async for partition in in_slices(self._ports.partitions):
            partition.apply_retention()
        self._ports.store.apply_retention_to_futures()

    async def _expire_producers(self) -> None:
        now_ms = self._ports.world.wall_clock.now_ms()
        async for partition in in_slices(self._ports.partitions):
            producers = partition.log.producers
            if producers is not None:
                producers.remove_expired(now_ms)

    async def _shrink_isrs(self) -> None:
        async for partition in in_slices(self._ports.partitions.led):
            partition.tick()

    async def _check_lost_contact(self) -> None:
        """While the controllers are silent, other brokers may lead: neither readers nor group members wait here."""
        for coordinator in self._ports.coordinators:
            coordinator.check_forgotten()
        if self._ports.may_be_fenced():
            async for partition in in_slices(self._ports.partitions):
                partition.wake_if_forgotten()

    async def _flush_logs(self) -> None:
        await flush_logs(self._ports.world, self._ports.store)

    async def _make_postponed_logs(self) -> None:
        ports = self._ports
        store, topics = ports.store, ports.metadata.image.topics
        for (topic_id, index), new in list(store.postponed.items()):
            topic = topics.by_id.get(topic_id)
            placed = None if topic is None else topic.partitions.get(index)
            if placed is None or self._settings.node_id not in placed.replicas:
                del store.postponed[topic_id, index]
                continue
            await store.make_logs([new])
            if (topic_id, index) not in store.postponed:
                ports.partitions.open_postponed(topic_id, index)

    async def _delete_files(self) -> None:
        await self._ports.store.remove_deleted()


async def _every(interval_ms: int, job: Job) -> None:
    while True:
        await trio.sleep(interval_ms / 1000)
        await job()


async def in_slices(partitions: Iterable[P], wanted: Callable[[list[P]], list[P]] = list) -> AsyncIterator[P]:
    """All of them, or those of each slice that are `wanted`, with turns of others between the slices."""
    everything = list(partitions)
    for start in range(0, len(everything), SLICE):
        if start:
            await trio.lowlevel.checkpoint()
        for partition in wanted(everything[start : start + SLICE]):
            yield partition


async def flush_logs(world: World, store: LogStore) -> None:
    """Sync rolled segments, and logs that have gaps or whose flush.ms is over, one at a time in a worker thread."""
    directories = store.directories
    has_gaps = False
    async for partition_log in in_slices(directories.flush_candidates, directories.need_flush):
        key = (partition_log.topic, partition_log.partition)
        due = partition_log.flushes.are_due(world.wall_clock.now_ms())
        if not due and not partition_log.flushes.are_wanted:
            continue
        work: FlushWork | None = None
        try:
            work = partition_log.flushes.work(rolled_only=not due)
            if work is not None:
                has_gaps |= partition_log.flushes.has_unflushed_gaps
                await world.run_blocking(work)
                partition_log.flushes.done(work.offset)
        except KafkaError:
            # The disk failed while the work was prepared; the log has reported it to its directory.
            continue
        except OSError as error:
            if directories.logs.get(key) is not partition_log:
                # It moved to another directory meanwhile, and the former one may be gone.
                log.info("%s-%d is flushed in its new directory: %s", *key, error)
            elif work is not None and work.passes(error):
                log.warning("%s-%d is flushed later: %s", *key, error)
            else:
                store.failed(*key, error)
    if has_gaps:
        # Recovery after a power failure keeps only the gaps below the recovery point.
        await store.checkpoint(RECOVERY_POINT_CHECKPOINT)
