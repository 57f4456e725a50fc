"""Look-ups in the bytes of remote indexes, beside a look at every entry."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.storage.indexes import CorruptIndex, OffsetPosition
from barnabas.storage.remote.index_bytes import aborted_in, entry_after, offset_at_time, position_of
from barnabas.storage.transaction_index import AbortedTransaction
from tests.examples import examples

pytestmark = pytest.mark.feature("TS-06")

OFFSET_ENTRY, TIME_ENTRY, ABORTED_ENTRY = struct.Struct(">ii"), struct.Struct(">qi"), struct.Struct(">hqqqq")
SIZES = (OFFSET_ENTRY.size, TIME_ENTRY.size, ABORTED_ENTRY.size)
UP_TO = st.integers(0, 60)


def ascending(size: int) -> st.SearchStrategy[list[int]]:
    return st.lists(UP_TO, min_size=size, max_size=size, unique=True).map(sorted)


@st.composite
def pairs(draw: st.DrawFn) -> list[tuple[int, int]]:
    """Entries whose two numbers both ascend."""
    size = draw(st.integers(0, 9))
    return list(zip(draw(ascending(size)), draw(ascending(size)), strict=True))


@given(pairs(), st.sampled_from([0, 100]), st.integers(-2, 62))
def test_positions(entries: list[tuple[int, int]], base: int, at: int) -> None:
    index = b"".join(OFFSET_ENTRY.pack(*entry) for entry in entries)
    before = [OffsetPosition(base + offset, position) for offset, position in entries if offset <= at]
    assert position_of(index, base, base + at) == (before[-1] if before else OffsetPosition(base, 0))
    behind = [OffsetPosition(base + offset, position) for offset, position in entries if position > at]
    assert entry_after(index, base, at) == (behind[0] if behind else None)


@given(pairs(), st.sampled_from([0, 100]), st.integers(-2, 62))
def test_times(entries: list[tuple[int, int]], base: int, time: int) -> None:
    index = b"".join(TIME_ENTRY.pack(*entry) for entry in entries)
    before = [base + offset for timestamp, offset in entries if timestamp <= time]
    assert offset_at_time(index, base, time) == (before[-1] if before else base)


@st.composite
def histories(draw: st.DrawFn) -> list[AbortedTransaction]:
    """Aborted transactions in the order of their markers, as a log with these has them."""
    open_since: dict[int, int] = {}
    found = []
    for offset in range(draw(st.integers(0, 40))):
        producer = draw(st.integers(0, 3))
        if producer not in open_since:
            open_since[producer] = offset
        elif draw(st.booleans()):
            first = open_since.pop(producer)
            last_stable = min(open_since.values(), default=offset + 1)
            if draw(st.booleans()):  # or it is committed
                found.append(AbortedTransaction(producer, first, offset, last_stable))
    return found


@settings(max_examples=examples(200))
@given(histories(), st.tuples(UP_TO, UP_TO, UP_TO), st.integers(1, 4))
def test_aborted_transactions(entries: list[AbortedTransaction], offsets: tuple[int, int, int], step: int) -> None:
    from_offset, upper_offset, end_offset = offsets
    index = b"".join(ABORTED_ENTRY.pack(0, *entry) for entry in entries)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("barnabas.storage.remote.index_bytes.ENTRIES_IN_A_STEP", step)
        steps, pauses = aborted_in(index, from_offset, upper_offset, end_offset), 0
        while True:
            try:
                next(steps)
                pauses += 1
            except StopIteration as ended:
                found, is_complete = ended.value
                break
    here = [entry for entry in entries if from_offset <= entry.last_offset < end_offset]
    assert found == [entry for entry in here if entry.first_offset < upper_offset]
    ends = [place for place, entry in enumerate(here, 1) if entry.last_stable_offset >= upper_offset]
    assert is_complete == bool(ends), "what comes later begins at the last stable offset or behind it"
    behind = len([entry for entry in entries if entry.last_offset >= from_offset])
    looked_at = ends[0] if ends else min(len(here) + 1, behind)
    assert pauses == looked_at // step


@pytest.mark.parametrize("missing", [1, 7])
def test_a_part_of_an_entry_is_damage(missing: int) -> None:
    for size, look in zip(
        SIZES,
        (
            lambda data: position_of(data, 0, 5),
            lambda data: offset_at_time(data, 0, 5),
            lambda data: list(aborted_in(data, 0, 5, 9)),
        ),
        strict=True,
    ):
        with pytest.raises(CorruptIndex, match=f"not a multiple of {size}"):
            look(bytes(2 * size - missing))


@pytest.mark.parametrize("entry", [(-1, 0), (0, -1)])
def test_a_negative_number_is_damage(entry: tuple[int, int]) -> None:
    with pytest.raises(CorruptIndex, match="negative"):
        position_of(OFFSET_ENTRY.pack(*entry), 0, 5)
    assert position_of(OFFSET_ENTRY.pack(0, 0), 7, 9) == OffsetPosition(7, 0)
