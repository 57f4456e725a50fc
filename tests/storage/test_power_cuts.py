"""A log, and a cleaning, under every kind of power cut at each of their disk operations.

The examples are drawn again in each run, in CI as well: these tests search.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.storage.power_cuts import after_power_cuts
from tests.storage.rig import Rig
from tests.storage.test_cleaning_crashes import check, clean_and_sweep, committed, prepared, reopened, table, values
from tests.storage.test_crashes import Workload

search = settings(deadline=None, derandomize=False)


def at_each_change(rig: Rig, act: Callable[[], None], judge: Callable[[Rig], None]) -> int:
    """Cut the power in all ways during `act`: before each change of names, and before names become durable. Between two
    of those only data changes, and earlier states are covered by the random parts. Returns the number of cuts.
    """
    ways = changes = 0

    def look() -> None:
        nonlocal ways, changes
        changes += 1
        for kept, after in after_power_cuts(rig, changes):
            ways += 1
            try:
                judge(after)
            except Exception as error:
                raise AssertionError(f"power cut before change {changes} of names, {kept}: {error}") from error

    rig.store.before_names_change = look
    act()
    look()
    return ways


@pytest.mark.feature("ST-10", "ST-13", "ST-20")
@settings(search, max_examples=examples(4))
@given(st.integers(0, 1 << 30), st.integers(10, 60))
@example(4974, 60)
def test_a_log_is_what_was_appended_after_every_kind_of_power_cut(seed: int, steps: int) -> None:
    rig = Rig(seed=seed)
    workload = Workload(rig, random.Random(seed))
    ways = at_each_change(
        rig, lambda: workload.run(steps), lambda after: workload.on(after).check_after(power_cut=True)
    )
    assert ways > 10


@pytest.mark.feature("CR-07", "ST-10")
@settings(search, max_examples=examples(2))
@given(st.integers(0, 1 << 30), st.integers(3, 5))
@example(1, 4)
@example(3, 4)
def test_no_kind_of_power_cut_mixes_a_segment_with_its_cleaned_copy(seed: int, rounds: int) -> None:
    rig, log = prepared(seed, rounds)
    before, expected, end = values(log), table(committed(log)), log.log_end_offset
    recovery_point = log.recovery_point

    def judge(after: Rig) -> None:
        found = reopened(after, recovery_point)
        assert found.log_end_offset == end
        check(after, found, before, expected)

    at_each_change(rig, lambda: clean_and_sweep(log), judge)
