"""A log, and a cleaning, under every kind of power cut at each of their disk operations.

The examples are drawn again in each run, in CI as well: these tests search.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from barnabas.settings.topic import TopicConfig
from barnabas.storage.log import PartitionLog
from tests.examples import examples
from tests.storage.power_cuts import after_power_cuts
from tests.storage.rig import NOW_MS, Rig, all_offsets, append, producer_batch
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
@example(74461789, 60)
@example(10799676, 10)
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


class DeletedFront(NamedTuple):
    """A log with segments of two batches; each producer has had a transaction open since its first batch."""

    rig: Rig
    log: PartitionLog
    config: TopicConfig

    @classmethod
    def prepared(cls, seed: int) -> DeletedFront:
        """Nothing is flushed, so a power cut may keep any segment and lose any snapshot."""
        rig = Rig(seed=seed)
        size_bytes = len(producer_batch(8, 0, 0, transactional=True))
        config = TopicConfig(segment_bytes=2 * size_bytes, file_delete_delay_ms=0)
        log = rig.open(config)
        for number in range(10):
            append(log, producer_batch(8 + number % 2, 0, number // 2, transactional=True))
        log.set_high_watermark(log.log_end_offset)
        return cls(rig, log, config)

    def delete_before(self, offset: int) -> int:
        self.log.advance_log_start_offset(offset)
        return self.log.delete_old_segments(NOW_MS)

    def free(self) -> None:
        work = self.log.deletion_work(NOW_MS)
        assert work is not None
        work()

    def judge(self, after: Rig, *starts: int) -> None:
        """The log begins before the deletion or behind it, has no gap, and knows the open transactions."""
        found = after.open(self.config)
        start, end = found.log_start_offset, found.log_end_offset
        assert start in starts, f"the log starts at {start}"
        assert all_offsets(found) == list(range(start, end))
        found.set_high_watermark(end)
        assert found.producers is not None
        known = {entry.producer_id: entry.transaction_first_offset for entry in found.producers.entries.values()}
        assert known == {8 + offset: offset for offset in range(2) if offset < end}, f"log from {start} to {end}"


@pytest.mark.feature("ST-10", "CR-01")
@pytest.mark.parametrize("seed", range(3))
def test_a_power_cut_during_a_deletion_of_several_segments_forgets_no_open_transaction(seed: int) -> None:
    front = DeletedFront.prepared(seed)

    def act() -> None:
        assert front.delete_before(6) == 3
        front.free()

    assert at_each_change(front.rig, act, lambda after: front.judge(after, 0, 6)) > 10


@pytest.mark.feature("ST-10", "CR-01")
@pytest.mark.parametrize("seed", range(3))
def test_the_snapshot_at_the_log_start_remains_until_the_next_log_start_is_durable(seed: int) -> None:
    front = DeletedFront.prepared(seed)
    front.delete_before(2)
    front.free()

    def act() -> None:
        assert front.delete_before(4) == 1
        front.free()

    assert at_each_change(front.rig, act, lambda after: front.judge(after, 2, 4)) > 10


@pytest.mark.feature("ST-10", "CR-01")
@pytest.mark.parametrize("seed", range(3))
def test_a_power_cut_during_the_recovery_after_a_deletion_restores_no_deleted_segment(seed: int) -> None:
    front = DeletedFront.prepared(seed)
    front.delete_before(6)
    front.rig.kill()
    at_each_change(front.rig, lambda: front.judge(front.rig, 6), lambda after: front.judge(after, 6))
