"""Delayed removal of the files of segments that left their log, while readers may still use them.

`PartitionLog` decides which ones and why.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from barnabas.storage.folder import Folder
from barnabas.storage.segment import Segment


class SegmentRemoval:
    """Call it in any thread; a second call does no harm. Raises OSError."""

    __slots__ = ("_folder", "_lock", "segments")

    def __init__(self, folder: Folder, segments: Sequence[Segment]) -> None:
        self.segments = segments
        """Empty when it has run."""
        self._folder = folder
        # The log's owner must be able to wait for a removal that began in another thread.
        self._lock = threading.Lock()

    def __call__(self) -> None:
        with self._lock:
            if self.segments:
                # A durable rename implies that all earlier ones happened, but only as long as its file exists.
                self._folder.disk.sync_directory(self._folder.path)
                for segment in self.segments:
                    segment.remove_files()
                self.segments = ()


class Removals:
    """Segments that were removed from one log, until their files are deleted."""

    __slots__ = ("_condemned", "_folder", "_given_out")

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._condemned: list[tuple[int, Segment]] = []
        """(due time, segment)"""
        self._given_out: list[SegmentRemoval] = []
        """Some of them may have run."""

    @property
    def condemned(self) -> list[Segment]:
        """Segments whose removal has not been started."""
        return [segment for _, segment in self._condemned]

    def condemn(self, segments: Sequence[Segment], due_ms: int) -> None:
        """Remove their files when they are due."""
        self._condemned += [(due_ms, segment) for segment in segments]

    def due(self, now_ms: int) -> SegmentRemoval | None:
        """Work that removes the files that are due; None if there are none."""
        if not self._condemned:
            return None
        due = [segment for due_ms, segment in self._condemned if due_ms <= now_ms]
        if not due:
            return None
        self._condemned = [entry for entry in self._condemned if entry[0] > now_ms]
        removal = SegmentRemoval(self._folder, due)
        self._given_out = [each for each in self._given_out if each.segments] + [removal]
        return removal

    def finish(self) -> None:
        """Remove everything, synchronously. The log may be about to grow at its front: a start that found those files
        would take the new ones for older segments, and delete them. Durable with the next sync of the directory. Raises
        OSError.
        """
        for removal in [*self._given_out, SegmentRemoval(self._folder, self.condemned)]:
            removal()
        self._given_out, self._condemned = [], []
