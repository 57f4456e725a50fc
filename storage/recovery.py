"""Opening of a log, whatever state the last run left it in.

After a clean stop the files are used as they are, unless the last one ends badly or before its indexes do. After any
other stop the segments from the recovery point on are scanned: each batch must have a sane header, fit into the file,
carry a valid CRC and continue the offsets. The log is truncated at the first one that does not, so what is served
afterwards is a prefix of what was appended. Flushed segments are not scanned (that would take hours): only their
indexes are checked, and rebuilt if they are missing or damaged. A bad batch found during a rebuild is reported, and its
segment is truncated there, as in Kafka. Rebuilding a transaction index needs producer state, so it is only marked as
stale. Callers with short logs, such as the metadata log, also call `segment_scan.last_damage`.

After a failed sync, everything unflushed is written again: the page cache has it, but the kernel considers it written,
so the next sync would succeed without writing it.

A tiered log starts where its checkpoint says, which may be far before its first segment: the rest is remote.

Renames that a crash interrupted are finished or undone: `.deleted` and `.cleaned` files are removed, `.swap` files
replace the segments they were made from. Knows no producers; `PartitionLog` rebuilds their state afterwards.
"""

from __future__ import annotations

import logging
import math
from bisect import bisect_right
from dataclasses import dataclass, field

from barnabas.protocol.records.batch import BATCH_HEADER_BYTES, CorruptBatch, read_header
from barnabas.settings.topic import TopicConfig
from barnabas.storage.checkpoints import (
    LEADER_EPOCH_CHECKPOINT,
    TEMPORARY_SUFFIX,
    MalformedCheckpoint,
    parse_epochs,
    write_durably,
)
from barnabas.storage.folder import Folder
from barnabas.storage.gap_epochs import GAP_EPOCHS_FILE, Gap, GapEpochs
from barnabas.storage.indexes import CorruptIndex
from barnabas.storage.leader_epochs import LeaderEpochs
from barnabas.storage.names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    EXPIRED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    SYNC_FAILED_FILE,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    offset_file_name,
    parse_offset_file_name,
)
from barnabas.storage.segment import Segment
from barnabas.storage.segment_scan import SegmentScan

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class LoadedLog:
    """Result of loading a log."""

    segments: list[Segment]
    epochs: LeaderEpochs
    gap_epochs: GapEpochs
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    names: list[str]
    """Files in the directory after recovery, except segments."""
    events: list[str] = field(default_factory=list)
    """One line for each problem that was found or repaired."""
    scanned_bytes: int = 0
    """Number of bytes that were scanned batch by batch."""
    gaps_to: int = 0
    """No scanned batch from this offset on has a gap before it."""


@dataclass(frozen=True, slots=True)
class LastRun:
    """Facts about the run that wrote a log. The defaults stand for an unknown run."""

    recovery_point: int = 0
    """Everything below it is on stable storage."""
    clean_shutdown: bool = False
    lost_power: bool = True
    """Anything that was not flushed may be missing, so the log ends at the first gap behind the recovery point. False
    if only the process ended, or the recovery point is unknown.
    """
    log_start_offset: int = 0
    high_watermark: int | None = None
    """A lower bound, if known."""


UNKNOWN_RUN = LastRun()


