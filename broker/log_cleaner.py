"""Compacts the broker's logs in the background, the dirtiest first, `log.cleaner.threads` of them at a time.

Every `log.cleaner.backoff.ms` it looks for a log that is dirty enough, and cleans until there is none.
The work is done in slices in a worker thread (`storage.cleaner`), throttled by
`log.cleaner.io.max.bytes.per.second`.
"""

from __future__ import annotations

import logging
from contextlib import closing

import trio

from barnabas.broker.current_settings import CurrentSettings
from barnabas.broker.log_store import LogStore
from barnabas.broker.traffic import CleanerWork
from barnabas.protocol.errors import KafkaError
from barnabas.runtime.world import World
from barnabas.storage.checkpoints import CLEANER_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT
from barnabas.storage.cleaner import CannotClean, CleanerSettings, CleaningAborted, LogCleaning, dirtiest
from barnabas.storage.cleaning import Backlog, Event, Extent, Phase, Throttle
from barnabas.storage.indexes import CorruptIndex
from barnabas.storage.log import PartitionLog
from barnabas.storage.shortage import is_shortage

log = logging.getLogger(__name__)


class LogCleaner:
    def __init__(
        self, world: World, store: LogStore, settings: CurrentSettings, work: CleanerWork | None = None
    ) -> None:
        """`work` counts what is done."""
        self._work = work or CleanerWork()
        self._world = world
        self._store = store
        self._settings = settings
        self._throttle = Throttle()
        self._running = 0
        """Logs that are being cleaned now."""
        self._checkpointed: list[tuple[str, int]] = []
        """Logs whose offsets the checkpoints contain."""

    @property
    def _threads(self) -> int:
        settings = self._settings()
        return settings.log_cleaner_threads if settings.log_cleaner_enable else 0

    async def run(self) -> None:
        """Run until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                await trio.sleep(self._settings().log_cleaner_backoff_ms / 1000)
                await self._forget_deleted()
                while self._running < self._threads and (found := self._next()) is not None:
                    self._running += 1
                    nursery.start_soon(self._keep_cleaning, *found)

    def _next(self) -> tuple[PartitionLog, Extent] | None:
        """The log to clean next, already marked as being cleaned."""
        if self._store.is_closing:
            return None
        self._work.backlog = backlog = Backlog()
        directories = self._store.directories
        # A log that moves to another directory is cleaned there.
        logs = [each for key, each in directories.logs.items() if key not in directories.futures.logs]
        found = dirtiest(logs, self._world.wall_clock.now_ms(), backlog)
        if found is not None:
            found[0].cleaning.move(Event.BEGIN)
        return found

    async def _keep_cleaning(self, partition_log: PartitionLog, extent: Extent) -> None:
        try:
            found: tuple[PartitionLog, Extent] | None = (partition_log, extent)
            while found is not None:
                succeeded = await self._clean(*found)
                found = self._next() if succeeded and self._running <= self._threads else None
        finally:
            self._running -= 1

    async def _clean(self, partition_log: PartitionLog, extent: Extent) -> bool:
        """False if the next log should not be cleaned at once."""
        try:
            return await self._try_to_clean(partition_log, extent)
        finally:
            partition_log.cleaning.finish()

    async def _try_to_clean(self, partition_log: PartitionLog, extent: Extent) -> bool:
        world, store = self._world, self._store
        name = f"{partition_log.topic}-{partition_log.partition}"
        cleaning = LogCleaning(partition_log, extent, self._cleaner_settings(), world.wall_clock.now_ms())
        started_ms = world.monotonic.now_ms()
        try:
            # Recovery takes everything above the recovery point for the tail of appends, which has no gaps.
            await store.checkpoint(RECOVERY_POINT_CHECKPOINT)
            if store.noted_recovery_point(partition_log) < extent.end_offset:
                raise CleaningAborted(f"no disk space to checkpoint that offset {extent.end_offset} is durable")
            await self._run(cleaning)
            self._world.fault_point("cleaner.log.cleaned")
            await self._checkpoint()
        except (CleaningAborted, CannotClean, CorruptIndex, KafkaError, OSError) as error:
            self._failed(partition_log, error)
            await self._discard(cleaning)
            return False
        spent_ms = max(1, world.monotonic.now_ms() - started_ms)
        self._count(cleaning, spent_ms)
        log.info(
            "%s was cleaned to offset %s in %d ms: %d of %d records kept, %d bytes became %d, the map was %d %% full",
            name,
            partition_log.cleaned_to,
            spent_ms,
            cleaning.records_kept,
            cleaning.records_read,
            cleaning.bytes_before,
            cleaning.bytes_after,
            100 * cleaning.map_utilization,
        )
        return True

    def _count(self, cleaning: LogCleaning, spent_ms: int) -> None:
        work = self._work
        work.cleanings += 1
        work.bytes_before += cleaning.bytes_before
        work.bytes_after += cleaning.bytes_after
        work.seconds += spent_ms / 1000
        work.map_utilization = 100 * cleaning.map_utilization
        work.last_seconds = spent_ms / 1000
        work.last_recopied = 100 * cleaning.bytes_after / max(1, cleaning.bytes_before)

    def _failed(self, partition_log: PartitionLog, error: Exception) -> None:
        name = f"{partition_log.topic}-{partition_log.partition}"
        gone = partition_log.failure is not None or partition_log.cleaning.phase is Phase.ABORTED
        if gone or isinstance(error, CleaningAborted):
            # The slice under way may have read anything.
            log.info("cleaning of %s was aborted: %s", name, error)
            return
        self._work.failures += 1
        if not isinstance(error, OSError):
            log.error("%s is no longer cleaned: %s", name, error)
            partition_log.cleaning.problem = str(error)
        elif is_shortage(error):
            log.error("cleaning of %s is retried later: %s", name, error)
        else:
            log.error("cleaning of %s failed: %s", name, error)
            self._store.failed(partition_log.topic, partition_log.partition, error)

    async def _run(self, cleaning: LogCleaning) -> None:
        with closing(cleaning.slices()) as slices:
            for piece in slices:
                moved = await self._world.run_blocking(piece)
                self._world.fault_point("cleaner.slice.done")
                limit = self._settings().log_cleaner_io_max_bytes_per_second
                wait_ms = self._throttle.moved(moved, limit, self._world.monotonic.now_ms())
                if wait_ms > 0:
                    await trio.sleep(wait_ms / 1000)

    async def _checkpoint(self) -> None:
        await self._store.checkpoint(CLEANER_OFFSET_CHECKPOINT)
        logs = self._store.directories.logs.items()
        self._checkpointed = [key for key, each in logs if each.cleaned_to is not None]

    async def _forget_deleted(self) -> None:
        """A new log must not inherit the cleaner offset of a deleted one of the same name."""
        logs = self._store.directories.logs
        if any(key not in logs for key in self._checkpointed):
            await self._checkpoint()

    async def _discard(self, cleaning: LogCleaning) -> None:
        try:
            await self._world.run_blocking(cleaning.discard)
        except OSError as error:
            # The next start removes what is left.
            log.warning("an unneeded copy of a segment could not be removed: %s", error)

    def _cleaner_settings(self) -> CleanerSettings:
        settings = self._settings()
        threads = max(settings.log_cleaner_threads, 1)
        return CleanerSettings(
            dedupe_buffer_bytes=settings.log_cleaner_dedupe_buffer_size // threads,
            load_factor=settings.log_cleaner_io_buffer_load_factor,
            # As in Kafka: one half is the read buffer, one the write buffer.
            slice_bytes=settings.log_cleaner_io_buffer_size // threads // 2,
        )
