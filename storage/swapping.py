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

Knows names; who reads from what meanwhile is `PartitionLog`'s.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from storage.names import CLEANED_SUFFIX, LOG_SUFFIX, SEGMENT_SUFFIXES, SWAP_SUFFIX
from storage.segment import Folder, Segment


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