class LogLoader:
    """Loads one log. Use it once: `LogLoader(folder, config, now_ms, last_run).load()`."""

    def __init__(self, folder: Folder, config: TopicConfig, now_ms: int, last_run: LastRun) -> None:
        self._last_run = last_run
        self._lost_power = last_run.lost_power
        self._folder = folder
        self._disk = folder.disk
        self._config = config
        self._now_ms = now_ms
        self._names: list[str] = []
        self._segments: list[Segment] = []
        self._epochs = LeaderEpochs()
        self._durable_epochs: list[tuple[int, int]] = []
        """Entries of the checkpoint that begin below the recovery point: compaction may have removed all their batches.
        """
        self._gap_epochs = GapEpochs(folder)
        self._events: list[str] = []
        self._scanned_bytes = 0
        self._gaps_to = 0
        self._sync_failed = False
        """Unflushed data may be in the page cache only."""

    def load(self) -> LoadedLog:
        """Raises OSError if the disk fails; no content of a file makes it fail otherwise."""
        log_start_offset, recovery_point = self._last_run.log_start_offset, self._last_run.recovery_point
        self._names = self._disk.list(self._folder.path)
        self._finish_interrupted_renames()
        self._finish_retention()
        self._sync_failed = SYNC_FAILED_FILE in self._names
        clean_shutdown = self._last_run.clean_shutdown and not self._sync_failed
        self._epochs = self._read_epochs()
        self._gap_epochs = self._read_gap_epochs(math.inf if clean_shutdown else recovery_point)
        self._find_segments(None if clean_shutdown else recovery_point)
        if clean_shutdown:
            self._check_last_segment()
        else:
            self._recover_from(self._place_of(recovery_point), recovery_point)
        end_offset = self._segments[-1].read_end_offset() if self._segments else log_start_offset
        if self._segments and end_offset < log_start_offset:
            # Segment files were removed by hand or lost; everything left is below the log start.
            self._note(f"log ends at {end_offset}, before its start offset {log_start_offset}: emptied")
            self._remove_segments_from(0)
            self._epochs.clear()
            end_offset = log_start_offset
        if not self._segments:
            self._segments.append(self._first_segment(log_start_offset))
        for segment in self._segments[:-1]:
            segment.seal()
        if self._sync_failed:
            self._rewrite_unflushed(recovery_point)
        if not self._config.is_tiered:
            log_start_offset = max(log_start_offset, self._segments[0].base_offset)
        self._epochs.truncate_from_end(end_offset)
        self._epochs.truncate_from_start(log_start_offset)
        self._epochs.begin_at(log_start_offset)
        return LoadedLog(
            segments=self._segments,
            epochs=self._epochs,
            gap_epochs=self._gap_epochs,
            log_start_offset=log_start_offset,
            log_end_offset=end_offset,
            recovery_point=end_offset if clean_shutdown else min(recovery_point, end_offset),
            names=self._names,
            events=self._events,
            scanned_bytes=self._scanned_bytes,
            gaps_to=min(self._gaps_to, end_offset),
        )

    def _first_segment(self, log_start_offset: int) -> Segment:
        index_bytes = self._config.segment_index_bytes
        if log_start_offset:
            # Its name says where the log continues.
            return Segment.create(self._folder, log_start_offset, index_bytes, self._now_ms)
        return Segment.begin(self._folder, index_bytes, self._now_ms)

    def _note(self, event: str) -> None:
        self._events.append(event)
        _log.warning("%s: %s", self._folder.path, event)

    # -- file names

    def _remove(self, name: str) -> None:
        self._disk.remove(f"{self._folder.path}/{name}")
        self._names.remove(name)

    def _finish_interrupted_renames(self) -> None:
        """Kafka's rules: a `.swap` without an older `.cleaned` beside it is a finished copy and replaces its originals.
        """
        swaps: list[tuple[int, str]] = []
        cleaned: list[tuple[int, str]] = []
        for name in list(self._names):
            parsed = parse_offset_file_name(name)
            if parsed is None:
                continue
            offset, rest = parsed
            if rest.endswith(EXPIRED_SUFFIX):
                continue
            if rest.endswith((DELETED_SUFFIX, TEMPORARY_SUFFIX)):
                self._remove(name)
            elif rest.endswith(CLEANED_SUFFIX):
                cleaned.append((offset, name))
            elif rest.endswith(SWAP_SUFFIX):
                swaps.append((offset, name))
        first_cleaned = min((offset for offset, _ in cleaned), default=None)
        invalid = [(offset, name) for offset, name in swaps if first_cleaned is not None and offset >= first_cleaned]
        for _, name in invalid:
            self._note(f"removed {name} of an unfinished swap")
            self._remove(name)
        if invalid:
            # Remaining `.swap` files must not pass for a finished copy once the `.cleaned` ones are removed.
            self._disk.sync_directory(self._folder.path)
        for _, name in cleaned:
            self._remove(name)
        valid = [(offset, name) for offset, name in swaps if name in self._names]
        if valid:
            self._put_swaps_in_place(valid)

    def _finish_retention(self) -> None:
        """A crash may have prevented the last renames of a deletion from the front, or a power cut undone some, which
        leaves a hole, or a segment without some of its indexes.
        """
        expired = [name for name in self._names if name.endswith(EXPIRED_SUFFIX)]
        last = max((parsed[0] for name in expired if (parsed := parse_offset_file_name(name))), default=-1)
        revived = [
            name
            for name in self._names
            if (parsed := parse_offset_file_name(name)) and parsed[0] <= last and parsed[1] in SEGMENT_SUFFIXES
        ]
        for name in revived:
            self._remove(name)
        if revived:
            self._note(f"finished the deletion of the segments up to {last}")
        if expired:
            # Even if no file had to be removed: after a kill, the renames may not be durable. A power cut that keeps
            # the removals below, but loses a rename, would restore a segment and start the log there.
            self._disk.sync_directory(self._folder.path)
        for name in expired:
            self._remove(name)

    def _put_swaps_in_place(self, swaps: list[tuple[int, str]]) -> None:
        """Step by step, as in `storage.segment_swaps`."""
        logs = [(offset, name) for offset, name in swaps if name.endswith(LOG_SUFFIX + SWAP_SUFFIX)]
        if logs:
            start = min(offset for offset, _ in logs)
            # An empty copy replaces at least the segment of the same name.
            end = max(max(self._swap_end_offset(offset), offset + 1) for offset, _ in logs)
            for name in list(self._names):
                parsed = parse_offset_file_name(name)
                if parsed is not None and start <= parsed[0] < end and parsed[1] in SEGMENT_SUFFIXES:
                    # The copy contains its records.
                    self._remove(name)
            self._disk.sync_directory(self._folder.path)
        for part in (logs, [swap for swap in swaps if swap not in logs]):
            for _, name in part:
                target = name.removesuffix(SWAP_SUFFIX)
                self._disk.rename(f"{self._folder.path}/{name}", f"{self._folder.path}/{target}")
                self._names.remove(name)
                if target not in self._names:
                    self._names.append(target)
            self._disk.sync_directory(self._folder.path)
        self._names.sort()
        self._note(f"finished the swap of {len(logs)} segments")

    def _swap_end_offset(self, base_offset: int) -> int:
        """The offset after the last record of a copy; only batch headers are read."""
        path = self._folder.file(base_offset, LOG_SUFFIX + SWAP_SUFFIX)
        file = self._disk.open(path)
        try:
            position, end_offset = 0, base_offset
            while True:
                head = file.pread(BATCH_HEADER_BYTES, position)
                if not head:
                    return end_offset
                header = read_header(head)
                end_offset = header.next_offset
                position += header.size_bytes
        except CorruptBatch:
            return end_offset
        finally:
            file.close()

    def _read_epochs(self) -> LeaderEpochs:
        if LEADER_EPOCH_CHECKPOINT not in self._names:
            return LeaderEpochs()
        path = f"{self._folder.path}/{LEADER_EPOCH_CHECKPOINT}"
        try:
            return LeaderEpochs(parse_epochs(self._disk.read_bytes(path), path))
        except (MalformedCheckpoint, ValueError) as error:
            # Only data below the recovery point is lost; a replica then truncates to what is left.
            self._note(f"leader epochs unreadable: {error}")
            return LeaderEpochs()

    def _read_gap_epochs(self, recovery_point: float) -> GapEpochs:
        if GAP_EPOCHS_FILE in self._names:
            try:
                found = GapEpochs.read(self._folder)
                if not found.are_below(recovery_point) and not self._lost_power:
                    return found
            except MalformedCheckpoint as error:
                self._note(f"leader epochs of gaps unreadable: {error}")
            self._remove(GAP_EPOCHS_FILE)
        return GapEpochs(self._folder)

    def _find_segments(self, recovery_point: int | None) -> None:
        """One Segment per `.log`; index files without a log are removed.

        Indexes below the recovery point are loaded or rebuilt; above it recovery rebuilds them all.
        """
        bases = []
        for name in list(self._names):
            parsed = parse_offset_file_name(name)
            if parsed is None or parsed[1] not in SEGMENT_SUFFIXES:
                continue
            if parsed[1] == LOG_SUFFIX:
                bases.append(parsed[0])
            elif f"{name.partition('.')[0]}{LOG_SUFFIX}" not in self._names:
                self._note(f"removed {name}, which has no log")
                self._remove(name)
        names = set(self._names)
        self._segments = [
            Segment.open(self._folder, base, self._config.segment_index_bytes, self._now_ms) for base in sorted(bases)
        ]
        count = len(self._segments) if recovery_point is None else self._place_of(recovery_point)
        for segment in self._segments[:count]:
            present = {suffix for suffix in SEGMENT_SUFFIXES if offset_file_name(segment.base_offset, suffix) in names}
            try:
                segment.load_aborted()
            except CorruptIndex as error:
                self._note(f"the transaction index of segment {segment.base_offset} has to be rebuilt: {error}")
            self._load_indexes(segment, present)

    def _place_of(self, offset: int) -> int:
        """Index of the segment that holds `offset`, or would; 0 if it is below all."""
        return max(bisect_right([segment.base_offset for segment in self._segments], offset) - 1, 0)

    def _load_indexes(self, segment: Segment, present: set[str]) -> None:
        try:
            if OFFSET_INDEX_SUFFIX not in present:
                raise CorruptIndex("the offset index is missing")
            if TIME_INDEX_SUFFIX not in present and segment.size_bytes:
                raise CorruptIndex("the time index is missing")
            segment.load_indexes()
            if segment.last_indexed_position() > max(segment.size_bytes - 1, 0):
                raise CorruptIndex("the offset index points beyond the end of the log")
            if not segment.time_index.entries and segment.first_timestamp() >= 0:
                raise CorruptIndex("the time index is empty")
        except (CorruptIndex, CorruptBatch) as error:
            if TRANSACTION_INDEX_SUFFIX not in present:
                # The marker may have been lost with them.
                segment.aborted.start_rebuild()
            problem = self._scan(segment, only_indexes=True)
            self._note(f"rebuilt the indexes of segment {segment.base_offset}: {error}")
            if problem is not None:
                self._note(f"segment {segment.base_offset} is corrupt: {problem}: truncated there")

    def _rewrite_unflushed(self, recovery_point: int) -> None:
        """Write everything behind the recovery point again, and all snapshots; the indexes there were rebuilt anyway.
        """
        for segment in self._segments[self._place_of(recovery_point) :]:
            segment.rewrite_from(segment.position_of(recovery_point))
        for name in self._names:
            if name.endswith(SNAPSHOT_SUFFIX):
                path = f"{self._folder.path}/{name}"
                write_durably(self._disk, path, self._disk.read_bytes(path))
        self._note(f"a sync had failed: wrote everything behind {recovery_point} again")
        self._remove(SYNC_FAILED_FILE)

    # -- contents

    def _check_last_segment(self) -> None:
        """Check the end of the last segment even after a clean stop, reading the last headers.

        The file may have been truncated since, and its indexes may still refer to the removed part.
        """
        if not self._segments:
            return
        last = self._segments[-1]
        try:
            end_offset = last.read_end_offset()
        except CorruptBatch as error:
            self._note(f"corrupt after a clean stop: {error}")
            self._scan(last)
            return
        if last.indexes_reach(end_offset):
            # Otherwise lookups would return offsets that are assigned again.
            self._note(f"the indexes of segment {last.base_offset} go beyond its end at {end_offset}: rebuilt")
            self._scan(last)

    def _recover_from(self, first: int, recovery_point: int) -> None:
        """Scan the segments from the one with the recovery point on, and truncate at the first fault."""
        if first and self._segments[first].base_offset == recovery_point:
            self._check_sealed(self._segments[first - 1])
        if self._segments:
            # The scanned batches contain their epochs; a checkpoint written before a truncation may contain others,
            # also for segments that retention has deleted since.
            self._durable_epochs = [entry for entry in self._epochs.entries() if entry[1] < recovery_point]
            known_to = min(self._segments[first].base_offset, recovery_point)
            if self._config.is_tiered:
                # Local retention has deleted only what was flushed with its epochs, and no batch here has those.
                known_to = max(known_to, self._segments[0].base_offset)
            self._epochs.truncate_from_end(known_to)
        end_offset: int | None = None
        for place in range(first, len(self._segments)):
            segment = self._segments[place]
            if end_offset is not None and (segment.base_offset < end_offset or self._is_lost(segment, end_offset)):
                self._cut_before(place, f"segment {segment.base_offset} does not continue at {end_offset}")
                return
            problem = self._scan(segment, unflushed_from=recovery_point)
            if problem is not None:
                self._cut_before(place + 1, f"segment {segment.base_offset}: {problem}")
                return
            end_offset = segment.read_end_offset()

    def _is_lost(self, segment: Segment, end_offset: int) -> bool:
        """True if the tail of the segment before this one was lost, after which no batch is left to be scanned.

        A roll places each segment at the end of the log. Unflushed segments are never cleaned, so what is missing after
        a power loss is no gap left by compaction. A process that was killed lost nothing: its log was cut inside a gap.
        """
        return self._lost_power and segment.base_offset > end_offset

    def _check_sealed(self, segment: Segment) -> None:
        """The final time index entry may be missing or damaged if the segment was rolled after the last flush."""
        try:
            times = segment.time_index
            if times.entries and not segment.confirms(times.last_entry):
                self._note(f"rebuilt the indexes of segment {segment.base_offset}: no batch has {times.last_entry}")
                self._scan(segment, only_indexes=True)
            segment.find_max_timestamp()
        except CorruptBatch as error:
            problem = self._scan(segment, only_indexes=True)
            self._note(f"flushed segment {segment.base_offset} is corrupt: {problem or error}: truncated there")

    def _cut_before(self, place: int, problem: str) -> None:
        end_offset = self._segments[place - 1].read_end_offset()
        self._note(f"truncated at offset {end_offset}: {problem}")
        if place < len(self._segments):
            self._remove_segments_from(place)

    def _remove_segments_from(self, place: int) -> None:
        """The last one first, so that a crash leaves a prefix; durable before going on."""
        for segment in reversed(self._segments[place:]):
            self._note(f"removed segment {segment.base_offset} of {segment.size_bytes} bytes")
            segment.remove_files()
        del self._segments[place:]
        self._disk.sync_directory(self._folder.path)

    def _scan(
        self, segment: Segment, *, only_indexes: bool = False, unflushed_from: int | None = None
    ) -> str | None:
        """Check every batch, rebuild the indexes and the epochs; truncate at the first fault and return it.

        `only_indexes`: the segment may be in the middle of the log, where its epochs are known already.
        `unflushed_from`: behind this offset nothing was ever cleaned here, so missing records were lost with the power.
        Only a follower of a leader with a compacted log gets batches with gaps between them, and it flushes those soon
        (`Flusher.gaps_to`).
        """
        segment.reset(keep_aborted=only_indexes and not segment.aborted.is_stale)
        file = segment.log_file()
        size = file.size()
        no_gaps_from = unflushed_from if self._lost_power else None
        scan = SegmentScan(file, size, segment.base_offset, no_gaps_from)
        epochs = self._epochs
        interval = self._config.index_interval_bytes
        while (header := scan.next_batch()) is not None:
            position, last_offset = scan.position, header.last_offset
            if not segment.offset_index.accepts(last_offset):
                scan.problem = f"offset {last_offset} is out of the segment's range at byte {position}"
                break
            segment.recovered(position, last_offset, header.size_bytes, header.max_timestamp, interval)
            if not only_indexes and header.partition_leader_epoch > epochs.latest_epoch:
                epoch, offset = header.partition_leader_epoch, header.base_offset
                gap = Gap(scan.next_offset, offset, epoch)
                epochs.assign_batch(epoch, offset, gap.start, [*self._durable_epochs, *self._gap_epochs.before(gap)])
            scan.advance(header)
        self._scanned_bytes += scan.position
        self._gaps_to = max(self._gaps_to, scan.gaps_to)
        segment.cut_file(scan.position)
        return scan.problem


