"""Core: how far a remote segment agrees with the log of the present leader.

A segment belongs to the leader that copied it. After an unclean election the log of the next leader may leave that one
in the middle of the segment: what follows in the segment was never in the log.
"""

from __future__ import annotations

from barnabas.storage.leader_epochs import LeaderEpochs
from barnabas.storage.remote.segment import RemoteSegment


def shared_end(segment: RemoteSegment, offset: int, epochs: LeaderEpochs, log_end_offset: int) -> int:
    """The offset after the last one that the segment and a log with these epochs share, from `offset` on, which is in
    both. Records of the same offset and leader epoch are the same; so are all between two such records."""
    epoch = epochs.epoch_for_offset(offset)
    while True:
        own_end = epochs.end_offset_for(epoch, log_end_offset)[1]
        copied_end = segment.end_offset_of(epoch) + 1
        if own_end != copied_end or copied_end > segment.end_offset:
            return min(own_end, copied_end)
        epoch = epochs.epoch_for_offset(own_end)
        if (epoch, own_end) not in segment.leader_epochs:
            return own_end
