"""Core: which remote segments of a compacted log its leader cleans again, and in which groups.

What is copied is clean up to some offset; later records void some of its own. As on a disk, the remote part is clean up
to the least of these offsets, then dirty: the dirty part has the keys that the whole of it does not know yet. When the
dirty part is large enough, a pass maps its keys, then goes over all segments from the log start on, group by group. A
group that loses records, or that has several segments, is replaced by one new segment. Each replacement is one record
(COPY_SEGMENT_FINISHED), so readers find the old segments or the new one.

A tombstone may only go when nothing older of its key is left. Groups are replaced from the log start on, so when its
group is written, all before it is clean up to behind the tombstone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from barnabas.runtime.at_once import Stepwise
from barnabas.settings.topic import TopicConfig
from barnabas.storage.leader_epochs import LeaderEpochs
from barnabas.storage.remote.compacted_copy import decode_copy
from barnabas.storage.remote.lineage import belongs_to
from barnabas.storage.remote.partition_segments import PartitionSegments
from barnabas.storage.remote.segment import RemoteSegment

SEGMENTS_IN_A_STEP = 200
_MOST_RELATIVE_OFFSET = 0x7FFF_FFFF


class RowPart(NamedTuple):
    """A remote segment, and the part of it that readers see."""

    segment: RemoteSegment
    end_offset: int
    """Exclusive: here the next segment begins, or the row ends."""


@dataclass(slots=True)
class Row:
    """The remote segments of a log from its start on, without a gap."""

    parts: list[RowPart] = field(default_factory=list)
    cleaned_to: int = 0
    """All of them are clean up to this offset."""

    @property
    def end_offset(self) -> int:
        return self.parts[-1].end_offset if self.parts else 0

    @property
    def dirty_parts(self) -> Sequence[RowPart]:
        return [part for part in self.parts if part.end_offset > self.cleaned_to]

    @property
    def dirty_ratio(self) -> float:
        whole = sum(part.segment.size_bytes for part in self.parts)
        return sum(part.segment.size_bytes for part in self.dirty_parts) / whole if whole else 0.0

    def is_worth_it(self, config: TopicConfig) -> bool:
        return self.cleaned_to < self.end_offset and self.dirty_ratio > config.min_cleanable_dirty_ratio


class LogState(NamedTuple):
    """The log as its leader knows it."""

    epochs: LeaderEpochs
    log_start_offset: int
    log_end_offset: int


def readable_row(segments: PartitionSegments, log: LogState) -> Stepwise[Row]:
    """In steps. It ends before the first segment that does not belong to the log as a whole: an unclean election can
    leave such ones, and what is behind them is not cleaned again."""
    epochs, found = log.epochs.entries(), list[RemoteSegment]()
    cleaned_to, expected = log.log_end_offset, log.log_start_offset
    seen: set[bytes] = set()
    count = 0
    for epoch, _ in epochs:
        for segment in segments.referenced(epoch):
            count += 1
            if count % SEGMENTS_IN_A_STEP == 0:
                yield None
            if segment.segment_id in seen or segment.end_offset < log.log_start_offset:
                continue
            seen.add(segment.segment_id)
            is_next = segment.start_offset <= expected <= segment.end_offset
            if not (is_next and segments.is_readable(segment) and belongs_to(segment, epochs, log.log_end_offset)):
                return _row_of(found, cleaned_to)
            found.append(segment)
            cleaned_to = min(cleaned_to, cleaned_to_in(segment, log))
            expected = segment.end_offset + 1
    yield None
    return _row_of(found, cleaned_to)


def cleaned_to_in(segment: RemoteSegment, log: LogState) -> int:
    """The offset up to which a segment is clean in this log."""
    copy = decode_copy(segment.custom_metadata)
    return 0 if copy is None else copy.valid_to(log.epochs, log.log_end_offset)


def _row_of(found: Sequence[RemoteSegment], cleaned_to: int) -> Row:
    ends = [each.start_offset for each in found[1:]] + [each.end_offset + 1 for each in found[-1:]]
    return Row([RowPart(each, end) for each, end in zip(found, ends, strict=True)], cleaned_to if found else 0)


def groups_of(parts: Sequence[RowPart], segment_bytes: int) -> list[Sequence[RowPart]]:
    """Runs of segments that fit into one, at least one each. Segments that overlap stay together: the one that replaces
    a group covers all of it."""
    groups: list[list[RowPart]] = []
    size_bytes = 0
    for place, part in enumerate(parts):
        overlaps = place > 0 and part.segment.start_offset <= parts[place - 1].segment.end_offset
        size_bytes += part.segment.size_bytes
        fits = size_bytes <= segment_bytes and (
            bool(groups) and part.segment.end_offset - groups[-1][0].segment.start_offset <= _MOST_RELATIVE_OFFSET
        )
        if groups and (overlaps or fits):
            groups[-1].append(part)
        else:
            groups.append([part])
            size_bytes = part.segment.size_bytes
    return [tuple(group) for group in groups]


def epochs_of(group: Sequence[RowPart]) -> tuple[tuple[int, int], ...]:
    """The leader epochs of the segment that replaces a group: in each of them it has the offsets of the group."""
    starts: dict[int, int] = {}
    for part in group:
        for epoch, start_offset in part.segment.leader_epochs:
            starts.setdefault(epoch, start_offset)
    return tuple(sorted(starts.items()))
