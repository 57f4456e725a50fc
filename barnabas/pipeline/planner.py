"""Core: offset ranges to tasks, and the offsets of a micro-batch.

Counts offsets, not records: records removed by compaction, and markers, are not known here.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from barnabas.client.metadata import TopicPartition

Offsets = Mapping[TopicPartition, int]


class OffsetRange(NamedTuple):
    """Offsets of one partition, without `until_offset`."""

    partition: TopicPartition
    from_offset: int
    until_offset: int

    @property
    def size(self) -> int:
        return max(0, self.until_offset - self.from_offset)


def ranges_between(starts: Offsets, ends: Offsets) -> list[OffsetRange]:
    """The non-empty ranges, in the order of topics and partitions."""
    found = [OffsetRange(partition, starts[partition], ends[partition]) for partition in sorted(ends)]
    return [each for each in found if each.size]


def split(
    ranges: Sequence[OffsetRange], min_partitions: int | None = None, max_records: int | None = None
) -> list[OffsetRange]:
    """The tasks: one for each range, several for a range larger than `max_records`, and more for the larger ranges
    until there are about `min_partitions`.
    """
    sizes = [each.size for each in ranges]
    parts = [1 if max_records is None else -(-size // max_records) for size in sizes]
    total = sum(sizes)
    if min_partitions is not None and total and sum(parts) < min_partitions:
        # Small ranges stay whole; the others share the remaining tasks by their sizes.
        for index, size in enumerate(sizes):
            parts[index] = max(parts[index], round(size / total * min_partitions), 1)
        while sum(parts) < min_partitions:
            index = max(range(len(parts)), key=lambda each: sizes[each] / parts[each])
            if sizes[index] <= parts[index]:
                break
            parts[index] += 1
    return [piece for each, count in zip(ranges, parts, strict=True) for piece in _cut(each, count)]


def limited(starts: Offsets, ends: Offsets, max_rows: int | None) -> dict[TopicPartition, int]:
    """The ends of a micro-batch of at most `max_rows` offsets. Each partition gets a share in proportion to its
    backlog, so that none starves. At least one offset is taken if there is any.
    """
    waiting = {partition: max(0, ends[partition] - starts[partition]) for partition in sorted(ends)}
    total = sum(waiting.values())
    if max_rows is None or total <= max_rows:
        return {partition: max(ends[partition], starts[partition]) for partition in waiting}
    max_rows = max(1, max_rows)
    shares = {partition: size * max_rows // total for partition, size in waiting.items()}
    left = max_rows - sum(shares.values())
    # The remainder of rounding goes to the partitions that lost most by it; ties are broken by name.
    for partition in sorted(waiting, key=lambda each: (-(waiting[each] * max_rows % total), each))[:left]:
        shares[partition] += 1
    return {partition: starts[partition] + shares[partition] for partition in waiting}


def _cut(each: OffsetRange, count: int) -> list[OffsetRange]:
    """`count` non-empty pieces of almost equal size."""
    count = max(1, min(count, each.size))
    borders = [each.from_offset + each.size * index // count for index in range(count + 1)]
    return [OffsetRange(each.partition, first, until) for first, until in itertools.pairwise(borders)]
