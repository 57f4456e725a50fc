"""Core: records of `__remote_log_metadata` as bytes, and the partition in which each of them is.

Byte-exact with Kafka's RemoteLogMetadataSerde. Records have no key.
"""

from __future__ import annotations

from barnabas.protocol.codec.helpers import read_varint
from barnabas.protocol.errors import MalformedMessage
from barnabas.protocol.messages import remote_log_metadata
from barnabas.protocol.messages.remote_log_metadata import (
    RemoteLogSegmentIdEntry,
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataUpdateRecord,
    RemotePartitionDeleteMetadataRecord,
    SegmentLeaderEpochEntry,
    TopicIdPartitionEntry,
)
from barnabas.protocol.murmur import murmur2
from barnabas.protocol.records.metadata import decode_metadata_record, encode_metadata_record, read_frame, types_of
from barnabas.protocol.schema import Message
from barnabas.storage.remote.segment import (
    MetadataRecord,
    PartitionDelete,
    PartitionDeleteState,
    RemotePartitionKey,
    RemoteSegment,
    SegmentState,
    SegmentUpdate,
)

VERSION = 0
"""Version of each type of record."""

MOST_LEADER_EPOCHS = 5_000
"""Leader epochs of one segment. Each costs some microseconds of a step when its record is applied."""

_TYPES = types_of(remote_log_metadata)
_UUID_BYTES = 16
_JAVA_MASK = 0xFFFF_FFFF


def encode(record: MetadataRecord) -> bytes:
    """The value of a record."""
    return encode_metadata_record(_message(record), VERSION)


def decode(value: bytes | memoryview, key: RemotePartitionKey | None = None) -> MetadataRecord:
    """Raises `MalformedMessage`. The caller may know the partition: then its `key` is used, and not another like it."""
    message, _ = decode_metadata_record(value, _TYPES)
    try:
        if isinstance(message, RemoteLogSegmentMetadataRecord):
            return _segment(message, key)
        if isinstance(message, RemoteLogSegmentMetadataUpdateRecord):
            return _update(message, key)
        if isinstance(message, RemotePartitionDeleteMetadataRecord):
            return _partition_delete(message, key)
    except ValueError as error:
        raise MalformedMessage(f"a record of remote log metadata: {error}") from None
    raise MalformedMessage(f"no record of remote log metadata has the type {message.API_KEY}")


def partition_of(value: bytes | memoryview) -> tuple[bytes, int]:
    """(topic id, partition) of a record without decoding the rest: most records are of partitions on other brokers.
    Raises `MalformedMessage`."""
    _, _, position = read_frame(value)
    try:
        size, position = read_varint(value, position)
        position += size - 1
        index = int.from_bytes(value[position + _UUID_BYTES : position + _UUID_BYTES + 4], "big", signed=True)
        topic_id = bytes(value[position : position + _UUID_BYTES])
    except IndexError:
        raise MalformedMessage("a record of remote log metadata ends within its first field") from None
    if size < 1 or position + _UUID_BYTES + 4 > len(value):
        raise MalformedMessage("a record of remote log metadata ends within its partition")
    return topic_id, index


def metadata_partition(key: RemotePartitionKey, count: int) -> int:
    """The partition of `__remote_log_metadata`, which has `count`, for the records of a user's partition."""
    most = int.from_bytes(key.topic_id[:8], "big")
    least = int.from_bytes(key.topic_id[8:], "big")
    hashed = 1
    for value in (least ^ least >> 32, most ^ most >> 32, key.partition):
        hashed = (31 * hashed + value) & _JAVA_MASK
    return (murmur2(hashed.to_bytes(4, "big")) & 0x7FFF_FFFF) % count


# -- values to messages


