"""Core: the records of one partition of `__remote_log_metadata`, as far as this broker has read them.

Records are read from the start of the log, in order. A partition of a user that is followed later needs the earlier
records, too: then reading begins again, and each user's partition skips what it has applied. If the log was truncated,
everything is forgotten and read again, since a move of a segment cannot be taken back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from barnabas.protocol.errors import MalformedMessage
from barnabas.protocol.primitives import uuid_to_string
from barnabas.protocol.records.batch import BatchHeader, CorruptBatch, crc_is_valid, iterate_batches
from barnabas.protocol.records.record import SERVED_LIMIT_BYTES, SERVED_LIMIT_RECORDS, Record, decode_in_slices
from barnabas.settings.remote_metadata import REMOTE_METADATA_TOPIC
from barnabas.storage.remote.metadata_records import decode, partition_of
from barnabas.storage.remote.partition_segments import PartitionSegments
from barnabas.storage.remote.segment import (
    MetadataRecord,
    PartitionDelete,
    PartitionDeleteState,
    RemotePartitionKey,
)

log = logging.getLogger(__name__)

APPLIED_IN_A_STEP = 200
DROPPED_REMEMBERED = 1_000
"""Records without effect that are remembered, for their publishers."""

PartitionId = tuple[bytes, int]
"""(topic id, partition) of a user's partition."""

Wanted = Mapping[PartitionId, RemotePartitionKey]
"""The partitions whose records are decoded."""


class ReadRecords(NamedTuple):
    """Whole batches, decoded as far as they are wanted."""

    records: list[tuple[int, MetadataRecord]]
    """(offset, record) of the wanted partitions."""
    next_offset: int
    last_epoch: int
    """Leader epoch of the last batch."""
    malformed: list[str]
    """Reasons why records could not be read, with their offsets."""
    probed_epoch: int | None
    """Leader epoch of the batch with the offset that was asked for."""


def decode_batches(data: bytes | memoryview, wanted: Wanted, probe: int = -1) -> ReadRecords | None:
    """The records of these partitions, and the epoch at the offset `probe`; None if there is no whole batch. Raises
    `CorruptBatch`."""
    found = ReadRecords([], -1, -1, [], None)
    header: BatchHeader | None = None
    probed_epoch = None
    for position, header in iterate_batches(data):
        if header.base_offset <= probe < header.next_offset:
            probed_epoch = header.partition_leader_epoch
        if not crc_is_valid(data, position, header):
            raise CorruptBatch(f"the checksum of the batch at offset {header.base_offset} is wrong")
        if header.is_control:
            continue
        batch = memoryview(data)[position : position + header.size_bytes]
        for records in decode_in_slices(batch, SERVED_LIMIT_BYTES, SERVED_LIMIT_RECORDS):
            _add_wanted(found, records, wanted)
    if header is None:
        return None
    return found._replace(
        next_offset=header.next_offset, last_epoch=header.partition_leader_epoch, probed_epoch=probed_epoch
    )


def _add_wanted(found: ReadRecords, records: Sequence[Record], wanted: Wanted) -> None:
    for record in records:
        try:
            if record.value is None:
                raise MalformedMessage("it has no value")
            key = wanted.get(partition_of(record.value))
            if key is not None:
                found.records.append((record.offset, decode(record.value, key)))
        except MalformedMessage as error:
            found.malformed.append(f"offset {record.offset}: {error}")


@dataclass(slots=True, eq=False)
class _Followed:
    """A user's partition."""

    segments: PartitionSegments
    applied_to: int = 0
    """Its records below this offset are applied."""
    target_offset: int | None = None
    """It is complete when all below was read; None until the end of the log is known."""


@dataclass(slots=True, eq=False)
class _Waiting:
    """A publisher that waits until its record was read."""

    id: PartitionId
    offset: int
    read: Callable[[str | None], None]
    """Called once: with None, or with the reason why the record has no effect."""


