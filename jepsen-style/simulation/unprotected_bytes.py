"""The bytes of a log that a damaged disk may not change in a simulation, because no log could detect it.

A power cut may damage what was being written, down to single bits. The leader epoch of a batch lies outside of its CRC,
because leaders write it into batches that clients have made. No other file vouches for it either:
`leader-epoch-checkpoint` is written at the next flush, so it does not know the epochs behind the last one, and the
metadata bound them from above only. Damage by whole sectors never hits an epoch alone: a sector with a part of it also
has the offset and length before it, or bytes behind it that the CRC covers.
"""

from __future__ import annotations

from barnabas.protocol.records.batch import CorruptBatch, iterate_batches
from barnabas.storage.names import LOG_SUFFIX

_EPOCH_BYTES = range(12, 16)
"""Position of the leader epoch in a batch."""


def leader_epochs(name: str, content: bytearray) -> frozenset[int]:
    """Positions of the leader epochs of all batches in a segment; empty for any other file."""
    if not name.endswith(LOG_SUFFIX):
        return frozenset()
    positions: list[int] = []
    try:
        for position, _ in iterate_batches(content):
            positions += [position + at for at in _EPOCH_BYTES]
    except CorruptBatch:
        pass  # damaged before: recovery will cut it
    return frozenset(positions)
