"""The files of one log, and whatever changes which ones there are: a roll, a cut at either end, a new beginning. What
compaction changes is in `storage.swapping`.

Each change is made in such an order, and with such syncs, that no crash leaves a mixture of what was and what is to be.
Knows no rules of the log: what goes, and when, is `PartitionLog`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from storage.flushing import Flusher, FlushWork
from storage.names import EXPIRED_SUFFIX
from storage.producer_tracker import ProducerTracker
from storage.producers import ProducerStateConfig, ProducerStates
from storage.recovery import LoadedLog
from storage.removal import Removals
from storage.segment import Folder, Segment
from storage.segment_list import SegmentList
from storage.snapshots import SnapshotFiles
from storage.swapping import SegmentSwaps


class LogFiles:
    """Whatever changes them raises OSError."""

    __slots__ = ("_removals", "_snapshots", "flusher", "folder", "segments", "swaps", "tracker")

    def __init__(self, folder: Folder, loaded: LoadedLog, producer_state: ProducerStateConfig | None) -> None:
        self.folder = folder
        self.segments = SegmentList(loaded.segments)
        """To read from."""
        self._snapshots = SnapshotFiles(folder, loaded.names)
        self.flusher = Flusher(folder, loaded.epochs, self._snapshots, loaded.recovery_point)
        """Knows what of them is not durable yet."""
        self.tracker: ProducerTracker | None = None
        """None if the log keeps track of no producers."""
        if producer_state is not None:
            self.tracker = ProducerTracker(ProducerStates(producer_state), self._snapshots)
        self._removals = Removals(folder)
        self.swaps = SegmentSwaps(folder, self.segments, self.flusher, self._removals, self.tracker)

    # -- after recovery

    def take_up(self, told_recovery_point: int, clean_shutdown: bool, gaps_to: int) -> None:
        """Go on from what recovery has left, which was told of that recovery point; see `Flusher.gaps_to`."""
        flusher, segments = self.flusher, self.segments
        flusher.gaps_to = gaps_to
        flusher.believed = max(told_recovery_point, flusher.recovery_point)
        if not clean_shutdown:
            # Recovery made their indexes anew.
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
        """The next segment, which begins at the log's end; or the active one, if it is empty."""
        active = self.segments.active
        if active.base_offset == end_offset:
            return active
        self.flusher.settle(active, end_offset)
        if len(self.segments.all) == 1:
            # Were the first name lost and a later one kept, the log would seem to begin there.
            self.flusher.sync_names()
        active.seal()
        if self.tracker is not None:
            self.tracker.take_snapshot(end_offset)
        segment = self._add_segment(end_offset, index_max_bytes, now_ms)
        self.flusher.rolled.append(active)
        return segment

    def begin_anew_at(self, offset: int, index_max_bytes: int, now_ms: int) -> Segment:
        """The active segment is empty, and its base too far from the offsets that come: another takes its place."""
        self.segments.take_from(-1)[0].remove_files()
        segment = self._add_segment(offset, index_max_bytes, now_ms)
        self.flusher.sync_names()
        return segment

    def _add_segment(self, base_offset: int, index_max_bytes: int, now_ms: int) -> Segment:
        segment = Segment.create(self.folder, base_offset, index_max_bytes, now_ms)
        self.segments.add(segment)
        self.flusher.name_added()
        return segment

    # -- cutting

    def lower_recovery_point(self, offset: int, tell: Callable[[], None] | None) -> None:
        """Before what reaches `offset` or more is cut. `tell` is called if that was durable; if it raises OSError,
        nothing has changed.
        """
        flusher = self.flusher
        before = flusher.recovery_point, flusher.believed
        if flusher.cut(offset) and tell is not None:
            try:
                tell()
            except OSError:
                # Else nobody would be told when it is tried again.
                flusher.recovery_point, flusher.believed = before
                raise

    def cut(self, offset: int, end_offset: int) -> None:
        """Take out all batches that reach `offset`; the log ends at `end_offset` then, see `SegmentList.end_if_cut`."""
        self._snapshots.remove_after(end_offset)
        place = self.segments.place_of(offset)
        if place + 1 < len(self.segments.all):
            self._drop_from(place + 1)
        self.segments.active.truncate_to(offset)

    def empty(self, offset: int, index_max_bytes: int, now_ms: int) -> None:
        """Take everything out; the log goes on at `offset`."""
        self._removals.finish()
        self._drop_from(0)
        self._add_segment(offset, index_max_bytes, now_ms)
        self.folder.disk.sync_directory(self.folder.path)

    def _drop_from(self, place: int) -> None:
        """Take segments out, the last first, durably: a crash must not bring back what lies behind a
        cut.
        """
        segments = self.segments.all
        for segment in reversed(segments[place:]):
            segment.mark_deleted()
            self._removals.condemn([segment], 0)
        # The one before is the active one again.
        self.flusher.forget(segments[max(place - 1, 0) :])
        self.segments.take_from(place)
        self.folder.disk.sync_directory(self.folder.path)

    def prepare_start_at(self, base_offset: int) -> None:
        """To be done before the log is said to start at the segment with this base."""
        self.swaps.settle()
        # What it knows of producers cannot be read from their batches any more.
        self._snapshots.sync(base_offset)
        # Else a power cut could leave none of the segments, and offsets would be given out again.
        self.flusher.sync_names()

    def delete_first(self, count: int, due_ms: int) -> None:
        """Take the oldest out: their files are renamed at once, and removed by `removal_work` at `due_ms`."""
        deleted = self.segments.take_first(count)
        for segment in deleted:
            segment.mark_deleted(EXPIRED_SUFFIX)
        self._removals.condemn(deleted, due_ms)
        self.flusher.forget(deleted)
        if self.tracker is not None:
            self.tracker.segments_deleted(deleted)

    def removal_work(self, now_ms: int) -> Callable[[], None] | None:
        """What removes the files that are due, to be run away from the event loop; None if none are."""
        return self._removals.due(now_ms)

    # -- making durable

    def flush_is_due(self, now_ms: int, end_offset: int, flush_ms: int) -> bool:
        """For its age or its gaps, or after a truncation."""
        is_due = self.flusher.is_due(now_ms, end_offset, flush_ms)
        return is_due or self.flusher.unsynced_cuts > 0

    @property
    def wants_flush(self) -> bool:
        """There was a roll, or a truncation."""
        return bool(self.flusher.rolled) or self.flusher.unsynced_cuts > 0

    def flush_work(self, end_offset: int, *, rolled_only: bool = False) -> FlushWork | None:
        """See `Flusher.work`; `rolled_only` leaves the active segment alone."""
        active = self.segments.active
        if rolled_only:
            return self.flusher.work(None, active.base_offset)
        return self.flusher.work(active, end_offset)

    def close(self, end_offset: int) -> None:
        """With everything durable."""
        self.swaps.settle()
        self.flusher.settle(self.segments.active, end_offset)
        self.segments.active.write_out()
        if self.tracker is not None:
            self.tracker.take_snapshot(end_offset)
        work = self.flush_work(end_offset)
        if work is not None:
            work()
            self.flusher.done(work.offset)
        self.close_files()

    def close_files(self) -> None:
        """Without writing anything."""
        unfinished = self.swaps.unfinished
        replaced: Sequence[Segment] = unfinished.replaced if unfinished is not None else ()
        for segment in [*self.segments.all, *replaced, *self._removals.condemned]:
            segment.close_files()

    # -- the directory

    def rename_directory(self, path: str) -> None:
        """With its files open."""
        self.swaps.settle()
        self.folder.disk.rename(self.folder.path, path)
        self.folder.path = path
        for segment in self.segments.all:
            segment.directory_renamed()
