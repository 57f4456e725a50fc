"""The logs in the broker's log directories: opens, creates and deletes them, and knows their directories.

Slow work (recovery of all logs at the start, creation of logs) runs in worker threads, before the first partition that
needs it is used.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import trio

from barnabas.kraft.metadata.image import MetadataImage
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.primitives import ZERO_UUID
from barnabas.runtime.decisions import DecisionKind, Notepad, Notes
from barnabas.runtime.world import World
from barnabas.settings.broker import BrokerSettings
from barnabas.settings.topic import TopicConfig
from barnabas.storage.directories import ConfigOf, LogDirectories
from barnabas.storage.log import PartitionLog
from barnabas.storage.log_dir_work import DirectoryFailure, NewLog, OpenLog
from barnabas.storage.log_directory import LogDirectory, LogDirectoryError
from barnabas.storage.shortage import is_shortage, lacks_descriptors

log = logging.getLogger(__name__)

LOGS_IN_A_STEP = 1_000
"""Logs that are looked at before other tasks run."""
LOGS_MADE_TOGETHER = 2_000
"""Logs that are placed, and adopted, in one step. A sync makes all of them durable."""
DESCRIPTORS_PAUSE_S = 0.5
"""Pause before logs are opened again for which no file descriptor was left."""


class LogStore:
    """The logs belong to `directories`."""

    def __init__(self, directories: LogDirectories, world: World, decisions: Notepad | None = None) -> None:
        self.directories = directories
        self._decisions = decisions or Notes()
        self._world = world
        self.misplaced: dict[tuple[bytes, int], bytes] = {}
        """(topic id, partition) to the id of its directory, for replicas that the metadata has in another one."""
        self.is_closing = False
        """True if no new work on a log may begin."""
        self.making = trio.Lock()
        """Held while logs are created or settled, one at a time."""
        self.preferred: dict[tuple[str, int], bytes] = {}
        """(topic, partition) to the directory in which a replica is to be created, as AlterReplicaLogDirs asked."""
        self.postponed: dict[tuple[bytes, int], NewLog] = {}
        """(topic id, partition) of logs that could not be created because of a full disk or a lack of descriptors."""

    # -- start

    async def load(self, config_of: ConfigOf, threads: int) -> None:
        """Open and recover every log on disk, in `threads` threads."""
        now_ms = self._world.wall_clock.now_ms()
        started_ms = self._world.monotonic.now_ms()
        work = await self._world.run_blocking(partial(self.directories.load_work, config_of, now_ms))
        shares = [work[start::threads] for start in range(threads)]
        async with trio.open_nursery() as nursery:
            for share in shares:
                if share:
                    nursery.start_soon(self._load_share, share)
        self.directories.note_failures(await self._world.run_blocking(self.directories.note_boot))
        if work:
            spent_ms = self._world.monotonic.now_ms() - started_ms
            log.info("%d logs opened in %d ms", len(work), spent_ms)

    async def note_epoch(self, broker_epoch: int) -> None:
        """The broker is registered in this epoch: if it is killed from now on, it can show that it lost nothing."""
        noted = await self._world.run_blocking(partial(self.directories.note_epoch, broker_epoch))
        self.directories.note_failures(noted)

    async def _load_share(self, share: list[OpenLog]) -> None:
        while share:
            results = await self._world.run_blocking(partial(_run_while_it_fits, share))
            for done, (piece, result) in enumerate(results, 1):
                opened = self.directories.adopt(piece, result)
                if opened is not None:
                    for event in opened.recovery_events:
                        self._note_recovered(opened, event)
                if done % LOGS_IN_A_STEP == 0:
                    await trio.lowlevel.checkpoint()
            share = share[len(results) :]
            if share:
                log.warning("%d logs wait for file descriptors; `ulimit -n` sets the limit", len(share))
                await trio.sleep(DESCRIPTORS_PAUSE_S)

    def _note_recovered(self, opened: PartitionLog, event: str) -> None:
        name = f"{opened.topic}-{opened.partition}"
        self._decisions.note(
            DecisionKind.LOG,
            name,
            f"the log of {name} was repaired when it was opened, it ends at {opened.log_end_offset}",
            cause=event,
            offset=opened.log_end_offset,
            recovery_point=opened.recovery_point,
        )

    def settle_copies(self, image: MetadataImage, node_id: int) -> None:
        """Finish moves between directories that were interrupted. Raises `LogDirectoryError`."""

        def home_of(topic: str, index: int) -> bytes | None:
            known = image.topics.by_name.get(topic)
            placed = None if known is None else known.partitions.get(index)
            return None if placed is None or node_id not in placed.replicas else placed.directory_of(node_id)

        self.directories.settle_copies(home_of, self._world.wall_clock.now_ms())

    async def put_aside_strays(self, image: MetadataImage, node_id: int) -> None:
        """Rename logs of partitions that this broker no longer has; their bytes are kept."""
        directories, now_ms = self.directories, self._world.wall_clock.now_ms()
        for done, (key, partition_log) in enumerate(list(directories.logs.items()), 1):
            if not _is_placed(image, node_id, partition_log):
                log.warning("%s-%d is put aside: the metadata has no such replica on this broker", *key)
                directories.mark_stray(*key, now_ms)
            if done % LOGS_IN_A_STEP == 0:
                await trio.lowlevel.checkpoint()
        for key, partition_log in list(directories.futures.logs.items()):
            if key not in directories.logs or not _is_placed(image, node_id, partition_log):
                log.warning("the future log of %s-%d is put aside: its partition is not here", *key)
                directories.drop_future(key, now_ms, stray=True)

    # -- logs of partitions

    async def make_logs(self, wanted: list[NewLog]) -> None:
        """Create the missing logs. `open_log` raises for those that could not be created."""
        async with self.making:
            missing = [self._placed(new) for new in wanted if (new.topic, new.partition) not in self.directories.logs]
            for start in range(0, len(missing), LOGS_MADE_TOGETHER):
                await self._make_some(missing[start : start + LOGS_MADE_TOGETHER])

    async def _make_some(self, missing: list[NewLog]) -> None:
        try:
            pieces = self.directories.make_work(missing, self._world.wall_clock.now_ms())
        except LogDirectoryError:
            return
        for piece in pieces:
            result = await self._world.run_blocking(piece)
            self.directories.adopt_new(piece, result)
            self._note_postponed(piece.wanted, result)

    def _placed(self, new: NewLog) -> NewLog:
        preferred = self.preferred.pop((new.topic, new.partition), None)
        return new if preferred is None else replace(new, directory_id=preferred)

    def _note_postponed(self, wanted: Sequence[NewLog], result: list[PartitionLog] | DirectoryFailure) -> None:
        short = isinstance(result, DirectoryFailure) and is_shortage(result.error)
        for new in wanted:
            self.postponed.pop((new.topic_id, new.partition), None)
            if short:
                self.postponed[new.topic_id, new.partition] = new

    def open_log(
        self, topic_id: bytes, name: str, index: int, config: TopicConfig, directory: bytes
    ) -> PartitionLog:
        """See `broker.replication.partitions.LogStore`."""
        opened = self.directories.find(name, index, topic_id)
        place = self.directories.directory_of(name, index)
        if opened is None or place is None:
            problem = "failed" if self.online_ids else "failed, and so did all others"
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log directory of {name}-{index} {problem}")
        opened.configure(config)
        if place.directory_id is not None and place.directory_id != directory:
            self.misplaced[topic_id, index] = place.directory_id
        return opened

    def delete_log(self, partition_log: PartitionLog) -> None:
        self.directories.delete(
            partition_log.topic, partition_log.partition, self._world.wall_clock.now_ms()
        )

    def put_aside(self, partition_log: PartitionLog) -> None:
        """See `broker.replication.partitions.LogStore`."""
        topic, index, now_ms = partition_log.topic, partition_log.partition, self._world.wall_clock.now_ms()
        log.warning("%s-%d is put aside: a snapshot of the metadata has no such replica on this broker", topic, index)
        self.directories.drop_future((topic, index), now_ms, stray=True)
        self.directories.mark_stray(topic, index, now_ms)

    async def close(self, broker_epoch: int) -> None:
        """Close all logs cleanly, in a worker thread; none is created from now on."""
        self.is_closing = True
        await self.making.acquire()
        await self._world.run_blocking(partial(self.directories.close, broker_epoch))

    def settings_changed(self, settings: BrokerSettings) -> None:
        """Apply the settings that all logs share."""
        producer_state = self.directories.producer_state
        producer_state.expiration_ms = settings.producer_id_expiration_ms
        producer_state.requires_verification = settings.transaction_partition_verification_enable

    # -- periodic work

    async def settle(self) -> None:
        """Make the creation of new logs durable."""
        async with self.making:
            for piece in self.directories.settle_work():
                self._note(await self._world.run_blocking(piece))

    async def checkpoint(self, *names: str) -> None:
        """Write the checkpoint files of these names; all of them if none is named."""
        work = self.directories.checkpoint_work(*names)
        self._note(await self._world.run_blocking(work))

    def noted_recovery_point(self, partition_log: PartitionLog) -> int:
        """The recovery point in this log's checkpoint file; 0 if the log is gone."""
        key = (partition_log.topic, partition_log.partition)
        directory = self.directories.directory_of(*key)
        return 0 if directory is None else directory.noted_recovery_point(key)

    async def remove_deleted(self) -> None:
        """Remove files and directories whose file.delete.delay.ms is over."""
        steps = self.directories.deletion_steps(self._world.wall_clock.now_ms())
        while True:
            try:
                next(steps)
            except StopIteration as end:
                work = end.value
                break
            await trio.lowlevel.checkpoint()
        if work is not None:
            self._note(await self._world.run_blocking(work))

    def apply_retention_to_futures(self) -> None:
        """Delete old segments of logs that are being copied."""
        for future in list(self.directories.futures.logs.values()):
            try:
                future.delete_old_segments(self._world.wall_clock.now_ms())
            except KafkaError as error:
                log.error("%s: retention failed: %s", future, error)

    def failed(self, topic: str, index: int, error: OSError) -> None:
        """Background work on this log failed: its whole directory goes offline."""
        directory = self.directories.directory_of(topic, index)
        if directory is not None:
            self._note([DirectoryFailure(directory, error)])

    def _note(self, failures: list[DirectoryFailure]) -> None:
        self.directories.note_failures(failures)

    # -- directory ids for the controller

    def id_of(self, path: str) -> bytes:
        """The id of the log directory at `path`; zeros if it could not be read."""
        for directory in self.directories.directories:
            if directory.path == path and directory.directory_id is not None:
                return directory.directory_id
        return ZERO_UUID

    def directory_at(self, path: str) -> LogDirectory | None:
        """The directory with replicas at `path`, online or not."""
        wanted = path.rstrip("/")
        return next((each for each in self.directories.with_replicas if each.path.rstrip("/") == wanted), None)

    @property
    def online_ids(self) -> list[bytes]:
        known = self.directories.with_replicas
        return [it.directory_id for it in known if it.failure is None and it.directory_id is not None]

    @property
    def offline_ids(self) -> list[bytes]:
        """Directories that failed since the start; those that were never readable have no id."""
        return [
            each.directory_id
            for each in self.directories.with_replicas
            if each.failure is not None and each.directory_id is not None
        ]


def _run_while_it_fits(share: list[OpenLog]) -> list[tuple[OpenLog, PartitionLog | DirectoryFailure]]:
    """Results of the pieces before the first for which no descriptor was left."""
    results: list[tuple[OpenLog, PartitionLog | DirectoryFailure]] = []
    for piece in share:
        result = piece()
        if isinstance(result, DirectoryFailure) and lacks_descriptors(result.error):
            break
        results.append((piece, result))
    return results


def _is_placed(image: MetadataImage, node_id: int, partition_log: PartitionLog) -> bool:
    """True if the metadata has this replica on this broker."""
    known = image.topics.by_name.get(partition_log.topic)
    placed = None if known is None else known.partitions.get(partition_log.partition)
    ours = placed is not None and node_id in placed.replicas
    return known is not None and ours and partition_log.topic_id in (None, known.id)
