"""Columns have the same values as the records that `decode_records` returns."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyarrow")
pytest.importorskip("numpy")

import numpy as np
import pyarrow as pa

from barnabas.pipeline import columns
from barnabas.pipeline.columns import END, Columns, Progress, Window, decode_columns
from barnabas.pipeline.record_positions import RecordPositions
from barnabas.pipeline.varints import read_varints, read_varlongs
from barnabas.protocol.records.batch import (
    CorruptBatch,
    iterate_batches,
    set_base_offset_and_epoch,
    set_log_append_time,
)
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.control import EndTxn, build_end_txn_batch
from barnabas.protocol.records.record import Record, decode_records
from tests.examples import examples
from tests.protocol.records.poison import batch_around, zeros

few = settings(max_examples=examples(30))
"""Few examples, because each has many records."""

Row = tuple[int, int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]] | None]

small_bytes = st.none() | st.binary(max_size=12) | st.sampled_from([b"x" * 62, b"y" * 63, b"z" * 64, b"w" * 200])
headers = st.lists(st.tuples(st.text(max_size=4), st.none() | st.binary(max_size=70)), max_size=3).map(tuple)
timestamps = st.integers(0, 1 << 41) | st.sampled_from([-1, 0, 63, 64, 1 << 20, 1 << 62])


@st.composite
def batch_of_records(draw: st.DrawFn) -> tuple[list[Record], dict[str, Any]]:
    alike = draw(st.booleans())
    count = draw(st.integers(1, 90 if alike else 8))
    rows = []
    offset = 0
    for index in range(count):
        if alike and index:
            rows.append(Record(offset, rows[0].timestamp + index, rows[0].key, rows[0].value, rows[0].headers))
        else:
            rows.append(Record(offset, draw(timestamps), draw(small_bytes), draw(small_bytes), draw(headers)))
        # Compaction leaves gaps.
        offset += 1 if alike else draw(st.sampled_from([1, 1, 1, 2, 9000]))
    options = {
        "compression": draw(st.sampled_from([0, 0, 1, 2, 3, 4])),
        "keep_offsets": True,
        "last_offset": offset - 1 + draw(st.integers(0, 3)),
    }
    if draw(st.integers(0, 3)) == 0:
        options["log_append_time"] = draw(st.integers(0, 1 << 40))
    return rows, options


@st.composite
def log_of_batches(draw: st.DrawFn) -> bytes:
    """Consecutive batches of one log."""
    log, offset = b"", draw(st.sampled_from([0, 7, 1 << 40]))
    for rows, options in draw(st.lists(batch_of_records(), min_size=1, max_size=4)):
        moved = [row._replace(offset=row.offset + offset) for row in rows]
        options["last_offset"] += offset
        log += build_batch(moved, base_offset=offset, **options)
        offset = options["last_offset"] + 1 + draw(st.integers(0, 2))
    return log


def rows_of(all_columns: Iterable[Columns]) -> list[Row]:
    rows: list[Row] = []
    for each in all_columns:
        found = each.headers.to_pylist() if each.headers is not None else [None] * len(each)
        for index, pairs in enumerate(found):
            rows.append(
                (
                    int(each.offsets[index]),
                    int(each.timestamps[index]),
                    int(each.timestamp_types[index]),
                    each.keys[index].as_py(),
                    each.values[index].as_py(),
                    None if pairs is None else [(pair["key"], pair["value"]) for pair in pairs],
                )
            )
    return rows


def judged(log: bytes, window: Window = columns.ALL) -> list[Row]:
    """The rows as the record decoder reads them."""
    rows: list[Row] = []
    for place, header in iterate_batches(log):
        if header.is_control:
            continue
        kind = -1 if header.magic == 0 else int(header.is_log_append_time)
        for record in decode_records(log, place):
            in_time = window.from_timestamp <= record.timestamp < window.until_timestamp
            if window.from_offset <= record.offset < window.until_offset and in_time:
                pairs = list(record.headers) or None
                rows.append((record.offset, record.timestamp, kind, record.key, record.value, pairs))
    return rows


@few
@given(log_of_batches())
def test_columns_hold_what_the_records_hold(log: bytes) -> None:
    assert rows_of(decode_columns(log, include_headers=True)) == judged(log)


@few
@given(log_of_batches(), st.data())
def test_a_range_may_start_and_end_within_batches(log: bytes, data: st.DataObject) -> None:
    offsets = [row[0] for row in judged(log)]
    first = data.draw(st.integers(offsets[0] - 1, offsets[-1] + 1))
    until = data.draw(st.integers(first, offsets[-1] + 2))
    window = Window(max(first, 0), until)
    assert rows_of(decode_columns(log, window, include_headers=True)) == judged(log, window)


@few
@given(log_of_batches(), st.data())
def test_records_are_chosen_by_time(log: bytes, data: st.DataObject) -> None:
    times = sorted(row[1] for row in judged(log))
    first = data.draw(st.sampled_from(times))
    until = data.draw(st.sampled_from([*times, times[-1] + 1]))
    window = Window(0, END, first, until)
    assert rows_of(decode_columns(log, window, include_headers=True)) == judged(log, window)


@few
@given(log_of_batches(), st.integers(0, 10_000))
def test_a_fetch_may_end_within_a_batch(log: bytes, cut: int) -> None:
    cut %= len(log)
    progress = Progress(0)
    rows = rows_of(decode_columns(log[:cut], include_headers=True, progress=progress))
    assert rows == judged(log[:cut])
    rest = rows_of(decode_columns(log, Window(progress.next_offset), include_headers=True))
    assert rows + rest == judged(log)


@few
@given(log_of_batches(), st.data())
def test_a_damaged_batch_is_an_error(log: bytes, data: st.DataObject) -> None:
    place, header = data.draw(st.sampled_from(list(iterate_batches(log))))
    damaged = bytearray(log)
    # Bytes before the CRC may change, and do when a leader writes them.
    damaged[place + data.draw(st.integers(17, header.size_bytes - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CorruptBatch, match=str(header.base_offset)):
        list(decode_columns(damaged, include_headers=True))


@few
@given(log_of_batches(), st.data())
def test_hostile_records_with_a_valid_crc_are_an_error(log: bytes, data: st.DataObject) -> None:
    damaged = bytearray(log)
    [*_, (place, _)] = iterate_batches(log)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(place + 61, len(log) - 1))] = data.draw(st.integers(0, 255))
    try:
        expected: list[Row] | None = judged(bytes(damaged))
    except CorruptBatch:
        expected = None
    try:
        rows = rows_of(decode_columns(damaged, include_headers=True, check_crcs=False))
    except CorruptBatch:
        return
    if expected is not None:
        wanted = [(*row[:5], row[5] and [(as_text(key), value) for key, value in row[5]]) for row in expected]
        assert rows == wanted


@pytest.mark.parametrize(
    ("bomb", "problem"),
    [
        (zeros(65 << 20, 4), "offset 0: .* more than 67108864 bytes"),
        (batch_around(b"", 3_000_000), "3000000 at offset 0"),
    ],
    ids=["too many bytes", "too many records"],
)
def test_a_bomb_is_not_unfolded(bomb: bytes, problem: str) -> None:
    with pytest.raises(CorruptBatch, match=problem):
        list(decode_columns(bomb, include_headers=True))


def as_text(key: str) -> str:
    """A header key as a string, with invalid UTF-8 replaced."""
    return key.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def test_groups_of_batches_are_read_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    log = b"".join(
        build_batch([Record(0, 5, b"k", b"v" * 100)] * 20, base_offset=base, compression=base // 20 % 5)
        for base in range(0, 400, 20)
    )
    monkeypatch.setattr(columns, "GROUP_BYTES", 5_000)
    progress = Progress(0)
    read = []
    for each in decode_columns(log, progress=progress):
        read += each.offsets.tolist()
        assert progress.next_offset >= read[-1] + 1
    assert read == list(range(400))
    assert progress.next_offset == 400


@pytest.mark.feature("PL-02")
def test_aborted_records_and_markers_are_left_out() -> None:
    def data(base: int, producer: int, *, transactional: bool = True) -> bytes:
        rows = [Record(0, 1, None, b"%d" % producer)] * 2
        return build_batch(
            rows, base_offset=base, producer_id=producer, producer_epoch=0, base_sequence=0, transactional=transactional
        )

    def marker(base: int, producer: int, committed: bool) -> bytes:
        batch = bytearray(build_end_txn_batch(EndTxn(committed, 0), producer, 0, 1))
        set_base_offset_and_epoch(batch, 0, base, 0)
        return bytes(batch)

    log = b"".join(
        [
            data(0, 1),
            data(2, 2),
            data(4, 3, transactional=False),
            marker(6, 1, False),
            data(7, 1),
            marker(9, 2, True),
            marker(10, 1, True),
            data(11, 2),
            marker(13, 2, False),
        ]
    )
    aborted = [(1, 0), (2, 11)]
    progress = Progress(0)
    [read] = decode_columns(log, aborted=aborted, progress=progress)
    assert read.offsets.tolist() == [2, 3, 4, 5, 7, 8]
    assert progress.next_offset == 14, "the reader is behind the last marker, though there was no record"
    [everything] = decode_columns(log)
    assert everything.offsets.tolist() == [0, 1, 2, 3, 4, 5, 7, 8, 11, 12]
    # A read that begins after the first offset of an aborted transaction still leaves it out.
    [later] = decode_columns(log, Window(1), aborted=aborted)
    assert later.offsets.tolist() == [2, 3, 4, 5, 7, 8]


def test_an_empty_batch_moves_on() -> None:
    log = build_batch([], base_offset=4, last_offset=9, producer_id=3, producer_epoch=0, base_sequence=0)
    progress = Progress(4)
    assert list(decode_columns(log, Window(4), progress=progress)) == []
    assert progress.next_offset == 10


def message(offset: int, value: bytes | None, magic: int, attributes: int = 0, timestamp: int = 50) -> bytes:
    """One message of magic 0 or 1."""
    body = struct.pack(">bb", magic, attributes) + (struct.pack(">q", timestamp) if magic else b"")
    body += struct.pack(">i", -1) + (struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value)
    body = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", offset, len(body)) + body


def test_a_log_may_hold_all_formats() -> None:
    inner = b"".join(message(index, b"%d" % index, 1, timestamp=60 + index) for index in range(3))
    log = message(10, b"old", 0) + message(11, None, 1) + message(14, gzip.compress(inner), 1, attributes=1)
    log += message(15, b"broker", 1, attributes=8, timestamp=99) + build_batch(
        [Record(0, 7, b"k", b"new")], base_offset=16
    )
    rows = rows_of(decode_columns(log, include_headers=True))
    assert rows == judged(log)
    assert [(row[0], row[2]) for row in rows] == [(10, -1), (11, 0), (12, 0), (13, 0), (14, 0), (15, 1), (16, 0)]
    for first in range(10, 18):
        for until in range(first, 19):
            window = Window(first, until)
            assert rows_of(decode_columns(log, window, include_headers=True)) == judged(log, window)


def test_a_key_of_a_header_that_is_no_text_does_not_stop_the_reading() -> None:
    log = bytearray(build_batch([Record(0, 1, None, b"v", (("ab", b"1"),))]))
    log[log.index(b"ab")] = 0xFF
    [read] = decode_columns(log, include_headers=True, check_crcs=False)
    assert read.headers.to_pylist() == [[{"key": "\ufffdb", "value": b"1"}]]


def test_a_batch_of_the_log_append_time_has_it_for_all_records() -> None:
    batch = bytearray(build_batch([Record(0, 5, None, b"a"), Record(1, 6, None, b"b")]))
    set_log_append_time(batch, 0, 777)
    [read] = decode_columns(batch)
    assert (read.timestamps.tolist(), read.timestamp_types.tolist()) == ([777, 777], [1, 1])


def test_a_record_batch_has_the_columns_of_sparks_own_source() -> None:
    log = build_batch([Record(0, 1_700_000_000_123, b"k", None, (("h", None),)), Record(1, -1, None, b"v")])
    [read] = decode_columns(log, include_headers=True)
    batch = read.record_batch("flights", 4)
    batch.validate(full=True)
    assert batch.schema.names == [
        *("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
    ]
    first, second = batch.to_pylist()
    assert (first["key"], first["value"], first["topic"], first["partition"]) == (b"k", None, "flights", 4)
    assert first["timestamp"].timestamp() == 1_700_000_000.123
    assert first["headers"] == [{"key": "h", "value": None}]
    assert (second["timestamp"].timestamp(), second["headers"]) == (-0.001, None)
    assert "headers" not in next(decode_columns(log)).record_batch("flights", 4).schema.names


@few
@given(st.lists(st.integers(-(1 << 31), (1 << 31) - 1) | st.integers(-70, 70), max_size=30))
def test_varints_are_read_as_they_were_written(numbers: Sequence[int]) -> None:
    check_varints(numbers, read_varints)


@few
@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-70, 70), max_size=30))
def test_varlongs_are_read_as_they_were_written(numbers: Sequence[int]) -> None:
    check_varints(numbers, read_varlongs)


def check_varints(numbers: Sequence[int], read: Callable[[Any, Any], tuple[Any, Any]]) -> None:
    data, places = bytearray(), []
    for number in numbers:
        places.append(len(data))
        raw = (number << 1) ^ (number >> 63)
        raw &= (1 << 64) - 1
        while raw > 0x7F:
            data.append(raw & 0x7F | 0x80)
            raw >>= 7
        data.append(raw)
    values, behind = read(np.frombuffer(bytes(data), dtype=np.uint8), np.array(places, dtype=np.int64))
    assert values.tolist() == list(numbers)
    assert behind.tolist() == [*places[1:], len(data)][: len(numbers)]


@pytest.mark.parametrize("data", [b"\xff" * 5, b"\xff" * 11])
def test_an_unterminated_varint_is_an_error(data: bytes) -> None:
    octets = np.frombuffer(data + b"\x00", dtype=np.uint8)
    with pytest.raises(CorruptBatch):
        read_varints(octets, np.array([0]))


@pytest.mark.parametrize("records", [b"\x01", b"\xff\xff\xff\xff\xff\x7f", b"\x80", b"\x02\x00\x02", b""])
def test_records_that_do_not_fill_their_batch_are_an_error(records: bytes) -> None:
    with pytest.raises(CorruptBatch):
        RecordPositions().walk(records, 0, len(records), 2)


def test_arrow_frees_the_memory_of_other_records() -> None:
    """A few records of a large fetch must not keep all of its memory."""
    log = build_batch([Record(0, 1, None, b"v" * 1000)] * 1000)
    [read] = decode_columns(log, Window(10, 20))
    assert sum(buffer.size for buffer in read.values.buffers() if buffer) < 20_000
    assert pa.types.is_binary(read.values.type)
