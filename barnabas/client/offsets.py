"""Core: positions in partitions, as users write and read them: committed offsets, and offsets found by time."""

from __future__ import annotations

from typing import NamedTuple


class OffsetAndMetadata(NamedTuple):
    """The position of a group in a partition."""

    offset: int
    """Offset of the next record to read."""
    leader_epoch: int | None = None
    """Leader epoch of the last record read; with it a consumer detects that the log was truncated (KIP-320)."""
    metadata: str = ""
    """Free text that the application stores with the offset."""


class OffsetAndTimestamp(NamedTuple):
    """The first record at or after a time."""

    offset: int
    timestamp_ms: int
    """Timestamp of that record, in milliseconds since the epoch."""
    leader_epoch: int | None = None
