"""The log of one partition: appends at the end, reads anywhere, truncation at both ends.

Synchronous, with a single writer: its owner calls it from one thread. An append syncs nothing (replication makes
records durable), except as `flush.messages` asks; `storage.log_flushes` makes a log durable.
Reads return a region of a file, not bytes; a region remains readable while its segment is deleted. No offset is ever
assigned twice, and the remains of a failed write are never read.

Invariants: log start <= last stable offset <= high watermark <= log end; recovery point <= log end; segments touch:
each begins where the one before it ends (compaction may remove the last records of the earlier one). A tiered log has
its first offsets only in the remote store: log start <= local log start <= high watermark. Leader epochs are known from
the log start on.

This file has the rules; the files that follow them are in `storage.log_files`. Knows neither replicas nor clocks: they
are `broker`'s. `storage.segment` documents the format on disk.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.batch import NO_TIMESTAMP, BatchHeader, CorruptBatch, iterate_batches
from barnabas.runtime.world import Disk, File
from barnabas.settings.topic import TopicConfig
from barnabas.storage.cleaning import CleaningState
from barnabas.storage.fetched_batches import (
    ANY_EPOCH,
    EpochsMissing,
    batches_up_to,
    epoch_changes_behind_gap,
    portions,
    verify_fetched,
)
from barnabas.storage.folder import Folder, ScratchFolder
from barnabas.storage.gap_epochs import GapEpoch, GapEpochs, hidden_epochs
from barnabas.storage.indexes import CorruptIndex
from barnabas.storage.leader_epochs import LeaderEpochs
from barnabas.storage.log_files import LogFiles
from barnabas.storage.log_flushes import LogFlushes
from barnabas.storage.log_health import LogHealth
from barnabas.storage.log_results import AppendResult, OffsetOutOfRange
from barnabas.storage.log_retention import segments_to_delete
from barnabas.storage.produced_batches import number, size_in_bytes
from barnabas.storage.producer_snapshot_format import decode_snapshot
from barnabas.storage.producers import NO_WARRANT, ProducerStateConfig, ProducerStates, Warrant
from barnabas.storage.recovery import UNKNOWN_RUN, LastRun, LoadedLog, LogLoader
from barnabas.storage.roll_rule import RollRule
from barnabas.storage.segment import AppendedBatch, Segment
from barnabas.storage.segment_list import LogSlice, TimestampedOffset
from barnabas.storage.segment_swaps import SegmentSwaps
from barnabas.storage.transaction_index import AbortedTransaction

_log = logging.getLogger(__name__)

_READ_AHEAD_BYTES = 1 << 20
_DAMAGE_REMEMBERED = 16


class PartitionLog:
    """Open it with `open`. `flushes` makes it durable, `health` is the state of its disk."""

    __slots__ = (
        "_files",
        "_logged_damage",
        "_roll_rule",
        "_segments",
        "_tracker",
        "clean_wanted_to",
        "cleaned_to",
        "cleaning",
        "config",
        "epochs",
        "flush_candidates",
        "flushes",
        "health",
        "high_watermark",
        "highest_copied_offset",
        "local_log_start_offset",
        "log_end_offset",
        "log_start_offset",
        "moved_logs",
        "on_recovery_point_lowered",
        "partition",
        "pending_from",
        "recovery_events",
        "topic",
        "topic_id",
    )

    def __init__(self, files: LogFiles, loaded: LoadedLog, topic: str, partition: int, config: TopicConfig) -> None:
        self.topic = topic
        self.partition = partition
        self.topic_id: bytes | None = None
        """Topic id of `partition.metadata`; set by the caller that reads it."""
        self.config = config
        """Replaced by `configure`; existing files keep their format."""
        self.epochs: LeaderEpochs = loaded.epochs
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self.local_log_start_offset = max(loaded.log_start_offset, files.segments.first_offset)
        """First offset that can be read here; what is before it is remote."""
        self.highest_copied_offset = -1
        """Everything up to it, from the local log start on, is proven to be remote as well; -1 if nothing is known."""
        self.high_watermark = self.local_log_start_offset
        self.health = LogHealth(self.__repr__)
        self.on_recovery_point_lowered: Callable[[PartitionLog], None] | None = None
        """Called before flushed records are truncated; must make the new recovery point durable."""
        self.recovery_events: Sequence[str] = loaded.events
        """One line for each problem that was found or repaired on opening."""
        self._files = files
        """All changes of files go through it; reads use `_segments`."""
        self.flushes = LogFlushes(self, files)
        self.flush_candidates: dict[PartitionLog, None] | None = None
        """Logs of the node that may need a flush, as `LogDirectories` keeps them. A log is added by each change after
        which it may, so that nobody has to look at all logs again and again."""
        self._segments = files.segments
        self._tracker = files.tracker
        self._logged_damage: tuple[str, ...] = ()
        """Damage that was logged already, because readers retry again and again."""
        self._roll_rule = RollRule(f"{topic}-{partition}")
        self.cleaning = CleaningState()
        self.cleaned_to: int | None = None
        """Everything below it has been compacted; None if nothing ever was."""
        self.clean_wanted_to = 0
        """The offset up to which it is to be cleaned, however small the dirty part is: what is copied has to be so."""
        self.pending_from: int | None = None
        """No record below it waits for its delivery; None if that is not known here, as on followers."""

        self.moved_logs: dict[PartitionLog, None] | None = None
        """Logs of the node whose high watermark moved, as `LogDirectories` keeps them until it is written down."""

    @classmethod
    def open(
        cls,
        folder: Folder,
        *,
        key: tuple[str, int],
        config: TopicConfig,
        now_ms: int,
        last_run: LastRun = UNKNOWN_RUN,
        producer_state: ProducerStateConfig | None = None,
    ) -> PartitionLog:
        """The log of `key` (topic, partition) in `folder`, created if it is missing, recovered if necessary, which is
        slow. Raises OSError.

        Without `producer_state` no producers are tracked, as in the metadata log. The owner sets the high watermark
        later.
        """
        disk, directory = folder.disk, folder.path
        if not disk.exists(directory):
            disk.make_directories(directory)
            disk.sync_directory(directory.rpartition("/")[0] or ".")
        loaded = LogLoader(folder, config, now_ms, last_run).load()
        files = LogFiles(folder, loaded, producer_state)
        files.resume(last_run.recovery_point, last_run.clean_shutdown, loaded.gaps_to)
        files.rebuild_producers(loaded.log_end_offset, now_ms, last_run.high_watermark)
        return cls(files, loaded, *key, config)

    @classmethod
    def create(
        cls,
        folder: Folder,
        *,
        key: tuple[str, int],
        config: TopicConfig,
        now_ms: int,
        producer_state: ProducerStateConfig,
    ) -> PartitionLog:
        """An empty log in an existing directory that has none; nothing is synced. Raises OSError."""
        segment = Segment.begin(folder, config.segment_index_bytes, now_ms)
        loaded = LoadedLog([segment], LeaderEpochs(), GapEpochs(folder), 0, 0, 0, names=[])
        return cls(LogFiles(folder, loaded, producer_state), loaded, *key, config)

    # -- state

    @property
    def directory(self) -> str:
        return self._files.folder.path

    @property
    def disk(self) -> Disk:
        return self._files.folder.disk

    @property
    def latest_epoch(self) -> int:
        """Epoch of the last leader known here; -1 if there is none."""
        return self.epochs.latest_epoch

    @property
    def recovery_point(self) -> int:
        """All records below it are on stable storage."""
        return self._files.flusher.recovery_point

    @property
    def failure(self) -> OSError | None:
        """Error of the disk that put this log out of service."""
        return self.health.failure

    @property
    def producers(self) -> ProducerStates | None:
        """None if this log tracks no producers."""
        return self._tracker.states if self._tracker is not None else None

    @property
    def size_bytes(self) -> int:
        return self._segments.size_bytes

    @property
    def segments(self) -> list[Segment]:
        """Oldest first; the last is the active one. Read-only."""
        return self._segments.all

    @property
    def active_segment(self) -> Segment:
        return self._segments.all[-1]

    @property
    def open_files(self) -> int:
        return self._segments.open_files

    @property
    def has_no_files(self) -> bool:
        """True if no record was ever appended, so that the directory holds nothing but the topic id."""
        return self._files.are_missing

    @property
    def swaps(self) -> SegmentSwaps:
        """Compaction swaps its copies in through it."""
        return self._files.swaps

    def begin_scratch(self, base_offset: int, now_ms: int) -> Segment:
        """An empty segment in the log's directory that is no part of the log. Its user removes the files; so does a
        restart. Raises OSError."""
        folder = ScratchFolder.beside(self._files.folder)
        scratch = Segment.create(folder, base_offset, self.config.segment_index_bytes, now_ms)
        scratch.hold_open()
        return scratch

    @property
    def last_stable_offset(self) -> int:
        """Below it no transaction is open; read_committed consumers read up to here."""
        high_watermark = self.high_watermark
        if self._tracker is None:
            return high_watermark
        unstable = self._tracker.states.first_unstable_offset
        if unstable < 0 or unstable >= high_watermark:
            return high_watermark
        return max(unstable, self.log_start_offset)

    def set_high_watermark(self, offset: int) -> None:
        """Clamped to the log's range."""
        offset = min(max(offset, self.local_log_start_offset), self.log_end_offset)
        if offset != self.high_watermark:
            self.high_watermark = offset
            if self.moved_logs is not None:
                self.moved_logs[self] = None
        if self._tracker is not None:
            self._tracker.states.replicated_to(offset)

    def __repr__(self) -> str:
        return (
            f"PartitionLog({self.topic}-{self.partition}, start {self.log_start_offset}, {self._described_local_start}"
            f"high watermark {self.high_watermark}, end {self.log_end_offset})"
        )

    @property
    def _described_local_start(self) -> str:
        local_start = self.local_log_start_offset
        return f"local start {local_start}, " if local_start != self.log_start_offset else ""

    def configure(self, config: TopicConfig) -> None:
        """Replace the config."""
        self.config = config
        self._may_need_flush()

    def high_watermark_moved(self) -> None:
        """It has another value, also if a start after a crash would find it."""
        if self.moved_logs is not None:
            self.moved_logs[self] = None

    def _may_need_flush(self) -> None:
        if self.flush_candidates is not None:
            self.flush_candidates[self] = None

    # -- appends

    def append_as_leader(
        self,
        buffer: bytearray | memoryview,
        batches: Sequence[tuple[int, BatchHeader]],
        leader_epoch: int,
        now_ms: int,
        warrant: Warrant = NO_WARRANT,
    ) -> AppendResult:
        """Assign the next offsets to `batches`, which are contiguous in `buffer`, and append them.

        Their headers in `buffer` are changed. Raises KafkaError, and then nothing was appended: MESSAGE_TOO_LARGE,
        RECORD_LIST_TOO_LARGE, FENCED_LEADER_EPOCH, KAFKA_STORAGE_ERROR, and the errors of `ProducerStates.check` and
        `check_marker`.
        """
        config = self.config
        if self.health.failure is not None:
            self.health.check()
        if leader_epoch < self.epochs.latest_epoch:
            raise KafkaError(
                ErrorCode.FENCED_LEADER_EPOCH,
                f"{self}: epoch {leader_epoch} is older than {self.epochs.latest_epoch}",
            )
        size_bytes = size_in_bytes(batches, config, self, limited=not warrant.is_admitted)
        repeated = self._tracker.check(buffer, batches, warrant) if self._tracker is not None else None
        if repeated is not None:
            append_time = repeated.timestamp if config.log_append_time else NO_TIMESTAMP
            return AppendResult(repeated.first_offset, repeated.last_offset, append_time, True)

        append_time = now_ms if config.log_append_time else NO_TIMESTAMP
        first_offset = self.log_end_offset
        appended = number(buffer, batches, first_offset, leader_epoch, append_time)
        start = batches[0][0]
        data = buffer if len(buffer) == size_bytes else memoryview(buffer)[start : start + size_bytes]
        self._write(data, appended, first_offset, now_ms)
        end_offset = self.log_end_offset = appended[-1].last_offset + 1
        if leader_epoch != self.epochs.latest_epoch:
            self.epochs.assign(leader_epoch, first_offset)
        if self._tracker is not None:
            active = self._segments.all[-1]
            self._tracker.appended(buffer, batches, active.aborted, first_offset, append_time, warrant)
        if end_offset - self._files.flusher.recovery_point >= config.flush_messages:
            self.flush()
        return AppendResult(first_offset, end_offset - 1, append_time, False)

    def append_as_follower(
        self,
        buffer: bytes | bytearray | memoryview,
        now_ms: int,
        leader_epoch: int = ANY_EPOCH,
        leaders_epochs: Sequence[tuple[int, int]] | None = (),
    ) -> int:
        """Append fetched batches unchanged; returns the log end offset. Leaves out an incomplete last batch, and
        everything after a batch with a higher epoch than `leader_epoch`.

        `leaders_epochs` are (epoch, start offset) of epochs that the leader knows, possibly without a batch, oldest
        first; None if they were not requested.

        All of them are appended or none. Raises `EpochsMissing` if they must be requested, `CorruptBatch` if a batch is
        damaged or the epochs decrease, `UnexpectedAppendOffset` if the offsets do, KafkaError with KAFKA_STORAGE_ERROR.
        """
        if self.health.failure is not None:
            self.health.check()
        batches = batches_up_to(buffer, leader_epoch)
        if not batches:
            return self.log_end_offset
        if self.log_start_offset == self.log_end_offset and self._starts_inside(batches[0][1]):
            # The leader's start offset is inside a batch, which it sends completely.
            self.truncate_fully_and_start_at(batches[0][1].base_offset, self.log_start_offset)
        appended = verify_fetched(buffer, batches, self.log_end_offset, self.epochs.latest_epoch, self)
        if leaders_epochs is None and epoch_changes_behind_gap(batches, self.log_end_offset, self.epochs.latest_epoch):
            raise EpochsMissing(f"{self}: a gap before the fetched batch may hide leader epochs")
        if leaders_epochs and (hidden := hidden_epochs(batches, self.log_end_offset, leaders_epochs)):
            self._keep_gap_epochs(hidden)
        for first, end in portions(appended, self.log_end_offset, self.config.segment_bytes):
            start = appended[first].position
            stop = appended[end - 1].position + appended[end - 1].size_bytes
            portion = appended[first:end]
            if start:
                portion = [batch._replace(position=batch.position - start) for batch in portion]
            data = buffer if (start, stop) == (0, len(buffer)) else memoryview(buffer)[start:stop]
            self._write(data, portion, batches[first][1].base_offset, now_ms)
            self._appended_fetched(buffer, batches[first:end], leaders_epochs or ())
        if self.log_end_offset - self._files.flusher.recovery_point >= self.config.flush_messages:
            self.flush()
        return self.log_end_offset

    def _keep_gap_epochs(self, hidden: list[GapEpoch]) -> None:
        try:
            self._files.flusher.gap_epochs.add(hidden)
        except OSError as error:
            raise self.health.failed(error) from error

    def _starts_inside(self, header: BatchHeader) -> bool:
        """True if an empty log is to begin with a batch that starts before its start offset."""
        end_offset = self.log_end_offset
        return (
            self.log_start_offset == end_offset
            and not self.active_segment.size_bytes
            and header.base_offset < end_offset <= header.last_offset
        )

    def _appended_fetched(
        self,
        buffer: bytes | bytearray | memoryview,
        batches: Sequence[tuple[int, BatchHeader]],
        leaders_epochs: Sequence[tuple[int, int]],
    ) -> None:
        end_offset = self.log_end_offset
        for _, header in batches:
            base_offset, epoch = header.base_offset, header.partition_leader_epoch
            if epoch > self.epochs.latest_epoch:
                self.epochs.assign_batch(epoch, base_offset, end_offset, leaders_epochs)
            if base_offset > end_offset:
                self._files.flusher.gaps_to = base_offset
            end_offset = base_offset + header.last_offset_delta + 1
        if self._tracker is not None:
            self._tracker.appended(buffer, batches, self._segments.all[-1].aborted)
        self.log_end_offset = end_offset

    def _write(
        self,
        data: bytes | bytearray | memoryview,
        batches: list[AppendedBatch],
        first_offset: int,
        now_ms: int,
    ) -> None:
        """Write the bytes into the active segment, rolling it first if due. All or nothing."""
        if self.health.is_closed_for_room:
            self.health.check_room()
        if self.flush_candidates is not None:
            self.flush_candidates[self] = None
        files, config, last = self._files, self.config, batches[-1]
        active = self._segments.all[-1]
        try:
            if self._roll_rule.is_due(active, len(data), last, config, now_ms):
                active = files.roll(self.log_end_offset, config.segment_index_bytes, now_ms)
            if not active.size_bytes and not active.offset_index.accepts(last.last_offset):
                active = files.restart_at(first_offset, config.segment_index_bytes, now_ms)
            active.append(data, batches, config.index_interval_bytes)
        except OSError as error:
            raise self.health.failed(error) from error

    def roll(self, now_ms: int) -> None:
        """Start a new segment at the log end; does nothing if the active one is empty."""
        self._may_need_flush()
        try:
            self._files.roll(self.log_end_offset, self.config.segment_index_bytes, now_ms)
        except OSError as error:
            raise self.health.failed(error) from error

    # -- reads

    def read(self, offset: int, max_bytes: int, upper_offset: int, at_least_one_batch: bool = True) -> LogSlice | None:
        """Complete batches of one segment, from the one with `offset` on, all below `upper_offset`.

        At most `max_bytes`, but one batch of any size if `at_least_one_batch`. None if there are none. Raises
        `OffsetOutOfRange`, also for what is only remote; KafkaError with KAFKA_STORAGE_ERROR or CORRUPT_MESSAGE.
        """
        end_offset = self.log_end_offset
        if not self.local_log_start_offset <= offset <= end_offset:
            raise OffsetOutOfRange(f"{self}: offset {offset}")
        upper_offset = min(upper_offset, end_offset)
        if offset >= upper_offset:
            return None
        if self.health.failure is not None:
            self.health.check()
        try:
            return self._segments.read(offset, max_bytes, upper_offset, end_offset, at_least_one_batch)
        except OSError as error:
            raise self.health.failed(error) from error
        except CorruptIndex as error:
            raise self.health.error(error) from error
        except CorruptBatch as error:
            if (damage := str(error)) not in self._logged_damage:
                self._logged_damage = (*self._logged_damage, damage)[-_DAMAGE_REMEMBERED:]
                _log.error("%s: offset %d cannot be read: %s", self, offset, damage)
            raise

    def aborted_transactions(self, from_offset: int, upper_offset: int) -> list[AbortedTransaction]:
        """Aborted transactions with records or their marker in [from_offset, upper_offset), in the order of their
        markers.

        Raises KafkaError with KAFKA_STORAGE_ERROR.
        """
        try:
            return self._segments.aborted_transactions(from_offset, upper_offset)
        except OSError as error:
            raise self.health.failed(error) from error
        except CorruptIndex as error:
            raise self.health.error(error) from error

    def batches(self, from_offset: int, upper_offset: int | None = None) -> Iterator[bytes]:
        """The bytes of each batch from the one with `from_offset` on, up to the log end at that time."""
        offset = from_offset
        while True:
            end = self.log_end_offset if upper_offset is None else upper_offset
            part = self.read(offset, _READ_AHEAD_BYTES, end)
            if part is None:
                return
            data = part.file.pread(part.size_bytes, part.position)
            for position, header in iterate_batches(data):
                yield data[position : position + header.size_bytes]
                offset = header.next_offset

    def offset_for_timestamp(self, timestamp: int) -> TimestampedOffset | None:
        """The first record at or after `timestamp`; None if there is none."""
        return self._segments.offset_for_timestamp(timestamp, self.log_start_offset)

    def offset_for_max_timestamp(self) -> TimestampedOffset | None:
        """The first record with the largest timestamp in the log (KIP-734); None if no record has one."""
        return self._segments.offset_for_max_timestamp(self.log_start_offset)

    def open_producer_snapshot(self, offset: int) -> File | None:
        """The producer snapshot file at `offset`, which is the base offset of a segment; the caller closes it. None if
        there is none. Raises OSError."""
        return self._files.open_snapshot(offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) as `LeaderEpochs.end_offset_for`; (-1, -1) if unknown here."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    # -- truncation

    def truncate_to(self, offset: int) -> int:
        """Remove all batches that reach `offset`; returns the new log end offset.

        That is `offset`, or less if it was inside a batch.
        """
        if offset < 0:
            raise ValueError(f"cannot truncate {self} to {offset}")
        if offset >= self.log_end_offset:
            # Epochs without a record may have been announced.
            self.epochs.truncate_from_end(self.log_end_offset)
            return self.log_end_offset
        if offset < self._segments.first_offset:
            self.truncate_fully_and_start_at(offset)
            return offset
        try:
            self._truncate(offset)
        except OSError as error:
            raise self.health.truncation_failed(error) from error
        return self.log_end_offset

    def _truncate(self, offset: int) -> None:
        self._before_cut(offset)
        end_offset = self._segments.end_if_cut(offset)
        self._lower_recovery_point(end_offset)
        self._files.cut(offset, end_offset)
        self.log_end_offset = end_offset
        self._bounds_are(min(self.log_start_offset, end_offset))
        self.epochs.truncate_from_end(end_offset)
        self.high_watermark = min(self.high_watermark, end_offset)
        self.high_watermark_moved()
        if self._tracker is not None:
            self._tracker.rebuild(self.segments, end_offset, 0, self.high_watermark)
            self._tracker.states.replicated_to(self.high_watermark)

    def _bounds_are(self, log_start_offset: int) -> None:
        """The log was truncated."""
        self.log_start_offset = log_start_offset
        self.local_log_start_offset = max(log_start_offset, self._segments.first_offset)
        # What was copied beyond belongs to another lineage.
        self.highest_copied_offset = min(self.highest_copied_offset, self.log_end_offset - 1)

    def _before_cut(self, offset: int) -> None:
        """A copy in progress must not restore what is about to be truncated."""
        self._files.swaps.settle()
        if offset < self.active_segment.base_offset:
            self.cleaning.interrupt()
        if self.cleaned_to is not None:
            self.cleaned_to = min(self.cleaned_to, offset)

    def _lower_recovery_point(self, offset: int) -> None:
        """Must precede any truncation. Raises OSError, and then nothing has changed."""
        self._may_need_flush()
        write = self.on_recovery_point_lowered
        self._files.lower_recovery_point(offset, None if write is None else partial(write, self))

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None, now_ms: int = 0) -> None:
        """Remove everything; the next record gets `offset`. The log starts at it or at `log_start_offset`."""
        try:
            self._before_emptied(offset)
            self._files.empty(offset, self.config.segment_index_bytes, now_ms)
            if self._tracker is not None:
                self._tracker.forget_all(offset)
        except OSError as error:
            raise self.health.truncation_failed(error) from error
        self.epochs.clear()
        self._emptied(offset, offset if log_start_offset is None else log_start_offset)

    def start_behind_remote(
        self, offset: int, log_start_offset: int, epochs: Sequence[tuple[int, int]], snapshot: bytes, now_ms: int
    ) -> None:
        """Remove everything; the log continues at `offset`, and what is between `log_start_offset` and it is remote.

        `epochs` are (leader epoch, start offset) of that part, ascending, `snapshot` the producer snapshot at `offset`
        as in the remote store. A crash leaves a part of the former log, none, or all of this. Raises `CorruptSnapshot`,
        and then nothing has changed; KafkaError with KAFKA_STORAGE_ERROR.
        """
        decode_snapshot(snapshot)
        known = LeaderEpochs(entry for entry in epochs if entry[1] < offset)
        known.truncate_from_start(log_start_offset)
        try:
            self._before_emptied(offset)
            if self._tracker is not None:
                self._tracker.forget_all(offset)
            self._files.restart_behind_remote(
                offset, (known.entries(), snapshot), self.config.segment_index_bytes, now_ms
            )
            if self._tracker is not None:
                self._tracker.rebuild(self.segments, offset, now_ms)
        except OSError as error:
            raise self.health.truncation_failed(error) from error
        self.epochs.clear()
        for epoch, start_offset in known.entries():
            self.epochs.assign(epoch, start_offset)
        self._emptied(offset, log_start_offset)
        self.highest_copied_offset = offset - 1

    def _before_emptied(self, offset: int) -> None:
        self._before_cut(-1)
        self.cleaned_to = None
        self._lower_recovery_point(min(offset, self._segments.first_offset))

    def _emptied(self, offset: int, log_start_offset: int) -> None:
        self.log_end_offset = self.high_watermark = self._files.flusher.recovery_point = offset
        self.high_watermark_moved()
        self._bounds_are(log_start_offset)

    def advance_log_start_offset(self, offset: int) -> bool:
        """Hide all records below `offset` (DeleteRecords, or a follower's leader did). Returns whether that changed
        anything.

        Retention removes the files the next time it runs. Raises `OffsetOutOfRange` above the high watermark.
        """
        if offset > self.high_watermark:
            raise OffsetOutOfRange(f"{self}: cannot start at {offset}, above the high watermark")
        if offset <= self.log_start_offset:
            return False
        self._may_need_flush()
        self.log_start_offset = offset
        self.local_log_start_offset = max(self.local_log_start_offset, offset)
        self.epochs.truncate_from_start(offset)
        if self._tracker is not None:
            self._tracker.states.replicated_to(offset)
        return True

    def end_tiering(self) -> None:
        """The log has no remote part any longer."""
        if self.local_log_start_offset > self.log_start_offset:
            self.advance_log_start_offset(self.local_log_start_offset)
        self.highest_copied_offset = -1

    def delete_old_segments(self, now_ms: int) -> int:
        """Delete the segments that retention does not keep; returns their number.

        Their files are renamed at once and removed by `deletion_work` after `file.delete.delay.ms`.
        """
        try:
            count, rolls = segments_to_delete(self, now_ms)
            if count or rolls:
                self._may_need_flush()
            if count:
                self._delete_first(count, now_ms)
            if rolls:
                # Only closed segments are copied.
                self._files.roll(self.log_end_offset, self.config.segment_index_bytes, now_ms)
        except OSError as error:
            raise self.health.truncation_failed(error) from error
        return count

    def _delete_first(self, count: int, now_ms: int) -> None:
        files, config = self._files, self.config
        if count == len(self.segments):
            files.roll(self.log_end_offset, config.segment_index_bytes, now_ms)
        new_start_offset = self.segments[count].base_offset
        files.prepare_start_at(new_start_offset)
        # Before the files are removed, so that no reader is sent to them.
        if config.copies_to_remote:
            self.local_log_start_offset = max(self.local_log_start_offset, new_start_offset)
        else:
            self.advance_log_start_offset(new_start_offset)
        files.delete_first(count, now_ms + config.file_delete_delay_ms)

    def deletion_work(self, now_ms: int) -> Callable[[], None] | None:
        """Work that removes the files that are due, to be run outside the event loop; None if there are none."""
        return self._files.removal_work(now_ms)

    # -- flushing and closing

    def flush(self) -> None:
        """Make all records durable, synchronously."""
        self.flushes.run()

    def close(self) -> None:
        """Clean shutdown: make everything durable, so that the next start needs no recovery. Raises OSError."""
        self.cleaning.interrupt()
        self._files.close(self.log_end_offset)

    def close_files(self) -> None:
        """Close without writing: the disk failed, or the directory is about to be removed."""
        self._files.close_files()

    def take_over_producers(self, other: PartitionLog) -> None:
        """Continue with the producers of a log that has the same records; `other` must not be used any longer. That log
        may know producers whose batches are gone, and transactions that are about to begin."""
        if self._tracker is not None and other.producers is not None:
            self._tracker.states = other.producers

    def rename_directory(self, path: str) -> None:
        """Move the log's directory, with its files open."""
        self.cleaning.interrupt()
        self._files.rename_directory(path)
