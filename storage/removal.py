"""Removes the files of segments that are no part of their log any more, once nobody is expected to read them.

Knows files only; when they are due is `PartitionLog`'s.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from storage.segment import Folder, Segment


class SegmentRemoval:
    """Call it, from any thread; twice is no harm. Raises OSError."""

    __slots__ = ("_folder", "_lock", "segments")

    def __init__(self, folder: Folder, segments: Sequence[Segment]) -> None:
        self.segments = segments
        """None of them when it has run."""
        self._folder = folder
        # The log's owner must be able to wait for what has begun elsewhere.
        self._lock = threading.Lock()

    def __call__(self) -> None:
        with self._lock:
            if self.segments:
                # A rename that is durable says that all before it happened, too, but only as long as it is there.
                self._folder.disk.sync_directory(self._folder.path)
                for segment in self.segments:
                    segment.remove_files()
                self.segments = ()
