"""The promises of tiered storage (KIP-405), held to what is in the store and to the committed log.

- Every offset between the log start and the local log start of a replica is in a remote segment of its lineage, with
  the bytes that were committed: when the local files are deleted, and at the end.
- Nothing is copied before it is committed, nor while a transaction in it is open.
- A log that begins behind remote segments knows the producers that wrote them. (Its epochs are held to the committed
  ones as those of any log.)
- Where a topic is compacted, both parts of a log together have the last record of each key, and none of a key whose
  tombstone is gone.

What is remote is read from the committed records of the metadata topic, not from what a broker made of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from barnabas.broker.remote.segment_store import partition_prefix
from barnabas.protocol.errors import MalformedMessage
from barnabas.protocol.primitives import uuid_to_string
from barnabas.protocol.records.batch import iterate_batches, read_header
from barnabas.protocol.records.record import decode_records
from barnabas.storage.log import PartitionLog
from barnabas.storage.names import LOG_SUFFIX, offset_file_name
from barnabas.storage.remote.metadata_records import decode
from barnabas.storage.remote.partition_segments import PartitionSegments
from barnabas.storage.remote.segment import PartitionDelete, RemotePartitionKey, RemoteSegment
from barnabas.storage.remote.shared_range import shared_end
from simulation.findings import Findings
from simulation.ghosts import Batch, GhostLog, LogReader
from simulation.invariants.compaction import COMPACTED_TOPICS, came_back, is_rest, missing
from simulation.invariants.partitions import PartitionPromises
from simulation.invariants.places import PartitionKey

METADATA_TOPIC = "__remote_log_metadata"

Find = Callable[[str], bytes | None]
"""The object of a key, as the store has it now."""
Content = Callable[[int, str], bytearray | None]


class TierPromises:
    """One per universe."""

    def __init__(self, findings: Findings, partitions: PartitionPromises, find: Find, content: Content) -> None:
        """`content`: the bytes of a node's file."""
        self._findings = findings
        self._content = content
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
        self._check_keys(key, node_id, log)

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
        self._check_keys(key, node_id, log)
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
            wrong = self._wrong_bytes(segment, ghost, end, is_compacted=key.topic in COMPACTED_TOPICS)
            if wrong is not None:
                self._findings.report(f"{key}: {node_id} has its first record at {local_start}; {segment} {wrong}")
                return
            offset = end

    def _wrong_bytes(self, segment: RemoteSegment, ghost: GhostLog, end: int, *, is_compacted: bool) -> str | None:
        data = self._find(_log_key(segment))
        if data is None:
            return "is not in the store"
        if self._verified.get(segment.segment_id, -1) >= end:
            return None
        if is_compacted:
            for batch in _batches(data, segment.start_offset, end):
                known = ghost.at(batch.base_offset)
                if known is None or not is_rest(batch, known):
                    return f"holds {batch} where {known} was committed"
            self._verified[segment.segment_id] = end
            return None
        expected = b"".join(
            batch.data for batch in ghost.batches if segment.start_offset <= batch.base_offset < end
        )
        if data[: len(expected)] != expected:
            return f"holds something else than what was committed up to {end}"
        self._verified[segment.segment_id] = end
        return None

    def _check_keys(self, key: PartitionKey, node_id: int, log: PartitionLog) -> None:
        """A log that does not have the newest records may lack what they made void."""
        ghost = self._partitions.ghost(key)
        if key.topic not in COMPACTED_TOPICS or log.log_end_offset < ghost.end_offset:
            return
        self._findings.count("compacted logs read in both tiers")
        local = LogReader(log, lambda path: self._content(node_id, path))
        left = [*self._remote_batches(key, log), *local.batches(log.local_log_start_offset, ghost.end_offset)]
        for record in missing(ghost.batches, left):
            self._findings.report(f"{key}: {node_id} lacks {record}, which holds for its key")
        for record in came_back(ghost.batches, left):
            self._findings.report(f"{key}: {node_id} has {record}, and the tombstone of its key is gone")

    def _remote_batches(self, key: PartitionKey, log: PartitionLog) -> Iterator[Batch]:
        """The batches that readers get from the part that is only remote."""
        segments, offset = self._segments_of(key, log), log.log_start_offset
        while segments is not None and offset < log.local_log_start_offset:
            segment = segments.segment_for(log.epochs.epoch_for_offset(offset), offset)
            data = None if segment is None else self._find(_log_key(segment))
            if segment is None or data is None:
                return
            end = min(shared_end(segment, offset, log.epochs, log.log_end_offset), log.local_log_start_offset)
            yield from _batches(data, offset, end)
            offset = end

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


def _batches(data: bytes, start_offset: int, end_offset: int) -> Iterator[Batch]:
    """Those that reach `start_offset` and begin before `end_offset`."""
    for position, header in iterate_batches(data):
        if header.base_offset >= end_offset:
            return
        if header.last_offset >= start_offset:
            content = data[position : position + header.size_bytes]
            yield Batch(header.base_offset, header.next_offset, header.partition_leader_epoch, content)


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
