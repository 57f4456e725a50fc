"""Shell: the rounds of all tiered partitions of this broker: who is due, how many at a time, and what an error costs.

Kafka has three pools of threads with a task for each partition. Here one task keeps the times, and a round is a task
only while it works; `remote.log.manager.copier.thread.pool.size` and its sisters bound the rounds at a time. A round
that fails is repeated after a backoff; local data is kept meanwhile, because nothing was copied.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from functools import partial
from heapq import heappop, heappush

import trio

from barnabas.broker.remote.copier import Copier
from barnabas.broker.remote.expirer import Expirer
from barnabas.broker.remote.pending_deletions import read_pending, write_pending
from barnabas.broker.remote.ports import RemotePorts
from barnabas.broker.remote.recleaner import Recleaner
from barnabas.broker.remote.segment_deletion import delete_segment
from barnabas.broker.remote.tended import Job, Tended, is_switched_off
from barnabas.broker.replication.partition import Partition
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.records.batch import CorruptBatch
from barnabas.runtime.backoff import Backoff
from barnabas.runtime.decisions import DecisionKind
from barnabas.runtime.object_store import StoreError
from barnabas.storage.remote.segment import PartitionDelete, PartitionDeleteState, RemotePartitionKey

log = logging.getLogger(__name__)

UNREAD_METADATA_MS = 500
"""Pause before a partition is looked at again whose metadata is not read yet."""

RECLEANED_AT_ONCE = 1
"""Partitions: each takes the memory of a cleaner's map."""

PASSING = (StoreError, KafkaError, OSError, CorruptBatch)
"""Errors of a round that another one may not meet."""


