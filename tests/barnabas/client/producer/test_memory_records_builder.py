"""A batch while it is filled: its limits, its estimated size, its contents."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.client.producer.memory_records_builder import (
    BatchFormat,
    CompressionRatioEstimator,
    MemoryRecordsBuilder,
    ProducerId,
)
from barnabas.protocol.records.batch import read_header
from barnabas.protocol.records.compression import Compression
from barnabas.protocol.records.record import Record, decode_records

pytestmark = pytest.mark.feature("PR-06")


def record(value: bytes, timestamp: int = 1000) -> Record:
    return Record(0, timestamp, None, value)


def test_the_first_record_always_has_room() -> None:
    builder = MemoryRecordsBuilder(BatchFormat(100), 1.0)
    assert builder.try_append(record(b"x" * 1000))
    assert builder.is_full
    assert not builder.try_append(record(b"y"))


def test_it_is_full_at_the_limit_and_takes_nothing_more() -> None:
    builder = MemoryRecordsBuilder(BatchFormat(300), 1.0)
    count = 0
    while builder.try_append(record(b"v" * 20)):
        count += 1
    batch = builder.build(ProducerId(-1, -1), -1)
    assert 270 < len(batch) <= 300
    assert read_header(batch).records_count == count


def test_batch_size_0_is_a_batch_for_each_record() -> None:
    builder = MemoryRecordsBuilder(BatchFormat(0), 1.0)
    assert builder.try_append(record(b"one"))
    assert not builder.try_append(record(b"two"))


def test_a_closed_batch_takes_nothing() -> None:
    builder = MemoryRecordsBuilder(BatchFormat(10_000), 1.0)
    builder.try_append(record(b"one"))
    builder.build(ProducerId(5, 1), 7)
    assert not builder.try_append(record(b"two"))


def test_it_may_be_built_again_for_another_producer() -> None:
    builder = MemoryRecordsBuilder(BatchFormat(10_000, transactional=True), 1.0)
    builder.try_append(record(b"one"))
    first = read_header(builder.build(ProducerId(5, 1), 7))
    again = builder.build(ProducerId(5, 2), 0)
    header = read_header(again)
    assert (first.producer_epoch, first.base_sequence) == (1, 7)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 2, 0)
    assert header.is_transactional
    assert [each.value for each in decode_records(again)] == [b"one"]


def test_a_timestamp_before_1970_is_refused_but_for_none_at_all() -> None:
    builder = MemoryRecordsBuilder(BatchFormat(10_000), 1.0)
    with pytest.raises(ValueError, match="timestamp must be at least 0, or -1 for none; got -2"):
        builder.try_append(record(b"", -2))
    assert builder.try_append(record(b"", -1))


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2**40),
            st.none() | st.binary(max_size=200),
            st.none() | st.binary(max_size=9000),
            st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3),
        ),
        min_size=1,
        max_size=20,
    )
)
def test_an_uncompressed_batch_comes_out_exactly_as_estimated(
    given_records: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
) -> None:
    builder = MemoryRecordsBuilder(BatchFormat(2**30), 1.0)
    for timestamp, key, value, headers in given_records:
        assert builder.try_append(Record(0, timestamp, key, value, tuple(headers)))
    assert len(builder.build(ProducerId(-1, -1), -1)) == builder.estimated_bytes


def test_batches_of_what_compresses_well_hold_more() -> None:
    zipped = BatchFormat(1000, Compression.GZIP)
    careful, knowing = MemoryRecordsBuilder(zipped, 1.0), MemoryRecordsBuilder(zipped, 0.1)
    while careful.try_append(record(b"a" * 50)):
        pass
    while knowing.try_append(record(b"a" * 50)):
        pass
    assert len(knowing.records) > 5 * len(careful.records)
    assert len(knowing.build(ProducerId(-1, -1), -1)) < 1000


def test_a_ratio_is_believed_quickly_when_it_is_bad_and_slowly_when_it_is_good() -> None:
    ratios = CompressionRatioEstimator()
    gzip = Compression.GZIP
    assert ratios.estimation("t", gzip) == 1.0
    ratios.update("t", gzip, 0.2)
    assert ratios.estimation("t", gzip) == pytest.approx(0.995)
    for _ in range(300):
        ratios.update("t", gzip, 0.2)
    assert ratios.estimation("t", gzip) == pytest.approx(0.2)
    ratios.update("t", gzip, 0.21)
    assert ratios.estimation("t", gzip) == pytest.approx(0.25)
    ratios.update("t", gzip, 0.9)
    assert ratios.estimation("t", gzip) == pytest.approx(0.9)
    assert ratios.estimation("other", gzip) == 1.0
    ratios.set("t", gzip, 1.0)
    assert ratios.estimation("t", gzip) == 1.0
