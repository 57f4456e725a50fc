"""The records of a stream are found wherever its bytes were cut."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from barnabas.runtime.tls.records import HEAD_BYTES, RecordCutter


def record(size: int) -> bytes:
    return b"\x17\x03\x03" + size.to_bytes(2, "big") + bytes(size)


@given(
    st.lists(st.integers(0, 70), max_size=40),
    st.lists(st.integers(0, 2_000), max_size=10),
    st.integers(1, 300),
    st.integers(1, 5),
)
def test_no_piece_begins_more_records_or_has_more_bytes_than_allowed(
    sizes: list[int], cuts: list[int], most_bytes: int, most_records: int
) -> None:
    stream = b"".join(map(record, sizes))
    starts = {sum(HEAD_BYTES + size for size in sizes[:index]) for index in range(len(sizes))}
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    cutter = RecordCutter()
    for first, last in pairwise(edges):
        received = memoryview(stream[first:last])
        position = 0
        while position < len(received):
            end = cutter.piece_end(received, position, most_bytes, most_records)
            begun = len(starts & set(range(first + position, first + end)))
            assert end - position <= most_bytes
            assert cutter.begun <= most_records
            assert begun <= cutter.begun
            if end == position:
                assert cutter.begun == most_records, "it stops for no other reason"
                assert first + position in starts
                cutter.begun = 0
            position = end


@given(st.binary(max_size=2_000), st.integers(1, 50))
def test_any_bytes_are_passed_on_whole(stream: bytes, most_records: int) -> None:
    """OpenSSL judges them: the first header with a length that cannot be ends the connection."""
    cutter, view, position = RecordCutter(), memoryview(stream), 0
    while position < len(view):
        end = cutter.piece_end(view, position, 100, most_records)
        assert end > position or cutter.begun == most_records
        cutter.begun = 0
        position = end
