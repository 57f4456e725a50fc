"""A closed segment on its way to a remote store: its files, and the bytes that go with them (KIP-405).

The log's owner opens the files with `export_segment`; `SegmentExport.read` is slow and runs in a worker. It checks
every batch, because the replicas delete their copies of the segment once it is remote.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from barnabas.protocol.records.batch import BatchHeader, CorruptBatch
from barnabas.protocol.records.control import read_end_txn
from barnabas.runtime.world import File, FileRegion
from barnabas.storage.checkpoints import format_epochs
from barnabas.storage.log import PartitionLog
from barnabas.storage.producer_snapshot_format import decode_snapshot, encode_snapshot, is_sound_snapshot
from barnabas.storage.producers import ProducerStateConfig, ProducerStates
from barnabas.storage.segment_scan import SegmentScan


class SegmentBytes(NamedTuple):
    """The objects beside the log of a segment, in the formats of its files."""

    offset_index: bytes
    time_index: bytes
    transaction_index: bytes | None
    """None if no transaction was aborted in the segment."""
    producer_snapshot: bytes
    """At the end of the segment."""
    leader_epochs: bytes
    """From the log start to the end of the segment."""


@dataclass(frozen=True, slots=True)
class SegmentExport:
    """One segment. Its files stay readable if the log deletes it meanwhile."""

    name: str
    base_offset: int
    end_offset: int
    """The offset after the segment."""
    max_timestamp_ms: int
    leader_epochs: tuple[tuple[int, int], ...]
    """(leader epoch, start offset) within the segment."""
    cleaned_to: int
    """In a compacted log: the offset up to which it is clean, at least."""
    log: FileRegion
    _offset_index: FileRegion
    _time_index: FileRegion
    _transaction_index: FileRegion | None
    _snapshots: tuple[File | None, File | None]
    """Producer snapshots at the begin and at the end; None if there is none."""
    _all_epochs: tuple[tuple[int, int], ...]

    @property
    def has_aborted(self) -> bool:
        """The segment has markers of aborted transactions."""
        return self._transaction_index is not None

    def read(self, now_ms: int) -> SegmentBytes:
        """Raises OSError, and `CorruptBatch` if the segment is damaged."""
        begin, end = (None if each is None else _read_all(each) for each in self._snapshots)
        snapshot = end if end is not None and is_sound_snapshot(end) else None
        states = None if snapshot is not None else self._states_from(begin, now_ms)
        self._check(states)
        if snapshot is None:
            assert states is not None
            snapshot = encode_snapshot(states.entries.values())
        return SegmentBytes(
            _read(self._offset_index),
            _read(self._time_index),
            None if self._transaction_index is None else _read(self._transaction_index),
            snapshot,
            format_epochs(self._all_epochs),
        )

    def _states_from(self, snapshot: bytes | None, now_ms: int) -> ProducerStates:
        states = ProducerStates(ProducerStateConfig())
        if snapshot is not None and is_sound_snapshot(snapshot):
            states.load(decode_snapshot(snapshot), self.base_offset, now_ms)
        return states

    def _check(self, states: ProducerStates | None) -> None:
        """Check every batch, and apply it to `states`."""
        scan = SegmentScan(self.log.file, self.log.count, self.base_offset, None)
        while (header := scan.next_batch()) is not None:
            if states is not None and header.producer_id >= 0:
                self._apply(states, scan.position, header)
            scan.advance(header)
        problem = scan.problem
        if problem is None and scan.next_offset > self.end_offset:
            problem = f"offset {scan.next_offset - 1} after the end at {self.end_offset}"
        if problem is not None:
            raise CorruptBatch(f"segment {self.base_offset} of {self.name}: {problem}")

    def _apply(self, states: ProducerStates, position: int, header: BatchHeader) -> None:
        if not header.is_marker:
            states.apply(header, header.base_offset, header.max_timestamp)
            return
        marker = read_end_txn(self.log.file.pread(header.size_bytes, position), 0)
        if marker is not None:
            states.apply_marker(header, marker, header.base_offset)

    def close(self) -> None:
        """Close the files that only the export has opened."""
        for file in self._snapshots:
            if file is not None:
                file.close()


def export_segment(log: PartitionLog, base_offset: int) -> SegmentExport | None:
    """The closed segment that begins at `base_offset`; None if there is none any longer. Raises OSError."""
    segments = log.segments
    place = next((place for place, each in enumerate(segments[:-1]) if each.base_offset == base_offset), None)
    if place is None:
        return None
    segment, end_offset = segments[place], segments[place + 1].base_offset
    snapshots = (log.open_producer_snapshot(base_offset), log.open_producer_snapshot(end_offset))
    return SegmentExport(
        name=f"{log.topic}-{log.partition}",
        base_offset=base_offset,
        end_offset=end_offset,
        max_timestamp_ms=segment.largest_timestamp(),
        leader_epochs=tuple(log.epochs.entries_in(base_offset, end_offset)),
        cleaned_to=log.cleaned_to or 0,
        log=FileRegion(segment.log_file(), 0, segment.size_bytes),
        _offset_index=segment.offset_index.region(),
        _time_index=segment.time_index.region(),
        _transaction_index=segment.aborted.region() if segment.aborted.entries else None,
        _snapshots=snapshots,
        _all_epochs=tuple(log.epochs.entries_in(-1, end_offset)),
    )


def _read(region: FileRegion) -> bytes:
    data = bytes(region.file.pread(region.count, region.offset))
    if len(data) != region.count:
        raise OSError(f"an index ends after {len(data)} of {region.count} bytes")
    return data


def _read_all(file: File) -> bytes:
    return bytes(file.pread(file.size(), 0))