class RemoteTasks:
    """Every tiered partition with a replica on this broker."""

    def __init__(self, ports: RemotePorts) -> None:
        self._ports = ports
        self._tended: dict[RemotePartitionKey, Tended] = {}
        self._ending: dict[RemotePartitionKey, Tended] = {}
        """Partitions that have left, while rounds of theirs run."""
        self._deleting: dict[RemotePartitionKey, None] = {}
        """Partitions that are gone, and whose remote segments this broker deletes."""
        self._noting = trio.Lock()
        self._due: list[tuple[int, int, Job, RemotePartitionKey]] = []
        """A heap of (monotonic time, number, …). An entry whose time is not that in `Tended.due_ms` is outdated."""
        self._entries = 0
        self._follows_others = False
        """Partitions came or went since the last `follow`."""
        self._bell = trio.Event()
        self._copier = Copier(ports)
        self._expirer = Expirer(ports)
        self._recleaner = Recleaner(ports)
        settings = ports.settings()
        self._limiters = {
            Job.COPY: trio.CapacityLimiter(settings.remote_log_manager_copier_thread_pool_size),
            Job.EXPIRE: trio.CapacityLimiter(settings.remote_log_manager_expiration_thread_pool_size),
            Job.RECLEAN: trio.CapacityLimiter(RECLEANED_AT_ONCE),
        }
        self._followers = trio.CapacityLimiter(settings.remote_log_manager_follower_thread_pool_size)

    def __iter__(self) -> Iterator[Tended]:
        return iter(list(self._tended.values()))

    @property
    def idle_share(self) -> float:
        """The part of the copiers that has nothing to do."""
        limiter = self._limiters[Job.COPY]
        return 1 - limiter.borrowed_tokens / limiter.total_tokens

    # -- news

    def look(self, partition: Partition) -> None:
        """The partition is new here, its leader or its config changed, or it left this broker."""
        key = RemotePartitionKey(partition.topic_id, partition.topic, partition.index)
        tended = self._tended.get(key)
        if self._ports.find(partition.topic_id, partition.index) is not partition:
            self._leave(key)
        elif partition.log.config.is_tiered or is_switched_off(partition):
            if tended is None or tended.partition is not partition:
                tended = self._tended[key] = Tended(partition, self._backoffs())
                self._follows_others = True
            if tended.is_switched_off:
                partition.log.end_tiering()
            self._ring(tended)
        elif tended is not None:
            self._leave(key)

    def deleted(self, keys: Iterable[RemotePartitionKey]) -> None:
        """The topics of these partitions were deleted, and this broker is to delete their remote segments."""
        for key in keys:
            if key in self._deleting:
                continue
            self._leave(key)
            self._deleting[key] = None
            self._follows_others = True
            self._ports.background.spawn(self._delete_all, key, self._ending.get(key))

    def _leave(self, key: RemotePartitionKey) -> None:
        tended = self._tended.pop(key, None)
        if tended is not None:
            tended.is_over = True
            self._follows_others = True
            if tended.running:
                self._ending[key] = tended

    def follow(self) -> None:
        """Follow the metadata of exactly the partitions that are tended here, or being deleted."""
        if self._follows_others:
            self._follows_others = False
            self._ports.metadata.follow(list(dict.fromkeys([*self._tended, *self._deleting])))

    def settings_changed(self) -> None:
        settings = self._ports.settings()
        self._limiters[Job.COPY].total_tokens = settings.remote_log_manager_copier_thread_pool_size
        self._limiters[Job.EXPIRE].total_tokens = settings.remote_log_manager_expiration_thread_pool_size
        self._followers.total_tokens = settings.remote_log_manager_follower_thread_pool_size

    def _backoffs(self) -> dict[Job, Backoff]:
        settings, chance = self._ports.settings(), self._ports.world.chance
        first_ms = settings.remote_log_manager_task_retry_backoff_ms
        max_ms = settings.remote_log_manager_task_retry_backoff_max_ms
        jitter = settings.remote_log_manager_task_retry_jitter
        return {job: Backoff(first_ms, max_ms, chance, jitter) for job in Job}

    # -- times

    async def run(self) -> None:
        """Start the rounds that are due. Run until cancelled."""
        monotonic, background = self._ports.world.monotonic, self._ports.background
        while True:
            self._bell = trio.Event()
            now_ms = monotonic.now_ms()
            while self._due and self._due[0][0] <= now_ms:
                due_ms, _, job, key = heappop(self._due)
                tended = self._tended.get(key)
                if tended is None or tended.due_ms.get(job) != due_ms:
                    continue
                del tended.due_ms[job]
                tended.running.add(job)
                background.spawn(self._round, tended, job)
            wait_ms = self._due[0][0] - now_ms if self._due else None
            with trio.move_on_after(_seconds(wait_ms)):
                await self._bell.wait()

    def _ring(self, tended: Tended) -> None:
        for job in Job:
            if job in tended.running:
                tended.is_rung.add(job)
            else:
                self._schedule(tended, job, 0)

    def _schedule(self, tended: Tended, job: Job, wait_ms: int) -> None:
        due_ms = tended.due_ms[job] = self._ports.world.monotonic.now_ms() + wait_ms
        self._entries += 1
        heappush(self._due, (due_ms, self._entries, job, tended.key))
        self._bell.set()

    # -- rounds

    async def _round(self, tended: Tended, job: Job) -> None:
        limiter = self._limiters[job] if tended.partition.is_leader else self._followers
        wait_ms = self._ports.settings().remote_log_manager_task_interval_ms
        try:
            async with limiter:
                if not tended.is_over and not await self._work(tended, job):
                    wait_ms = UNREAD_METADATA_MS
            tended.backoffs[job].reset()
        except PASSING as error:
            wait_ms = tended.backoffs[job].next_ms()
            self._report(tended, job, error, wait_ms)
        finally:
            tended.running.discard(job)
            if not tended.is_over:
                self._schedule(tended, job, 0 if job in tended.is_rung else wait_ms)
            elif not tended.running:
                tended.has_ended.set()
                if self._ending.get(tended.key) is tended:
                    del self._ending[tended.key]
            tended.is_rung.discard(job)

    async def _work(self, tended: Tended, job: Job) -> bool:
        match job:
            case Job.COPY:
                return await self._copier.round(tended)
            case Job.EXPIRE:
                return await self._expirer.round(tended)
            case Job.RECLEAN:
                return await self._recleaner.round(tended)

    def _report(self, tended: Tended, job: Job, error: Exception, wait_ms: int) -> None:
        failures = tended.backoffs[job].failures
        verb = _VERBS[job]
        log.warning("%s: cannot %s the remote store, again in %d ms: %s", tended, verb, wait_ms, error)
        if failures == 1:
            partition = tended.partition
            self._ports.decisions.note(
                DecisionKind.LOG,
                partition.name,
                f"broker {self._ports.node_id} cannot {verb} the remote store for {partition.name}, and tries again",
                cause=str(error),
                leader_epoch=partition.leader_epoch,
                offset=partition.log.highest_copied_offset + 1,
            )

    # -- deleted topics

    async def resume(self) -> None:
        """Go on with the deletions of the last run."""
        world, directory = self._ports.world, self._ports.directory
        try:
            self.deleted(await world.run_blocking(partial(read_pending, world.disk, directory)))
        except OSError as error:
            log.error("the remote segments of deleted topics stay in the store: %s", error)
        self.follow()

    async def _note_pending(self) -> None:
        world, directory = self._ports.world, self._ports.directory
        async with self._noting:
            keys = list(self._deleting)
            try:
                await world.run_blocking(partial(write_pending, world.disk, directory, keys))
            except OSError as error:
                log.error("after a restart, the remote segments of deleted topics may stay in the store: %s", error)

    async def _delete_all(self, key: RemotePartitionKey, tended: Tended | None) -> None:
        """Delete all remote segments of a partition that is gone. Goes on until nothing is left.

        The mark of the deletion comes first: if this broker never returns, another one goes on by it.
        """
        await self._note_pending()
        backoff = self._backoffs()[Job.EXPIRE]
        is_marked = False
        while True:
            segments = self._ports.metadata.segments(key)
            try:
                if segments is None:
                    await trio.sleep(_seconds(UNREAD_METADATA_MS))
                    continue
                if not is_marked:
                    await self._mark(key, PartitionDeleteState.DELETE_PARTITION_MARKED, self._ports.node_id)
                    is_marked = True
                if tended is not None:
                    await tended.has_ended.wait()
                for segment in segments.all():
                    await delete_segment(self._ports, segment, _no_objection)
                if not len(segments):
                    # Also what arrived after its segment was deleted.
                    await self._ports.store.delete_stored(await self._ports.store.stored(key))
                    await self._mark(key, PartitionDeleteState.DELETE_PARTITION_FINISHED, self._ports.node_id)
                    break
            except PASSING as error:
                wait_ms = backoff.next_ms()
                log.warning("%s: its remote segments are deleted in %d ms: %s", key, wait_ms, error)
                await trio.sleep(_seconds(wait_ms))
        log.info("%s: its remote segments are deleted", key)
        self._deleting.pop(key, None)
        self._follows_others = True
        self.follow()
        await self._note_pending()

    def deleted_by_another(self, key: RemotePartitionKey, broker_id: int) -> None:
        """The topic of this partition was deleted, and that broker is to delete its remote segments: mark it, in case
        the broker is gone before it has done so itself."""
        self._ports.background.spawn(self._mark_for, key, broker_id)

    async def _mark_for(self, key: RemotePartitionKey, broker_id: int) -> None:
        backoff = self._backoffs()[Job.EXPIRE]
        while True:
            try:
                await self._mark(key, PartitionDeleteState.DELETE_PARTITION_MARKED, broker_id)
                return
            except KafkaError as error:
                log.info("%s: its deletion is marked later: %s", key, error)
                await trio.sleep(_seconds(backoff.next_ms()))

    async def _mark(self, key: RemotePartitionKey, state: PartitionDeleteState, broker_id: int) -> None:
        ports = self._ports
        await ports.metadata.publish(PartitionDelete(key, state, ports.world.wall_clock.now_ms(), broker_id))


_VERBS = {Job.COPY: "copy to", Job.EXPIRE: "delete from", Job.RECLEAN: "compact in"}


def _seconds(milliseconds: int | None) -> float:
    return float("inf") if milliseconds is None else max(milliseconds, 0) / 1000


def _no_objection() -> None: ...
