"""Removes the files of segments that are no part of their log any more, once nobody is expected to read them.

Knows files and when they are due; why they go is `PartitionLog`'s.
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


class Removals:
    """Of one log: the segments that were taken out of it, until their files are gone."""

    __slots__ = ("_condemned", "_folder", "_given_out")

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._condemned: list[tuple[int, Segment]] = []
        """(when it is due, which one)"""
        self._given_out: list[SegmentRemoval] = []
        """Some may have run."""

    @property
    def condemned(self) -> list[Segment]:
        """Whose removal nobody was given yet."""
        return [segment for _, segment in self._condemned]

    def condemn(self, segments: Sequence[Segment], due_ms: int) -> None:
        """Their files are to go, once it is time."""
        self._condemned += [(due_ms, segment) for segment in segments]

    def due(self, now_ms: int) -> SegmentRemoval | None:
        """What removes the files that are due; None if none are."""
        due = [segment for due_ms, segment in self._condemned if due_ms <= now_ms]
        if not due:
            return None
        self._condemned = [entry for entry in self._condemned if entry[0] > now_ms]
        removal = SegmentRemoval(self._folder, due)
        self._given_out = [each for each in self._given_out if each.segments] + [removal]
        return removal

    def finish(self) -> None:
        """Remove everything, here and now. The log is to go on before it, perhaps: a start that found those files
        would take that for older still, and finish deleting it. Durable with the next sync of the directory. Raises
        OSError.
        """
        for removal in [*self._given_out, SegmentRemoval(self._folder, self.condemned)]:
            removal()
        self._given_out, self._condemned = [], []
