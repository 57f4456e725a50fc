"""Ghosts: what a log must hold for ever, kept outside of all nodes.

Whatever any replica has called committed is written down in a `GhostLog`, byte for byte; every other replica
is held to it. `LogReader` reads the files of a node as they lie on its disk, past its process and its faults.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from barnabas.protocol.records.batch import BATCH_HEADER_BYTES, CorruptBatch, read_header
from barnabas.storage.names import CLEANED_SUFFIX, SWAP_SUFFIX


class Batch(NamedTuple):
    """One batch of a log with its place in it."""

    base_offset: int
    next_offset: int
    leader_epoch: int
    data: bytes

    def __str__(self) -> str:
        return f"[{self.base_offset}, {self.next_offset}) of epoch {self.leader_epoch}, {len(self.data)} bytes"


@dataclass(slots=True)
class GhostLog:
    """Committed batches from offset 0 on, without a gap but for what `start_offset` skips."""

    batches: list[Batch] = field(default_factory=list)
    end_offset: int = 0
    epochs: list[tuple[int, int]] = field(default_factory=list)
    """(epoch, offset of its first record), as the batches have it."""
    _bases: list[int] = field(default_factory=list)

    def take(self, batch: Batch, is_rest: Callable[[Batch, Batch], bool] | None = None) -> str | None:
        """Takes in a batch that a replica considers committed. Returns a contradiction, or None. `is_rest` decides
        whether a batch can be what compaction left of a committed one; None: nothing may be missing.
        """
        if batch.base_offset >= self.end_offset:
            if batch.base_offset > self.end_offset:
                return f"committed {batch}, but what lies before, from {self.end_offset} on, never was"
            if self.epochs and batch.leader_epoch < self.epochs[-1][0]:
                return f"committed {batch} after epoch {self.epochs[-1][0]}"
            self.batches.append(batch)
            self._bases.append(batch.base_offset)
            self.end_offset = batch.next_offset
            if not self.epochs or self.epochs[-1][0] != batch.leader_epoch:
                self.epochs.append((batch.leader_epoch, batch.base_offset))
            return None
        known = self.at(batch.base_offset)
        if known != batch and not (known is not None and is_rest is not None and is_rest(batch, known)):
            return f"holds {batch} where {known} was committed"
        return None

    def at(self, offset: int) -> Batch | None:
        """The committed batch that contains `offset`."""
        place = bisect_right(self._bases, offset) - 1
        if place < 0 or self.batches[place].next_offset <= offset:
            return None
        return self.batches[place]

    def epochs_below(self, offset: int) -> list[tuple[int, int]]:
        return [entry for entry in self.epochs if entry[1] < offset]


def epochs_from(epochs: Iterable[tuple[int, int]], start_offset: int) -> list[tuple[int, int]]:
    """The epochs of a log whose records before that offset are deleted."""
    left: list[tuple[int, int]] = []
    for epoch, offset in epochs:
        if offset <= start_offset:
            left.clear()
        left.append((epoch, max(offset, start_offset)))
    return left


class SegmentLike(Protocol):
    """The part of `storage.segment.Segment` that is read here."""

    @property
    def base_offset(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...

    @property
    def log_path(self) -> str: ...


class LogLike(Protocol):
    """The part of `storage.log.PartitionLog` that is read here."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def segments(self) -> Iterable[SegmentLike]: ...


class LogReader:
    """Reads one log's batches in order, mostly from where it stopped last time."""

    __slots__ = ("_base", "_content", "_log", "_offset", "_position")

    def __init__(self, log: LogLike, content: Callable[[str], bytearray | None]) -> None:
        """`content` gives the bytes of a file as the page cache has them, None if there is no such file."""
        self._log = log
        self._content = content
        self._base = -1
        self._offset = 0
        self._position = 0

    def forget(self) -> None:
        """The log was cut: start from the segment's beginning next time."""
        self._base = -1

    def forget_if_rolled(self) -> None:
        """Forget, unless it stopped in the last segment: others may have been replaced by what was left of them."""
        if self._base != max((segment.base_offset for segment in self._log.segments), default=-1):
            self.forget()

    def batches(self, from_offset: int, to_offset: int) -> Iterator[Batch]:
        """The batches that reach past `from_offset` and begin before `to_offset`, as far as there are any."""
        segments = list(self._log.segments)
        bases = [segment.base_offset for segment in segments]
        for place in range(max(bisect_right(bases, from_offset) - 1, 0), len(segments)):
            segment = segments[place]
            if segment.base_offset >= to_offset:
                return
            content = self._content_of(segment)
            if content is None:
                return
            position = 0
            if segment.base_offset == self._base and self._offset <= from_offset:
                position = self._position
            end = min(segment.size_bytes, len(content))
            while position + BATCH_HEADER_BYTES <= end:
                try:
                    header = read_header(content, position)
                except CorruptBatch:
                    return
                if header.base_offset >= to_offset or position + header.size_bytes > end:
                    return
                data = bytes(memoryview(content)[position : position + header.size_bytes])
                position += header.size_bytes
                if header.next_offset <= from_offset:
                    continue
                self._base, self._offset, self._position = segment.base_offset, header.next_offset, position
                yield Batch(header.base_offset, header.next_offset, header.partition_leader_epoch, data)

    def _content_of(self, segment: SegmentLike) -> bytearray | None:
        """A copy that compaction made is read by its node, through files it holds open, before it learns that they got
        their last names (`storage.segment_swaps`). The copy is whole by then: a file of another size is not it.
        """
        path = segment.log_path
        content = self._content(path)
        if content is not None or not path.endswith(CLEANED_SUFFIX):
            return content
        name = path.removesuffix(CLEANED_SUFFIX)
        found = (self._content(name + suffix) for suffix in (SWAP_SUFFIX, ""))
        content = next((each for each in found if each is not None), None)
        return content if content is not None and len(content) == segment.size_bytes else None
