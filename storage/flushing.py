"""What of a log is not durable yet, and the slow part of making it so.

A `FlushWork` is made by the log's owner and may run anywhere: it holds open files and values and looks at
nothing that may change meanwhile. Its order is such that no crash finds the later without the earlier: the
data, the indexes into it, producer snapshots, leader epochs, and at last the names of new files.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence

from runtime.world import Disk, File
from storage.checkpoints import LEADER_EPOCH_CHECKPOINT, format_epochs, write_durably
from storage.epochs import LeaderEpochs
from storage.segment import Folder, Segment
from storage.shortage import is_shortage, lacks_descriptors
from storage.snapshots import SnapshotFiles


class FlushWork:
    """Call it to make everything below `offset` durable. Raises OSError."""

    __slots__ = ("_folder", "epochs", "failure", "files", "offset", "rolled", "snapshots", "syncs_directory")

    def __init__(self, folder: Folder, offset: int, rolled: Sequence[Segment]) -> None:
        self._folder = folder
        self.offset = offset
        self.rolled = tuple(rolled)
        """Segments that got no more appends when this was made, so that it makes all of them durable."""
        self.files: list[File] = []
        self.snapshots: list[int] = []
        """Offsets of producer snapshots."""
        self.epochs: list[tuple[int, int]] | None = None
        """(epoch, start offset) to write, if they changed."""
        self.syncs_directory = False
        self.failure: OSError | None = None
        """Of a file's sync. The kernel tells it once: another sync would succeed, and bring nothing to the disk."""

    @property
    def is_empty(self) -> bool:
        return not (self.files or self.snapshots or self.syncs_directory or self.epochs is not None)

    def __call__(self) -> None:
        disk = self._folder.disk
        try:
            self._sync_files(disk)
        except OSError as error:
            if not lacks_descriptors(error):
                self.failure = error
                self._folder.note_failed_sync()
            raise
        if self.epochs is not None:
            write_durably(disk, f"{self._folder.path}/{LEADER_EPOCH_CHECKPOINT}", format_epochs(self.epochs))
        elif self.syncs_directory:
            disk.sync_directory(self._folder.path)

    def passes(self, error: OSError) -> bool:
        """Whether what this raised was a shortage, so that a later work may succeed. A failed sync is none."""
        return self.failure is None and is_shortage(error)

    def _sync_files(self, disk: Disk) -> None:
        for file in self.files:
            _sync(file)
        for offset in self.snapshots:
            path = self._folder.snapshot(offset)
            if disk.exists(path):
                file = disk.open(path)
                try:
                    file.sync()
                finally:
                    file.close()


def _sync(file: File) -> None:
    try:
        file.sync()
    except OSError as error:
        # The segment was deleted meanwhile, and its files were closed.
        if error.errno != errno.EBADF:
            raise


