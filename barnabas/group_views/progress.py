"""Committed offset, end offset and lag of a group in each partition that it has committed or is assigned.

The committed offset of a share group is its start offset: all records before it are processed.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.client.admin import Admin, SharePartitionOffset
    from barnabas.client.cluster import TopicPartition


@dataclass(frozen=True, slots=True)
class Progress:
    """Offsets of a group in one partition."""

    topic: str
    partition: int
    committed: int | None
    """None if nothing is committed."""
    end: int | None
    """None if the partition's leader did not answer."""
    lag: int | None
    """Offsets between the committed one and the end; records after the start offset that a share group has not
    processed. None if unknown."""
    lag_seconds: float | None = None
    """Age of the first record from the committed offset on; 0 if there is no lag. None if unknown, as on Apache
    Kafka."""

    def to_json(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "partition": self.partition,
            "committed": self.committed,
            "end": self.end,
            "lag": self.lag,
            "lag_seconds": self.lag_seconds,
        }


async def committed_offsets(admin: Admin, group: str) -> dict[TopicPartition, int]:
    """Committed offsets by partition, sorted. Raises `KafkaError`."""
    found = (await admin.list_consumer_group_offsets(group))[group]
    return {partition: offset.offset for partition, offset in sorted(found.items()) if offset is not None}


async def start_offsets(admin: Admin, group: str) -> dict[TopicPartition, SharePartitionOffset]:
    """Start offsets of a share group by partition, sorted. Raises `KafkaError`."""
    found = (await admin.list_share_group_offsets(group))[group]
    return {partition: offset for partition, offset in sorted(found.items()) if offset is not None}


async def known_offsets(admin: Admin, group: str, *, is_shared: bool) -> dict[TopicPartition, int]:
    """Committed offsets, or the start offsets of a share group, sorted. Raises `KafkaError`."""
    if not is_shared:
        return await committed_offsets(admin, group)
    return {partition: offset.start_offset for partition, offset in (await start_offsets(admin, group)).items()}


async def progress_of(
    admin: Admin, group: str, assigned: Iterable[TopicPartition] = (), *, is_shared: bool = False
) -> list[Progress]:
    """Progress of all partitions with a committed offset and of those `assigned`. Raises `KafkaError`."""
    shared = await start_offsets(admin, group) if is_shared else {}
    committed = {each: offset.start_offset for each, offset in shared.items()}
    if not is_shared:
        committed = await committed_offsets(admin, group)
    positions = {each: committed.get(each, 0) for each in sorted({*committed, *assigned})}
    lags = (await admin.list_partition_lags(positions)).succeeded
    now_ms = time.time_ns() // 1_000_000

    def progress(partition: TopicPartition) -> Progress:
        offset, found = committed.get(partition), lags.get(partition)
        end, lag, seconds = None if found is None else found.end_offset, None, None
        if found is not None and offset is not None:
            lag, seconds = found.records, found.seconds(now_ms)
        if is_shared:
            lag = shared[partition].lag if partition in shared else None
            seconds = 0.0 if lag == 0 else seconds
        return Progress(*partition, offset, end, lag, seconds)

    return [progress(each) for each in positions]
