"""Puts a copy in the place of the segments it was made from, so that no crash leaves neither or a mixture.

Kafka's protocol, with a sync of the directory after each step, since a power cut may undo any rename that was not
synced while it keeps a later one:

1. The copy's files are there as `.cleaned`: else an index that became a `.swap` next would be taken for one of step 5,
   should all names of its log be lost.
2. `.cleaned` becomes `.swap`. Before that is durable, recovery throws the copy away; afterwards it finishes the
   swap.
3. The files of the replaced segments become `.deleted`.
4. The copy's `.log` takes its name,
5. then its indexes. As long as the log is a `.swap`, every other file of that name is an old one.

From the moment that a swap begins its log is read from the copy, whatever names the files have by then.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from storage.flushing import Flusher
from storage.names import CLEANED_SUFFIX, LOG_SUFFIX, SEGMENT_SUFFIXES, SWAP_SUFFIX
from storage.producer_tracker import ProducerTracker
from storage.removal import Removals
from storage.segment import Folder, Segment
from storage.segment_list import SegmentList


@dataclass(slots=True)
class CleanedFolder(Folder):
    """Where a copy is until it takes its place: beside the log's segments, under a name of its own."""

    home: Folder

    @classmethod
    def beside(cls, home: Folder) -> CleanedFolder:
        return cls(home.disk, home.path, home)

    def file(self, base_offset: int, suffix: str) -> str:
        return self.home.file(base_offset, suffix) + CLEANED_SUFFIX


class SegmentSwap:
    """The part of a swap that concerns the disk. Call it, from any thread; twice is no harm. Raises OSError."""

    __slots__ = ("_folder", "_lock", "_steps", "copy", "due_ms", "replaced")

    def __init__(self, folder: Folder, copy: Segment, replaced: Sequence[Segment], due_ms: int) -> None:
        """All files of `copy` are durable, their names aside, and open."""
        self.copy = copy
        self.replaced = replaced
        self.due_ms = due_ms
        """When the replaced files may go."""
        self._folder = folder
        # The log's owner must be able to wait for a swap that has begun elsewhere, before it cuts the log.
        self._lock = threading.Lock()
        indexes = SEGMENT_SUFFIXES[1:]
        self._steps: list[Callable[[], None]] = [
            lambda: None,
            lambda: self._rename(SEGMENT_SUFFIXES, CLEANED_SUFFIX, SWAP_SUFFIX),
            self._delete_replaced,
            lambda: self._rename((LOG_SUFFIX,), SWAP_SUFFIX, ""),
            lambda: self._rename(indexes, SWAP_SUFFIX, ""),
        ]

    def __call__(self) -> None:
        with self._lock:
            while self._steps:
                self._steps[0]()
                self._folder.disk.sync_directory(self._folder.path)
                del self._steps[0]

    def _rename(self, kinds: Sequence[str], before: str, after: str) -> None:
        disk = self._folder.disk
        for kind in kinds:
            path = self._folder.file(self.copy.base_offset, kind)
            if disk.exists(path + before):
                disk.rename(path + before, path + after)

    def _delete_replaced(self) -> None:
        for segment in self.replaced:
            segment.mark_deleted()


class SegmentSwaps:
    """Of one log, one after the other: compaction makes copies here, and has them take the place of segments."""

    __slots__ = ("_flusher", "_folder", "_removals", "_segments", "_tracker", "unfinished")

    def __init__(
        self,
        folder: Folder,
        segments: SegmentList,
        flusher: Flusher,
        removals: Removals,
        tracker: ProducerTracker | None,
    ) -> None:
        self._folder = folder
        self._segments = segments
        self._flusher = flusher
        self._removals = removals
        self._tracker = tracker
        self.unfinished: SegmentSwap | None = None
        """One that has begun, and may have failed: its copy is read from already. It is to be run again before anything
        else is copied: the files of the next copy have the names that its own may still have.
        """

    def begin_copy(self, base_offset: int, index_max_bytes: int, now_ms: int) -> Segment:
        """An empty segment that may take the place of others. Raises OSError."""
        copy = Segment.create(CleanedFolder.beside(self._folder), base_offset, index_max_bytes, now_ms)
        copy.hold_open()
        return copy

    def replace(self, replaced: Sequence[Segment], copy: Segment, due_ms: int) -> SegmentSwap | None:
        """Read from `copy` from now on, which is durable and holds what is left of `replaced`, whose files may go at
        `due_ms`; None if those are not all here any more. What it gives is to be run, anywhere; then call `finished`.
        """
        place = self._segments.find(replaced)
        if place is None:
            return None
        self.settle()
        self._segments.replace(place, len(replaced), copy)
        self._flusher.forget(replaced)
        self.unfinished = SegmentSwap(self._folder, copy, replaced, due_ms)
        return self.unfinished

    def finished(self, swap: SegmentSwap) -> None:
        """It has run: the files have their names."""
        if self.unfinished is not swap:
            return
        self.unfinished = None
        swap.copy.move_to(self._folder)
        self._removals.condemn(swap.replaced, swap.due_ms)
        if self._tracker is not None:
            self._tracker.segments_deleted(swap.replaced[1:])

    def settle(self) -> None:
        """Waits for the one that has begun, perhaps elsewhere. Raises OSError."""
        if self.unfinished is not None:
            self.unfinished()
            self.finished(self.unfinished)
