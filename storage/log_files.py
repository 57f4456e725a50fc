"""The files of one log, and every change of the set of files: rolls, truncation at both ends, restarts at an offset.
Compaction is in `storage.segment_swaps`.

Each change is ordered and synced in such a way that no crash leaves a mixture of the old and the new state.
`PartitionLog` decides what to remove and when.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from barnabas.runtime.world import File
from barnabas.storage.checkpoints import LEADER_EPOCH_CHECKPOINT, format_epochs, write_durably
from barnabas.storage.flushing import Flusher, FlushWork
from barnabas.storage.folder import Folder
from barnabas.storage.names import EXPIRED_SUFFIX
from barnabas.storage.producer_snapshots import SnapshotFiles
from barnabas.storage.producer_tracker import ProducerTracker
from barnabas.storage.producers import ProducerStateConfig, ProducerStates
from barnabas.storage.recovery import LoadedLog
from barnabas.storage.segment import Segment
from barnabas.storage.segment_list import SegmentList
from barnabas.storage.segment_removal import Removals
from barnabas.storage.segment_swaps import SegmentSwaps


class LogFiles:
    """Methods that change files raise OSError."""

    __slots__ = ("_removals", "_snapshots", "flusher", "folder", "segments", "swaps", "tracker")

    def __init__(self, folder: Folder, loaded: LoadedLog, producer_state: ProducerStateConfig | None) -> None:
        self.folder = folder
        self.segments = SegmentList(loaded.segments)
        """For reading."""
        self._snapshots = SnapshotFiles(folder, loaded.names)
        self.flusher = Flusher(folder, loaded.epochs, self._snapshots, loaded.recovery_point)
        self.flusher.gap_epochs = loaded.gap_epochs
        """Tracks which of them are durable."""
        self.tracker: ProducerTracker | None = None
        """None if the log tracks no producers."""
        if producer_state is not None:
            self.tracker = ProducerTracker(ProducerStates(producer_state), self._snapshots)
        self._removals = Removals(folder)
        self.swaps = SegmentSwaps(folder, self.segments, self.flusher, self._removals, self.tracker)

    # -- after recovery

    def resume(self, given_recovery_point: int, clean_shutdown: bool, gaps_to: int) -> None:
        """Continue with the result of recovery, which was given that recovery point; for `gaps_to` see `Flusher`."""
        flusher, segments = self.flusher, self.segments
        flusher.gaps_to = gaps_to
        flusher.believed = max(given_recovery_point, flusher.recovery_point)
        if not clean_shutdown:
            # Recovery rebuilt their indexes.
            place = max(segments.place_of(flusher.recovery_point) - 1, 0)
            flusher.rolled = segments.all[place:-1]

    def rebuild_producers(self, end_offset: int, now_ms: int, high_watermark: int | None) -> None:
        """See `ProducerTracker.rebuild`."""
        if self.tracker is None:
            return
        segments, rolled = self.segments.all, self.flusher.rolled
        self._snapshots.remove_strays([each.base_offset for each in segments], end_offset)
        reindexed = self.tracker.rebuild(segments, end_offset, now_ms, high_watermark)
        self.flusher.rolled += [each for each in reindexed if each is not segments[-1] and each not in rolled]

    # -- the active segment

    def roll(self, end_offset: int, index_max_bytes: int, now_ms: int) -> Segment:
        """Start the next segment at the log's end; returns the active one if it is empty."""
        active = self.segments.active
        if active.base_offset == end_offset:
            return active
        self.flusher.settle(active, end_offset)
        if len(self.segments.all) == 1:
            # If the first name were lost and a later one kept, the log would seem to begin there.
            self.flusher.sync_names()
        active.seal()
        if self.tracker is not None:
            self.tracker.take_snapshot(end_offset)
        segment = self._add_segment(end_offset, index_max_bytes, now_ms)
        self.flusher.rolled.append(active)
        return segment

    def restart_at(self, offset: int, index_max_bytes: int, now_ms: int) -> Segment:
        """Replace an empty active segment whose base offset is too far from the next offsets."""
        self.segments.take_from(-1)[0].remove_files()
        segment = self._add_segment(offset, index_max_bytes, now_ms)
        self.flusher.sync_names()
        return segment

    def _add_segment(self, base_offset: int, index_max_bytes: int, now_ms: int) -> Segment:
        segment = Segment.create(self.folder, base_offset, index_max_bytes, now_ms)
        self.segments.add(segment)
        self.flusher.name_added()
        return segment

    # -- truncation

    def lower_recovery_point(self, offset: int, write_recovery_point: Callable[[], None] | None) -> None:
        """Must precede the removal of everything from `offset` on. Calls `write_recovery_point` if that was durable; if
        it raises OSError, nothing has changed.
        """
        flusher = self.flusher
        before = flusher.recovery_point, flusher.believed
        if flusher.cut(offset) and write_recovery_point is not None:
            try:
                write_recovery_point()
            except OSError:
                # Otherwise a retry would not write it.
                flusher.recovery_point, flusher.believed = before
                raise

    def cut(self, offset: int, end_offset: int) -> None:
        """Remove all batches that reach `offset`; the log then ends at `end_offset`, see `SegmentList.end_if_cut`."""
        self._snapshots.remove_after(end_offset)
        place = self.segments.place_of(offset)
        if place + 1 < len(self.segments.all):
            self._drop_from(place + 1)
        self.segments.active.truncate_to(offset)

    def empty(self, offset: int, index_max_bytes: int, now_ms: int) -> None:
        """Remove everything; the log continues at `offset`."""
        self._removals.finish()
        self._drop_from(0)
        self._add_segment(offset, index_max_bytes, now_ms)
        self.folder.disk.sync_directory(self.folder.path)

    def restart_behind_remote(
        self, offset: int, state: tuple[Sequence[tuple[int, int]], bytes], index_max_bytes: int, now_ms: int
    ) -> None:
        """Remove everything; the log continues at `offset`, with this `state`: the leader epochs, and the producer
        snapshot there. The first file of the log is its proof: it appears when the state is durable.
        """
        epochs, snapshot = state
        self._removals.finish()
        self._drop_from(0)
        self._snapshots.write(offset, snapshot)
        self._snapshots.sync(offset)
        folder = self.folder
        write_durably(folder.disk, f"{folder.path}/{LEADER_EPOCH_CHECKPOINT}", format_epochs(epochs))
        self._add_segment(offset, index_max_bytes, now_ms)
        folder.disk.sync_directory(folder.path)

    def _drop_from(self, place: int) -> None:
        """Remove segments, the last first, durably: a crash must not restore what is behind a truncation."""
        segments = self.segments.all
        for segment in reversed(segments[place:]):
            segment.mark_deleted()
            self._removals.condemn([segment], 0)
        # The segment before them is the active one again.
        self.flusher.forget(segments[max(place - 1, 0) :])
        self.segments.take_from(place)
        self.folder.disk.sync_directory(self.folder.path)

    def prepare_start_at(self, base_offset: int) -> None:
        """Must precede a move of the log start to the segment with this base offset."""
        self.swaps.settle()
        # State about producers from before it can no longer be read from their batches.
        self._snapshots.sync(base_offset)
        # Otherwise a power cut could remove all segments, and offsets would be assigned again.
        self.flusher.sync_names()

    def delete_first(self, count: int, due_ms: int) -> None:
        """Remove the oldest segments: their files are renamed at once, and removed by `removal_work` at `due_ms`."""
        deleted = self.segments.take_first(count)
        # Recovery finishes a deletion up to the last segment that has a renamed file. So one durable rename in the last
        # of these segments moves the log start to the offset whose snapshot `prepare_start_at` made durable. It must
        # precede all other renames and the removal of snapshots. If a power cut kept only some of those, the log would
        # start at a lower offset without a durable snapshot, and forget transactions that are open there.
        deleted[-1].mark_deleted(EXPIRED_SUFFIX)
        self.folder.disk.sync_directory(self.folder.path)
        for segment in deleted[:-1]:
            segment.mark_deleted(EXPIRED_SUFFIX)
        self._removals.condemn(deleted, due_ms)
        self.flusher.forget(deleted)
        if self.tracker is not None:
            self.tracker.segments_deleted(deleted)

    def removal_work(self, now_ms: int) -> Callable[[], None] | None:
        """Work that removes the files that are due, to be run outside the event loop; None if there are none."""
        return self._removals.due(now_ms)

    def open_snapshot(self, offset: int) -> File | None:
        """The producer snapshot at `offset`, if there is one."""
        return self._snapshots.open(offset) if offset in self._snapshots.offsets else None

    # -- flushes

    def flush_is_due(self, now_ms: int, end_offset: int, flush_ms: int) -> bool:
        """Because of its age or its gaps, or after a truncation."""
        is_due = self.flusher.is_due(now_ms, end_offset, flush_ms)
        return is_due or self.flusher.unsynced_cuts > 0

    @property
    def wants_flush(self) -> bool:
        """After a roll or a truncation."""
        return bool(self.flusher.rolled) or self.flusher.unsynced_cuts > 0

    def flush_work(self, end_offset: int, *, rolled_only: bool = False) -> FlushWork | None:
        """See `Flusher.work`; `rolled_only` leaves the active segment out."""
        active = self.segments.active
        if rolled_only:
            return self.flusher.work(None, active.base_offset)
        return self.flusher.work(active, end_offset)

    @property
    def are_missing(self) -> bool:
        """True for a new log until its first record."""
        return len(self.segments.all) == 1 and not self.segments.active.has_file

    def close(self, end_offset: int) -> None:
        """Close after making everything durable."""
        if self.are_missing:
            return
        work = self.closing_work(end_offset)
        if work is not None:
            work()
            self.flusher.done(work.offset)
        self.close_files()

    def closing_work(self, end_offset: int) -> FlushWork | None:
        """Write what is only in memory, as at a clean stop; returns the work that makes it durable. Raises OSError."""
        if self.are_missing:
            return None
        self.swaps.settle()
        if self.wants_flush or self.flusher.believed > self.flusher.recovery_point:
            # A producer snapshot at the end must not be durable before a truncation is.
            self.flusher.settle(self.segments.active, end_offset)
        self.segments.active.write_out()
        if self.tracker is not None and self.segments.active.has_file:
            self.tracker.take_snapshot(end_offset)
        return self.flush_work(end_offset)

    def close_files(self) -> None:
        """Close without writing."""
        unfinished = self.swaps.unfinished
        replaced: Sequence[Segment] = unfinished.replaced if unfinished is not None else ()
        for segment in [*self.segments.all, *replaced, *self._removals.condemned]:
            segment.close_files()

    # -- the directory

    def rename_directory(self, path: str) -> None:
        """Rename it with its files open."""
        self.swaps.settle()
        self.folder.disk.rename(self.folder.path, path)
        self.folder.path = path
