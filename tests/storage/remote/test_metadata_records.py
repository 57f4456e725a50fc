"""Records of `__remote_log_metadata`: the bytes are those of Kafka's RemoteLogMetadataSerde."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol.errors import MalformedMessage
from barnabas.protocol.messages.remote_log_metadata import (
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataSnapshotRecord,
    SegmentLeaderEpochEntry,
)
from barnabas.protocol.records.metadata import encode_metadata_record
from barnabas.storage.remote.metadata_records import decode, encode, metadata_partition, partition_of
from barnabas.storage.remote.segment import (
    MetadataRecord,
    PartitionDelete,
    PartitionDeleteState,
    RemotePartitionKey,
    RemoteSegment,
    SegmentState,
    SegmentUpdate,
)
from tests.storage.remote.kafkas import epochs_in, lines
from tests.storage.remote.remote_rig import KEY, segment

pytestmark = pytest.mark.feature("TS-04")


def custom(text: str) -> bytes | None:
    return None if text == "-" else bytes.fromhex(text[1:])


def record_in(fields: list[str]) -> MetadataRecord:
    kind, topic, topic_id, partition, *rest = fields
    key = RemotePartitionKey(bytes.fromhex(topic_id), topic, int(partition))
    if kind == "delete":
        state, time_ms, broker = map(int, rest)
        return PartitionDelete(key, PartitionDeleteState(state), time_ms, broker)
    if kind == "update":
        segment_id, update_time_ms, segment_state, broker_id, metadata = rest
        return SegmentUpdate(
            key,
            bytes.fromhex(segment_id),
            int(update_time_ms),
            SegmentState(int(segment_state)),
            int(broker_id),
            custom(metadata),
        )
    segment_id, *numbers, epochs, metadata, no_transactions = rest
    start, end, max_time_ms, broker, time_ms, size, state = map(int, numbers)
    return RemoteSegment(
        key,
        bytes.fromhex(segment_id),
        start,
        end,
        max_time_ms,
        broker,
        time_ms,
        size,
        SegmentState(state),
        tuple(sorted(epochs_in(epochs).items())),
        custom(metadata),
        transaction_index_is_empty=no_transactions == "true",
    )


@pytest.mark.parametrize("line", lines("record"))
def test_bytes_are_those_of_kafka(line: str) -> None:
    *fields, written = line.split(" ")
    record, value = record_in(fields), bytes.fromhex(written)
    assert encode(record) == value
    assert decode(value) == record
    assert partition_of(value) == (record.key.topic_id, record.key.partition)


def test_a_record_is_in_the_partition_that_kafka_computes() -> None:
    for line in lines("partition"):
        topic_id, partition, count, found = line.split(" ")
        key = RemotePartitionKey(bytes.fromhex(topic_id), "any", int(partition))
        assert metadata_partition(key, int(count)) == int(found)


def written(**changes: object) -> bytes:
    message = RemoteLogSegmentMetadataRecord(end_offset=9, segment_leader_epochs=[SegmentLeaderEpochEntry()])
    for name, value in changes.items():
        setattr(message, name, value)
    return encode_metadata_record(message, 0)


TOO_MANY = [SegmentLeaderEpochEntry(leader_epoch=each) for each in range(5_001)]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "ends within its frame"),
        (b"\x02\x00\x00", "frame version 2"),
        (b"\x01\x63\x00", "no metadata record has the type 99"),
        (encode_metadata_record(RemoteLogSegmentMetadataSnapshotRecord(), 0), "has the type 3"),
        (written(start_offset=-1), "got -1 to 9"),
        (written(start_offset=10), "got 10 to 9"),
        (written(segment_leader_epochs=[]), "1 to 5000 leader epochs; got 0"),
        (written(segment_leader_epochs=TOO_MANY), "got 5001"),
        (written(remote_log_segment_state=4), "4 is not a valid SegmentState"),
    ],
)
def test_a_record_that_says_nothing_possible_is_refused(value: bytes, reason: str) -> None:
    with pytest.raises(MalformedMessage, match=reason):
        decode(value)


@given(st.data())
def test_a_damaged_record_is_refused_or_read_but_nothing_else(data: st.DataObject) -> None:
    value = bytearray(encode(segment(1, 0, 9)))
    for _ in range(data.draw(st.integers(1, 3))):
        value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(value[: data.draw(st.integers(0, len(value)))])
    try:
        record = decode(damaged)
    except MalformedMessage:
        record = None
    try:
        found = partition_of(damaged)
    except MalformedMessage:
        found = None
    if record is not None:
        assert found == (record.key.topic_id, record.key.partition)


def test_epochs_are_read_in_order() -> None:
    entries = [SegmentLeaderEpochEntry(leader_epoch=epoch, offset=offset) for epoch, offset in ((7, 5), (2, 0))]
    record = decode(written(segment_leader_epochs=entries))
    assert isinstance(record, RemoteSegment)
    assert record.leader_epochs == ((2, 0), (7, 5))


def test_a_topic_that_was_created_again_has_records_of_its_own() -> None:
    again = KEY._replace(topic_id=bytes(16))
    assert partition_of(encode(segment(1, 0, 9))) != partition_of(encode(segment(1, 0, 9, key=again)))
