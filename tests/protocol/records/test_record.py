"""Records in a batch: encoding and decoding, and the refusal of bytes that are no records."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.protocol.records.batch import CorruptBatch, crc_is_valid, read_header
from barnabas.protocol.records.builder import build_batch, record_size_bytes
from barnabas.protocol.records.layout import encode_varint, read_varint, read_varlong, varint_size
from barnabas.protocol.records.record import Record, decode_in_slices, decode_records
from tests.examples import examples

int64 = st.integers(-(2**63), 2**63 - 1)
payload = st.none() | st.binary(max_size=40) | st.sampled_from([b"x" * n for n in (63, 64, 8191, 8192)])
headers = st.lists(st.tuples(st.text(max_size=8), payload), max_size=3).map(tuple)
timestamps = st.integers(0, 2**45) | st.just(-1)
records = st.lists(st.builds(Record, st.just(0), timestamps, payload, payload, headers), min_size=1, max_size=70)


@pytest.mark.feature("PF-10", "PF-11", "PF-12")
@settings(deadline=None, max_examples=examples(60))
@given(records, st.integers(0, 2**50), st.integers(0, 4))
def test_records_come_back_as_they_went_in(batch: list[Record], base_offset: int, codec: int) -> None:
    expected = [record._replace(offset=base_offset + i) for i, record in enumerate(batch)]
    data = build_batch(batch, base_offset=base_offset, compression=codec)
    header = read_header(data)
    assert crc_is_valid(data, 0, header)
    assert header.records_count == len(batch)
    assert header.compression == codec
    assert decode_records(data) == expected
    assert decode_records(memoryview(bytearray(b"junk" + data)), 4) == expected


@pytest.mark.feature("PF-18")
@given(records, st.data())
def test_compaction_keeps_offsets_and_the_range_of_the_batch(batch: list[Record], data: st.DataObject) -> None:
    numbered = [record._replace(offset=100 + i) for i, record in enumerate(batch)]
    kept = data.draw(st.lists(st.sampled_from(numbered), unique_by=id).map(sorted_by_offset))
    compacted = build_batch(
        kept,
        base_offset=100,
        keep_offsets=True,
        last_offset=99 + len(batch),
        producer_id=5,
        producer_epoch=0,
        base_sequence=40,
    )
    header = read_header(compacted)
    assert decode_records(compacted) == kept
    assert header.records_count == len(kept)
    assert (header.base_offset, header.last_offset) == (100, 99 + len(batch))
    assert header.last_sequence == 39 + len(batch)


def sorted_by_offset(batch: list[Record]) -> list[Record]:
    return sorted(batch, key=lambda record: record.offset)


@pytest.mark.feature("PF-10")
def test_headers_keep_their_order_and_repeat_and_even_broken_text() -> None:
    written = Record(0, 5, None, b"", (("b", b"1"), ("a", None), ("b", b"2"), ("", b""), ("\udcff", b"3")))
    assert decode_records(build_batch([written])) == [written]
    assert b"\x02\xff\x023" in build_batch([written])  # the byte itself, not its replacement


def test_the_builder_refuses_values_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="cannot follow"):
        build_batch([Record(5, 0), Record(5, 0)], keep_offsets=True)
    with pytest.raises(ValueError, match="cannot follow"):
        build_batch([Record(2**31, 0)], keep_offsets=True)
    with pytest.raises(ValueError, match="last offset"):
        build_batch([Record(0, 0), Record(0, 0)], last_offset=0)
    with pytest.raises(struct.error):
        build_batch([Record(0, 2**63)])


@given(payload, payload, headers)
def test_the_size_of_a_record_is_not_underestimated(
    key: bytes | None, value: bytes | None, record_headers: tuple[tuple[str, bytes | None], ...]
) -> None:
    record = Record(0, 2**62, key, value, record_headers)
    added = len(build_batch([Record(0, 0), record])) - len(build_batch([Record(0, 0)]))
    assert added <= record_size_bytes(key, value, record_headers)


@pytest.mark.feature("PF-10")
@given(int64)
def test_varints_return(value: int) -> None:
    encoded = encode_varint(value)
    assert read_varlong(encoded + b"\xff", 0) == (value, len(encoded))
    assert varint_size(value) == len(encoded)
    if -(2**31) <= value < 2**31:
        assert read_varint(encoded, 0) == (value, len(encoded))
        assert len(encoded) <= 5


@pytest.mark.feature("PF-10")
def test_small_numbers_of_either_sign_are_short_and_long_ones_have_an_end() -> None:
    assert [encode_varint(n) for n in (0, -1, 1, -64, 63)] == [b"\x00", b"\x01", b"\x02", b"\x7f", b"\x7e"]
    assert len(encode_varint(-65)) == 2
    for overlong in (b"\x80" * 5 + b"\x00", b"\xff\xff\xff\xff\x7f"):
        with pytest.raises(CorruptBatch):
            read_varint(overlong, 0)
    with pytest.raises(CorruptBatch):
        read_varlong(b"\x80" * 10 + b"\x00", 0)
    with pytest.raises(IndexError):
        read_varint(b"\x80\x80", 0)


def with_payload(data: bytes, count: int) -> bytes:
    """A batch whose head is in order and whose records are `data`."""
    batch = bytearray(build_batch([Record(0, 0)])[:61]) + data
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">i", batch, 57, count)
    return bytes(batch)


@pytest.mark.parametrize(
    ("data", "count"),
    [
        (b"", 1),
        (b"", -1),
        (b"\x0c\x00\x00\x00\x01\x01\x00", 2),  # one record, two announced
        (b"\x0c\x00\x00\x00\x01\x01\x00\x00", 1),  # a byte too many
        (b"\x0d\x00\x00\x00\x01\x01\x00", 1),  # a negative length
        (b"\x0e\x00\x00\x00\x01\x01\x00\x00", 1),  # ends before its length
        (b"\x0a\x00\x00\x00\x01\x01\x00", 1),  # ends behind its length
        (b"\x0c\x00\x00\x00\x03\x01\x00", 1),  # a key of length -2
        (b"\x0c\x00\x00\x00\x01\x7e\x00", 1),  # a value beyond the end
        (b"\x0c\x00\x00\x00\x01\x01\x01", 1),  # headers of count -1
        (b"\x14\x00\x00\x00\x01\x01\xfe\xff\xff\xff\x0f", 1),  # two thousand million headers
        (b"\x80\x80\x80\x80\x80\x00", 1),  # an endless varint
    ],
)
def test_records_that_cannot_be_are_corrupt(data: bytes, count: int) -> None:
    with pytest.raises(CorruptBatch):
        decode_records(with_payload(data, count))


def test_a_timestamp_beyond_64_bits_is_corrupt() -> None:
    batch = bytearray(build_batch([Record(0, 2**63 - 1), Record(1, 2**63 - 1)]))
    assert decode_records(batch)[1].timestamp == 2**63 - 1
    batch[61 + 7 + 2] = 2  # the delta of the second
    with pytest.raises(CorruptBatch, match="64 bits"):
        decode_records(batch)


@settings(max_examples=examples(300))
@given(st.binary(max_size=120), st.integers(0, 4), st.integers(-1, 9))
def test_any_bytes_after_a_head_are_records_or_corrupt(data: bytes, codec: int, count: int) -> None:
    batch = bytearray(with_payload(data, count))
    batch[22] = codec
    try:
        assert len(decode_records(bytes(batch), limit_bytes=100_000)) == count
    except CorruptBatch:
        pass


@settings(max_examples=examples(300), deadline=None)
@given(records, st.integers(0, 4), st.data())
def test_a_damaged_batch_is_records_or_corrupt(batch: list[Record], codec: int, data: st.DataObject) -> None:
    built = bytearray(build_batch(batch[:5], compression=codec))
    for _ in range(data.draw(st.integers(1, 4))):
        built[data.draw(st.integers(0, len(built) - 1))] = data.draw(st.integers(0, 255))
    try:
        for record in decode_records(built, limit_bytes=1_000_000):
            assert isinstance(record, Record)
    except CorruptBatch:
        pass


@pytest.mark.parametrize("codec", [0, 4])
@pytest.mark.parametrize("append_time", [None, 77])
def test_records_come_in_slices_as_they_come_at_once(codec: int, append_time: int | None) -> None:
    records = [Record(i, 1000 + i, b"k" if i % 3 else None, b"%d" % i) for i in range(2500)]
    batch = memoryview(build_batch(records, base_offset=40, compression=codec, log_append_time=append_time))
    slices = list(decode_in_slices(batch, 1 << 20, 2500))
    assert [len(each) for each in slices] == [1000, 1000, 500]
    assert [record for each in slices for record in each] == decode_records(batch)
    for limits, problem in (((1 << 20, 2499), "2500 records"), ((1000, 2500), "more than 1000 bytes")):
        if codec or "records" in problem:
            with pytest.raises(CorruptBatch, match=problem):
                list(decode_in_slices(batch, *limits))
    torn = bytearray(build_batch(records, base_offset=40))
    torn[-1] = 2
    with pytest.raises(CorruptBatch, match="1 headers in 0 bytes"):
        list(decode_in_slices(memoryview(torn), 1 << 20, 2500))
