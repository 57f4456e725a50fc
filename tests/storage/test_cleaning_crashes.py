"""A log that loses its power or is killed at every single disk operation of its cleaning.

Afterwards each segment is either the old or the new one: no value is lost, none is duplicated, and a read_committed
consumer builds the same table. Then cleaning continues.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from barnabas.protocol.records.batch import CorruptBatch, read_header
from barnabas.runtime.simulated.disk import SimulatedDisk
from barnabas.runtime.simulated.process import NodeKilled
from barnabas.settings.topic import TopicConfig
from barnabas.storage.cleaner import CleanerSettings, LogCleaning, extent_of
from barnabas.storage.cleaning import Event
from barnabas.storage.log import PartitionLog
from tests.examples import examples
from tests.storage.cleaning_rig import (
    clean,
    close_segments,
    committed,
    compacted,
    end_transaction,
    put,
    put_in_transaction,
    records_of,
    table,
    values,
)
from tests.storage.rig import DIRECTORY, NOW_MS, Rig, all_batches

CONFIG = compacted(segment_bytes=300, file_delete_delay_ms=0)


def fill(log: PartitionLog, chance: random.Random, rounds: int) -> None:
    """Values, tombstones and transactions, all of them complete, in closed segments."""
    assert log.producers is not None
    for number in range(rounds):
        producer = chance.choice([None, None, 7, 8])
        pairs = [(chance.choice("abcdef"), chance.choice([None, f"{number}", f"{number}" * 9])) for _ in range(2)]
        if producer is None:
            put(log, *pairs)
        else:
            known = log.producers.entries.get(producer)
            put_in_transaction(log, producer, known.last_sequence + 1 if known else 0, *pairs)
            end_transaction(log, producer, commit=chance.random() < 0.5)
    close_segments(log)


def prepared(seed: int, rounds: int = 9) -> tuple[Rig, PartitionLog]:
    """A log with a clean part, a dirty part, and old files to be removed."""
    rig = Rig(seed=seed)
    log = rig.open(CONFIG)
    chance = random.Random(seed)
    fill(log, chance, rounds)
    clean(log)
    fill(log, chance, rounds)
    put(log, ("active", "1"))
    log.flush()
    return rig, log


def clean_and_sweep(log: PartitionLog) -> None:
    clean(log)
    work = log.deletion_work(NOW_MS)
    if work is not None:
        work()


def reopened(rig: Rig, recovery_point: int) -> PartitionLog:
    log = rig.open(CONFIG, recovery_point=recovery_point)
    log.set_high_watermark(log.log_end_offset)
    return log


def check(
    rig: Rig, log: PartitionLog, before: Sequence[tuple[int, str, str | None]], expected: dict[bytes, bytes]
) -> None:
    assert table(committed(log)) == expected, log.recovery_events
    left = values(log)
    assert set(left) <= set(before)
    assert [offset for offset, _, _ in left] == sorted({offset for offset, _, _ in left})
    ends = [(read_header(batch).base_offset, read_header(batch).next_offset) for batch in all_batches(log)]
    assert all(end <= start for (_, end), (start, _) in pairwise(ends))
    assert ends[-1][1] == log.log_end_offset
    for segment, following in pairwise(log.segments):
        # A read by offset would not notice it; the next cleaning would.
        assert segment.read_end_offset() <= following.base_offset, "a segment holds what the next one holds as well"
    for start, _ in ends:
        part = log.read(start, 1, log.log_end_offset)
        assert part is not None
        assert read_header(part.file.pread(part.size_bytes, part.position)).base_offset == start
    assert not [name for name in rig.names() if name.endswith((".cleaned", ".swap", ".deleted"))]


def run(seed: int, rounds: int, crash_at: int | None, power_cut: bool) -> int:
    """Returns the number of disk operations, if the run was not interrupted."""
    rig, log = prepared(seed, rounds)
    before, expected, end = values(log), table(committed(log)), log.log_end_offset
    recovery_point = log.recovery_point
    start = rig.process.changes
    if crash_at is not None:
        rig.process.dies_at_change = start + crash_at
        rig.process.dies_by_power_cut = power_cut
    try:
        clean_and_sweep(log)
    except NodeKilled:
        rig.start()
    else:
        rig.process.dies_at_change = None
        operations = rig.process.changes - start
        rig.power_cut() if power_cut else rig.kill()
        after = reopened(rig, recovery_point)
        check(rig, after, before, expected)
        return operations
    after = reopened(rig, recovery_point)
    assert after.log_end_offset == end
    check(rig, after, before, expected)
    put(after, ("b", "later"))
    expected[b"b"] = b"later"
    close_segments(after)
    clean(after)
    assert table(committed(after)) == expected
    assert after.log_end_offset == end + 1
    return 0


def seen_in_cleaning(seed: int, rounds: int) -> set[str]:
    _, log = prepared(seed, rounds)
    before = len(log.segments)
    clean(log)
    closed = log.segments[:-1]
    seen = {
        "merged": len(log.segments) < before,
        "emptied": any(not segment.size_bytes for segment in closed),
        "aborted": any(segment.aborted.entries for segment in closed),
    }
    return {what for what, is_seen in seen.items() if is_seen}


@pytest.mark.feature("CR-07", "ST-10")
@pytest.mark.parametrize(
    ("seed", "rounds", "power_cut", "shows"),
    [
        pytest.param(5, 5, True, {"merged", "aborted"}, id="power cut, merged"),
        pytest.param(6, 4, True, {"emptied", "aborted"}, id="power cut, emptied"),
        pytest.param(5, 5, False, {"merged", "aborted"}, id="kill, merged"),
        pytest.param(6, 4, False, {"emptied", "aborted"}, id="kill, emptied"),
    ],
)
def test_a_crash_at_every_operation_of_a_cleaning(seed: int, rounds: int, power_cut: bool, shows: set[str]) -> None:
    assert seen_in_cleaning(seed, rounds) == shows
    operations = run(seed, rounds, None, power_cut)
    assert operations > 80
    for crash_at in range(1, operations + 1):
        try:
            run(seed, rounds, crash_at, power_cut)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, crash at operation {crash_at} of {operations}: {error}") from error


@pytest.mark.feature("CR-07", "ST-10")
@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 1 << 30), st.integers(1, 150), st.booleans(), st.lists(st.integers(1, 25), max_size=3))
@example(541654055, 141, True, []).via("an index of the copy was renamed, all names of its log were lost")
def test_crash_after_crash(seed: int, crash_at: int, power_cut: bool, again: list[int]) -> None:
    """A recovery that finishes a swap is interrupted as well."""
    rig, log = prepared(seed)
    before, expected, recovery_point = values(log), table(committed(log)), log.recovery_point
    for last_operation in [rig.process.changes + crash_at, *again]:
        rig.process.dies_at_change = last_operation
        rig.process.dies_by_power_cut = power_cut
        try:
            if log is not None:
                clean_and_sweep(log)
            log = reopened(rig, recovery_point)
        except NodeKilled:
            rig.start()
        else:
            rig.process.dies_at_change = None
            rig.power_cut() if power_cut else rig.kill()
        log = None  # type: ignore[assignment]
    check(rig, reopened(rig, recovery_point), before, expected)


@pytest.mark.feature("CR-09", "ST-10")
@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 1 << 30), st.integers(0, 30), st.integers(0, 40), st.booleans())
def test_truncated_records_do_not_return_from_a_cleaning(
    seed: int, after: int, cut: int, power_cut: bool
) -> None:
    """Not from a copy in progress either."""
    rig, log = prepared(seed)
    before = values(log)
    log.cleaning.move(Event.BEGIN)
    slices = LogCleaning(log, extent_of(log, NOW_MS), CleanerSettings(), NOW_MS).slices()
    for _, piece in zip(range(after), slices, strict=False):
        piece()
    # A swap was given out, and may run or not.
    pending = next(slices, None)
    end = log.truncate_to(cut)
    if pending is not None and seed % 2:
        # It may contain less than before.
        with suppress(CorruptBatch):
            pending()
    log.flush()
    expected = values(log)
    rig.power_cut() if power_cut else rig.kill()
    found = reopened(rig, min(log.recovery_point, end))
    assert values(found) == expected
    # A truncation inside a hole that compaction left: the log ends after the last batch before it.
    assert found.log_end_offset <= end
    assert set(expected) <= {value for value in before if value[0] < end}


@pytest.mark.feature("CR-07")
def test_a_full_disk_stops_a_cleaning_and_nothing_else() -> None:
    rig, log = prepared(1)
    expected = table(committed(log))
    rig.store.capacity_bytes = rig.store.used_bytes + 20
    log.cleaning.move(Event.BEGIN)
    cleaning = LogCleaning(log, extent_of(log, NOW_MS), CleanerSettings(), NOW_MS)
    with pytest.raises(OSError, match="space"):
        for piece in cleaning.slices():
            piece()
    cleaning.discard()
    log.cleaning.finish()
    assert log.failure is None
    assert table(committed(log)) == expected
    rig.store.capacity_bytes = 1 << 40
    clean_and_sweep(log)
    assert table(committed(log)) == expected
    assert len(records_of(log)) < 10


@pytest.mark.feature("CR-07")
def test_a_directory_without_room_in_the_middle_of_a_swap(monkeypatch: pytest.MonkeyPatch) -> None:
    """At each rename and each sync of the names in turn. The next cleaning continues where the swap stopped."""
    room = Room()
    rename, sync_directory = SimulatedDisk.rename, SimulatedDisk.sync_directory
    monkeypatch.setattr(SimulatedDisk, "rename", lambda *paths: (room.take(), rename(*paths)))
    monkeypatch.setattr(SimulatedDisk, "sync_directory", lambda *paths: (room.take(), sync_directory(*paths)))
    for before in range(1000):
        room.left = 1000
        rig, log = prepared(1)
        expected, end = table(committed(log)), log.log_end_offset
        room.left = before
        log.cleaning.move(Event.BEGIN)
        with suppress(OSError):
            for piece in LogCleaning(log, extent_of(log, NOW_MS), CleanerSettings(), NOW_MS).slices():
                piece()
        log.cleaning.finish()
        assert table(committed(log)) == expected
        if room.left > 0:
            assert before > 20
            return
        room.left = 1000
        clean_and_sweep(log)
        assert table(committed(log)) == expected
        rig.kill()
        after = reopened(rig, log.recovery_point)
        assert table(committed(after)) == expected
        assert after.log_end_offset == end
        assert not [name for name in rig.names() if name.endswith((".cleaned", ".swap"))]
    raise AssertionError("a cleaning has no end")


class Room:
    """Remaining room; an operation fails once when it is 0, then there is room again."""

    left = 0

    def take(self) -> None:
        self.left -= 1
        if self.left == -1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.feature("CR-07")
def test_files_that_kafka_left_in_the_middle_of_a_swap() -> None:
    """Same rules as in Kafka's recovery: a `.swap` with a smaller `.cleaned` beside it is discarded, without one it is
    used.
    """
    rig, log = prepared(2)
    before = values(log)
    log.close()
    disk = rig.disk
    for name, suffix in (("00000000000000000000.log", ".cleaned"), ("00000000000000000000.index", ".swap")):
        file = disk.open(f"{DIRECTORY}/{name}{suffix}", create=True)
        file.pwrite(b"unfinished", 0)
        file.close()
    again = rig.open(TopicConfig(), clean_shutdown=True)
    assert values(again) == before
    assert not [name for name in rig.names() if name.endswith((".cleaned", ".swap"))]
