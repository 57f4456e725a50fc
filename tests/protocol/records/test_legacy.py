"""Message sets of magic 0 and 1, put together by hand."""

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol.records.batch import CorruptBatch, crc_is_valid, iterate_batches, read_header
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.compression import compress
from barnabas.protocol.records.legacy import mend_lz4_header, xxhash32_short
from barnabas.protocol.records.record import Record, decode_records


def message(
    offset: int,
    value: bytes | None,
    *,
    magic: int = 1,
    attributes: int = 0,
    timestamp: int = 50,
    key: bytes | None = None,
) -> bytes:
    body = struct.pack(">bb", magic, attributes) + (struct.pack(">q", timestamp) if magic else b"")
    for part in (key, value):
        body += struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def wrapper(
    codec: int, inner: bytes, offset: int, *, magic: int = 1, attributes: int = 0, timestamp: int = 50
) -> bytes:
    value = compress(codec, inner)
    return message(offset, value, magic=magic, attributes=codec | attributes, timestamp=timestamp)


@pytest.mark.feature("PF-14")
def test_a_message_of_magic_0_has_no_timestamp() -> None:
    data = message(7, b"v", magic=0, key=b"k")
    assert decode_records(data) == [Record(7, -1, b"k", b"v")]
    assert crc_is_valid(data, 0, read_header(data))
    assert not crc_is_valid(data[:-1] + b"w", 0, read_header(data))


@pytest.mark.feature("PF-15")
def test_a_message_of_magic_1_has_a_timestamp_and_its_type() -> None:
    data = message(7, None, timestamp=99, attributes=8)
    assert decode_records(data) == [Record(7, 99, None, None)]
    assert read_header(data).is_log_append_time
    assert read_header(data).max_timestamp == 99


@pytest.mark.feature("PF-16")
@pytest.mark.parametrize("codec", [1, 2, 3])
def test_a_wrapper_of_magic_1_bears_the_last_offset_and_its_messages_count_from_zero(codec: int) -> None:
    inner = message(0, b"a") + message(1, b"b", timestamp=51) + message(4, b"e", timestamp=52)
    records = decode_records(wrapper(codec, inner, 104, timestamp=52))
    assert [(record.offset, record.timestamp, record.value) for record in records] == [
        (100, 50, b"a"),
        (101, 51, b"b"),
        (104, 52, b"e"),
    ]


@pytest.mark.feature("PF-16")
def test_a_wrapper_of_magic_0_has_absolute_offsets_inside() -> None:
    inner = message(100, b"a", magic=0) + message(104, b"e", magic=0)
    records = decode_records(wrapper(1, inner, 104, magic=0))
    assert [record.offset for record in records] == [100, 104]


@pytest.mark.feature("PF-13", "PF-16")
def test_log_append_time_on_the_wrapper_holds_for_all_inside() -> None:
    inner = message(0, b"a") + message(1, b"b")
    records = decode_records(wrapper(1, inner, 11, attributes=8, timestamp=900))
    assert [record.timestamp for record in records] == [900, 900]


@pytest.mark.feature("PF-16")
def test_a_wrapper_without_an_offset_counts_from_zero() -> None:
    records = decode_records(wrapper(1, message(0, b"a") + message(1, b"b"), 0))
    assert [record.offset for record in records] == [0, 1]


def broken() -> list[object]:
    good = message(0, b"a") + message(1, b"b")
    bad_crc = bytearray(good)
    bad_crc[-1] ^= 1
    return [
        pytest.param(wrapper(1, wrapper(1, good, 1), 1), id="a wrapper in a wrapper"),
        pytest.param(wrapper(1, b"", 1), id="an empty wrapper"),
        pytest.param(wrapper(1, good[:-1], 1), id="cut short inside"),
        pytest.param(wrapper(1, bytes(bad_crc), 1), id="a broken CRC inside"),
        pytest.param(wrapper(1, message(5, b"a"), 3), id="an offset inside beyond the wrapper's"),
        pytest.param(wrapper(1, build_batch([Record(0, 0)]), 1), id="a batch of magic 2 inside"),
        pytest.param(wrapper(4, good, 1), id="zstd"),
        pytest.param(message(0, None, attributes=1), id="a wrapper around nothing"),
        pytest.param(message(0, b"no gzip", attributes=1), id="a wrapper around noise"),
    ]


@pytest.mark.feature("PF-16")
@pytest.mark.parametrize("data", broken())
def test_a_wrapper_that_is_none_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptBatch):
        decode_records(data)


def test_the_hash_of_lz4_frames_is_xxhash32() -> None:
    assert xxhash32_short(b"") == 0x02CC5D05
    assert xxhash32_short(b"a") == 0x550D7456
    assert xxhash32_short(b"abc") == 0x32D153FF
    assert xxhash32_short(b"Hello World") == 0xB1FD16EE


@pytest.mark.feature("PF-12", "PF-16")
@pytest.mark.parametrize("checksum", [0x00, 0x12, 0xFF])
def test_the_header_checksum_of_old_lz4_frames_does_not_matter(checksum: int) -> None:
    frame = bytearray(compress(3, message(0, b"a") + message(1, b"b")))
    assert mend_lz4_header(bytes(frame)) == bytes(frame)
    frame[6] = checksum
    records = decode_records(message(1, bytes(frame), attributes=3))
    assert [record.value for record in records] == [b"a", b"b"]


@pytest.mark.feature("PF-17")
def test_a_log_of_three_formats_is_walked_in_one_go() -> None:
    log = (
        message(0, b"a", magic=0)
        + wrapper(1, message(0, b"b") + message(1, b"c"), 2)
        + build_batch([Record(0, 60, None, b"d")], base_offset=3)
    )
    walked = [record for position, _ in iterate_batches(log) for record in decode_records(log, position)]
    assert [(record.offset, record.value) for record in walked] == [
        (0, b"a"),
        (1, b"b"),
        (2, b"c"),
        (3, b"d"),
    ]


@given(st.binary(max_size=80), st.integers(0, 1), st.integers(0, 15))
def test_any_message_is_records_or_corrupt(data: bytes, magic: int, attributes: int) -> None:
    body = struct.pack(">bb", magic, attributes) + data
    framed = struct.pack(">qiI", 3, len(body) + 4, zlib.crc32(body)) + body
    for stream in (framed, framed[:-1], message(9, data, magic=magic, attributes=attributes)):
        try:
            assert decode_records(stream, limit_bytes=10_000)
        except CorruptBatch:
            pass
