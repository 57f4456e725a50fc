"""Core: which segment of a log its leader copies next to the remote store.

Only closed segments are copied, in order, and none that reaches beyond the last stable offset: what is remote must be
committed, and its aborted transactions known. Segments of a compacted log are copied once they are clean.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class CopyCandidate(NamedTuple):
    """A closed segment of the log."""

    place: int
    """Its index among the segments of the log."""
    base_offset: int
    end_offset: int
    """Inclusive."""


def next_to_copy(
    base_offsets: Sequence[int], last_copied: int, log_start_offset: int, limit_offset: int
) -> CopyCandidate | None:
    """The segment that contains the first offset to copy; None if it cannot be copied yet, or nothing is left.

    `base_offsets` are those of all segments, the last one active. `last_copied` is inclusive, -1 for none (see
    `lineage.last_copied`). `limit_offset` is the last stable offset, or where the clean part of a compacted log ends.
    Records below the log start offset are never copied for their own sake, but the segment with the log start is copied
    whole.
    """
    from_offset = max(last_copied + 1, log_start_offset)
    for place in range(len(base_offsets) - 1):
        next_base_offset = base_offsets[place + 1]
        if next_base_offset > limit_offset:
            return None
        if next_base_offset > from_offset:
            return CopyCandidate(place, base_offsets[place], next_base_offset - 1)
    return None


def bytes_to_copy(segments: Sequence[tuple[int, int]], last_copied: int) -> tuple[int, int]:
    """(number, bytes) of closed segments that are not copied yet. `segments` are (base offset, bytes) of all, the last
    one active; Kafka's RemoteCopyLagSegments and RemoteCopyLagBytes."""
    behind = [
        size_bytes for place, (_, size_bytes) in enumerate(segments[:-1]) if segments[place + 1][0] > last_copied + 1
    ]
    return len(behind), sum(behind)
