"""Core: custom metadata of a copy of a segment of a compacted log, which says how far it is clean.

Kafka passes custom metadata on as bytes, so the records stay Kafka's. A copy is *clean up to* an offset: no record in
it has a later one with the same key below that offset, in the log of the leader that made the copy.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from barnabas.storage.leader_epochs import LeaderEpochs

_VERSION = 1
_LAYOUT = struct.Struct(">Biq")


class CompactedCopy(NamedTuple):
    leader_epoch: int
    """Epoch in which its broker led when it published this. Once a record of a later epoch is there, it has no effect:
    what the later leader has cleaned must not come back."""
    cleaned_to: int

    def encode(self) -> bytes:
        return _LAYOUT.pack(_VERSION, self.leader_epoch, self.cleaned_to)

    def valid_to(self, epochs: LeaderEpochs, log_end_offset: int) -> int:
        """The offset up to which it is clean in a log with these epochs: after an unclean election the log may have
        other records from some offset on."""
        if self.leader_epoch >= epochs.latest_epoch:
            return min(self.cleaned_to, log_end_offset)
        return min(self.cleaned_to, epochs.end_offset_for(self.leader_epoch, log_end_offset)[1])


def decode_copy(custom_metadata: bytes | None) -> CompactedCopy | None:
    """None for anything else: the copy of a log that is not compacted, or custom metadata of others."""
    if custom_metadata is None or len(custom_metadata) != _LAYOUT.size or custom_metadata[0] != _VERSION:
        return None
    _, leader_epoch, cleaned_to = _LAYOUT.unpack(custom_metadata)
    return CompactedCopy(leader_epoch, cleaned_to)
