"""Batches of format v2 become message sets of magic 0 and 1, and those become batches."""

from __future__ import annotations

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.batch import CorruptBatch, crc_is_valid, iterate_batches, read_header
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.compression import Compression
from barnabas.protocol.records.control import EndTxn, build_end_txn_batch
from barnabas.protocol.records.conversion import build_message_set, down_convert, up_convert
from barnabas.protocol.records.layout import Fields
from barnabas.protocol.records.record import decode_fields

pytestmark = pytest.mark.feature("PF-17")

LIMIT = 1 << 20
OLD_CODECS = (Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4)
some_bytes = st.none() | st.binary(max_size=40)
records_of_a_batch = st.lists(st.tuples(st.integers(0, 1 << 40), some_bytes, some_bytes), min_size=1, max_size=12)


def fields(contents: list[tuple[int, bytes | None, bytes | None]], base_offset: int = 0) -> list[Fields]:
    return [(base_offset + at, time, key, value, (("h", b"x"),)) for at, (time, key, value) in enumerate(contents)]


def converted(batch: bytes, magic: int, from_offset: int = 0) -> bytes:
    return down_convert(memoryview(batch), read_header(batch), magic, from_offset, LIMIT)[0]


def read_all(messages: bytes) -> list[Fields]:
    found: list[Fields] = []
    for position, header in iterate_batches(messages):
        assert crc_is_valid(messages, position, header)
        found += decode_fields(messages, position, LIMIT)
    return found


@given(records_of_a_batch, st.sampled_from(OLD_CODECS), st.sampled_from((0, 1)), st.integers(0, 1 << 50))
def test_an_old_consumer_gets_the_records_without_headers(
    contents: list[tuple[int, bytes | None, bytes | None]], codec: Compression, magic: int, base_offset: int
) -> None:
    batch = build_batch(fields(contents), base_offset=base_offset, compression=codec)
    messages = converted(batch, magic)
    headers = [header for _, header in iterate_batches(messages)]
    assert {(header.magic, header.compression) for header in headers} == {(magic, codec)}
    assert len(headers) == (1 if codec else len(contents))
    assert read_all(messages) == [
        (base_offset + at, time if magic else -1, key, value, ()) for at, (time, key, value) in enumerate(contents)
    ]


@given(records_of_a_batch, st.sampled_from(OLD_CODECS), st.sampled_from((0, 1)))
def test_a_message_set_of_an_old_producer_becomes_one_batch(
    contents: list[tuple[int, bytes | None, bytes | None]], codec: Compression, magic: int
) -> None:
    sent = build_message_set(fields(contents), magic, codec)
    batch, count = up_convert(memoryview(sent), LIMIT)
    header = read_header(batch)
    assert (header.magic, header.compression, header.records_count, count) == (2, codec, len(contents), len(contents))
    assert crc_is_valid(batch, 0, header)
    assert decode_fields(batch) == [
        (at, time if magic else -1, key, value, ()) for at, (time, key, value) in enumerate(contents)
    ]


def test_records_below_the_offset_are_left_out_unless_they_are_compressed() -> None:
    contents: list[tuple[int, bytes | None, bytes | None]] = [(7, b"k", b"v")] * 5
    plain = build_batch(fields(contents), base_offset=100)
    packed = build_batch(fields(contents), base_offset=100, compression=Compression.GZIP)
    assert [record[0] for record in read_all(converted(plain, 1, from_offset=103))] == [103, 104]
    assert [record[0] for record in read_all(converted(packed, 1, from_offset=103))] == [100, 101, 102, 103, 104]


def test_control_batches_are_skipped_and_older_messages_stay_as_they_are() -> None:
    assert converted(build_end_txn_batch(EndTxn(True, 0), 7, 0, 5), 1) == b""
    old = build_message_set(fields([(3, b"k", b"v")]), 0)
    assert converted(old, 1) == old
    newer = build_message_set(fields([(3, b"k", b"v")]), 1)
    assert converted(newer, 0) == old


def test_zstd_is_refused_and_the_append_time_is_kept() -> None:
    packed = build_batch(fields([(3, b"k", b"v")]), compression=Compression.ZSTD)
    with pytest.raises(KafkaError) as refused:
        converted(packed, 1)
    assert refused.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    for codec in (Compression.NONE, Compression.GZIP):
        stamped = build_batch(fields([(3, b"k", b"v")]), compression=codec, log_append_time=99)
        messages = converted(stamped, 1)
        assert read_header(messages).is_log_append_time
        assert [record[1] for record in read_all(messages)] == [99]


def test_the_bytes_of_a_message_are_those_of_the_specification() -> None:
    body = struct.pack(">bbqi1si1s", 1, 0, 1234, 1, b"k", 1, b"v")
    expected = struct.pack(">qiI", 8, 4 + len(body), zlib.crc32(body)) + body
    assert build_message_set([(8, 1234, b"k", b"v", ())], 1) == expected


@pytest.mark.parametrize("damage", ["crc", "cut", "magic", "two wrappers", "append time", "empty"])
def test_a_damaged_message_set_is_refused(damage: str) -> None:
    sent = build_message_set(fields([(3, b"k", b"v"), (4, b"k", b"w")]), 1)
    code = ErrorCode.CORRUPT_MESSAGE
    if damage == "crc":
        sent = sent[:-1] + b"x"
    elif damage == "cut":
        sent = sent[:-1]
    elif damage == "magic":
        sent, code = build_batch(fields([(3, b"k", b"v")])), ErrorCode.INVALID_RECORD
    elif damage == "two wrappers":
        sent, code = 2 * build_message_set(fields([(3, b"k", b"v")]), 1, Compression.GZIP), ErrorCode.INVALID_RECORD
    elif damage == "append time":
        sent = build_message_set(fields([(3, b"k", b"v")]), 1, log_append_time=True)
        code = ErrorCode.INVALID_TIMESTAMP
    else:
        sent = b""
    with pytest.raises(KafkaError) as refused:
        up_convert(memoryview(sent), LIMIT)
    assert refused.value.code is code
    assert damage != "cut" or isinstance(refused.value, CorruptBatch)
