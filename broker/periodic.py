"""What a broker does again and again: checkpoints, retention, compaction, late followers, old producers.

Each task is one loop around one function, at the interval that Kafka's key says.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import trio

from broker.log_cleaner import run_log_cleaner
from protocol.errors import KafkaError
from storage.checkpoints import (
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
)
from storage.flushing import FlushWork

if TYPE_CHECKING:
    from broker.services import BrokerServices

log = logging.getLogger(__name__)

Job = Callable[["BrokerServices"], Awaitable[None]]


async def run_periodic_tasks(broker: BrokerServices) -> None:
    """Run until cancelled."""
    settings = broker.settings
    jobs: list[tuple[int, Job]] = [
        (settings.replica_high_watermark_checkpoint_interval_ms, _checkpoint_high_watermarks),
        (settings.log_flush_offset_checkpoint_interval_ms, _checkpoint_recovery_points),
        (settings.log_flush_start_offset_checkpoint_interval_ms, _checkpoint_log_starts),
        (settings.log_retention_check_interval_ms, _apply_retention),
        (settings.producer_id_expiration_check_interval_ms, _forget_producers),
        (max(1, settings.replica_lag_time_max_ms // 2), _shrink_isrs),
        (max(1, settings.broker_session_timeout_ms // 4), _look_at_forgotten),
        (FLUSH_CHECK_MS, flush_logs),
        (FILE_DELETE_CHECK_MS, _delete_files),
        (POSTPONED_CHECK_MS, _make_postponed_logs),
    ]
    async with trio.open_nursery() as nursery:
        for interval_ms, job in jobs:
            nursery.start_soon(_every, interval_ms, job, broker)
        nursery.start_soon(run_log_cleaner, broker)


FILE_DELETE_CHECK_MS = 5_000
"""How often it is seen which deleted files have waited for file.delete.delay.ms."""

POSTPONED_CHECK_MS = 2_000
"""How often the logs are tried again that a full disk, or a lack of descriptors, kept from being made."""

FLUSH_CHECK_MS = 1_000
"""How often segments that were rolled are synced, and logs that have gaps or whose flush.ms is over."""


async def _every(interval_ms: int, job: Job, broker: BrokerServices) -> None:
    while True:
        await trio.sleep(interval_ms / 1000)
        await job(broker)


async def _checkpoint_high_watermarks(broker: BrokerServices) -> None:
    await broker.store.checkpoint(REPLICATION_OFFSET_CHECKPOINT)


async def _checkpoint_recovery_points(broker: BrokerServices) -> None:
    await broker.store.checkpoint(RECOVERY_POINT_CHECKPOINT)
    await broker.store.settle()


async def _checkpoint_log_starts(broker: BrokerServices) -> None:
    await broker.store.checkpoint(LOG_START_OFFSET_CHECKPOINT)


async def _apply_retention(broker: BrokerServices) -> None:
    broker.partitions.apply_retention()


async def _forget_producers(broker: BrokerServices) -> None:
    now_ms = broker.world.wall_clock.now_ms()
    for partition in broker.partitions:
        producers = partition.log.producers
        if producers is not None:
            producers.remove_expired(now_ms)


async def _shrink_isrs(broker: BrokerServices) -> None:
    broker.partitions.shrink_isrs()


async def _look_at_forgotten(broker: BrokerServices) -> None:
    """While the controllers are silent, nobody waits where others may lead by now: neither readers nor members."""
    for coordinator in broker.coordinators:
        coordinator.check_forgotten()
    if broker.lifecycle.may_be_fenced():
        broker.partitions.wake_forgotten()


async def flush_logs(broker: BrokerServices) -> None:
    """Segments that were rolled, logs that have gaps or whose flush.ms is over: synced one after the other, off the
    event loop.
    """
    has_gaps = False
    for partition in broker.partitions:
        partition_log = partition.log
        due = partition_log.flushes.are_due(broker.world.wall_clock.now_ms())
        if not due and not partition_log.flushes.are_wanted:
            continue
        work: FlushWork | None = None
        try:
            work = partition_log.flushes.work(rolled_only=not due)
            if work is not None:
                has_gaps |= partition_log.flushes.has_unflushed_gaps
                await broker.world.run_blocking(work)
                partition_log.flushes.done(work.offset)
        except KafkaError:
            # The disk failed while the work was prepared: the log has told its directory.
            continue
        except OSError as error:
            if work is not None and work.passes(error):
                log.warning("%s-%d is flushed later: %s", partition.topic, partition.index, error)
            else:
                broker.store.failed(partition.topic, partition.index, error)
    if has_gaps:
        # A start after a loss of power keeps the gaps below it only.
        await broker.store.checkpoint(RECOVERY_POINT_CHECKPOINT)


async def _make_postponed_logs(broker: BrokerServices) -> None:
    store, topics = broker.store, broker.metadata.image.topics
    for (topic_id, index), new in list(store.postponed.items()):
        topic = topics.by_id.get(topic_id)
        placed = None if topic is None else topic.partitions.get(index)
        if placed is None or broker.settings.node_id not in placed.replicas:
            del store.postponed[topic_id, index]
            continue
        await store.make_logs([new])
        if (topic_id, index) not in store.postponed:
            broker.partitions.open_postponed(topic_id, index)


async def _delete_files(broker: BrokerServices) -> None:
    await broker.store.remove_deleted()
