"""Core: the remote segments of a partition beside the leader epochs of its log.

A remote segment may have been copied by a leader whose records did not survive. Only what agrees with the epochs of the
log belongs to the partition.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.storage.leader_epochs import UNDEFINED_EPOCH, LeaderEpochs
from barnabas.storage.remote.partition_segments import PartitionSegments
from barnabas.storage.remote.segment import RemoteSegment

Epochs = Sequence[tuple[int, int]]
"""(epoch, start offset), oldest first."""

PROVEN_IN_A_STEP = 1_000
"""Segments that `proven_end` should look up in one step of the event loop."""


def epochs_between(epochs: Epochs, start_offset: int, end_offset: int) -> tuple[tuple[int, int], ...]:
    """The epochs of a log in a segment with offsets from `start_offset` up to, but without, `end_offset`; the first one
    begins with the segment."""
    found: list[tuple[int, int]] = []
    for epoch, offset in epochs:
        if offset >= end_offset:
            break
        if offset <= start_offset:
            found = [(epoch, start_offset)]
        else:
            found.append((epoch, offset))
    return tuple(found)


def last_copied(epochs: LeaderEpochs, log_end_offset: int, segments: PartitionSegments) -> int:
    """Last offset of the log that was ever copied in its newest epoch with copies, inclusive; -1 if there is none.

    It may have expired since. `proven_end` says what can be read now.
    """
    for epoch, _ in reversed(epochs.entries()):
        highest_offset = segments.highest_offset(epoch)
        if highest_offset is not None:
            _, end_offset = epochs.end_offset_for(epoch, log_end_offset)
            return min(highest_offset, end_offset - 1)
    return -1


def proven_end(
    epochs: LeaderEpochs,
    log_end_offset: int,
    segments: PartitionSegments,
    from_offset: int,
    most_steps: int = 1 << 62,
) -> int:
    """The offset up to which all records of the log from `from_offset` on can be read remotely, exclusive. After
    `most_steps` segments it may be less: then go on from there."""
    offset = from_offset
    while offset < log_end_offset and most_steps > 0:
        most_steps -= 1
        epoch = epochs.epoch_for_offset(offset)
        if epoch == UNDEFINED_EPOCH:
            break
        segment = segments.segment_for(epoch, offset)
        if segment is None:
            break
        _, epoch_end_offset = epochs.end_offset_for(epoch, log_end_offset)
        offset = min(segment.end_offset_of(epoch) + 1, epoch_end_offset)
    return offset


def first_readable(epochs: Epochs, segments: PartitionSegments) -> int | None:
    """Start offset of the oldest readable remote segment of the log; None if there is none."""
    for epoch, _ in epochs:
        offset = segments.first_offset(epoch)
        if offset is not None:
            return offset
    return None


def belongs_to(segment: RemoteSegment, epochs: Epochs, log_end_offset: int) -> bool:
    """True if the log has the same epochs as `segment` in its offsets, and reaches beyond it.

    The log may begin in the middle of the segment: epochs before its own first one are not compared.
    """
    if not epochs or segment.end_offset >= log_end_offset:
        return False
    first_epoch, _ = epochs[0]
    starts = dict(epochs)
    own = [(epoch, start) for epoch, start, _ in segment.epoch_ranges() if epoch >= first_epoch]
    if not own or any(epoch not in starts for epoch, _ in own):
        return False
    for place, (epoch, start_offset) in enumerate(own):
        if place and start_offset != starts[epoch]:
            return False
        if not place and epoch != first_epoch and start_offset < starts[epoch]:
            return False
    # Nothing of another epoch lies between, nor before the end.
    inside = [(epoch, offset) for epoch, offset in epochs if own[0][0] < epoch and offset <= segment.end_offset]
    return inside == own[1:]
