"""Stored batches of a share partition, beside a state of each single offset."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.shares.state import StateBatch
from barnabas.broker.shares.state_batches import merged

pytestmark = pytest.mark.feature("CG-17")

AVAILABLE, ACKNOWLEDGED, ARCHIVED = 0, 2, 4


@st.composite
def changes(draw: st.DrawFn) -> StateBatch:
    first = draw(st.integers(0, 30))
    state = draw(st.sampled_from([AVAILABLE, ACKNOWLEDGED, ARCHIVED]))
    return StateBatch(first, first + draw(st.integers(0, 12)), state, draw(st.integers(1, 4)))


@given(st.lists(st.lists(changes(), max_size=4), max_size=8), st.lists(st.integers(0, 20), min_size=8, max_size=8))
def test_each_offset_has_its_furthest_state_from_the_start_offset_on(
    writes: list[list[StateBatch]], starts: list[int]
) -> None:
    batches: tuple[StateBatch, ...] = ()
    model: dict[int, tuple[int, int]] = {}
    start = 0
    for write, offset in zip(writes, starts, strict=False):
        start = max(start, offset)
        batches = merged(batches, write, start)
        for first, last, state, count in write:
            for each in range(first, last + 1):
                model[each] = max(model.get(each, (0, 0)), (count, state))
        model = {each: value for each, value in model.items() if each >= start}
        opened = {
            each: (batch.delivery_count, batch.state)
            for batch in batches
            for each in range(batch.first_offset, batch.last_offset + 1)
        }
        assert opened == model
        for before, after in itertools.pairwise(batches):
            assert before.last_offset < after.first_offset
            touch = before.last_offset + 1 == after.first_offset
            assert not (touch and before[2:] == after[2:]), "neighbours in one state are one batch"


@pytest.mark.parametrize(
    ("current", "change", "expected"),
    [
        ([], (0, 9, AVAILABLE, 1), [(0, 9, AVAILABLE, 1)]),
        ([(0, 9, AVAILABLE, 1)], (3, 5, ACKNOWLEDGED, 1), [(0, 2, 0, 1), (3, 5, 2, 1), (6, 9, 0, 1)]),
        ([(0, 9, AVAILABLE, 2)], (3, 5, ACKNOWLEDGED, 1), [(0, 9, 0, 2)]),
        ([(0, 4, ACKNOWLEDGED, 1), (10, 14, ACKNOWLEDGED, 1)], (5, 9, ACKNOWLEDGED, 1), [(0, 14, 2, 1)]),
        ([(0, 4, ARCHIVED, 1)], (2, 8, ACKNOWLEDGED, 1), [(0, 4, 4, 1), (5, 8, 2, 1)]),
    ],
)
def test_the_higher_delivery_count_wins_and_then_the_higher_state(
    current: list[tuple[int, ...]], change: tuple[int, ...], expected: list[tuple[int, ...]]
) -> None:
    found = merged([StateBatch(*batch) for batch in current], [StateBatch(*change)], -1)
    assert found == tuple(StateBatch(*batch) for batch in expected)