class Flusher:
    """Keeps the recovery point of one log."""

    __slots__ = (
        "_due_since_ms",
        "_epochs",
        "_folder",
        "_new_names",
        "_pending",
        "_snapshots",
        "believed",
        "gaps_to",
        "lowest_unsynced_cut",
        "recovery_point",
        "rolled",
        "unsynced_cuts",
    )

    def __init__(self, folder: Folder, epochs: LeaderEpochs, snapshots: SnapshotFiles, offset: int) -> None:
        self._folder = folder
        self._epochs = epochs
        self._snapshots = snapshots
        self.recovery_point = offset
        """All records below it are on stable storage."""
        self.believed = offset
        """The recovery point that a start after a crash is told, at most: it takes for durable what lies before the
        segment that holds this offset. Above `recovery_point` if more was lost than a crash can explain.
        """
        self.gaps_to = 0
        """From here on no batch has a gap before it. Behind the recovery point, recovery after a loss of power cannot
        tell a gap that a leader's compaction made from records that were lost, and cuts the log there.
        """
        self.rolled: list[Segment] = []
        """Segments that are no longer active and not known to be durable."""
        self._new_names = 1
        """Counts the files that were made since their directory was last known to be durable."""
        self.unsynced_cuts = 0
        """How often the active segment was truncated since it was last known to be durable."""
        self.lowest_unsynced_cut: int | None = None
        """The log's end after the deepest of those. A power cut may bring back what was there from here on."""
        self._pending: tuple[FlushWork, int, int] | None = None
        """The work that was given out and not confirmed; the counts of names and cuts that it covers."""
        self._due_since_ms: int | None = None

    def name_added(self) -> None:
        self._new_names += 1

    def sync_names(self) -> None:
        """Make the names of all files durable, here and now."""
        if self._new_names:
            self._folder.disk.sync_directory(self._folder.path)
            self._new_names = 0
            if self._pending is not None:
                self._pending = (self._pending[0], 0, self._pending[2])

    def forget(self, segments: Sequence[Segment]) -> None:
        """They were taken out of the log."""
        self.rolled = [segment for segment in self.rolled if segment not in segments]

    @property
    def has_unflushed_gaps(self) -> bool:
        return self.gaps_to > self.recovery_point

    def is_due(self, now_ms: int, log_end_offset: int, flush_ms: int) -> bool:
        if log_end_offset <= self.recovery_point:
            self._due_since_ms = None
            return False
        if self.has_unflushed_gaps:
            return True
        if self._due_since_ms is None:
            self._due_since_ms = now_ms
        return now_ms - self._due_since_ms >= flush_ms

    def work(self, active: Segment | None, offset: int) -> FlushWork | None:
        """All that is needed for `offset`; with the active segment if it is given. None if nothing is.

        Raises OSError if the work before it did.
        """
        work = FlushWork(self._folder, offset, self.rolled)
        if self._pending is not None:
            if self._pending[0].failure is not None:
                raise self._pending[0].failure
            # It may have run or not: what it was to make durable is done once more.
            work.files += self._pending[0].files
        segments = [*self.rolled, active] if active is not None else self.rolled
        for segment in segments:
            # On a full disk this fails, and then none of their files may be taken for given.
            segment.write_indexes()
        for segment in segments:
            work.files += [file for file in segment.files_to_sync() if file not in work.files]
            if segment.aborted.name_is_new:
                segment.aborted.name_is_new = False
                self._new_names += 1
        work.snapshots = list(self._snapshots.unsynced)
        work.epochs = self._epochs.entries() if self._epochs.dirty else None
        work.syncs_directory = self._new_names > 0
        if work.is_empty and offset <= self.recovery_point:
            return None
        self._pending = (work, self._new_names, self.unsynced_cuts if active is not None else 0)
        return work

    def done(self, offset: int) -> None:
        """The work for `offset` has run; says nothing if the log was cut since it was made."""
        if self._pending is None or self._pending[0].offset != offset:
            return
        work, names, cuts = self._pending
        self._pending = None
        self._due_since_ms = None
        self._new_names -= names
        self.unsynced_cuts -= cuts
        if not self.unsynced_cuts:
            self.lowest_unsynced_cut = None
        self.recovery_point = max(self.recovery_point, offset)
        self.believed = max(self.believed, offset)
        # One that was rolled since then may have got records meanwhile, of which the work knew nothing.
        self.rolled = [segment for segment in self.rolled if segment not in work.rolled]
        done = set(work.snapshots)
        self._snapshots.unsynced = [known for known in self._snapshots.unsynced if known not in done]
        if work.epochs is not None and work.epochs == self._epochs.entries():
            self._epochs.dirty = False

    def settle(self, active: Segment, offset: int) -> None:
        """Before a roll or a snapshot at `offset`, the log's end: what must be durable then, here and now.

        A power cut may undo a truncation that was not synced; with a new segment behind it, the log would then be
        a mixture of what was cut and what came after. And behind a new segment at the recovery point, or below it,
        nobody would look again at indexes that recovery made anew.
        """
        if self.unsynced_cuts or offset <= self.believed:
            work = self.work(active, offset)
            if work is not None:
                work()
                self.done(offset)

    def cut(self, offset: int) -> bool:
        """The log is about to lose what reaches `offset` or more; gives whether that was durable."""
        self.unsynced_cuts += 1
        before = self.lowest_unsynced_cut
        self.lowest_unsynced_cut = offset if before is None else min(before, offset)
        self.gaps_to = min(self.gaps_to, offset)
        if self._pending is not None:
            # What it syncs stays worth syncing, but its offset must not become the recovery point.
            self._pending[0].offset = -1
        if offset >= self.recovery_point:
            return False
        self.recovery_point = self.believed = offset
        return True
