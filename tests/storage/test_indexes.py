"""The two indexes of a segment, compared with plain lists and with Kafka's bytes."""

from __future__ import annotations

import random
import struct
from bisect import bisect_right

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from barnabas.protocol.records.record import decode_records
from barnabas.storage.folder import Folder
from barnabas.storage.indexes import PAGE_BYTES, WARM_SECTION_BYTES, CorruptIndex, OffsetIndex, TimeIndex
from barnabas.storage.log import PartitionLog
from tests.storage.rig import NOW_MS, Rig, all_batches, append, batch, small_segments

BASE = 1000


def offset_index(rig: Rig, max_bytes: int = 10 << 20) -> OffsetIndex:
    return OffsetIndex(Folder(rig.disk, "/logs"), BASE, max_bytes)


def time_index(rig: Rig, max_bytes: int = 10 << 20) -> TimeIndex:
    return TimeIndex(Folder(rig.disk, "/logs"), BASE, max_bytes)


steps = st.lists(st.tuples(st.integers(1, 50), st.integers(0, 9)), max_size=60)


@pytest.mark.feature("ST-06")
@given(steps, st.integers(-5, 4000))
def test_lookups_are_those_of_a_sorted_list(entries: list[tuple[int, int]], wanted: int) -> None:
    """Whatever part is in the file already; a tenth of the entries is written out on the way."""
    index = offset_index(Rig())
    index.create()
    offsets, positions = [], []
    offset, position = BASE, 0
    for gap, write in entries:
        offset, position = offset + gap, position + 100 + gap
        index.append(offset, position)
        offsets.append(offset)
        positions.append(position)
        if write == 0:
            index.write_out()
    for target in (BASE + wanted, *offsets):
        place = bisect_right(offsets, target) - 1
        assert index.lookup(target) == ((offsets[place], positions[place]) if place >= 0 else (BASE, 0))
    for target in (wanted, *positions):
        place = bisect_right(positions, target) - 1
        assert index.lookup_position(target) == ((offsets[place], positions[place]) if place >= 0 else (BASE, 0))
    index.truncate_to(BASE + wanted)
    kept = [offset for offset in offsets if offset < BASE + wanted]
    assert [index.entry(slot).offset for slot in range(index.entries)] == kept
    assert index.last_offset == (kept[-1] if kept else BASE)


@pytest.mark.feature("ST-09")
@pytest.mark.parametrize("count", [1, 500, 1024, 1025, 1026, 5000, 40_000])
def test_old_and_new_entries_are_found_alike(count: int) -> None:
    rig = Rig()
    index = offset_index(rig)
    index.create()
    for slot in range(count):
        index.append(BASE + 2 * slot + 2, 4096 * slot)
        if index.unwritten_bytes >= PAGE_BYTES:
            index.write_out()
    chance = random.Random(1)
    for slot in [0, count - 1, *(chance.randrange(count) for _ in range(200))]:
        assert index.lookup(BASE + 2 * slot + 3) == (BASE + 2 * slot + 2, 4096 * slot)
    assert index.lookup(BASE + 1) == (BASE, 0)
    index.seal()
    again = offset_index(rig)
    again.load()
    assert again.entries == count
    for slot in [0, count - 1, *(chance.randrange(count) for _ in range(200))]:
        assert again.lookup(BASE + 2 * slot + 3) == (BASE + 2 * slot + 2, 4096 * slot)


