"""The segment that a leader copies next."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.storage.remote.copying import CopyCandidate, bytes_to_copy, next_to_copy

pytestmark = pytest.mark.feature("TS-05")

BASES = [0, 100, 200, 300]


def test_closed_segments_are_copied_in_order() -> None:
    assert next_to_copy(BASES, -1, 0, 10**9) == CopyCandidate(0, 0, 99)
    assert next_to_copy(BASES, 99, 0, 10**9) == CopyCandidate(1, 100, 199)
    assert next_to_copy(BASES, 199, 0, 10**9) == CopyCandidate(2, 200, 299)
    assert next_to_copy(BASES, 299, 0, 10**9) is None


def test_a_segment_is_copied_when_the_last_stable_offset_has_passed_it() -> None:
    assert next_to_copy(BASES, -1, 0, 99) is None
    assert next_to_copy(BASES, -1, 0, 100) == CopyCandidate(0, 0, 99)
    assert next_to_copy(BASES, 99, 0, 199) is None


def test_a_leader_whose_predecessor_had_other_segments_copies_the_rest_in_its_own() -> None:
    assert next_to_copy(BASES, 149, 0, 10**9) == CopyCandidate(1, 100, 199)


def test_deleted_records_are_not_copied_for_their_own_sake() -> None:
    assert next_to_copy(BASES, -1, 150, 10**9) == CopyCandidate(1, 100, 199)
    assert next_to_copy(BASES, -1, 200, 10**9) == CopyCandidate(2, 200, 299)


def test_a_log_with_one_segment_has_nothing_to_copy() -> None:
    assert next_to_copy([0], -1, 0, 10**9) is None
    assert next_to_copy([], -1, 0, 10**9) is None


def test_the_lag_counts_closed_segments_that_are_not_copied() -> None:
    segments = [(0, 10), (100, 20), (200, 30), (300, 40)]
    assert bytes_to_copy(segments, -1) == (3, 60)
    assert bytes_to_copy(segments, 99) == (2, 50)
    assert bytes_to_copy(segments, 149) == (2, 50)
    assert bytes_to_copy(segments, 299) == (0, 0)


@given(
    st.lists(st.integers(0, 100), min_size=1, unique=True).map(sorted),
    st.integers(-1, 100),
    st.integers(0, 100),
    st.integers(0, 110),
)
def test_copies_go_on_without_a_gap_and_end(bases: list[int], last_copied: int, log_start: int, stable: int) -> None:
    """Up to the last closed segment below the last stable offset."""
    wanted = max(last_copied + 1, log_start)
    while (candidate := next_to_copy(bases, last_copied, log_start, stable)) is not None:
        assert candidate.end_offset + 1 == bases[candidate.place + 1] <= stable
        assert candidate.base_offset <= max(wanted, bases[0]) <= max(candidate.end_offset, bases[0])
        assert candidate.end_offset > last_copied
        last_copied, wanted = candidate.end_offset, candidate.end_offset + 1
    assert all(base <= wanted or base > stable for base in bases[1:])
