"""Hands the committed metadata to whoever applies it: in the order of offsets, each record once, nothing
uncommitted.

First the newest snapshot, if there is one, then the log batch by batch as the high watermark moves; a
snapshot again when one took the place of a log this node had not read to its end. A leader hears of its own
election only after everything up to the start of its epoch was applied, so that it decides on a complete
picture. Knows no peers and no roles.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import trio

from kraft.metadata_log import MetadataLog
from kraft.raft.ready import LeaderAndEpoch
from protocol.errors import KafkaError
from protocol.records.batch import BatchHeader, CorruptBatch, iterate_batches
from protocol.records.metadata import decode_metadata_record
from protocol.records.record import decode_records
from protocol.schema import Message
from runtime.world import RunBlocking

READ_BYTES = 256 * 1024
"""How much is applied before other tasks get a turn."""


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
    """Applies the committed metadata. Called from one task, never re-entered; what it raises stops the
    node."""

    def handle_commit(self, batch: CommittedBatch) -> None:
        """The next batch."""

    def handle_snapshot(self, records: list[Message], offset: int, epoch: int, timestamp_ms: int) -> None:
        """Forget everything; these records are all that holds after the record at `offset`."""

    def handle_leader_change(self, leader_id: int | None, epoch: int) -> None:
        """Who leads now. With this node's own id: everything before its epoch has been applied."""


OnCommitted = Callable[[KafkaError | None], None]
"""Called once: with None when the record is committed and applied, else with why that is not known."""


class CommitFeed:
    """Mutable; runs as one task."""

    def __init__(self, log: MetadataLog, listener: MetadataListener, run_blocking: RunBlocking) -> None:
        self._log = log
        self._listener = listener
        self._run_blocking = run_blocking
        self.next_offset: int | None = None
        """The first offset that the listener has not seen; None before the first step."""
        self._high_watermark = 0
        self._own_batches: deque[CommittedBatch] = deque()
        """What this leader appended itself and need not read back."""
        self._leaders: deque[tuple[LeaderAndEpoch, int | None]] = deque()
        """Changes to be told; with the epoch's start offset where this node is the leader."""
        self._waiting: deque[tuple[int, OnCommitted]] = deque()
        """Ordered by offset: a leader's appends are."""
        self._news = trio.Event()

    # ---- what the replica tells

    def appended(self, batch: CommittedBatch) -> None:
        """This leader appended a batch, which is to be applied once it is committed."""
        self._own_batches.append(batch)

    def high_watermark_moved(self, offset: int) -> None:
        self._high_watermark = max(self._high_watermark, offset)
        self._news.set()

    def leader_changed(self, leader: LeaderAndEpoch, own_epoch_start: int | None) -> None:
        """`own_epoch_start`: where the epoch of this node begins; None if somebody else leads, or nobody."""
        self._leaders.append((leader, own_epoch_start))
        self._own_batches.clear()
        self._news.set()

    def on_committed(self, offset: int, callback: OnCommitted) -> None:
        """Call back when the record at `offset`, which this leader appended, is committed and applied."""
        if self.next_offset is not None and offset < self.next_offset:
            callback(None)
            return
        assert not self._waiting or self._waiting[-1][0] <= offset, "waiting goes in the order of appends"
        self._waiting.append((offset, callback))

    def fail_waiting(self, error: KafkaError) -> None:
        """Whether the records that are waited for will be committed is another leader's to decide."""
        waiting, self._waiting = self._waiting, deque()
        for _, callback in waiting:
            callback(error)

    # ---- the task

    async def run(self) -> None:
        """Feed the listener for ever. Raises what it raises, and CorruptBatch or OSError from the log."""
        while True:
            self._news = trio.Event()
            await self._load_snapshot()
            self._tell_leader()
            if not self._feed_some():
                await self._news.wait()
            elif self._is_behind():
                await trio.lowlevel.checkpoint()

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
            self._listener.handle_snapshot(records, snapshot.offset - 1, snapshot.epoch, timestamp_ms)
            self.next_offset = snapshot.offset

    def _tell_leader(self) -> None:
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

    def _feed_some(self) -> bool:
        """Apply some of what is committed; False if there was nothing."""
        next_offset = self.next_offset
        assert next_offset is not None
        if next_offset >= self._high_watermark or next_offset < self._log.start_offset:
            return False
        while self._own_batches and self._own_batches[0].base_offset < next_offset:
            self._own_batches.popleft()
        if self._own_batches and self._own_batches[0].base_offset == next_offset:
            if self._own_batches[0].last_offset >= self._high_watermark:
                return False
            self._apply(self._own_batches.popleft())
            return True
        data = self._log.read(next_offset, READ_BYTES, self._high_watermark)
        for position, header in iterate_batches(data):
            self._apply(read_batch(data, position, header))
        if self.next_offset == next_offset:
            raise CorruptBatch(f"no whole batch at offset {next_offset}, below the high watermark")
        return True

    def _apply(self, batch: CommittedBatch) -> None:
        assert batch.base_offset == self.next_offset, f"expected {self.next_offset}, got {batch.base_offset}"
        self._listener.handle_commit(batch)
        self.next_offset = batch.last_offset + 1
        self._tell_leader()
        while self._waiting and self._waiting[0][0] < self.next_offset:
            self._waiting.popleft()[1](None)


def read_batch(data: bytes, position: int, header: BatchHeader) -> CommittedBatch:
    """A batch of the log with its records. Raises CorruptBatch or MalformedMessage."""
    records: list[Message] = []
    if not header.is_control:
        end = position + header.size_bytes
        decoded = decode_records(memoryview(data)[position:end])
        records = [decode_metadata_record(record.value or b"")[0] for record in decoded]
    return CommittedBatch(
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        epoch=header.partition_leader_epoch,
        append_time_ms=header.max_timestamp,
        records=records,
    )
