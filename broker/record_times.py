"""When the next record after an offset was written: what tells how far behind a reader is, in time.

Read from the heads of batches, never from records. Kafka has no request for it, so brokers ask each other with a tagged
field (KIP-482) in ListOffsets, which everybody else passes over. Knows no groups.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from protocol.records.batch import BATCH_HEADER_BYTES, NO_TIMESTAMP, BatchHeader, read_header
from storage.log import PartitionLog

TIMES_TAG = 47_658
"""In a partition of ListOffsets: offsets, int64 each. In its answer: the last stable offset, and a time for each of the
offsets."""
TIMES_AT_ONCE = 1_000
"""Offsets that are looked up for one request, no more; each takes some tens of microseconds."""

CAUGHT_UP = -1
"""Instead of a time: no record follows that a client would be given."""
UNKNOWN = -2
"""Instead of a time: the record has none, or it cannot be read."""

_MAX_HOPS = 100
"""Batches without records for clients (markers, what compaction emptied) that are passed over before giving up."""


class PartitionEnds(NamedTuple):
    """How far a partition can be read, and the times of the next records after some offsets."""

    high_watermark: int
    last_stable_offset: int
    times: Mapping[int, int]
    """By offset: milliseconds, `CAUGHT_UP` or `UNKNOWN`."""


def ends_of(log: PartitionLog, offsets: Iterable[int], known: Mapping[int, int]) -> PartitionEnds:
    """`known` are times that were found before: what is committed does not change. Raises KafkaError, OSError."""
    high_watermark = log.high_watermark
    times = {}
    for offset in offsets:
        if offset >= high_watermark:
            times[offset] = CAUGHT_UP
            continue
        time_ms = known.get(offset, CAUGHT_UP)
        times[offset] = time_of_next(log, offset) if time_ms < 0 else time_ms
    return PartitionEnds(high_watermark, log.last_stable_offset, times)


def time_of_next(log: PartitionLog, offset: int) -> int:
    """The time of the first record at or after `offset` that is committed. Raises KafkaError, OSError."""
    offset = max(offset, log.log_start_offset)
    for _ in range(_MAX_HOPS):
        found = log.read(offset, 1, log.high_watermark)
        if found is None:
            return CAUGHT_UP
        header = read_header(found.file.pread(min(found.size_bytes, BATCH_HEADER_BYTES), found.position))
        if not header.is_control and header.records_count != 0:
            return _time_within(header, offset)
        offset = header.next_offset
    return UNKNOWN


def _time_within(header: BatchHeader, offset: int) -> int:
    """Of a record in the middle of a batch: in proportion between its first and its last."""
    latest = header.max_timestamp
    if latest == NO_TIMESTAMP:
        return UNKNOWN
    first = header.base_timestamp
    if header.is_log_append_time or header.has_delete_horizon or not 0 <= first < latest:
        return latest
    if offset <= header.base_offset:
        return first
    return first + (latest - first) * (offset - header.base_offset) // max(header.last_offset_delta, 1)


# -- from broker to broker


def encode_offsets(offsets: Sequence[int]) -> bytes:
    return struct.pack(f">{len(offsets)}q", *offsets)


def decode_offsets(data: bytes) -> Sequence[int]:
    """As many whole ones as there are."""
    return struct.unpack_from(f">{len(data) // 8}q", data)


def told_of(log: PartitionLog, asked: bytes) -> Generator[None, Any, bytes]:
    """What goes with the high watermark into the answer for `asked`; one look-up is one step. Raises KafkaError,
    OSError."""
    times = []
    for offset in decode_offsets(asked):
        times.append(ends_of(log, [offset], {}).times[offset])
        yield None
    return encode_offsets([log.last_stable_offset, *times])


def understood(high_watermark: int, told: bytes, offsets: Sequence[int]) -> PartitionEnds:
    """`offsets` are those that were asked for."""
    if len(told) < 8:
        # Whoever leads the partition does not know this field.
        return PartitionEnds(high_watermark, high_watermark, {})
    last_stable_offset, *times = decode_offsets(told)
    return PartitionEnds(high_watermark, last_stable_offset, dict(zip(offsets, times, strict=False)))
