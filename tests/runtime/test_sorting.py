"""Very many values are sorted in short steps."""

from __future__ import annotations

from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from barnabas.runtime import sorting
from barnabas.runtime.at_once import at_once
from barnabas.runtime.sorting import sorted_in_steps


@given(st.lists(st.text(max_size=4)), st.integers(1, 5))
def test_they_come_in_order_after_a_step_for_each_run(values: list[str], run: int) -> None:
    with patch.object(sorting, "RUN_VALUES", run):
        assert list(at_once(sorted_in_steps(values))) == sorted(values)
        assert sum(1 for _ in sorted_in_steps(values)) == max(0, (len(values) - 1) // run)