@pytest.mark.feature("ST-09")
@pytest.mark.parametrize("kind", ["offset", "time"])
def test_a_lookup_near_the_end_touches_only_the_last_three_pages(kind: str) -> None:
    """While an index grows from 13 to 14 pages; a plain binary search would touch cold pages."""
    rig = Rig()
    index = offset_index(rig) if kind == "offset" else time_index(rig)
    index.create()
    touched: list[int] = []
    index.page_touched = touched.append
    slot = 0
    while index.size_bytes < 14 * PAGE_BYTES:
        slot += 1
        if isinstance(index, OffsetIndex):
            index.append(BASE + slot, 4096 * slot)
        else:
            index.maybe_append(10 * slot, BASE + slot)
        if index.size_bytes < 12 * PAGE_BYTES:
            continue
        newest = (index.size_bytes - 1) // PAGE_BYTES
        warm = WARM_SECTION_BYTES // index.entry_bytes
        for back in (0, 1, warm // 2, warm - 1):
            touched.clear()
            if isinstance(index, OffsetIndex):
                assert index.lookup(BASE + slot - back).offset == BASE + slot - back
            else:
                assert index.lookup(10 * (slot - back)).offset == BASE + slot - back
            assert touched
            assert min(touched) >= newest - 2
    touched.clear()
    index.lookup(BASE + 5 if kind == "offset" else 50)
    assert 0 in touched, "the count is real: an old entry is on the first page"


def test_the_warm_section_is_all_that_stays_in_memory() -> None:
    index = offset_index(Rig())
    index.create()
    for slot in range(100_000):
        index.append(BASE + slot + 1, slot)
        if index.unwritten_bytes >= PAGE_BYTES:
            index.write_out()
    assert len(index._tail) <= WARM_SECTION_BYTES + PAGE_BYTES + 16


@pytest.mark.feature("ST-06", "ST-20")
def test_entries_are_eight_bytes_relative_to_the_base() -> None:
    rig = Rig()
    index = offset_index(rig)
    index.create()
    index.append(BASE + 5, 4200)
    index.append(BASE + 9, 9000)
    index.seal()
    assert rig.disk.read_bytes(index.path) == struct.pack(">iiii", 5, 4200, 9, 9000)


@pytest.mark.feature("ST-07", "ST-20")
def test_time_entries_are_twelve_bytes_and_only_grow() -> None:
    rig = Rig()
    index = time_index(rig)
    index.create()
    index.maybe_append(500, BASE + 3)
    index.maybe_append(400, BASE + 7)
    index.maybe_append(500, BASE + 8)
    index.maybe_append(501, BASE + 9)
    assert [index.entry(slot) for slot in range(index.entries)] == [(500, BASE + 3), (501, BASE + 9)]
    assert index.lookup(499) == (-1, BASE)
    assert index.lookup(500) == (500, BASE + 3)
    index.seal()
    assert rig.disk.read_bytes(index.path) == struct.pack(">qiqi", 500, 3, 501, 9)


def test_a_full_index() -> None:
    index, times = offset_index(Rig(), max_bytes=20), time_index(Rig(), max_bytes=40)
    index.create()
    times.create()
    for place in range(2):
        assert not index.is_full
        assert not times.is_full
        index.append(BASE + place + 1, place)
        times.maybe_append(place, BASE + place)
    assert index.is_full
    assert times.is_full, "one place is kept for the entry that seals the segment"
    assert index.accepts(BASE + (1 << 31) - 1)
    assert not index.accepts(BASE + (1 << 31))
    assert not index.accepts(BASE - 1)


@pytest.mark.feature("ST-06", "ST-20")
@pytest.mark.parametrize("used", [0, 1, 511, 512, 513, 2000])
def test_a_file_that_kafka_preallocated_is_cut_to_its_entries(used: int) -> None:
    rig = Rig()
    file = rig.disk.open(f"/logs/{BASE:020d}.index", create=True)
    for slot in range(used):
        file.pwrite(struct.pack(">ii", slot + 1, 256 * (slot + 1)), 8 * slot)
    file.truncate(1 << 20)
    index = offset_index(rig)
    index.load()
    assert index.entries == used
    assert file.size() == 8 * used
    index.append(BASE + 5000, 1 << 21)
    assert index.lookup(BASE + 6000).position == 1 << 21


def test_a_single_entry_of_zeros_is_an_entry() -> None:
    rig = Rig()
    index = time_index(rig)
    index.create()
    index.maybe_append(0, BASE)
    index.seal()
    again = time_index(rig)
    again.load()
    assert again.last_entry == (0, BASE)


@pytest.mark.feature("ST-06")
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["gone", "odd size", "negative", "zeroed", "beyond"])
def test_a_damaged_index_is_rebuilt_from_its_segment(suffix: str, damage: str) -> None:
    rig = Rig()
    config = small_segments()
    log = rig.open(config)
    for step in range(40):
        append(log, batch(2, timestamp=10_000 + step))
    log.close()
    segment = log.segments[1]
    path = f"/logs/orders-0/{segment.base_offset:020d}{suffix}"
    sound = rig.disk.read_bytes(path)
    file = rig.disk.open(path)
    if damage == "gone":
        rig.disk.remove(path)
    elif damage == "odd size":
        file.truncate(len(sound) - 3)
    elif damage == "negative":
        file.pwrite(b"\xff" * 12, len(sound) - 12)
    elif damage == "zeroed":
        file.pwrite(bytes(len(sound)), 0)
    elif suffix == ".index":
        file.pwrite(struct.pack(">ii", 1 << 20, 1 << 30), len(sound))
    else:
        pytest.skip("a time index names no positions")
    again = rig.open(config, clean_shutdown=True)
    found = again.offset_for_timestamp(10_020)
    assert found is not None
    assert found.offset == 39
    assert again.read(segment.base_offset + 3, 100, again.log_end_offset) is not None
    again.close()
    if (damage, suffix) != ("zeroed", ".index"):
        assert rig.disk.read_bytes(path) == sound
        assert len(again.recovery_events) == 1
    else:
        assert again.recovery_events == [], "an empty offset index is slow, not wrong"


