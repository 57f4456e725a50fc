"""Lets a node write down what it does with the remote store, in the events of Kafka's LocalTieredStorage.

Tests of Kafka look into that object inside of each broker. `TierStandIn.java` has one of its own over the same
directory, and gives it the events of this file: type, topic id, topic, partition, segment id, start and end offset in a
line.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from barnabas.broker.remote.reader import RemoteReader
from barnabas.broker.remote.segment_store import IndexKind, RemoteSegmentStore
from barnabas.protocol.primitives import uuid_to_string
from barnabas.storage.remote.segment import RemoteSegment

INDEXES = {
    IndexKind.OFFSET: "FETCH_OFFSET_INDEX",
    IndexKind.TIMESTAMP: "FETCH_TIME_INDEX",
    IndexKind.TRANSACTION: "FETCH_TRANSACTION_INDEX",
    IndexKind.LEADER_EPOCH: "FETCH_LEADER_EPOCH_CHECKPOINT",
    IndexKind.PRODUCER_SNAPSHOT: "FETCH_PRODUCER_SNAPSHOT",
}


def note_events(path: Path) -> None:
    """From now on, in this process."""
    stream = path.open("a", buffering=1)

    def note(kind: str, segment: RemoteSegment) -> None:
        key = segment.key
        ids = (uuid_to_string(key.topic_id), key.topic, key.partition, uuid_to_string(segment.segment_id))
        print(kind, *ids, segment.start_offset, segment.end_offset, file=stream)

    copy, delete = RemoteSegmentStore.copy, RemoteSegmentStore.delete
    read_index, records = RemoteSegmentStore.read_index, RemoteReader._records

    async def noted_copy(self: RemoteSegmentStore, segment: RemoteSegment, files: Any) -> None:
        await copy(self, segment, files)
        note("COPY_SEGMENT", segment)

    async def noted_delete(self: RemoteSegmentStore, segment: RemoteSegment) -> None:
        await delete(self, segment)
        note("DELETE_SEGMENT", segment)

    async def noted_index(self: RemoteSegmentStore, segment: RemoteSegment, kind: IndexKind, start: int = 0) -> bytes:
        data = await read_index(self, segment, kind, start)
        note(INDEXES[kind], segment)
        return data

    async def noted_records(self: RemoteReader, place: Any, found: Any, wanted: Any) -> Any:
        """One event for each part of a segment that a fetch gets, in however many requests it was read."""
        taken = await records(self, place, found, wanted)
        note("FETCH_SEGMENT", place.segment)
        return taken

    for owner, attribute, noted in (
        (RemoteSegmentStore, "copy", noted_copy),
        (RemoteSegmentStore, "delete", noted_delete),
        (RemoteSegmentStore, "read_index", noted_index),
        (RemoteReader, "_records", noted_records),
    ):
        setattr(owner, attribute, noted)
