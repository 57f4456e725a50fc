"""Places in partitions as users write and read them: committed offsets, and offsets found by time."""

from __future__ import annotations

from typing import NamedTuple


class OffsetAndMetadata(NamedTuple):
    """How far a group has come in a partition."""

    offset: int
    """Of the next record to read."""
    leader_epoch: int | None = None
    """Of the last record that was read; with it a reader notices that the log was cut since (KIP-320)."""
    metadata: str = ""
    """Whatever the application wants to keep beside it."""


class OffsetAndTimestamp(NamedTuple):
    """The first record at or after a time."""

    offset: int
    timestamp_ms: int
    """Of that record; milliseconds since the epoch."""
    leader_epoch: int | None = None
