"""Timestamps of the next record after an offset, which give the lag of a reader in time.

Read from batch headers, never from records. Brokers and clients ask for them with a tagged field in ListOffsets
(`protocol/offset_times.py`). Knows no groups.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import Any

from barnabas.protocol.offset_times import CAUGHT_UP, UNKNOWN, PartitionEnds, decode_offsets, encode_offsets
from barnabas.protocol.records.batch import BATCH_HEADER_BYTES, NO_TIMESTAMP, BatchHeader, read_header
from barnabas.storage.log import PartitionLog

_MAX_HOPS = 100
"""Batches without records for clients (markers, batches that compaction emptied) that are skipped before giving up."""


def ends_of(log: PartitionLog, offsets: Iterable[int], known: Mapping[int, int]) -> PartitionEnds:
    """`known`: times that were found before; committed records do not change. Raises KafkaError, OSError."""
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
    """The timestamp of the first committed record at or after `offset`. Raises KafkaError, OSError."""
    offset = max(offset, log.log_start_offset)
    if offset < log.local_log_start_offset:
        # Only a remote segment has it.
        return UNKNOWN
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
    """The timestamp of a record of the batch, interpolated between the first and the last one."""
    latest = header.max_timestamp
    if latest == NO_TIMESTAMP:
        return UNKNOWN
    first = header.base_timestamp
    if header.is_log_append_time or header.has_delete_horizon or not 0 <= first < latest:
        return latest
    if offset <= header.base_offset:
        return first
    return first + (latest - first) * (offset - header.base_offset) // max(header.last_offset_delta, 1)


# -- over the network


def encode_times(log: PartitionLog, asked: bytes) -> Generator[None, Any, bytes]:
    """The tagged field of the response to `asked`; each lookup is one step. Raises KafkaError, OSError."""
    times = []
    for offset in decode_offsets(asked):
        times.append(ends_of(log, [offset], {}).times[offset])
        yield None
    return encode_offsets([log.last_stable_offset, *times])
