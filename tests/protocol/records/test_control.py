"""Control batches: what brokers write between the records of applications."""

import struct

import pytest

from barnabas.protocol.messages.control_records import (
    Endpoint,
    KRaftVersionFeature,
    KRaftVersionRecord,
    LeaderChangeMessage,
    LeaderChangeMessageVoter,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
    VotersVoter,
)
from barnabas.protocol.records.batch import CorruptBatch, read_header
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.control import (
    ControlType,
    EndTxn,
    RaftControlBody,
    build_end_txn_batch,
    build_raft_control_batch,
    control_type,
    read_end_txn,
    read_raft_control_record,
)
from barnabas.protocol.records.record import Record, decode_records


@pytest.mark.feature("PF-18")
@pytest.mark.parametrize("committed", [True, False])
def test_a_transaction_marker_is_a_batch_of_one_record(committed: bool) -> None:
    batch = build_end_txn_batch(EndTxn(committed, 7), producer_id=9001, producer_epoch=3, timestamp=1234)
    header = read_header(batch)
    assert header.records_count == 1
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9001, 3, -1)
    assert read_end_txn(batch) == EndTxn(committed, 7)
    assert read_end_txn(b"before" + batch + b"behind", 6) == EndTxn(committed, 7)
    [record] = decode_records(batch)
    assert record.key == bytes([0, 0, 0, committed])
    assert record.value == bytes([0, 0, 0, 0, 0, 7])
    assert record.timestamp == 1234


@pytest.mark.feature("PF-18")
def test_the_bodies_of_the_raft_log_come_back() -> None:
    voter = VotersVoter(
        voter_id=1,
        voter_directory_id=bytes(range(16)),
        endpoints=[Endpoint(name="CONTROLLER", host="localhost", port=9093)],
        k_raft_version_feature=KRaftVersionFeature(min_supported_version=0, max_supported_version=1),
    )
    bodies: list[RaftControlBody] = [
        LeaderChangeMessage(version=1, leader_id=2, voters=[LeaderChangeMessageVoter(voter_id=2)]),
        SnapshotHeaderRecord(last_contained_log_timestamp=99),
        KRaftVersionRecord(k_raft_version=1),
        VotersRecord(voters=[voter]),
        SnapshotFooterRecord(),
    ]
    batch = build_raft_control_batch(bodies, base_offset=40, leader_epoch=6, timestamp=5)
    header = read_header(batch)
    assert header.is_control
    assert not header.is_transactional
    assert (header.base_offset, header.last_offset, header.partition_leader_epoch) == (40, 44, 6)
    records = decode_records(batch)
    assert [read_raft_control_record(record) for record in records] == bodies
    assert [control_type(record) for record in records] == [2, 3, 5, 6, 4]
    assert read_end_txn(batch) is None


@pytest.mark.feature("PF-18")
def test_a_control_batch_that_was_compacted_away_keeps_its_range_and_says_nothing() -> None:
    empty = build_batch([], base_offset=9, last_offset=9, control=True, producer_id=1, producer_epoch=0)
    assert read_header(empty).next_offset == 10
    assert read_header(empty).records_count == 0
    assert read_end_txn(empty) is None


def test_a_kind_of_a_later_day_is_stepped_over() -> None:
    record = Record(0, 0, struct.pack(">hh", 1, 77), b"whatever")
    assert control_type(record) is None
    assert read_raft_control_record(record) is None
    assert control_type(record._replace(key=struct.pack(">hh", 1, 0))) is ControlType.ABORT


@pytest.mark.parametrize(
    "record",
    [
        Record(0, 0, None, b"\0" * 6),
        Record(0, 0, b"\0\0\0", b"\0" * 6),
        Record(0, 0, b"\xff\xff\0\0", b"\0" * 6),
        Record(0, 0, b"\0\0\0\0", None),
        Record(0, 0, b"\0\0\0\1", b"\0" * 5),
        Record(0, 0, b"\0\0\0\1", b"\xff\xff\0\0\0\0"),
    ],
)
def test_a_broken_transaction_marker_is_corrupt(record: Record) -> None:
    with pytest.raises(CorruptBatch):
        read_end_txn(build_batch([record], control=True))


@pytest.mark.parametrize("value", [None, b"", b"\0", b"\0\0", b"\0\0\xff", b"\0\1\0\0\0\1\xff\xff\xff\xff\x0f"])
def test_a_broken_body_of_the_raft_log_is_corrupt(value: bytes | None) -> None:
    with pytest.raises(CorruptBatch):
        read_raft_control_record(Record(0, 0, b"\0\0\0\2", value))
