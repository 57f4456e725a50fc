"""Passes the committed metadata to the listener that applies it: in the order of offsets, each record once, nothing
uncommitted.

First the newest snapshot, if there is one, then the log batch by batch as the high watermark moves; a
snapshot again when one replaced a log that this node had not read to its end. A leader's election is reported
to its listener only after everything up to the start of its epoch was applied, so that it decides on a complete
image. Knows no peers and no roles.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

import trio

from barnabas.kraft.metadata.replay import STEP_RECORDS
from barnabas.kraft.metadata_log import MetadataLog
from barnabas.kraft.raft.ready import LeaderAndEpoch
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.records.batch import BatchHeader, CorruptBatch, iterate_batches
from barnabas.protocol.records.metadata import decode_metadata_record
from barnabas.protocol.records.record import DECODED_LIMIT_BYTES, decode_in_slices
from barnabas.protocol.schema import Message
from barnabas.runtime.at_once import Stepwise
from barnabas.runtime.freeing import empty_in_steps
from barnabas.runtime.world import CountWork, RunBlocking

READ_BYTES = 256 * 1024
"""Bytes of the log that are read at a time."""

STEP_DECODED_RECORDS = 100
"""Records that are decoded in one step. A worker thread would share the interpreter's lock with the event loop."""

STEPS_WITHOUT_PAUSE = 2
PAUSE_SECONDS = 0.001
"""All nodes get the same batch at the same time, and may share cores. The kernel runs a node that sleeps now and then
as soon as a request arrives; a node that is always busy waits for its turn among the others."""

APPLIED = "committed metadata"
"""Name of the steps in which committed metadata are decoded and applied, where their work is counted."""

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    """One batch of the log that a majority has on disk. `records` is empty for Raft's own control batches."""

    base_offset: int
    last_offset: int
    epoch: int
    append_time_ms: int
    """Wall clock of the leader that appended it."""
    records: list[Message]


class MetadataListener(Protocol):
    """Applies the committed metadata in short steps, between which other tasks run. A batch or a snapshot takes effect
    as a whole, with its last step. Called from one task, one call after the other; an exception stops the node."""

    def handle_commit(self, batch: CommittedBatch) -> Stepwise[None]:
        """The next batch."""

    def handle_snapshot(self, records: list[Message], offset: int, epoch: int, timestamp_ms: int) -> Stepwise[None]:
        """Replace all state by these records, the snapshot that ends at `offset`."""

    def handle_leader_change(self, leader_id: int | None, epoch: int) -> None:
        """There is another leader. If it is this node, everything before its epoch has been applied."""


OnCommitted = Callable[[KafkaError | None], None]
"""Called once: with None when the record is committed and applied, else with the reason why that is unknown."""


