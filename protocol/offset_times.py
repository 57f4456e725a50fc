"""A tagged field of ListOffsets for timestamps of records after given offsets, which give lags in time.

Kafka has no request for them. A broker of Barnabas answers the field; every other one ignores it (KIP-482).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

TIMES_TAG = 47_658
"""In a partition of ListOffsets: offsets, int64 each. In the response: the last stable offset, and a timestamp for each
of the offsets."""
TIMES_AT_ONCE = 1_000
"""Most offsets that are looked up for one request; each takes some tens of microseconds."""

CAUGHT_UP = -1
"""In place of a timestamp: no record follows that a consumer could read."""
UNKNOWN = -2
"""In place of a timestamp: the record has none, or it cannot be read."""


class PartitionEnds(NamedTuple):
    """The ends of a partition, and the timestamps of the next records after some offsets."""

    high_watermark: int
    last_stable_offset: int
    times: Mapping[int, int]
    """By offset: milliseconds, `CAUGHT_UP` or `UNKNOWN`."""


def encode_offsets(offsets: Sequence[int]) -> bytes:
    return struct.pack(f">{len(offsets)}q", *offsets)


def decode_offsets(data: bytes) -> Sequence[int]:
    """The complete int64s in `data`."""
    return struct.unpack_from(f">{len(data) // 8}q", data)


def decode_times(high_watermark: int, data: bytes, offsets: Sequence[int]) -> PartitionEnds:
    """Reads the tagged field of a response; `offsets` are those of the request."""
    if len(data) < 8:
        # The leader does not know this field.
        return PartitionEnds(high_watermark, high_watermark, {})
    last_stable_offset, *times = decode_offsets(data)
    return PartitionEnds(high_watermark, last_stable_offset, dict(zip(offsets, times, strict=False)))
