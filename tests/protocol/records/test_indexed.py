"""Records by their places are those that a walk through the whole batch finds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol.records.batch import BATCH_HEADER_BYTES, CorruptBatch
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.indexed import IndexedRecords
from barnabas.protocol.records.record import Fields, decode_fields

pytestmark = pytest.mark.feature("RP-12")

contents = st.one_of(st.none(), st.binary(max_size=80), st.just(b"x" * 9_000), st.just(b"x" * 20_000))
headers = st.lists(st.tuples(st.text(max_size=5), st.one_of(st.none(), st.binary(max_size=5))), max_size=3).map(tuple)
records = st.tuples(st.just(0), st.integers(0, 1 << 42), contents, contents, headers)


@given(st.lists(records, min_size=1, max_size=12), st.sampled_from([0, 1, 3]), st.sampled_from([None, 1 << 41]))
def test_each_record_is_that_of_the_walk(wanted: list[Fields], compression: int, append_time: int | None) -> None:
    batch = build_batch(wanted, base_offset=70, compression=compression, log_append_time=append_time)
    indexed = IndexedRecords(batch)
    assert [indexed[place] for place in range(len(indexed))] == decode_fields(batch)


def test_a_record_that_is_not_there() -> None:
    with pytest.raises(IndexError):
        IndexedRecords(build_batch([(0, 0, None, b"a", ())]))[1]


@given(st.integers(BATCH_HEADER_BYTES, 200), st.integers(0, 255))
def test_damaged_records_are_corrupt(place: int, byte: int) -> None:
    batch = bytearray(build_batch([(0, 5, b"key", b"value %d" % number, ()) for number in range(8)]))
    whole = decode_fields(bytes(batch))
    batch[place % len(batch)] = byte
    try:
        indexed = IndexedRecords(bytes(batch))
        found = [indexed[number] for number in range(len(indexed))]
    except CorruptBatch:
        return
    assert len(found) == len(whole)