class CommitFeed:
    """Mutable; runs as one task."""

    def __init__(
        self,
        log: MetadataLog,
        listener: MetadataListener,
        run_blocking: RunBlocking,
        count_work: CountWork | None = None,
    ) -> None:
        self._log = log
        self._listener = listener
        self._run_blocking = run_blocking
        self._count_work = count_work
        self.next_offset: int | None = None
        """The first offset that the listener has not seen; None before the first step."""
        self._high_watermark = 0
        self._own_batches: deque[CommittedBatch] = deque()
        """Batches that this leader appended itself and need not read back."""
        self._leaders: deque[tuple[LeaderAndEpoch, int | None]] = deque()
        """Leader changes to report; with the epoch's start offset where this node is the leader."""
        self._waiting: deque[tuple[int, OnCommitted]] = deque()
        """Ordered by offset: a leader's appends are."""
        self._progress = trio.Event()
        self._applied = 0
        """Records since other tasks ran."""

    # ---- input from the replica

    def appended(self, batch: CommittedBatch) -> None:
        """This leader appended a batch, which is to be applied once it is committed."""
        self._own_batches.append(batch)

    def high_watermark_moved(self, offset: int) -> None:
        self._high_watermark = max(self._high_watermark, offset)
        self._progress.set()

    def leader_changed(self, leader: LeaderAndEpoch, own_epoch_start: int | None) -> None:
        """`own_epoch_start`: where the epoch of this node begins; None if another node leads, or none."""
        self._leaders.append((leader, own_epoch_start))
        self._own_batches.clear()
        self._progress.set()

    def on_committed(self, offset: int, callback: OnCommitted) -> None:
        """Call back when the record at `offset`, which this leader appended, is committed and applied."""
        if self.next_offset is not None and offset < self.next_offset:
            callback(None)
            return
        assert not self._waiting or self._waiting[-1][0] <= offset, "waiting goes in the order of appends"
        self._waiting.append((offset, callback))

    def fail_waiting(self, error: KafkaError) -> None:
        """Fail all callbacks: another leader decides whether their records will be committed."""
        waiting, self._waiting = self._waiting, deque()
        for _, callback in waiting:
            callback(error)

    # ---- the task

    async def run(self) -> None:
        """Feed the listener until cancelled. Raises its exceptions, and CorruptBatch or OSError from the log."""
        while True:
            self._progress = trio.Event()
            await self._load_snapshot()
            self._report_leader()
            if not await self._feed_some():
                await self._progress.wait()
                self._applied = 0
            elif self._is_behind():
                await self._let_others_run()

    async def _let_others_run(self) -> None:
        await trio.lowlevel.checkpoint()
        self._applied = 0

    async def _load_snapshot(self) -> None:
        snapshots = self._log.snapshots
        while self.next_offset is None or self.next_offset < self._log.start_offset:
            snapshot = snapshots.latest
            if snapshot is None:
                self.next_offset = 0
                return
            try:
                timestamp_ms, records = await self._run_blocking(partial(snapshots.records, snapshot))
            except FileNotFoundError:
                if snapshots.latest == snapshot:
                    raise
                continue
            steps = self._listener.handle_snapshot(records, snapshot.offset - 1, snapshot.epoch, timestamp_ms)
            await self._take(steps)
            await self._let_others_run()
            self.next_offset = snapshot.offset
            for _ in empty_in_steps(records):
                await self._let_others_run()

    def _report_leader(self) -> None:
        while self._leaders:
            leader, own_epoch_start = self._leaders[0]
            if own_epoch_start is not None:
                if len(self._leaders) == 1 and (self.next_offset or 0) <= own_epoch_start:
                    return
                if (self.next_offset or 0) <= own_epoch_start:
                    self._leaders.popleft()  # lost again before it could act
                    continue
            self._leaders.popleft()
            self._listener.handle_leader_change(leader.leader_id, leader.epoch)

    def _is_behind(self) -> bool:
        return self.next_offset is not None and self.next_offset < self._high_watermark

    async def _feed_some(self) -> bool:
        """Apply some committed records; False if there were none."""
        next_offset = self.next_offset
        assert next_offset is not None
        if next_offset >= self._high_watermark or next_offset < self._log.start_offset:
            return False
        while self._own_batches and self._own_batches[0].base_offset < next_offset:
            self._own_batches.popleft()
        if self._own_batches and self._own_batches[0].base_offset == next_offset:
            if self._own_batches[0].last_offset >= self._high_watermark:
                return False
            await self._apply(self._own_batches.popleft())
            return True
        data = self._log.read(next_offset, READ_BYTES, self._high_watermark)
        for position, header in iterate_batches(data):
            is_newest = header.next_offset >= self._high_watermark
            await self._apply(await self._take(read_batch(data, position, header), is_newest=is_newest))
        if self.next_offset == next_offset:
            raise CorruptBatch(f"no whole batch at offset {next_offset}, below the high watermark")
        return True

    async def _apply(self, batch: CommittedBatch) -> None:
        assert batch.base_offset == self.next_offset, f"expected {self.next_offset}, got {batch.base_offset}"
        is_newest = batch.last_offset + 1 >= self._high_watermark
        await self._take(self._listener.handle_commit(batch), is_newest=is_newest)
        self._applied += len(batch.records) or 1
        if self._applied >= STEP_RECORDS and batch.last_offset < self._high_watermark - 1:
            await self._let_others_run()
        self.next_offset = batch.last_offset + 1
        self._report_leader()
        while self._waiting and self._waiting[0][0] < self.next_offset:
            self._waiting.popleft()[1](None)
        for _ in empty_in_steps(batch.records):
            await self._let_others_run()

    async def _take(self, steps: Stepwise[R], *, is_newest: bool = False) -> R:
        """Take all steps; other tasks run between them. `is_newest`: nothing follows in the log, and the node pauses
        now and then, because it serves clients meanwhile."""
        take = partial(next, steps)
        taken = 0
        while True:
            try:
                if self._count_work is None:
                    take()
                else:
                    self._count_work(APPLIED, take)
            except StopIteration as end:
                result: R = end.value
                return result
            taken += 1
            if is_newest and taken % STEPS_WITHOUT_PAUSE == 0:
                await trio.sleep(PAUSE_SECONDS)
            await self._let_others_run()


def read_batch(data: bytes, position: int, header: BatchHeader) -> Stepwise[CommittedBatch]:
    """A batch of the log with its records, decoded in short steps. Raises CorruptBatch or MalformedMessage."""
    records: list[Message] = []
    if not header.is_control:
        batch = memoryview(data)[position : position + header.size_bytes]
        for part in decode_in_slices(batch, DECODED_LIMIT_BYTES, header.records_count, STEP_DECODED_RECORDS):
            if records:
                yield
            records += [decode_metadata_record(record.value or b"")[0] for record in part]
    return CommittedBatch(
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        epoch=header.partition_leader_epoch,
        append_time_ms=header.max_timestamp,
        records=records,
    )