def test_a_truncated_index_is_detected() -> None:
    rig = Rig()
    index = offset_index(rig)
    index.create()
    for slot in range(3000):
        index.append(BASE + slot + 1, slot)
    index.seal()
    again = offset_index(rig)
    again.load()
    rig.disk.open(index.path).truncate(80)
    with pytest.raises(CorruptIndex):
        again.lookup(BASE + 2500)


actions = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.lists(st.integers(0, 20), min_size=1, max_size=3)),
        st.tuples(st.just("cut"), st.integers(1, 6)),
        st.tuples(st.just("roll"), st.just(0)),
        st.tuples(st.just("reopen"), st.booleans()),
    ),
    max_size=25,
)


@pytest.mark.feature("ST-06", "ST-07")
@given(st.sampled_from([0, 1, 100, 200, 4096]), actions)
@example(0, [("append", [1]), ("append", [2]), ("append", [9]), ("append", [3]), ("cut", 2)])
@example(0, [("append", [1]), ("append", [2]), ("append", [9]), ("append", [3]), ("cut", 2), ("reopen", True)])
def test_lookups_by_time_find_exactly_what_is_in_the_log(
    interval: int, steps: list[tuple[str, object]]
) -> None:
    """After any appends, truncations, rolls and reloads; each batch gets an index entry, or few do."""
    rig = Rig()
    config = small_segments(index_interval_bytes=interval)
    log = rig.open(config)
    for step, argument in steps:
        if step == "append":
            assert isinstance(argument, list)
            for time in argument:
                append(log, batch(timestamp=NOW_MS + 1000 * time))
        elif step == "cut":
            assert isinstance(argument, int)
            log.truncate_to(max(log.log_end_offset - argument, 0))
        elif step == "roll":
            log.roll(NOW_MS)
        elif argument:
            log.close()
            log = rig.open(config, recovery_point=log.log_end_offset, clean_shutdown=True)
        else:
            rig.kill()
            log = rig.open(config, recovery_point=min(log.recovery_point, log.log_end_offset))
        check_times(log)


def check_times(log: PartitionLog) -> None:
    """Its indexes agree with its batches."""
    records = [(record.timestamp, record.offset) for data in all_batches(log) for record in decode_records(data)]
    for wanted in {time for time, _ in records} | {0, NOW_MS + 10_500, NOW_MS + 100_000}:
        expected = next(((time, offset) for time, offset in records if time >= wanted), None)
        found = log.offset_for_timestamp(wanted)
        assert (None if found is None else found[:2]) == expected
    latest = max(records, key=lambda record: (record[0], -record[1]), default=None)
    found = log.offset_for_max_timestamp()
    assert (None if found is None else found[:2]) == latest
    ends = [segment.base_offset for segment in log.segments[1:]] + [log.log_end_offset]
    for segment, end in zip(log.segments, ends, strict=True):
        inside = [(time, offset) for time, offset in records if segment.base_offset <= offset < end]
        assert segment.max_timestamp.timestamp == max((time for time, _ in inside), default=-1)
        for slot in range(segment.time_index.entries):
            time, offset = segment.time_index.entry(slot)
            assert (time, offset) in inside and time == max(before for before, at in inside if at <= offset)
        for slot in range(segment.offset_index.entries):
            entry = segment.offset_index.entry(slot)
            assert segment.position_of(entry.offset) == entry.position
