"""Segments in an object store: Kafka's RemoteStorageManager (KIP-405).

The keys are the paths of Kafka's LocalTieredStorage, so each can read what the other wrote:

    orders-0-LWgrMmVrT0a__7a4SasuPA/00000000000000000011-bCqX9U--S-6U8XUM9II25Q.log

and beside it `.index`, `.timeindex`, `.snapshot`, `.leader_epoch_checkpoint`, and `.txnindex` if the segment has
aborted transactions. The name of the partition ends in the topic's id, that of a file in the segment's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

import trio

from barnabas.protocol.primitives import uuid_from_string, uuid_to_string
from barnabas.runtime.object_store import ObjectStore, StoredObject, StoreError
from barnabas.runtime.world import Chunk, FileRegion, no_fault
from barnabas.storage.names import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    offset_file_name,
)
from barnabas.storage.remote.segment import RemotePartitionKey, RemoteSegment

LEADER_EPOCH_SUFFIX = ".leader_epoch_checkpoint"

_FILE = re.compile(r"([0-9]{20})-([A-Za-z0-9_-]{22})(\.[a-z_]+)")
_DIRECTORY = re.compile(r"([A-Za-z0-9._-]+)-([0-9]{1,10})-([A-Za-z0-9_-]{22})")
_LISTED_AT_ONCE = 1000
"""Lines of a list in one step of the event loop."""


class IndexKind(Enum):
    """Kafka's RemoteStorageManager.IndexType; the value is the suffix of the object's key."""

    OFFSET = OFFSET_INDEX_SUFFIX
    TIMESTAMP = TIME_INDEX_SUFFIX
    TRANSACTION = TRANSACTION_INDEX_SUFFIX
    PRODUCER_SNAPSHOT = SNAPSHOT_SUFFIX
    LEADER_EPOCH = LEADER_EPOCH_SUFFIX


_SUFFIXES = frozenset({LOG_SUFFIX, *(kind.value for kind in IndexKind)})


@dataclass(slots=True)
class SegmentFiles:
    """The objects of a segment before they are copied."""

    log: FileRegion
    offset_index: bytes
    time_index: bytes
    transaction_index: bytes | None
    """None: there is no such file."""
    producer_snapshot: bytes
    """State of producers at the end of the segment."""
    leader_epochs: bytes
    """A leader-epoch-checkpoint up to the end of the segment."""

    def by_suffix(self) -> Iterator[tuple[str, Chunk]]:
        """Objects in the order of the copy. The log is the last: if it is there, so is the rest."""
        yield OFFSET_INDEX_SUFFIX, self.offset_index
        yield TIME_INDEX_SUFFIX, self.time_index
        if self.transaction_index is not None:
            yield TRANSACTION_INDEX_SUFFIX, self.transaction_index
        yield SNAPSHOT_SUFFIX, self.producer_snapshot
        yield LEADER_EPOCH_SUFFIX, self.leader_epochs
        yield LOG_SUFFIX, self.log


@dataclass(frozen=True, slots=True)
class StoredSegment:
    """A segment as the list of the store shows it: complete or not."""

    segment_id: bytes
    start_offset: int
    objects: Mapping[str, StoredObject]
    """By the suffix of the key."""

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(each.key for each in self.objects.values())

    @property
    def size_bytes(self) -> int:
        """The sum over all objects."""
        return sum(each.size_bytes for each in self.objects.values())

    @property
    def modified_ms(self) -> int:
        """The time of the newest object, by the clock of the store."""
        return max(each.modified_ms for each in self.objects.values())


class RemoteSegmentStore:
    """Copies, reads, deletes and lists segments. Every call raises `StoreError`; what failed may be done again."""

    def __init__(self, store: ObjectStore, fault_point: Callable[[str], None] = no_fault) -> None:
        self._store = store
        self._fault_point = fault_point

    async def copy(self, segment: RemoteSegment, files: SegmentFiles) -> None:
        """Returns when every object is stored and its checksum was compared. After an error, some may be there.

        Raises OSError if the log cannot be read.
        """
        if len(files.log) != segment.size_bytes:
            raise ValueError(f"{segment}: {len(files.log)} bytes of log for {segment.size_bytes}")
        for suffix, content in files.by_suffix():
            await self._store.put(_key(segment, suffix), [content])
            self._fault_point(f"remote.copy.stored{suffix}")

    async def read(self, segment: RemoteSegment, start: int, count: int) -> bytes:
        """`count` bytes of the log from position `start`; fewer only at the end of the segment."""
        count = min(count, segment.size_bytes - start)
        if start < 0 or count <= 0:
            return b""
        key = _key(segment, LOG_SUFFIX)
        data = await self._store.get(key, start, count)
        if len(data) < count:
            raise StoreError(f"get {key}: it ends at byte {start + len(data)}, not {segment.size_bytes}")
        return data

    async def read_index(self, segment: RemoteSegment, kind: IndexKind, start: int = 0) -> bytes:
        """The bytes of an index from position `start` on. Raises `NoSuchObject` if the segment has none; only a
        transaction index may be missing."""
        return await self._store.get(_key(segment, kind.value), start)

    async def delete(self, segment: RemoteSegment) -> None:
        """Remove all objects of the segment; those that are missing are no error."""
        for suffix in (LOG_SUFFIX, *(kind.value for kind in IndexKind)):
            await self._store.delete(_key(segment, suffix))
            self._fault_point(f"remote.delete.deleted{suffix}")

    async def stored(self, key: RemotePartitionKey) -> list[StoredSegment]:
        """Segments of a partition that the store lists, by offset. A list may be behind."""
        return (await self._stored_below(partition_prefix(key))).get(key, [])

    async def everything(self) -> dict[RemotePartitionKey, list[StoredSegment]]:
        """Segments of all partitions that the store lists, by offset. A list may be behind."""
        return await self._stored_below("")

    async def _stored_below(self, prefix: str) -> dict[RemotePartitionKey, list[StoredSegment]]:
        """Other objects are left out."""
        found: dict[RemotePartitionKey, dict[tuple[int, bytes], dict[str, StoredObject]]] = {}
        for number, each in enumerate(await self._store.list(prefix)):
            directory, _, name = each.key.rpartition("/")
            key, parsed = _partition_of(directory), _FILE.fullmatch(name)
            if key is not None and parsed is not None and parsed[3] in _SUFFIXES:
                segment = int(parsed[1]), uuid_from_string(parsed[2])
                found.setdefault(key, {}).setdefault(segment, {})[parsed[3]] = each
            if number % _LISTED_AT_ONCE == _LISTED_AT_ONCE - 1:
                await trio.lowlevel.checkpoint()
        return {
            key: [StoredSegment(segment_id, offset, them) for (offset, segment_id), them in sorted(segments.items())]
            for key, segments in sorted(found.items())
        }

    async def orphans(
        self, key: RemotePartitionKey, known: Collection[bytes], before_ms: int
    ) -> list[StoredSegment]:
        """Stored segments whose ids are not `known` and that were last written before `before_ms`: left by a broker
        that ended in the middle of a copy, or by a put that arrived after its segment was deleted.

        Ask the metadata for what is known after this time, not before.
        """
        return [
            each
            for each in await self.stored(key)
            if each.segment_id not in known and each.modified_ms < before_ms
        ]

    async def delete_stored(self, segments: Iterable[StoredSegment]) -> None:
        for segment in segments:
            for key in segment.keys:
                await self._store.delete(key)

    async def close(self) -> None:
        await self._store.close()


def partition_prefix(key: RemotePartitionKey) -> str:
    """The first part of the keys of a partition: `orders-0-LWgrMmVrT0a__7a4SasuPA/`."""
    return f"{key.topic}-{key.partition}-{uuid_to_string(key.topic_id)}/"


def _key(segment: RemoteSegment, suffix: str) -> str:
    name = offset_file_name(segment.start_offset, f"-{uuid_to_string(segment.segment_id)}{suffix}")
    return partition_prefix(segment.key) + name


def _partition_of(directory: str) -> RemotePartitionKey | None:
    """The partition whose objects are in a directory; None for another directory."""
    parsed = _DIRECTORY.fullmatch(directory)
    return None if parsed is None else RemotePartitionKey(uuid_from_string(parsed[3]), parsed[1], int(parsed[2]))
