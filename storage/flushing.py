"""The part of a log that is not durable yet, and the slow work of flushing it.

A `FlushWork` is created by the log's owner and may run in any thread: it holds open files and values and reads nothing
that may change meanwhile. Its order guarantees that no crash leaves a later item without the earlier ones: data,
indexes, producer snapshots, leader epochs, and finally the names of new files.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence

from barnabas.runtime.world import Disk, File
from barnabas.storage.checkpoints import (
    LEADER_EPOCH_CHECKPOINT,
    format_epochs,
    put_in_place,
    write_aside,
    write_durably,
)
from barnabas.storage.folder import Folder
from barnabas.storage.gap_epochs import GapEpochs
from barnabas.storage.leader_epochs import LeaderEpochs
from barnabas.storage.producer_snapshots import SnapshotFiles
from barnabas.storage.segment import Segment
from barnabas.storage.shortage import is_shortage, lacks_descriptors


class FlushWork:
    """Call it to make everything below `offset` durable. Raises OSError."""

    __slots__ = ("_folder", "epochs", "failure", "files", "offset", "rolled", "snapshots", "syncs_directory")

    def __init__(self, folder: Folder, offset: int, rolled: Sequence[Segment]) -> None:
        self._folder = folder
        self.offset = offset
        self.rolled = tuple(rolled)
        """Segments that were closed when this was created, so that it makes all of them durable."""
        self.files: list[File] = []
        self.snapshots: list[int] = []
        """Offsets of producer snapshots."""
        self.epochs: list[tuple[int, int]] | None = None
        """(epoch, start offset) to write, if they changed."""
        self.syncs_directory = False
        self.failure: OSError | None = None
        """Error of a sync. The kernel reports it once: another sync would succeed without writing the data."""

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
            write_durably(disk, self._epochs_path, format_epochs(self.epochs))
        elif self.syncs_directory:
            disk.sync_directory(self._folder.path)

    def put_epochs_aside(self) -> None:
        """For work whose caller syncs: write changed leader epochs to a file that is to replace the present one."""
        if self.epochs is not None:
            write_aside(self._folder.disk, self._epochs_path, format_epochs(self.epochs))

    def place_epochs(self) -> None:
        """After `put_epochs_aside` and a sync. Another one must follow."""
        if self.epochs is not None:
            put_in_place(self._folder.disk, self._epochs_path)

    @property
    def _epochs_path(self) -> str:
        return f"{self._folder.path}/{LEADER_EPOCH_CHECKPOINT}"

    def passes(self, error: OSError) -> bool:
        """True if the error that this raised was a shortage, so that a later attempt may succeed. A failed sync is
        none.
        """
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
    """Maintains the recovery point of one log."""

    __slots__ = (
        "_due_since_ms",
        "_epochs",
        "_folder",
        "_new_names",
        "_pending",
        "_snapshots",
        "believed",
        "gap_epochs",
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
        """Maximum recovery point for a start after a crash, which takes everything before the segment with this offset
        for durable. Above `recovery_point` if more was lost than a crash can explain.
        """
        self.gap_epochs = GapEpochs(folder)
        """Epochs of gaps that recovery may not find in the checkpoint yet."""
        self.gaps_to = 0
        """From here on no batch has a gap before it. Behind the recovery point, recovery after a power loss cannot
        distinguish a gap left by the leader's compaction from lost records, and truncates the log there.
        """
        self.rolled: list[Segment] = []
        """Closed segments that are not known to be durable."""
        self._new_names = 1
        """Number of files created since their directory was last known to be durable."""
        self.unsynced_cuts = 0
        """Number of truncations of the active segment since it was last known to be durable."""
        self.lowest_unsynced_cut: int | None = None
        """Log end after the deepest of them. A power cut may restore what was there from this offset on."""
        self._pending: tuple[FlushWork, int, int] | None = None
        """The unconfirmed work, and the counts of names and truncations that it covers."""
        self._due_since_ms: int | None = None

    def name_added(self) -> None:
        self._new_names += 1

    def _take_new_names(self) -> None:
        self._new_names += self._folder.new_names
        self._folder.new_names = 0

    def sync_names(self) -> None:
        """Make the names of all files durable, synchronously."""
        self._take_new_names()
        if self._new_names:
            self._folder.disk.sync_directory(self._folder.path)
            self._new_names = 0
            if self._pending is not None:
                self._pending = (self._pending[0], 0, self._pending[2])

    def forget(self, segments: Sequence[Segment]) -> None:
        """The segments were removed from the log."""
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
        """Work that makes everything below `offset` durable, including the active segment if it is given. None if
        nothing is left.

        Raises OSError if the previous work did.
        """
        if active is not None and not active.has_file:
            return None  # a log without a record has no files
        work = FlushWork(self._folder, offset, self.rolled)
        if self._pending is not None:
            if self._pending[0].failure is not None:
                raise self._pending[0].failure
            # It may have run or not, so its part is done again.
            work.files += self._pending[0].files
        segments = [*self.rolled, active] if active is not None else self.rolled
        for segment in segments:
            # On a full disk this fails, and then none of the files may be assumed to be durable.
            segment.write_indexes()
        for segment in segments:
            work.files += [file for file in segment.files_to_sync() if file not in work.files]
            if segment.aborted.name_is_new:
                segment.aborted.name_is_new = False
                self._new_names += 1
        self._take_new_names()
        work.snapshots = list(self._snapshots.unsynced)
        work.epochs = self._epochs.entries() if self._epochs.dirty else None
        work.syncs_directory = self._new_names > 0
        if work.is_empty and offset <= self.recovery_point:
            if active is not None:
                # A cut inside a gap has changed no file.
                self.unsynced_cuts, self.lowest_unsynced_cut = 0, None
            return None
        self._pending = (work, self._new_names, self.unsynced_cuts if active is not None else 0)
        return work

    def done(self, offset: int) -> None:
        """The work for `offset` has run; ignored if the log was truncated after its creation."""
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
        # A segment rolled since then may have got records that the work does not cover.
        self.rolled = [segment for segment in self.rolled if segment not in work.rolled]
        done = set(work.snapshots)
        self._snapshots.unsynced = [known for known in self._snapshots.unsynced if known not in done]
        if work.epochs is not None and work.epochs == self._epochs.entries():
            self._epochs.dirty = False

    def settle(self, active: Segment, offset: int) -> None:
        """Before a roll or a snapshot at the log end `offset`: synchronously make durable what must be durable then.

        A power cut may undo an unsynced truncation; with a new segment behind it, the log would then mix truncated and
        new records. And with a new segment at or below the recovery point, no start would check the indexes that
        recovery rebuilt.
        """
        if self.unsynced_cuts or offset <= self.believed:
            work = self.work(active, offset)
            if work is not None:
                work()
                self.done(offset)

    def cut(self, offset: int) -> bool:
        """The log is about to lose everything from `offset` on. Returns whether that was durable."""
        self.unsynced_cuts += 1
        before = self.lowest_unsynced_cut
        self.lowest_unsynced_cut = offset if before is None else min(before, offset)
        self.gaps_to = min(self.gaps_to, offset)
        if self._pending is not None:
            # Its syncs remain useful, but its offset must not become the recovery point.
            self._pending[0].offset = -1
        if offset >= self.recovery_point:
            return False
        self.recovery_point = self.believed = offset
        return True
