"""Keeps the producer state of one log consistent with its batches, and snapshots and transaction indexes consistent
with its segments.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Sequence

from barnabas.protocol.records.batch import MARKER_BITS, NO_TIMESTAMP, BatchHeader
from barnabas.protocol.records.control import read_end_txn
from barnabas.storage.producer_snapshot_format import CorruptSnapshot, decode_snapshot, encode_snapshot
from barnabas.storage.producer_snapshots import SnapshotFiles
from barnabas.storage.producers import NO_WARRANT, CompletedTransaction, ProducerStates, SequencedBatch, Warrant
from barnabas.storage.segment import Segment
from barnabas.storage.transaction_index import AbortedIndex, AbortedTransaction

_log = logging.getLogger(__name__)

_REPLAY_BYTES = 1 << 16


class ProducerTracker:
    """Applies changes of a log to its `states`."""

    __slots__ = ("_snapshots", "states")

    def __init__(self, states: ProducerStates, snapshots: SnapshotFiles) -> None:
        self.states = states
        self._snapshots = snapshots

    def check(
        self,
        buffer: bytearray | memoryview,
        batches: Sequence[tuple[int, BatchHeader]],
        warrant: Warrant = NO_WARRANT,
    ) -> SequencedBatch | None:
        """Check that a leader may append these. Returns the batch that they repeat, if any. Raises as `ProducerStates`.
        """
        states = self.states
        before: dict[int, BatchHeader] = {}
        for position, header in batches:
            if header.producer_id < 0:
                continue
            if header.attributes & MARKER_BITS == MARKER_BITS:
                marker = read_end_txn(buffer, position)
                if marker is not None:
                    states.check_marker(header, marker, warrant.transaction_version)
                continue
            repeated = states.check(header, before.get(header.producer_id), warrant.verification)
            if repeated is not None:
                return repeated
            before[header.producer_id] = header
        return None

    def appended(
        self,
        buffer: bytes | bytearray | memoryview,
        batches: Sequence[tuple[int, BatchHeader]],
        aborted: AbortedIndex,
        first_offset: int | None = None,
        append_time: int = NO_TIMESTAMP,
        warrant: Warrant = NO_WARRANT,
    ) -> None:
        """These were appended to the segment of `aborted`, numbered from `first_offset` on, or as in their headers if
        it is None. Followers have no `warrant`.
        """
        states = self.states
        for position, header in batches:
            offset = header.base_offset if first_offset is None else first_offset
            if header.producer_id >= 0:
                if header.attributes & MARKER_BITS == MARKER_BITS:
                    completed = self._apply_marker(buffer, position, header, offset, warrant.transaction_version)
                    self._transaction_ended(completed, aborted)
                else:
                    self.states.apply(header, offset, append_time if append_time >= 0 else header.max_timestamp)
            states.end_offset = offset + header.last_offset_delta + 1
            if first_offset is not None:
                first_offset = states.end_offset

    def _apply_marker(
        self,
        buffer: bytes | bytearray | memoryview,
        position: int,
        header: BatchHeader,
        offset: int,
        transaction_version: int = 0,
    ) -> CompletedTransaction | None:
        marker = read_end_txn(buffer, position)
        if marker is None:
            return None
        return self.states.apply_marker(header, marker, offset, transaction_version)

    def _transaction_ended(self, completed: CompletedTransaction | None, aborted: AbortedIndex) -> None:
        if completed is not None and completed.aborted:
            producer_id, first_offset, last_offset, _ = completed
            last_stable_offset = self.states.last_stable_offset_after(completed)
            aborted.append(AbortedTransaction(producer_id, first_offset, last_offset, last_stable_offset))

    def take_snapshot(self, offset: int) -> None:
        """Write the state at `offset`, the log's end, unless it is written already."""
        if offset not in self._snapshots.offsets:
            self._snapshots.write(offset, encode_snapshot(self.states.entries.values()))

    def rebuild(
        self, segments: Sequence[Segment], log_end_offset: int, now_ms: int, high_watermark: int | None = None
    ) -> Sequence[Segment]:
        """Rebuild the state from the newest readable snapshot and the batches after it. Returns the segments whose
        transaction index was stale and has been rebuilt.

        A snapshot does not contain transactions that ended shortly before it. So a snapshot is not used if it would
        hide one whose marker is not below `high_watermark`.
        """
        self._snapshots.remove_after(log_end_offset)
        usable = self._latest_usable(segments, log_end_offset, high_watermark)
        stale = [segment for segment in segments if segment.aborted.is_stale]
        if stale:
            self._restore(min(stale[0].base_offset, usable), now_ms)
            self._replay(segments, stale[-1])
        if not stale or stale[-1] is not segments[-1]:
            self._restore(usable, now_ms)
            self._replay(segments, segments[-1])
        self.states.end_offset = log_end_offset
        return stale

    def _restore(self, offset: int, now_ms: int) -> None:
        """Load the state at `offset`, or the nearest lower one with a snapshot."""
        self.states.clear(0)
        for taken in [known for known in reversed(self._snapshots.offsets) if known <= offset]:
            try:
                self.states.load(decode_snapshot(self._snapshots.read(taken)), taken, now_ms)
                return
            except CorruptSnapshot as error:
                _log.warning("producer snapshot at offset %d: %s: removed", taken, error)
                self._snapshots.remove([taken])

    def _latest_usable(self, segments: Sequence[Segment], log_end_offset: int, high_watermark: int | None) -> int:
        """Maximum offset of a snapshot that may be used."""
        newest = self._snapshots.offsets[-1] if self._snapshots.offsets else 0
        if high_watermark is None or newest <= high_watermark:
            return log_end_offset
        for segment in _from(segments, high_watermark):
            for _, header in segment.headers(segment.position_of(high_watermark), _REPLAY_BYTES):
                if header.base_offset >= newest:
                    return log_end_offset
                if header.is_marker and header.base_offset >= high_watermark:
                    return high_watermark
        return log_end_offset

    def _replay(self, segments: Sequence[Segment], last: Segment) -> None:
        """Apply the batches after the state, up to the end of `last`."""
        offset = self.states.end_offset
        for segment in _from(segments, offset):
            if segment.base_offset > offset and segment is not segments[0]:
                # A power cut may have lost it. Copies of segments in a remote store have it with them.
                self.take_snapshot(segment.base_offset)
            for position, header in segment.headers(segment.position_of(offset), _REPLAY_BYTES):
                if not header.has_producer_id:
                    continue
                if header.is_marker:
                    # Only a marker needs more than its header.
                    data = segment.log_file().pread(header.size_bytes, position)
                    completed = self._apply_marker(data, 0, header, header.base_offset)
                    if segment.aborted.is_stale:
                        self._transaction_ended(completed, segment.aborted)
                else:
                    self.states.apply(header, header.base_offset, header.max_timestamp)
            if segment.aborted.is_stale:
                segment.aborted.finish_rebuild()
                if segment is not segments[-1]:
                    segment.aborted.seal()
            if segment is last:
                return

    def forget_all(self, offset: int) -> None:
        """The log was emptied and continues at `offset`."""
        self.states.clear(offset)
        self._snapshots.remove_after(-1)

    def segments_deleted(self, segments: Sequence[Segment]) -> None:
        """Segments were deleted from the front of the log: their snapshots are no longer needed for recovery."""
        gone = {segment.base_offset for segment in segments}
        self._snapshots.remove([offset for offset in self._snapshots.offsets if offset in gone])


def _from(segments: Sequence[Segment], offset: int) -> Sequence[Segment]:
    """The segment with `offset`, or the first one, and those after it."""
    return segments[max(bisect_right([segment.base_offset for segment in segments], offset) - 1, 0) :]
