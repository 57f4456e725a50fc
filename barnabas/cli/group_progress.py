"""Committed offset, end offset and lag of a group in each partition that it has committed or is assigned."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.client.admin import Admin
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

    @property
    def lag(self) -> int | None:
        """Offsets between the committed one and the end; None if either is unknown."""
        return None if self.committed is None or self.end is None else max(0, self.end - self.committed)

    def to_json(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "partition": self.partition,
            "committed": self.committed,
            "end": self.end,
            "lag": self.lag,
        }


async def committed_offsets(admin: Admin, group: str) -> dict[TopicPartition, int]:
    """Committed offsets by partition, sorted. Raises `KafkaError`."""
    found = (await admin.list_consumer_group_offsets(group))[group]
    return {partition: offset.offset for partition, offset in sorted(found.items()) if offset is not None}


async def progress_of(admin: Admin, group: str, assigned: Iterable[TopicPartition] = ()) -> list[Progress]:
    """Progress of all partitions with a committed offset and of those `assigned`. Raises `KafkaError`."""
    from barnabas.client.admin import OffsetSpec

    committed = await committed_offsets(admin, group)
    partitions = sorted({*committed, *assigned})
    ends = (await admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.latest()))).succeeded
    return [Progress(*each, committed.get(each), ends[each].offset if each in ends else None) for each in partitions]
