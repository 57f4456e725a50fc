"""Shell: syncs the log of one replica away from the event loop, and deletes the files of dropped segments.

One sync is for all that was appended meanwhile (group commit without a linger). On a full disk it is tried again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

import trio

from barnabas.kraft.metadata_log import MetadataLog
from barnabas.kraft.raft.raft import Raft
from barnabas.kraft.replica_config import ReplicaConfig
from barnabas.protocol.errors import KafkaError
from barnabas.runtime.world import World
from barnabas.storage.flushing import FlushWork
from barnabas.storage.shortage import shortage_behind

log = logging.getLogger(__name__)

SHORTAGE_PAUSE_MS = 500
"""Pause before another attempt at what a full disk, or a lack of descriptors, refused."""
MAINTENANCE_MS = 10_000
"""Period of the removal of dropped segments' files."""


class Synced(Protocol):
    """The replica, as far as its syncs know it."""

    config: ReplicaConfig

    @property
    def core(self) -> Raft: ...
    @property
    def log(self) -> MetadataLog: ...
    def now_ms(self) -> int: ...
    def wall_ms(self) -> int: ...
    def step(self, step: Callable[[], None]) -> None: ...


class ReplicaSyncs:
    """The syncs of one replica; `run` and `delete_dropped_files` are its tasks."""

    def __init__(self, replica: Synced, world: World) -> None:
        self._replica = replica
        self._world = world
        self._appended = trio.Event()
        self._synced = trio.Event()

    def appended(self) -> None:
        """There is something to sync."""
        self._appended.set()

    async def wait_for_one(self) -> None:
        """Sync what was appended so far."""
        self._synced = trio.Event()
        self._appended.set()
        await self._synced.wait()

    async def run(self) -> None:
        replica = self._replica
        while True:
            await self._appended.wait()
            self._appended = trio.Event()
            generation = replica.core.log_generation
            work: FlushWork | None = None
            try:
                end_offset, work = replica.log.flush_work()
                if work is not None:
                    await self._world.run_blocking(work)
                    self._world.fault_point("raft.appends.synced")
                    replica.log.flushed(end_offset)
            except (OSError, KafkaError) as error:
                shortage = shortage_behind(error)
                if shortage is None or (work is not None and not work.passes(shortage)):
                    raise
                log.error("node %d syncs its metadata log later: %s", replica.config.node_id, error)
                if not replica.log.reserve.give_up(shortage):
                    await trio.sleep(SHORTAGE_PAUSE_MS / 1000)
                self._appended.set()
                continue
            replica.step(lambda: self._note_synced(end_offset, generation))  # noqa: B023 - called at once or queued

    def _note_synced(self, end_offset: int, generation: int) -> None:
        self._replica.core.log_synced(end_offset, generation, self._replica.now_ms())
        self._synced.set()

    async def delete_dropped_files(self) -> None:
        replica = self._replica
        while True:
            await trio.sleep(MAINTENANCE_MS / 1000)
            work = replica.log.deletion_work(replica.wall_ms())
            if work is not None:
                await self._world.run_blocking(work)
            if not replica.log.reserve.is_there:
                await self._world.run_blocking(replica.log.reserve.take)
