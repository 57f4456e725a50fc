"""Core: counters of what a broker copies to the remote store and deletes there, for its metrics, by topic."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class RemoteTraffic:
    """Numbers that only grow, counted while this broker leads."""

    copied_bytes: Counter[str] = field(default_factory=Counter)
    copies: Counter[str] = field(default_factory=Counter)
    """Attempts to copy a segment."""
    failed_copies: Counter[str] = field(default_factory=Counter)
    deletions: Counter[str] = field(default_factory=Counter)
    """Attempts to delete a segment."""
    failed_deletions: Counter[str] = field(default_factory=Counter)
    passes: Counter[str] = field(default_factory=Counter)
    """Passes of compaction over remote segments that came to their end."""
    failed_passes: Counter[str] = field(default_factory=Counter)
    """Those that an error ended; not those of a leader that was deposed."""
    replaced_bytes: Counter[str] = field(default_factory=Counter)
    """In segments that compaction has replaced."""
    replacing_bytes: Counter[str] = field(default_factory=Counter)
    """In the segments that took their place."""
    pass_ms: Counter[str] = field(default_factory=Counter)
    """Time spent on passes, finished or not."""
    throttled_ms: int = 0
    """Time for which copies waited for their quota."""


@dataclass(slots=True)
class PartitionGauges:
    """State of one partition, as its leader saw it last."""

    copy_lag_bytes: int = 0
    """In closed segments that are not copied yet."""
    copy_lag_segments: int = 0
    delete_lag_bytes: int = 0
    """In segments that are to be deleted."""
    delete_lag_segments: int = 0
    known_segments: int = 0
    """Segments that the metadata knows, in any state."""
    remote_bytes: int = 0
    dirty_share: float = 0.0
    """The part of the remote bytes that was copied since the last pass of compaction, 0 to 1."""
    computation_ms: int = 0
    """Time that the last decision about expiry took."""