def _message(record: MetadataRecord) -> Message:
    if isinstance(record, RemoteSegment):
        return RemoteLogSegmentMetadataRecord(
            remote_log_segment_id=_id_entry(record.key, record.segment_id),
            start_offset=record.start_offset,
            end_offset=record.end_offset,
            broker_id=record.broker_id,
            max_timestamp_ms=record.max_timestamp_ms,
            event_timestamp_ms=record.event_timestamp_ms,
            segment_leader_epochs=[
                SegmentLeaderEpochEntry(leader_epoch=epoch, offset=offset) for epoch, offset in record.leader_epochs
            ],
            segment_size_in_bytes=record.size_bytes,
            custom_metadata=record.custom_metadata,
            remote_log_segment_state=record.state,
            txn_index_empty=record.transaction_index_is_empty,
        )
    if isinstance(record, SegmentUpdate):
        return RemoteLogSegmentMetadataUpdateRecord(
            remote_log_segment_id=_id_entry(record.key, record.segment_id),
            broker_id=record.broker_id,
            event_timestamp_ms=record.event_timestamp_ms,
            custom_metadata=record.custom_metadata,
            remote_log_segment_state=record.state,
        )
    return RemotePartitionDeleteMetadataRecord(
        topic_id_partition=_partition_entry(record.key),
        broker_id=record.broker_id,
        event_timestamp_ms=record.event_timestamp_ms,
        remote_partition_delete_state=record.state,
    )


def _id_entry(key: RemotePartitionKey, segment_id: bytes) -> RemoteLogSegmentIdEntry:
    return RemoteLogSegmentIdEntry(topic_id_partition=_partition_entry(key), id=segment_id)


def _partition_entry(key: RemotePartitionKey) -> TopicIdPartitionEntry:
    return TopicIdPartitionEntry(name=key.topic, id=key.topic_id, partition=key.partition)


# -- messages to values


def _segment(message: RemoteLogSegmentMetadataRecord, key: RemotePartitionKey | None) -> RemoteSegment:
    """Raises ValueError."""
    start_offset, end_offset = message.start_offset, message.end_offset
    if not 0 <= start_offset <= end_offset:
        raise ValueError(f"the segment must begin at 0 or later and not end before; got {start_offset} to {end_offset}")
    epochs = tuple(sorted({each.leader_epoch: each.offset for each in message.segment_leader_epochs}.items()))
    if not 0 < len(epochs) <= MOST_LEADER_EPOCHS:
        raise ValueError(f"a segment has 1 to {MOST_LEADER_EPOCHS} leader epochs; got {len(epochs)}")
    return RemoteSegment(
        key=key or _key(message.remote_log_segment_id.topic_id_partition),
        segment_id=message.remote_log_segment_id.id,
        start_offset=start_offset,
        end_offset=end_offset,
        max_timestamp_ms=message.max_timestamp_ms,
        broker_id=message.broker_id,
        event_timestamp_ms=message.event_timestamp_ms,
        size_bytes=message.segment_size_in_bytes,
        state=SegmentState(message.remote_log_segment_state),
        leader_epochs=epochs,
        custom_metadata=message.custom_metadata,
        transaction_index_is_empty=message.txn_index_empty,
    )


def _update(message: RemoteLogSegmentMetadataUpdateRecord, key: RemotePartitionKey | None) -> SegmentUpdate:
    return SegmentUpdate(
        key=key or _key(message.remote_log_segment_id.topic_id_partition),
        segment_id=message.remote_log_segment_id.id,
        event_timestamp_ms=message.event_timestamp_ms,
        state=SegmentState(message.remote_log_segment_state),
        broker_id=message.broker_id,
        custom_metadata=message.custom_metadata,
    )


def _partition_delete(message: RemotePartitionDeleteMetadataRecord, key: RemotePartitionKey | None) -> PartitionDelete:
    return PartitionDelete(
        key=key or _key(message.topic_id_partition),
        state=PartitionDeleteState(message.remote_partition_delete_state),
        event_timestamp_ms=message.event_timestamp_ms,
        broker_id=message.broker_id,
    )


def _key(entry: TopicIdPartitionEntry) -> RemotePartitionKey:
    return RemotePartitionKey(entry.id, entry.name, entry.partition)
