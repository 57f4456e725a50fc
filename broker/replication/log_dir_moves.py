"""Shell: moves replicas between the log directories of this broker, with one task for each directory that takes some.

A future log follows the current one as a follower follows its leader (`follower.py`), so it truncates where the current
log has truncated. `log_dir_move.py` decides when it takes the place of the current log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import trio

from barnabas.broker.log_store import LogStore
from barnabas.broker.replication.follower import (
    APPEND,
    BoundsWanted,
    EpochWanted,
    FetchAnswer,
    FetchWanted,
    Follower,
    Step,
    TruncateFullyAndStartAt,
    TruncateTo,
)
from barnabas.broker.replication.log_dir_move import Action, LogDirMove
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.partitions import Partitions
from barnabas.broker.replication.reads import OffsetIsRemote
from barnabas.broker.replication.tier_start import TierWanted
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.batch import CorruptBatch
from barnabas.runtime.decisions import DecisionKind, Notepad
from barnabas.runtime.world import World
from barnabas.storage.fetched_batches import EpochsMissing
from barnabas.storage.future_logs import LogKey, take_over
from barnabas.storage.log import PartitionLog
from barnabas.storage.log_dir_work import DirectoryFailure
from barnabas.storage.log_directory import LogDirectory
from barnabas.storage.log_results import OffsetOutOfRange
from barnabas.storage.producer_snapshot_format import encode_snapshot, is_sound_snapshot
from barnabas.storage.segment_list import LogSlice

log = logging.getLogger(__name__)

COPY_BYTES = 64 * 1024
"""Bytes copied in one step of the event loop."""
THROTTLED_WAIT_MS = 100
BACKOFF_MS = 1_000


class Quota(Protocol):
    """Rate limit of copies (`broker.replication.quota`)."""

    def is_exceeded(self, now_ms: int) -> bool: ...
    def record(self, size_bytes: int, now_ms: int) -> None: ...


@dataclass(frozen=True, slots=True)
class MovePorts:
    world: World
    nursery: trio.Nursery
    store: LogStore
    partitions: Partitions
    assign: Callable[[tuple[bytes, int], bytes, Callable[[], None] | None], None]
    """`DirectoryAssignments.assign`."""
    quota: Quota
    decisions: Notepad
    node_id: int


class _Move:
    """One replica on its way."""

    def __init__(self, partition: Partition, future: PartitionLog, places: tuple[LogDirectory, LogDirectory]) -> None:
        self.partition = partition
        self.future = future
        self.home, self.target = places
        self.core = LogDirMove()
        self.follower = Follower(future, replica_fetch_backoff_ms=BACKOFF_MS)

    @property
    def key(self) -> LogKey:
        return self.future.topic, self.future.partition

    @property
    def is_caught_up(self) -> bool:
        current, future = self.partition.log, self.future
        if future.log_end_offset != current.log_end_offset or future.log_start_offset < current.log_start_offset:
            return False
        epoch = future.latest_epoch
        return epoch < 0 or current.end_offset_for_epoch(epoch) == (epoch, current.log_end_offset)


class LogDirMoves:
    """All replicas of this broker that move. `look` after each change of partitions or directories."""

    def __init__(self, ports: MovePorts) -> None:
        self._ports = ports
        self._moves: dict[LogKey, _Move] = {}
        self._bells: dict[str, trio.Event] = {}
        """By path of the directory that takes replicas."""

    def __len__(self) -> int:
        return len(self._moves)

    def target_of(self, key: LogKey) -> LogDirectory | None:
        """The directory that a replica moves to."""
        return self._ports.store.directories.futures.places.get(key)

    def look(self) -> None:
        """Begin moves for future logs that have none, and end those whose replica or directory is gone."""
        store, partitions = self._ports.store, self._ports.partitions
        futures = store.directories.futures
        for key, move in list(self._moves.items()):
            is_here = partitions.find(*key) is move.partition and not move.partition.is_offline
            if not is_here or futures.logs.get(key) is not move.future:
                self._end(move)
        for key, future in list(futures.logs.items()):
            partition = partitions.find(*key)
            if key not in self._moves and partition is not None and not partition.is_offline:
                self._begin(partition, future)

    def cancel(self, key: LogKey) -> None:
        """Remove the future log of a replica, which stays where it is."""
        move = self._moves.get(key)
        self._ports.store.directories.drop_future(key, self._ports.world.wall_clock.now_ms())
        if move is not None:
            self._note(move, f"stays in {move.home.path}", "the move was cancelled")
            self._end(move)

    def _begin(self, partition: Partition, future: PartitionLog) -> None:
        directories = self._ports.store.directories
        key = (partition.topic, partition.index)
        home, target = directories.directory_of(*key), directories.futures.places[key]
        if home is None:
            return
        partition.log.cleaning.interrupt()
        move = self._moves[key] = _Move(partition, future, (home, target))
        self._note(move, f"moves from {home.path} to {target.path}", "AlterReplicaLogDirs asked for it")
        if target.path not in self._bells:
            self._bells[target.path] = trio.Event()
            self._ports.nursery.start_soon(self._run, target.path)
        self._ring(target)

    def _end(self, move: _Move) -> None:
        """The move ends before its swap."""
        if self._moves.pop(move.key, None) is None:
            return
        if move.core.must_be_taken_back and move.home.directory_id is not None:
            self._ports.assign(move.partition.key, move.home.directory_id, None)

    def _ring(self, target: LogDirectory) -> None:
        self._bells[target.path].set()

    # -- the task of one directory

    async def _run(self, path: str) -> None:
        """Run until cancelled."""
        while True:
            bell = self._bells[path] = trio.Event()
            wait_ms = await self._go_round(path)
            if wait_ms is None:
                await bell.wait()
            elif wait_ms > 0:
                with trio.move_on_after(wait_ms / 1000):
                    await bell.wait()

    async def _go_round(self, path: str) -> int | None:
        """One step of each move into `path`. Returns the time until the next round; None if all of them wait."""
        waits: list[int] = []
        for move in [each for each in self._moves.values() if each.target.path == path]:
            if self._ports.quota.is_exceeded(self._now_ms()):
                waits.append(THROTTLED_WAIT_MS)
                break
            if self._ports.store.is_closing:
                return None
            if not self._is_on(move):
                continue
            try:
                wait_ms = await self._step(move)
            except (KafkaError, OSError) as error:
                log.warning("the move of %s to %s is retried: %s", move.partition.name, path, error)
                wait_ms = BACKOFF_MS
            except Exception:
                # A bug in one move must end neither the others nor the broker.
                log.exception("the move of %s to %s failed and is retried", move.partition.name, path)
                wait_ms = BACKOFF_MS
            if wait_ms is not None:
                waits.append(wait_ms)
        return min(waits, default=None)

    def _is_on(self, move: _Move) -> bool:
        return self._moves.get(move.key) is move

    def _now_ms(self) -> int:
        return self._ports.world.monotonic.now_ms()

    async def _step(self, move: _Move) -> int | None:
        """Returns the time until the next step; None if the move waits for its bell. Raises KafkaError."""
        action = move.core.next(caught_up=move.is_caught_up)
        if action is Action.WAIT:
            return None
        if action is Action.SWAP:
            if not self._swap(move):
                return BACKOFF_MS if self._is_on(move) else 0
            failures = await self._ports.world.run_blocking(partial(_sync_names, move.target, move.home))
            self._ports.store.directories.note_failures(failures)
            await self._ports.store.checkpoint()
        elif action is Action.ASSIGN:
            assert move.target.directory_id is not None
            self._ports.world.fault_point("log_dir_move.copied")
            self._ports.assign(move.partition.key, move.target.directory_id, partial(self._accepted, move))
            return None
        elif action is Action.FLUSH:
            if await self._flush(move, rolled_only=False):
                move.core.flushed()
        else:
            return await self._copy(move)
        return 0

    def _accepted(self, move: _Move) -> None:
        move.core.accepted()
        self._ports.world.fault_point("log_dir_move.accepted")
        self._ring(move.target)

    # -- copying

    async def _copy(self, move: _Move) -> int:
        """One exchange of the future log with the current one."""
        current, follower, now_ms = move.partition.log, move.follower, self._now_ms()
        leader_epoch = max(0, current.latest_epoch)
        if follower.leader_epoch != leader_epoch:
            follower.start(leader_epoch)
        move.future.config = current.config
        wanted = follower.next(now_ms)
        if isinstance(wanted, FetchWanted):
            await self._fetch(move, wanted)
            await self._flush(move, rolled_only=True)
        elif isinstance(wanted, BoundsWanted):
            bounds = (current.log_start_offset, current.log_end_offset)
            self._truncate(move, follower.bounds_answered(wanted, bounds, now_ms))
        elif isinstance(wanted, EpochWanted):
            follower.epoch_answered(wanted, current.end_offset_for_epoch(wanted.epoch), now_ms)
        elif isinstance(wanted, TierWanted):
            self._begin_again(move)
            follower.start(leader_epoch)
        retry_at_ms = follower.retry_at_ms
        return 0 if retry_at_ms is None else max(1, retry_at_ms - now_ms)

    def _start_behind_remote(self, move: _Move) -> None:
        """The future log begins where the local part of the current one does: what is remote needs no copy."""
        current = move.partition.log
        start, local_start = current.log_start_offset, current.local_log_start_offset
        file = current.open_producer_snapshot(local_start)
        snapshot = b""
        if file is not None:
            snapshot = bytes(file.pread(file.size(), 0))
            file.close()
        if not is_sound_snapshot(snapshot):
            # The producers of the current log are taken over in the end.
            snapshot = encode_snapshot(())
        epochs = current.epochs.entries_in(start, local_start)
        move.future.start_behind_remote(local_start, start, epochs, snapshot, self._ports.world.wall_clock.now_ms())
        move.follower.truncated()

    def _begin_again(self, move: _Move) -> None:
        """The future log diverges from the current one at an offset that is only remote."""
        current = move.partition.log
        if current.local_log_start_offset > current.log_start_offset:
            self._start_behind_remote(move)
        else:
            now_ms = self._ports.world.wall_clock.now_ms()
            move.future.truncate_fully_and_start_at(current.log_start_offset, now_ms=now_ms)

    async def _fetch(self, move: _Move, wanted: FetchWanted) -> None:
        now_ms, data = self._now_ms(), b""
        try:
            found = move.partition.read_copy(wanted.fetch_offset, wanted.last_fetched_epoch, COPY_BYTES)
        except OffsetOutOfRange:
            move.follower.answered(wanted, FetchAnswer(ErrorCode.OFFSET_OUT_OF_RANGE, -1, -1), now_ms)
            return
        except OffsetIsRemote:
            self._start_behind_remote(move)
            return
        epoch, end_offset = found.diverging_epoch or (-1, -1)
        if found.records is not None:
            data = await self._read(move, found.records)
            if not self._is_on(move):
                return
        step = move.follower.answered(wanted, FetchAnswer(0, epoch, end_offset), self._now_ms())
        if step is APPEND:
            self._append(move, data)
        else:
            self._truncate(move, step)

    async def _read(self, move: _Move, part: LogSlice) -> bytes:
        """The last part is read at once: it was just written, and while it is read elsewhere there would be more."""
        read = partial(part.file.pread, part.size_bytes, part.position)
        if part.upper_offset == move.partition.log.log_end_offset:
            return bytes(read())
        return bytes(await self._ports.world.run_blocking(read))

    def _append(self, move: _Move, data: bytes) -> None:
        ports, future, follower, current = self._ports, move.future, move.follower, move.partition.log
        if data:
            wall_ms = ports.world.wall_clock.now_ms()
            try:
                future.append_as_follower(data, wall_ms, follower.leader_epoch, follower.leaders_epochs)
            except EpochsMissing:
                follower.ask_epochs()
                return
            except CorruptBatch as error:
                log.warning("%s: cannot append what was read: %s", future, error)
                follower.back_off(self._now_ms())
                return
            ports.quota.record(len(data), self._now_ms())
            ports.world.fault_point("log_dir_move.written")
        follower.appended()
        future.set_high_watermark(current.high_watermark)
        future.advance_log_start_offset(min(current.log_start_offset, future.high_watermark))

    def _truncate(self, move: _Move, step: Step | None) -> None:
        if isinstance(step, TruncateTo):
            move.future.truncate_to(step.offset)
        elif not isinstance(step, TruncateFullyAndStartAt):
            return
        else:
            now_ms = self._ports.world.wall_clock.now_ms()
            move.future.truncate_fully_and_start_at(step.offset, now_ms=now_ms)
        move.follower.truncated()

    async def _flush(self, move: _Move, *, rolled_only: bool) -> bool:
        """Make the future log durable, and remove files that it has no longer. False if that failed."""
        world, future = self._ports.world, move.future
        removal = future.deletion_work(world.wall_clock.now_ms())
        work = None
        if not rolled_only or future.flushes.are_wanted:
            work = future.flushes.work(rolled_only=rolled_only)
        try:
            if removal is not None:
                await world.run_blocking(removal)
            if work is not None:
                await world.run_blocking(work)
                future.flushes.done(work.offset)
        except OSError as error:
            if work is None or not work.passes(error):
                self._ports.store.directories.note_failures([DirectoryFailure(move.target, error)])
            return False
        return True

    # -- the swap

    def _swap(self, move: _Move) -> bool:
        """The future log becomes the log of the partition, in one step of the event loop. False if that failed: if it
        was for a shortage, the move goes on."""
        world, directories = self._ports.world, self._ports.store.directories
        partition = move.partition

        def between(future: PartitionLog) -> None:
            world.fault_point("log_dir_move.renamed")
            take_over(partition.log, future)
            partition.log_replaced(future)

        world.fault_point("log_dir_move.caught_up")
        if directories.promote_future(move.key, world.wall_clock.now_ms(), between):
            del self._moves[move.key]
            world.fault_point("log_dir_move.swapped")
            self._note(move, f"is in {move.target.path} now", f"all of it was copied from {move.home.path}")
            return True
        if directories.futures.logs.get(move.key) is not move.future:
            self._end(move)
        return False

    def _note(self, move: _Move, what: str, cause: str) -> None:
        node_id, name = self._ports.node_id, move.partition.name
        self._ports.decisions.note(
            DecisionKind.LOG,
            name,
            f"the replica of {name} on broker {node_id} {what}",
            also=(f"broker {node_id}",),
            cause=cause,
            offset=move.future.log_end_offset,
        )


def _sync_names(*directories: LogDirectory) -> list[DirectoryFailure]:
    """Make the renames of a swap durable, before the log moves again. Returns the directories that failed."""
    failures = []
    for directory in directories:
        try:
            directory.disk.sync_directory(directory.path)
        except OSError as error:
            failures.append(DirectoryFailure(directory, error))
    return failures
