"""Replaces segments by their compacted copy, so that no crash leaves neither or a mixture.

Kafka's protocol, with a sync of the directory after each step, since a power cut may undo an unsynced rename while it
keeps a later one:

1. The copy's files exist as `.cleaned`: otherwise an index that became a `.swap` next would be taken for one of step 5,
should all names of its log be lost.
2. `.cleaned` becomes `.swap`. Before that is durable, recovery removes the copy; afterwards it finishes the swap.
3. The files of the replaced segments become `.deleted`.
4. The copy's `.log` gets its final name,
5. then its indexes. As long as the log is a `.swap`, every other file with that base offset is an old one.

From the start of a swap the log is read from the copy, whatever the current names of its files are.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from barnabas.storage.flushing import Flusher
from barnabas.storage.folder import Folder
from barnabas.storage.names import CLEANED_SUFFIX, LOG_SUFFIX, SEGMENT_SUFFIXES, SWAP_SUFFIX
from barnabas.storage.producer_tracker import ProducerTracker
from barnabas.storage.segment import Segment
from barnabas.storage.segment_list import SegmentList
from barnabas.storage.segment_removal import Removals


@dataclass(slots=True)
class CleanedFolder(Folder):
    """Directory of a copy until it is swapped in: beside the log's segments, with names of its own. Its files stay
    open, because their names change meanwhile.
    """

    home: Folder = field(kw_only=True)

    @classmethod
    def beside(cls, home: Folder) -> CleanedFolder:
        return cls(home.disk, home.path, home=home)

    def file(self, base_offset: int, suffix: str) -> str:
        return self.home.file(base_offset, suffix) + CLEANED_SUFFIX


class SegmentSwap:
    """The disk part of a swap. Call it in any thread; a second call does no harm. Raises OSError."""

    __slots__ = ("_folder", "_lock", "_steps", "copy", "due_ms", "replaced")

    def __init__(self, folder: Folder, copy: Segment, replaced: Sequence[Segment], due_ms: int) -> None:
        """All files of `copy` are open and durable, except for their names."""
        self.copy = copy
        self.replaced = replaced
        self.due_ms = due_ms
        """Time at which the replaced files may be deleted."""
        self._folder = folder
        # The log's owner must be able to wait for a swap that began in another thread, before it truncates the log.
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
    """Swaps of one log, one after the other: compaction creates copies and has them replace segments."""

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
        """A swap that has begun, and may have failed: its copy is read already. It must be run again before the next
        copy, whose files would get the names that its own may still have.
        """

    def begin_copy(self, base_offset: int, index_max_bytes: int, now_ms: int) -> Segment:
        """An empty segment for a copy. Raises OSError."""
        copy = Segment.create(CleanedFolder.beside(self._folder), base_offset, index_max_bytes, now_ms)
        copy.hold_open()
        return copy

    def replace(self, replaced: Sequence[Segment], copy: Segment, due_ms: int) -> SegmentSwap | None:
        """Read from `copy` from now on, which is durable and holds what is left of `replaced`, whose files may be
        deleted at `due_ms`; None if the log no longer has all of them. The result must be run, in any thread; then call
        `finished`.
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
        """The swap has run: the files have their final names."""
        if self.unfinished is not swap:
            return
        self.unfinished = None
        swap.copy.move_to(self._folder)
        self._removals.condemn(swap.replaced, swap.due_ms)
        if self._tracker is not None:
            self._tracker.segments_deleted(swap.replaced[1:])

    def settle(self) -> None:
        """Wait for a swap that has begun, perhaps in another thread. Raises OSError."""
        if self.unfinished is not None:
            self.unfinished()
            self.finished(self.unfinished)
