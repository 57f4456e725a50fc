"""The promises of tiered storage (KIP-405), held to what is in the store and to the committed log.

- Every offset between the log start and the local log start of a replica is in a remote segment of its lineage, with
  the bytes that were committed: when the local files are deleted, and at the end.
- Nothing is copied before it is committed, nor while a transaction in it is open.
- A log that begins behind remote segments knows the producers that wrote them. (Its epochs are held to the committed
  ones as those of any log.)

What is remote is read from the committed records of the metadata topic, not from what a broker made of them.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from barnabas.broker.remote.segment_store import partition_prefix
from barnabas.protocol.errors import MalformedMessage
from barnabas.protocol.primitives import uuid_to_string
from barnabas.protocol.records.batch import read_header
from barnabas.protocol.records.record import decode_records
from barnabas.storage.log import PartitionLog
from barnabas.storage.names import LOG_SUFFIX, offset_file_name
from barnabas.storage.remote.metadata_records import decode
from barnabas.storage.remote.partition_segments import PartitionSegments
from barnabas.storage.remote.segment import PartitionDelete, RemotePartitionKey, RemoteSegment
from barnabas.storage.remote.shared_range import shared_end
from simulation.findings import Findings
from simulation.ghosts import Batch, GhostLog
from simulation.invariants.partitions import PartitionPromises
from simulation.invariants.places import PartitionKey

METADATA_TOPIC = "__remote_log_metadata"

Find = Callable[[str], bytes | None]
"""The object of a key, as the store has it now."""


class TierPromises:
    """One per universe."""

    def __init__(self, findings: Findings, partitions: PartitionPromises, find: Find) -> None:
        self._findings = findings
        self._partitions = partitions
        self._find = find
        self._segments: dict[RemotePartitionKey, PartitionSegments] = {}
        self._read: dict[PartitionKey, int] = {}
        """Number of batches of each metadata partition that were applied."""
        self._verified: dict[bytes, int] = {}
        """Segments whose bytes were compared with the committed log, up to that offset."""

    # ---- what happens

    def copy_begins(self, segment: RemoteSegment) -> None:
        key = PartitionKey(segment.key.topic, segment.key.partition)
        if self._partitions.is_nobodys(key.topic):
            return
        committed, first_open = self._partitions.committed_up_to(key)
        end = segment.end_offset + 1
        self._findings.count("segments copied")
        self._findings.check(
            end <= committed and (first_open is None or end <= first_open),
            lambda: f"{key}: {segment} is copied, committed is up to {committed}, open from {first_open} on",
        )

    def local_start_moved(self, key: PartitionKey, node_id: int, log: PartitionLog, before: int) -> None:
        """A replica has deleted local files below its new local log start."""
        if self._partitions.is_nobodys(key.topic):
            return
        self._findings.count("local log starts moved")
        self._check_remote(key, node_id, log, max(before, log.log_start_offset))

    def began_behind_remote(self, key: PartitionKey, node_id: int, log: PartitionLog) -> None:
        """A replica has begun its log again, behind remote segments."""
        if self._partitions.is_nobodys(key.topic):
            return
        self._findings.count("logs begun behind remote segments")
        self._check_remote(key, node_id, log, log.log_start_offset)
        self._check_producers(key, node_id, log)

    # ---- at the end, when all is quiet

    def check_rest(self, key: PartitionKey, node_id: int, log: PartitionLog) -> None:
        """Nothing was deleted in such a run but local copies."""
        self._findings.check(
            log.log_start_offset == 0,
            lambda: f"{key}: {node_id} begins at {log.log_start_offset}, and nothing was to be deleted",
        )
        self._check_remote(key, node_id, log, log.log_start_offset)
        only_remote = log.local_log_start_offset - log.log_start_offset
        self._findings.count("offsets that are only remote at the end", only_remote)

    # ---- inside

    def _check_remote(self, key: PartitionKey, node_id: int, log: PartitionLog, offset: int) -> None:
        """The store has all from `offset` to the local log start, in the lineage of this log."""
        segments = self._segments_of(key, log)
        ghost, local_start = self._partitions.ghost(key), log.local_log_start_offset
        while offset < local_start:
            epoch = log.epochs.epoch_for_offset(offset)
            segment = None if segments is None else segments.segment_for(epoch, offset)
            if segment is None:
                self._findings.report(
                    f"{key}: {node_id} has its first record at {local_start}, and no remote segment has offset {offset}"
                    f" of epoch {epoch}"
                )
                return
            end = shared_end(segment, offset, log.epochs, log.log_end_offset)
            wrong = self._wrong_bytes(segment, ghost, end)
            if wrong is not None:
                self._findings.report(f"{key}: {node_id} has its first record at {local_start}; {segment} {wrong}")
                return
            offset = end

    def _wrong_bytes(self, segment: RemoteSegment, ghost: GhostLog, end: int) -> str | None:
        data = self._find(_log_key(segment))
        if data is None:
            return "is not in the store"
        if self._verified.get(segment.segment_id, -1) >= end:
            return None
        expected = b"".join(
            batch.data for batch in ghost.batches if segment.start_offset <= batch.base_offset < end
        )
        if data[: len(expected)] != expected:
            return f"holds something else than what was committed up to {end}"
        self._verified[segment.segment_id] = end
        return None

    def _check_producers(self, key: PartitionKey, node_id: int, log: PartitionLog) -> None:
        if log.producers is None:
            return
        known = log.producers.entries
        for producer_id, (epoch, sequence) in _producers(self._partitions.ghost(key), log.log_end_offset).items():
            entry = known.get(producer_id)
            if entry is not None and entry.epoch > epoch:
                continue
            last = entry.batches[-1].last_sequence if entry is not None and entry.batches else None
            if entry is None or entry.epoch != epoch or last != sequence:
                self._findings.report(
                    f"{key}: {node_id} begins at {log.log_end_offset} without the sequence {sequence} of producer"
                    f" {producer_id} in epoch {epoch}; it knows {entry and entry.epoch}, {last}"
                )

    def _segments_of(self, key: PartitionKey, log: PartitionLog) -> PartitionSegments | None:
        self._read_metadata()
        topic_id = log.topic_id
        return None if topic_id is None else self._segments.get(RemotePartitionKey(topic_id, *key))

    def _read_metadata(self) -> None:
        for key in self._partitions.keys:
            if key.topic != METADATA_TOPIC:
                continue
            batches = self._partitions.ghost(key).batches
            for batch in islice(batches, self._read.get(key, 0), None):
                self._apply(batch)
            self._read[key] = len(batches)

    def _apply(self, batch: Batch) -> None:
        for record in decode_records(batch.data):
            try:
                change = decode(record.value or b"")
            except MalformedMessage as error:
                self._findings.report(f"{METADATA_TOPIC} has a record that nobody can read: {error}")
                continue
            if isinstance(change, PartitionDelete):
                continue
            segments = self._segments.get(change.key)
            if segments is None:
                segments = self._segments[change.key] = PartitionSegments(change.key)
            segments.apply(change)


def _log_key(segment: RemoteSegment) -> str:
    name = offset_file_name(segment.start_offset, f"-{uuid_to_string(segment.segment_id)}{LOG_SUFFIX}")
    return partition_prefix(segment.key) + name


def _producers(ghost: GhostLog, end_offset: int) -> dict[int, tuple[int, int]]:
    """(epoch, last sequence) of each producer of the committed log below this offset."""
    found: dict[int, tuple[int, int]] = {}
    for batch in ghost.batches:
        if batch.base_offset >= end_offset:
            break
        header = read_header(batch.data)
        if header.producer_id >= 0 and not header.is_control:
            found[header.producer_id] = (header.producer_epoch, header.last_sequence)
    return found