class MetadataLog:
    """One partition of `__remote_log_metadata`."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.position = 0
        """Offset of the next record to read."""
        self.last_epoch = -1
        """Leader epoch of the last batch that was read; -1 before the first one."""
        self.wants_bounds = True
        """True if its leader has to be asked where the log starts and ends."""
        self.generation = 0
        """Rises whenever `position` jumps: data that was fetched before is of no use."""
        self._farthest = (0, -1)
        """(end offset, leader epoch) of the last batch that was ever read here."""
        self._followed: dict[PartitionId, _Followed] = {}
        self._waiting: list[_Waiting] = []
        self._dropped: dict[int, str] = {}

    # -- followed partitions

    def __len__(self) -> int:
        return len(self._followed)

    @property
    def wanted(self) -> Wanted:
        return {each: followed.segments.key for each, followed in self._followed.items()}

    @property
    def probe(self) -> int:
        """The last offset that was ever read; its epoch says whether the log is the same; -1 if there is none."""
        return self._farthest[0] - 1

    def segments(self, key: RemotePartitionKey) -> PartitionSegments | None:
        """None if it is not followed, or not complete yet."""
        followed = self._followed.get((key.topic_id, key.partition))
        return followed.segments if followed is not None and followed.segments.is_complete else None

    def follow(self, keys: Collection[RemotePartitionKey]) -> None:
        """Further partitions; they are read from the start of the log."""
        new = {(key.topic_id, key.partition): key for key in keys}
        new = {each: key for each, key in new.items() if each not in self._followed}
        if not new:
            return
        self._begin_again()
        for each, key in new.items():
            self._followed[each] = _Followed(PartitionSegments(key))

    def forget(self, ids: Collection[PartitionId]) -> None:
        for each in ids:
            self._followed.pop(each, None)
        for waiting in [each for each in self._waiting if each.id not in self._followed]:
            self._waiting.remove(waiting)
            waiting.read(None)

    def _begin_again(self) -> None:
        for followed in self._followed.values():
            followed.applied_to = max(followed.applied_to, self.position)
        self._jump(0)

    def _jump(self, offset: int) -> None:
        self.position, self.last_epoch = offset, -1
        self.wants_bounds = True
        self.generation += 1

    # -- what the leader answers

    def bounds_are(self, start_offset: int, end_offset: int, generation: int) -> str | None:
        """Where the leader's log starts and ends. Returns a line to report, if records are lost."""
        if generation != self.generation:
            return None
        self.wants_bounds = False
        report = None
        if self._farthest[0] > end_offset:
            report = f"the log ends at {end_offset} now, before what was read: it is read again"
            self.truncated()
            self.wants_bounds = False
        elif self.position < start_offset:
            if self.position:
                report = f"the log starts at {start_offset} now: records from {self.position} on are lost"
            self.position, self.last_epoch = start_offset, -1
        for followed in self._followed.values():
            if followed.target_offset is None:
                followed.target_offset = end_offset
        self._complete()
        return report

    def truncated(self) -> None:
        """The leader has other records than those that were read."""
        self._jump(0)
        self._farthest = (0, -1)
        for each, followed in self._followed.items():
            self._followed[each] = _Followed(PartitionSegments(followed.segments.key))
        self._fail_publishers("the log was truncated")

    def close(self, reason: str) -> list[PartitionSegments]:
        """The log is not read any more. Returns what was known."""
        known = [followed.segments for followed in self._followed.values()]
        self._jump(0)
        self._followed.clear()
        self._fail_publishers(reason)
        return known

    def adopt(self, segments: PartitionSegments) -> None:
        """Follow a partition of which segments are known that this log does not have: they are from a topic that was
        deleted."""
        self._followed[segments.key.topic_id, segments.key.partition] = _Followed(segments)

    def _fail_publishers(self, reason: str) -> None:
        waiting, self._waiting = self._waiting, []
        self._dropped.clear()
        for publisher in waiting:
            publisher.read(reason)

    def apply(self, found: ReadRecords, generation: int) -> Iterator[None]:
        """Apply what was read from `position` on, in steps."""
        if generation == self.generation and found.probed_epoch not in (None, self._farthest[1]):
            log.error("%s has other records at offset %d than those that were read: it is read again", self, self.probe)
            self.truncated()
        if generation != self.generation:
            return
        for reason in found.malformed:
            log.error("a record of %s is ignored: %s", self, reason)
        for count, (offset, record) in enumerate(found.records, 1):
            if generation != self.generation:
                return
            if offset >= self.position:
                self._apply_one(offset, record)
            if count % APPLIED_IN_A_STEP == 0:
                yield None
        if generation == self.generation:
            self.position, self.last_epoch = max(self.position, found.next_offset), found.last_epoch
            self._farthest = max(self._farthest, (self.position, self.last_epoch))
            self._complete()
            self._answer()

    def _apply_one(self, offset: int, record: MetadataRecord) -> None:
        followed = self._followed.get((record.key.topic_id, record.key.partition))
        if followed is None or offset < followed.applied_to:
            return
        followed.applied_to = offset + 1
        if isinstance(record, PartitionDelete):
            if record.state is PartitionDeleteState.DELETE_PARTITION_FINISHED:
                followed.segments.clear()
        elif not followed.segments.apply(record):
            name = f"segment {uuid_to_string(record.segment_id)} of {record.key}"
            self._dropped[offset] = f"{name} cannot move to {record.state.name}"
            if len(self._dropped) > DROPPED_REMEMBERED:
                del self._dropped[next(iter(self._dropped))]

    def _complete(self) -> None:
        for followed in self._followed.values():
            if not followed.segments.is_complete and followed.target_offset is not None:
                followed.segments.is_complete = self.position >= followed.target_offset

    # -- publishers

    def when_read(self, key: RemotePartitionKey, offset: int, read: Callable[[str | None], None]) -> Callable[[], None]:
        """Call `read` when the record at `offset`, of this partition, was read, or at once; with the reason if it has
        no effect. Returns a function that takes the call back."""
        waiting = _Waiting((key.topic_id, key.partition), offset, read)
        self._waiting.append(waiting)
        self._answer()

        def cancel() -> None:
            if waiting in self._waiting:
                self._waiting.remove(waiting)

        return cancel

    def _answer(self) -> None:
        for waiting in list(self._waiting):
            followed = self._followed.get(waiting.id)
            if followed is None or max(self.position, followed.applied_to) > waiting.offset:
                self._waiting.remove(waiting)
                waiting.read(self._dropped.get(waiting.offset))

    def __repr__(self) -> str:
        return f"{REMOTE_METADATA_TOPIC}-{self.index}"
