"""Restores `__remote_log_metadata` from the objects in the store, for topics that the cluster has.

The store is listed before the metadata is read: a broker announces a segment before it stores the first object, so the
metadata then knows every copy that was under way in the list. What it knows is left as it is, also a segment that was
deleted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import trio

from barnabas.broker.internal_topics import remote_metadata_topic
from barnabas.broker.remote.segment_store import RemoteSegmentStore, StoredSegment
from barnabas.broker.remote.stored_segments import NO_BROKER, NotWhole, described
from barnabas.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from barnabas.protocol.primitives import uuid_from_string, uuid_to_string
from barnabas.settings.remote_metadata import REMOTE_METADATA_TOPIC
from barnabas.storage.remote.metadata_records import decode, encode, metadata_partition
from barnabas.storage.remote.segment import (
    MetadataRecord,
    PartitionDelete,
    RemotePartitionKey,
    RemoteSegment,
    SegmentState,
    SegmentUpdate,
)

if TYPE_CHECKING:
    from barnabas.client.admin import Admin
    from barnabas.client.consumer.consumer import Consumer
    from barnabas.client.producer.producer import Producer
    from barnabas.settings.remote_metadata import RemoteMetadataSettings

READS_AT_ONCE = 16
POLL_MS = 500
BATCH_BYTES = 64 << 10
PRODUCER = {"acks": "all", "linger_ms": 60_000, "batch_size": 768 << 10, "max_request_size": 1 << 20}
"""Settings with which a batch leaves at `flush` and not before: one of `BATCH_BYTES`, and the largest segment."""

Stored = Mapping[RemotePartitionKey, list[StoredSegment]]
Known = Mapping[RemotePartitionKey, Collection[bytes]]
"""Ids of segments that the metadata has ever had, by partition."""


@dataclass(slots=True)
class Restoration:
    """Segments that the metadata lacks, and others that the store has."""

    known: int = 0
    """Segments in the store that the metadata has."""
    lacking: dict[RemotePartitionKey, list[StoredSegment]] = field(default_factory=dict)
    """Segments without a record, of topics in the cluster."""
    elsewhere: list[RemotePartitionKey] = field(default_factory=list)
    """Partitions of topics that the cluster does not have: deleted, or of another cluster."""
    compacted: list[RemotePartitionKey] = field(default_factory=list)
    """Partitions of compacted topics that lack records: objects do not show which segments have been replaced."""
    partly_known: list[RemotePartitionKey] = field(default_factory=list)
    """Partitions of which the metadata has records, and not all segments."""
    segments: list[RemoteSegment] = field(default_factory=list)
    """The lacking ones that are whole, by partition and offset."""
    left_out: list[str] = field(default_factory=list)
    """A line for each of the others, with the reason."""


def compared(
    stored: Stored, topic_ids: Collection[bytes], known: Known, compacted: Collection[str] = ()
) -> Restoration:
    """Compare the store with the metadata; `segments` of the result is still empty. `compacted` are names of topics."""
    found = Restoration()
    for key, segments in stored.items():
        if key.topic_id not in topic_ids:
            found.elsewhere.append(key)
            continue
        ids = known.get(key, ())
        lacking = [each for each in segments if each.segment_id not in ids]
        found.known += len(segments) - len(lacking)
        if lacking and key.topic in compacted:
            found.compacted.append(key)
        elif lacking:
            found.lacking[key] = lacking
            if ids:
                found.partly_known.append(key)
    return found


async def compare(store: RemoteSegmentStore, admin: Admin, consumer: Consumer) -> Restoration:
    """Raises StoreError, KafkaError."""
    stored = await store.everything()
    listed = await admin.list_topics(list_internal=True)
    ids = {uuid_from_string(each.topic_id) for each in listed.values() if each.topic_id is not None}
    known = await _known(consumer) if REMOTE_METADATA_TOPIC in listed else {}
    compacted = await _compacted(admin, sorted({key.topic for key in stored} & listed.keys()))
    return compared(stored, ids, known, compacted)


async def _compacted(admin: Admin, topics: list[str]) -> set[str]:
    from barnabas.client.admin import ConfigResource, ResourceType

    described = await admin.describe_configs([ConfigResource(ResourceType.TOPIC, name) for name in topics])
    return {
        resource.name
        for resource, entries in described.items()
        if "compact" in (entries["cleanup.policy"].value or "").split(",")
    }


async def describe(store: RemoteSegmentStore, found: Restoration, now_ms: int) -> None:
    """Fill in `segments`, by the objects of each. Raises StoreError."""
    limiter = trio.CapacityLimiter(READS_AT_ONCE)
    whole: dict[tuple[RemotePartitionKey, int, bytes], RemoteSegment] = {}
    failures: list[Exception] = []

    async def read(key: RemotePartitionKey, each: StoredSegment) -> None:
        try:
            async with limiter:
                whole[key, each.start_offset, each.segment_id] = await described(store, key, each, now_ms)
        except NotWhole as error:
            name = f"segment {uuid_to_string(each.segment_id)} from offset {each.start_offset} on"
            found.left_out.append(f"{key.topic}-{key.partition}: {name} is left out: {error}")
        except Exception as error:
            failures.append(error)
            nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        for key, lacking in found.lacking.items():
            for each in lacking:
                nursery.start_soon(read, key, each)
    if failures:
        raise failures[0]
    found.segments = [whole[each] for each in sorted(whole)]
    found.left_out.sort()


async def create_topic(admin: Admin, settings: RemoteMetadataSettings) -> None:
    """Create the metadata topic as brokers do, if it is missing. Raises KafkaError."""
    from barnabas.client.admin import NewTopic

    topic = remote_metadata_topic(settings)
    configs = {each.name: each.value or "" for each in topic.configs}
    try:
        await admin.create_topics(NewTopic(topic.name, topic.num_partitions, topic.replication_factor, configs=configs))
    except KafkaError as error:
        if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise


async def publish(producer: Producer, segments: Iterable[RemoteSegment]) -> None:
    """Write the records of each segment: announced, and complete. `producer` must have the settings `PRODUCER`. Raises
    KafkaError.

    The two records of a segment are in one batch: a segment that is announced and never complete would be deleted.
    """
    partitions = len(await producer.partitions_for(REMOTE_METADATA_TOPIC))
    by_partition: dict[int, list[RemoteSegment]] = {}
    for segment in segments:
        by_partition.setdefault(metadata_partition(segment.key, partitions), []).append(segment)
    for index, them in by_partition.items():
        for batch in batches(them):
            sent = [await producer.enqueue(REMOTE_METADATA_TOPIC, value, partition=index) for value in batch]
            await producer.flush()
            for future in sent:
                future.result()


def batches(segments: Iterable[RemoteSegment]) -> Iterator[list[bytes]]:
    """Values of records that fit into one batch of `PRODUCER`."""
    batch: list[bytes] = []
    for segment in segments:
        batch += [encode(record) for record in _records_of(segment)]
        if sum(map(len, batch)) > BATCH_BYTES:
            yield batch
            batch = []
    if batch:
        yield batch


def _records_of(segment: RemoteSegment) -> tuple[MetadataRecord, MetadataRecord]:
    finished = SegmentUpdate(
        segment.key,
        segment.segment_id,
        segment.event_timestamp_ms,
        SegmentState.COPY_SEGMENT_FINISHED,
        NO_BROKER,
    )
    return segment, finished


async def _known(consumer: Consumer) -> Known:
    """Read the metadata topic up to the end that it has now. Raises KafkaError."""
    from barnabas.client.metadata import TopicPartition

    infos = await consumer.partitions_for(REMOTE_METADATA_TOPIC)
    partitions = [TopicPartition(REMOTE_METADATA_TOPIC, each.partition) for each in infos]
    consumer.assign(partitions)
    consumer.seek_to_beginning()
    ends = await consumer.end_offsets(partitions)
    known: dict[RemotePartitionKey, set[bytes]] = {}
    while [each for each in partitions if await consumer.position(each) < ends[each]]:
        for record in await consumer.poll(POLL_MS):
            try:
                change = decode(record.value or b"")
            except MalformedMessage:
                # A broker reports it when it reads it.
                continue
            if not isinstance(change, PartitionDelete):
                known.setdefault(change.key, set()).add(change.segment_id)
    return known
