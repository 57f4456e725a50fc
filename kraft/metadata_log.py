"""The log of `__cluster_metadata` on this node's disk: a `PartitionLog`, its snapshots, its election file.

Keeps storage's log and Raft's view of it (`LogHistory`) in step: a change of one is recorded in the other, and
every change asserts that they agree. Synchronous. Knows no roles and no peers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from barnabas.kraft.disk_reserve import Reserve
from barnabas.kraft.quorum_state import QuorumStateFile
from barnabas.kraft.raft.history import LOG_ORIGIN, LogHistory, OffsetAndEpoch
from barnabas.kraft.raft.voter_history import QuorumRecord
from barnabas.kraft.snapshots import SnapshotFiles
from barnabas.kraft.voter_records import quorum_records_in
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.records.batch import BATCH_HEADER_BYTES, BatchHeader, iterate_batches, read_header
from barnabas.runtime.world import Disk
from barnabas.settings.topic import TopicConfig
from barnabas.storage.flushing import FlushWork
from barnabas.storage.folder import Folder
from barnabas.storage.log import PartitionLog
from barnabas.storage.names import LOG_SUFFIX, METADATA_TOPIC, directory_name
from barnabas.storage.recovery import LastRun
from barnabas.storage.segment_scan import last_damage

_log = logging.getLogger(__name__)

MAX_BATCH_BYTES = 8 << 20
"""One append, however many records it has, is one batch of at most this size."""


READ_BYTES = 1 << 20
"""Bytes that are read at once when the log is searched for voters."""


class MetadataLog:
    """Open it with `open`. One owner."""

    def __init__(self, log: PartitionLog, snapshots: SnapshotFiles, election: QuorumStateFile) -> None:
        self.partition_log = log
        self.snapshots = snapshots
        self.election = election
        self.bytes_since_snapshot = 0
        self.reserve = Reserve(log.disk, log.directory.rpartition("/")[0])

    @classmethod
    def open(cls, disk: Disk, log_directory: str, now_ms: int, segment_bytes: int, segment_ms: int) -> MetadataLog:
        """The log in `log_directory`, made if there is none; afterwards all that it holds is durable.

        A log that ends before the newest snapshot, as a crash in the middle of installing one leaves it,
        starts again at the snapshot. All batches are checked, as Kafka does: one that is damaged and lies before a
        snapshot is not needed, and the log begins at that snapshot. Slow: to be run in a thread. Raises OSError.
        """
        directory = f"{log_directory}/{directory_name(METADATA_TOPIC, 0)}"
        disk.make_directories(directory)
        snapshots = SnapshotFiles(disk, directory)
        config = TopicConfig(
            segment_bytes=segment_bytes,
            segment_ms=segment_ms,
            retention_ms=-1,
            cleanup_policy=frozenset(),
            max_message_bytes=MAX_BATCH_BYTES + 1024,
        )
        log = PartitionLog.open(
            Folder(disk, directory),
            key=(METADATA_TOPIC, 0),
            config=config,
            now_ms=now_ms,
            last_run=LastRun(recovery_point=0 if snapshots.latest is None else snapshots.latest.offset),
        )
        opened = cls(log, snapshots, QuorumStateFile(disk, directory))
        opened._fit_to_snapshots(now_ms)
        opened._sync_all(disk, directory)
        opened.reserve.take()
        latest = snapshots.latest
        opened.bytes_since_snapshot = log.size_bytes if latest is None else opened._size_from(latest.offset)
        return opened

    def _fit_to_snapshots(self, now_ms: int) -> None:
        log, latest = self.partition_log, self.snapshots.latest
        if latest is not None and (log.log_end_offset < latest.offset or 0 <= log.latest_epoch < latest.epoch):
            log.truncate_fully_and_start_at(latest.offset, now_ms=now_ms)
        # Recovery has checked the records that are not in a snapshot. Of the others a disk may have lost some that it
        # called durable (after a failed sync, the next one succeeds), and no replica may be served damaged records.
        damage = None if latest is None else last_damage(log.segments, latest.offset)
        sound_from = log.log_start_offset if damage is None else max(log.log_start_offset, damage[0])
        if sound_from > 0:
            # Segments are deleted whole, so the log may reach back a little before the snapshot it starts from.
            start = next((s for s in self.snapshots.ids if s.offset >= sound_from), None)
            if start is None:
                raise FileNotFoundError(f"{log.directory}: starts at {sound_from}, but has no snapshot")
            log.set_high_watermark(start.offset)
            log.advance_log_start_offset(start.offset)
        if damage is not None:
            _log.warning("%s: begins at %d, after a damaged batch: %s", log.directory, log.log_start_offset, damage[1])
            log.delete_old_segments(now_ms)

    def _sync_all(self, disk: Disk, directory: str) -> None:
        """Sync everything: what was read back may be in the page cache only, and is about to be acknowledged to
        others."""
        self.partition_log.flush()
        for name in disk.list(directory):
            if name.endswith(LOG_SUFFIX):
                file = disk.open(f"{directory}/{name}")
                try:
                    file.sync()
                finally:
                    file.close()
        disk.sync_directory(directory)
        disk.sync_directory(directory.rpartition("/")[0])

    def _size_from(self, offset: int) -> int:
        segments = self.partition_log.segments
        return sum(segment.size_bytes for segment in segments if segment.base_offset >= offset)

    # ---- reading

    @property
    def directory(self) -> str:
        return self.partition_log.directory

    @property
    def end_offset(self) -> int:
        return self.partition_log.log_end_offset

    @property
    def start_offset(self) -> int:
        return self.partition_log.log_start_offset

    def read_quorum_records(self) -> tuple[QuorumRecord, ...]:
        """Level and voters in the newest snapshot, then those in the log after it. Slow: to be run in a thread."""
        found = self.snapshots.quorum_records()
        offset = self.start_offset if self.snapshots.latest is None else self.snapshots.latest.offset
        while offset < self.end_offset:
            data = self.read(offset, READ_BYTES, self.end_offset)
            found += quorum_records_in(data, offset)
            for _, header in iterate_batches(data):
                offset = header.next_offset
        return tuple(found)

    def history(self) -> LogHistory:
        """The log as Raft sees it."""
        log = self.partition_log
        start = LOG_ORIGIN
        if log.log_start_offset > 0:
            start = next(s for s in self.snapshots.ids if s.offset == log.log_start_offset)
        epochs = tuple((epoch, max(first, log.log_start_offset)) for epoch, first in log.epochs.entries())
        return LogHistory(start, epochs if log.log_end_offset > start.offset else (), log.log_end_offset)

    def read(self, offset: int, max_bytes: int, upper_offset: int) -> bytes:
        """Whole batches from `offset` on, below `upper_offset`; at least one if there is one."""
        part = self.partition_log.read(offset, max_bytes, upper_offset)
        return b"" if part is None else part.file.pread(part.size_bytes, part.position)

    # ---- writing

    def append_as_leader(self, batch: bytes, epoch: int, now_ms: int) -> BatchHeader:
        """Append one batch; gives its head with the offsets it got. KafkaError as
        `PartitionLog.append_as_leader`."""
        buffer = bytearray(batch)
        ((position, header),) = iterate_batches(buffer)
        appended = self.partition_log.append_as_leader(buffer, [(position, header)], epoch, now_ms)
        self.bytes_since_snapshot += header.size_bytes
        return header._replace(base_offset=appended.first_offset, partition_leader_epoch=epoch)

    def append_as_follower(self, data: memoryview, now_ms: int) -> None:
        """Append fetched batches; those that an earlier attempt appended are passed over. KafkaError as
        `PartitionLog.append_as_follower`."""
        while len(data) >= BATCH_HEADER_BYTES and (header := read_header(data)).base_offset < self.end_offset:
            data = data[header.size_bytes :]
        self.partition_log.append_as_follower(data, now_ms)
        self.bytes_since_snapshot += len(data)

    def truncate_to(self, offset: int) -> None:
        """Cut the log, at the boundary of a batch."""
        end = self.partition_log.truncate_to(offset)
        assert end == offset, f"cut at {end} instead of {offset}, inside a batch"

    def committed_to(self, high_watermark: int) -> None:
        self.partition_log.set_high_watermark(high_watermark)

    def flush_work(self) -> tuple[int, FlushWork | None]:
        """(the log end offset now, the work that makes everything below it durable or None if it is)."""
        return self.end_offset, self.partition_log.flushes.work()

    def flushed(self, offset: int) -> None:
        self.partition_log.flushes.done(offset)

    # ---- snapshots

    def snapshot_published(self, snapshot: OffsetAndEpoch, now_ms: int) -> OffsetAndEpoch | None:
        """This node has written a snapshot. Drops the log before the *previous* one, so that a replica which lags a
        little still finds the records; returns the new start of the log, None if it stays."""
        self.snapshots.published(snapshot)
        self.bytes_since_snapshot = 0
        log = self.partition_log
        try:
            log.roll(now_ms)
        except KafkaError as error:
            if log.failure is not None:
                raise
            _log.warning("%s: the log is not rolled at its snapshot: %s", log.directory, error)
        older = [known for known in self.snapshots.ids if known.offset < snapshot.offset]
        if not older or older[-1].offset <= log.log_start_offset:
            return None
        start = older[-1]
        log.advance_log_start_offset(start.offset)
        try:
            log.delete_old_segments(now_ms)
        except KafkaError as error:
            if log.failure is not None:
                raise
            _log.warning("%s: segments before the snapshot are deleted later: %s", log.directory, error)
        self.snapshots.remove_before(start)
        return start

    def restart_at(self, snapshot: OffsetAndEpoch, now_ms: int) -> None:
        """A downloaded snapshot takes the place of the log and of all older snapshots."""
        self.snapshots.published(snapshot)
        self.partition_log.truncate_fully_and_start_at(snapshot.offset, now_ms=now_ms)
        self.snapshots.remove_before(snapshot)
        self.bytes_since_snapshot = 0

    def deletion_work(self, now_ms: int) -> Callable[[], None] | None:
        """Work that removes the files of dropped segments, to be run in a thread; None if none are due."""
        return self.partition_log.deletion_work(now_ms)

    def close(self) -> None:
        self.partition_log.close()
