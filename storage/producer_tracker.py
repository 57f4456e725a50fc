"""Keeps the producer states of one log in step with its batches, and their snapshots in step with its
segments.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Sequence

from protocol.records.batch import NO_TIMESTAMP, BatchHeader
from protocol.records.control import read_end_txn
from storage.producers import (
    CompletedTransaction,
    CorruptSnapshot,
    ProducerStates,
    SequencedBatch,
    decode_snapshot,
    encode_snapshot,
)
from storage.segment import Segment
from storage.snapshots import SnapshotFiles

_log = logging.getLogger(__name__)

_REPLAY_BYTES = 1 << 16


class ProducerTracker:
    """Between a log and its `states`."""

    __slots__ = ("_snapshots", "states")

    def __init__(self, states: ProducerStates, snapshots: SnapshotFiles) -> None:
        self.states = states
        self._snapshots = snapshots

    def check(
        self, buffer: bytearray | memoryview, batches: Sequence[tuple[int, BatchHeader]]
    ) -> SequencedBatch | None:
        """May a leader append these? Gives the batch that one of them repeats. Raises as `ProducerStates`."""
        states = self.states
        before: dict[int, BatchHeader] = {}
        for position, header in batches:
            if header.producer_id < 0:
                continue
            if header.is_control:
                marker = read_end_txn(buffer, position)
                if marker is not None:
                    states.check_marker(header, marker)
                continue
            repeated = states.check(header, before.get(header.producer_id))
            if repeated is not None:
                return repeated
            before[header.producer_id] = header
        return None

    def appended(
        self,
        buffer: bytes | bytearray | memoryview,
        batches: Sequence[tuple[int, BatchHeader]],
        first_offset: int | None = None,
        append_time: int = NO_TIMESTAMP,
    ) -> None:
        """These are in the log now: numbered from `first_offset` on, or as their heads say without it."""
        states = self.states
        for position, header in batches:
            offset = header.base_offset if first_offset is None else first_offset
            if header.producer_id >= 0:
                self._apply(buffer, position, header, offset, append_time)
            states.end_offset = offset + header.last_offset_delta + 1
            if first_offset is not None:
                first_offset = states.end_offset

    def _apply(
        self,
        buffer: bytes | bytearray | memoryview,
        position: int,
        header: BatchHeader,
        offset: int,
        append_time: int,
    ) -> None:
        if not header.is_control:
            self.states.apply(header, offset, append_time if append_time >= 0 else header.max_timestamp)
            return
        marker = read_end_txn(buffer, position)
        if marker is not None:
            self._transaction_ended(self.states.apply_marker(header, marker, offset))

    def _transaction_ended(self, completed: CompletedTransaction | None) -> None:
        """Where a transaction index would learn of the aborted ones."""

    def take_snapshot(self, offset: int) -> None:
        """Of the state at `offset`, the log's end; once is enough."""
        if offset not in self._snapshots.offsets:
            self._snapshots.write(offset, encode_snapshot(self.states.entries.values()))

    def rebuild(self, segments: Sequence[Segment], log_end_offset: int, now_ms: int) -> None:
        """From the newest snapshot that can be read, and the batches after it."""
        states = self.states
        self._snapshots.remove_after(log_end_offset)
        states.clear(0)
        while self._snapshots.offsets:
            offset = self._snapshots.offsets[-1]
            try:
                states.load(decode_snapshot(self._snapshots.read(offset)), offset, now_ms)
                break
            except CorruptSnapshot as error:
                _log.warning("producer snapshot at offset %d: %s: removed", offset, error)
                self._snapshots.remove([offset])
        offset = max(states.end_offset, segments[0].base_offset)
        if offset < log_end_offset:
            bases = [segment.base_offset for segment in segments]
            for segment in segments[max(bisect_right(bases, offset) - 1, 0) :]:
                self._replay(segment, offset)
        states.end_offset = log_end_offset

    def _replay(self, segment: Segment, from_offset: int) -> None:
        for position, header in segment.headers(segment.position_of(from_offset), _REPLAY_BYTES):
            if header.has_producer_id:
                # Only of a marker more than the head is needed.
                data = segment.log_file().pread(header.size_bytes, position) if header.is_control else b""
                self._apply(data, 0, header, header.base_offset, NO_TIMESTAMP)

    def forget_all(self, offset: int) -> None:
        """The log was emptied and goes on at `offset`."""
        self.states.clear(offset)
        self._snapshots.remove_after(-1)

    def segments_deleted(self, segments: Sequence[Segment]) -> None:
        """From the front of the log: nobody will recover from their snapshots."""
        gone = {segment.base_offset for segment in segments}
        self._snapshots.remove([offset for offset in self._snapshots.offsets if offset in gone])
