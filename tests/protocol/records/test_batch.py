"""Heads of batches: what a broker reads of them and writes into them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.records.batch import (
    BATCH_HEADER_BYTES,
    CorruptBatch,
    add_to_sequence,
    crc_is_valid,
    iterate_batches,
    read_header,
    set_base_offset_and_epoch,
    set_log_append_time,
)
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.record import Record, decode_records

RECORDS = [Record(0, 1000, b"k", b"v"), Record(1, 1007, None, b"w"), Record(2, 1003, b"k", None)]


@pytest.mark.feature("PF-07")
def test_a_head_has_61_bytes_and_describes_the_batch() -> None:
    batch = build_batch(RECORDS, base_offset=7, producer_id=9, producer_epoch=2, base_sequence=30, leader_epoch=4)
    header = read_header(batch[:BATCH_HEADER_BYTES])
    assert header.base_offset == 7
    assert header.last_offset == 9
    assert header.next_offset == 10
    assert header.size_bytes == len(batch)
    assert header.records_count == 3
    assert (header.base_timestamp, header.max_timestamp) == (1000, 1007)
    assert (header.producer_id, header.producer_epoch) == (9, 2)
    assert (header.base_sequence, header.last_sequence) == (30, 32)
    assert header.partition_leader_epoch == 4
    assert header.has_producer_id
    assert (header.compression, header.is_transactional, header.is_control) == (0, False, False)


@pytest.mark.feature("PF-09")
@pytest.mark.parametrize("bit", ["transactional", "control"])
def test_each_attribute_bit_has_a_name(bit: str) -> None:
    plain = read_header(build_batch(RECORDS))
    marked = read_header(build_batch(RECORDS, **{bit: True}))  # type: ignore[arg-type]
    assert not getattr(plain, f"is_{bit}")
    assert getattr(marked, f"is_{bit}")


@pytest.mark.feature("PF-09")
def test_a_delete_horizon_takes_the_place_of_the_base_timestamp_and_the_records_keep_theirs() -> None:
    batch = build_batch(RECORDS, delete_horizon_ms=99_000)
    header = read_header(batch)
    assert header.has_delete_horizon
    assert header.delete_horizon_ms == 99_000
    assert decode_records(batch) == RECORDS
    assert read_header(build_batch(RECORDS)).delete_horizon_ms is None


@pytest.mark.feature("PF-08")
def test_a_leader_gives_offset_and_epoch_without_touching_the_crc() -> None:
    batch = bytearray(build_batch(RECORDS))
    crc = read_header(batch).crc
    set_base_offset_and_epoch(memoryview(batch), 0, 5_000_000_000, 12)
    header = read_header(batch)
    assert (header.base_offset, header.partition_leader_epoch, header.crc) == (5_000_000_000, 12, crc)
    assert crc_is_valid(batch, 0, header)
    assert [record.offset for record in decode_records(batch)] == [5_000_000_000 + i for i in range(3)]


@pytest.mark.feature("PF-13")
def test_log_append_time_is_stamped_by_the_broker_and_read_by_all() -> None:
    first = build_batch(RECORDS)
    buffer = bytearray(first + build_batch(RECORDS))
    set_log_append_time(buffer, len(first), 77_000)
    header = read_header(buffer, len(first))
    assert header.is_log_append_time
    assert header.max_timestamp == 77_000
    assert crc_is_valid(buffer, len(first), header)
    assert {record.timestamp for record in decode_records(buffer, len(first))} == {77_000}
    assert bytes(buffer[: len(first)]) == first


@pytest.mark.feature("PF-08")
@given(position=st.integers(21, 100), change=st.integers(1, 255))
def test_the_crc_finds_any_changed_byte_behind_it(position: int, change: int) -> None:
    batch = bytearray(build_batch(RECORDS))
    position = 21 + position % (len(batch) - 21)
    batch[position] ^= change
    assert not crc_is_valid(batch, 0, read_header(build_batch(RECORDS)))


def test_the_crc_of_a_cut_batch_is_not_valid() -> None:
    batch = build_batch(RECORDS)
    assert not crc_is_valid(batch[:-1], 0, read_header(batch))


def test_sequences_wrap_to_zero() -> None:
    assert add_to_sequence(2**31 - 1, 1) == 0
    assert add_to_sequence(2**31 - 2, 1) == 2**31 - 1
    header = read_header(build_batch(RECORDS, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2))
    assert header.last_sequence == 0
    assert read_header(build_batch(RECORDS)).last_sequence == -1


@pytest.mark.parametrize(
    ("position", "replacement", "complaint"),
    [
        (16, b"\x03", "unknown magic 3"),
        (16, b"\xff", "unknown magic -1"),
        (8, b"\x00\x00\x00\x30", "batch length 48"),
        (8, b"\xff\xff\xff\xff", "batch length -1"),
    ],
)
def test_a_head_that_cannot_be_is_corrupt(position: int, replacement: bytes, complaint: str) -> None:
    batch = bytearray(build_batch(RECORDS))
    batch[position : position + len(replacement)] = replacement
    with pytest.raises(CorruptBatch, match=complaint) as caught:
        read_header(batch)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    with pytest.raises(CorruptBatch, match=complaint):
        list(iterate_batches(batch))


@given(st.binary(max_size=200))
def test_any_bytes_are_batches_or_corrupt(data: bytes) -> None:
    try:
        position = 0
        for start, header in iterate_batches(data):
            assert start == position
            position = start + header.size_bytes
            assert position <= len(data)
    except CorruptBatch:
        pass


def test_batches_are_found_one_after_another_from_any_of_them() -> None:
    batches = [build_batch(RECORDS[: n + 1], base_offset=10 * n) for n in range(3)]
    buffer = memoryview(b"".join(batches))
    assert [header.base_offset for _, header in iterate_batches(buffer)] == [0, 10, 20]
    assert [header.base_offset for _, header in iterate_batches(buffer, len(batches[0]))] == [10, 20]
