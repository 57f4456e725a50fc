"""Recovery of a log whose files differ from those of a clean stop: one story for each kind of damage."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.protocol.errors import KafkaError
from barnabas.protocol.records.batch import read_header
from barnabas.runtime.world import Disk
from barnabas.settings.topic import TopicConfig
from barnabas.storage.folder import Folder
from barnabas.storage.indexes import PAGE_BYTES
from barnabas.storage.log import PartitionLog
from barnabas.storage.recovery import LastRun
from barnabas.storage.segment_scan import SCAN_BYTES
from tests.examples import examples
from tests.storage.rig import DIRECTORY, NOW_MS, Rig, all_batches, all_offsets, append, batch, numbered, small_segments

CONFIG = small_segments(segment_bytes=5 * len(batch()))


def path(base_offset: int, suffix: str = ".log") -> str:
    return f"{DIRECTORY}/{base_offset:020d}{suffix}"


def filled(rig: Rig, count: int = 23, config: TopicConfig = CONFIG) -> PartitionLog:
    """Segments of five records: 0, 5, 10, 15 and the active one at 20."""
    log = rig.open(config)
    for step in range(count):
        append(log, batch(1, timestamp=NOW_MS + step), leader_epoch=step // 10)
    return log


def overwrite(disk: Disk, name: str, data: bytes, offset: int) -> None:
    disk.open(name).pwrite(data, offset)


@pytest.mark.feature("ST-10")
def test_a_block_that_was_never_written_is_found_missing() -> None:
    """The file is shorter than what was appended, in the middle of a batch."""
    rig = Rig()
    filled(rig)
    file = rig.disk.open(path(20))
    file.truncate(file.size() - 7)
    log = rig.open(CONFIG)
    assert all_offsets(log) == list(range(22))
    assert file.size() == 2 * len(batch())
    assert append(log, leader_epoch=2).first_offset == 22


@pytest.mark.feature("ST-10")
@pytest.mark.parametrize("nonsense", [bytes(PAGE_BYTES), b"\xff" * 300, b"nonsense " * 100, batch()[:50], b"\0"])
def test_a_block_of_nonsense_behind_the_log_is_cut(nonsense: bytes) -> None:
    """The inode grew before the data was written."""
    rig = Rig()
    filled(rig)
    size = rig.disk.size(path(20))
    overwrite(rig.disk, path(20), nonsense, size)
    log = rig.open(CONFIG)
    assert all_offsets(log) == list(range(23))
    assert rig.disk.size(path(20)) == size
    assert len(log.recovery_events) == 1


@pytest.mark.feature("ST-10")
def test_everything_after_the_first_bad_byte_is_truncated() -> None:
    rig = Rig()
    filled(rig)
    rig.store.flip_bits(path(10), 2 * len(batch()) + 65, 1)
    log = rig.open(CONFIG)
    assert all_offsets(log) == list(range(12))
    assert [segment.base_offset for segment in log.segments] == [0, 5, 10]
    assert not rig.disk.exists(path(15))
    assert log.epochs.entries() == [(0, 0), (1, 10)]
    assert append(log, leader_epoch=5).first_offset == 12


@pytest.mark.feature("ST-10")
def test_old_batches_in_a_new_place_are_no_part_of_the_log() -> None:
    """A block that was written to the wrong position: valid batches, offsets that do not continue."""
    rig = Rig()
    filled(rig)
    overwrite(rig.disk, path(20), numbered(7), len(batch()))
    log = rig.open(CONFIG)
    assert log.log_end_offset == 21


@pytest.mark.feature("ST-10", "FI-08")
def test_later_batches_in_the_place_of_earlier_ones_are_no_part_of_the_log() -> None:
    """The last write went to the position of the one before it: everything is valid, and something is missing."""
    rig = Rig()
    filled(rig)
    overwrite(rig.disk, path(20), numbered(22), len(batch()))
    log = rig.open(CONFIG)
    assert all_offsets(log) == list(range(21))
    assert any("offset 22 where 21 is next" in event for event in log.recovery_events)


@pytest.mark.feature("ST-10", "CR-02")
@pytest.mark.parametrize("policy", ["delete", "compact"])
@pytest.mark.parametrize(("recovery_point", "end"), [(22, 23), (0, 21)])
def test_gaps_are_kept_where_compaction_may_have_made_them(policy: str, recovery_point: int, end: int) -> None:
    """Only what is durable is compacted. Records of a leader behind it have no gaps, whatever the topic's policy is."""
    rig = Rig()
    filled(rig)
    overwrite(rig.disk, path(20), numbered(22), len(batch()))
    rig.disk.open(path(20)).truncate(2 * len(batch()))
    log = rig.open(replace(CONFIG, cleanup_policy=frozenset({policy})), recovery_point=recovery_point)
    assert log.log_end_offset == end


@pytest.mark.feature("ST-10")
def test_only_unflushed_data_is_scanned() -> None:
    rig = Rig()
    log = filled(rig)
    log.flush()
    append(log, leader_epoch=2)
    assert log.recovery_point == 23
    rig.kill()
    rig.store.flip_bits(path(5), 70, 1)
    again = rig.open(CONFIG, recovery_point=23)
    assert again.log_end_offset == 24
    assert again.recovery_point == 23
    assert again.recovery_events == [], "nobody looked"
    full = rig.open(CONFIG, recovery_point=0)
    assert full.log_end_offset == 5


@pytest.mark.feature("ST-10", "ST-07", "FI-08")
@pytest.mark.parametrize("shift", [0, 4096])
def test_the_last_time_entry_of_a_closed_segment_is_not_trusted(shift: int) -> None:
    """It was written when the segment was rolled, after the last flush; if it were trusted, the log could not even be
    opened.
    """
    rig = Rig()
    filled(rig)
    times = f"{DIRECTORY}/{15:020}.timeindex"
    entry = struct.Struct(">qi")
    size = rig.disk.size(times)
    timestamp, offset = entry.unpack(rig.disk.open(times).pread(entry.size, size - entry.size))
    overwrite(rig.disk, times, entry.pack(timestamp - 2, offset + shift), size - entry.size)
    log = rig.open(CONFIG, recovery_point=20)
    assert log.segments[3].time_index.last_entry == (NOW_MS + 19, 19)
    assert log.log_end_offset == 23
    assert any("rebuilt the indexes of segment 15" in event for event in log.recovery_events)


@pytest.mark.feature("ST-10")
def test_a_lost_tail_before_a_later_segment_is_not_a_gap() -> None:
    """The roll made the next segment's name durable; the tail of the previous one was never written."""
    rig = Rig()
    filled(rig)
    rig.disk.open(path(10)).truncate(3 * len(batch()))
    log = rig.open(CONFIG)
    assert all_offsets(log) == list(range(13))
    assert any("does not continue at 13" in event for event in log.recovery_events)


@pytest.mark.feature("ST-10")
@pytest.mark.parametrize("lost_power", [False, True])
def test_a_segment_behind_a_truncated_gap_survives_a_kill(lost_power: bool) -> None:
    """A follower of a compacted log was cut inside a gap, and closed its segment. After a power loss nobody knows."""
    rig = Rig()
    log = rig.open(CONFIG)
    for offset in (0, 5):
        log.append_as_follower(bytearray(numbered(offset)), NOW_MS)
    assert log.truncate_to(3) == 3
    log.roll(NOW_MS)
    for offset in (3, 4):
        log.append_as_follower(bytearray(numbered(offset)), NOW_MS)
    rig.kill()
    last_run = LastRun(lost_power=lost_power)
    again = PartitionLog.open(
        Folder(rig.disk, DIRECTORY), key=("orders", 0), config=CONFIG, now_ms=NOW_MS, last_run=last_run
    )
    assert all_offsets(again) == ([0] if lost_power else [0, 3, 4])


@pytest.mark.feature("ST-10")
@pytest.mark.parametrize("seed", range(8))
def test_replacements_of_lost_records_are_not_durable_yet(seed: int) -> None:
    """The recovery point is behind the lost records, and must not be applied to their successors."""
    rig = Rig(seed)
    log = filled(rig)
    log.flush()
    recovery_point = log.recovery_point
    overwrite(rig.disk, path(20), b"rot", 70)
    again = rig.open(CONFIG, recovery_point=recovery_point)
    assert again.log_end_offset == 20
    append(again, batch(1, value=b"new"), leader_epoch=3)
    again.roll(NOW_MS)
    append(again, batch(4, value=b"new"), leader_epoch=3)
    rig.power_cut()
    third = rig.open(CONFIG, recovery_point=recovery_point)
    assert third.log_end_offset >= 21
    assert [read_header(each).base_offset for each in all_batches(third)][:21] == list(range(21))
    assert third.epochs.epoch_for_offset(20) == 3


@pytest.mark.feature("ST-13", "ST-20")
@pytest.mark.parametrize("removal", ["not due", "given out", "done"])
def test_a_log_that_continues_before_deleted_segments(removal: str) -> None:
    """An unclean leader election leaves such a log. A start must not take the new segments for older ones because of
    those files.
    """
    rig = Rig()
    config = small_segments(retention_bytes=1, file_delete_delay_ms=60_000)
    log = rig.open(config)
    for _ in range(30):
        append(log, batch(3, value=bytes(100)))
    log.set_high_watermark(log.log_end_offset)
    log.flush()
    assert log.delete_old_segments(NOW_MS) > 3
    work = log.deletion_work(NOW_MS + 60_000) if removal != "not due" else None
    if removal == "done":
        assert work is not None
        work()
    log.truncate_to(20)
    append(log, batch(3))
    log.flush()
    rig.kill()
    again = rig.open(config, recovery_point=log.recovery_point)
    assert all_offsets(again) == [20, 21, 22]
    assert again.recovery_events == []


@pytest.mark.feature("ST-10")
def test_a_corrupt_batch_in_a_flushed_segment_is_reported_and_never_served() -> None:
    """Found because the index is gone as well; the segment is truncated there, as in Kafka."""
    rig = Rig()
    log = filled(rig)
    log.close()
    rig.disk.remove(path(5, ".index"))
    rig.store.flip_bits(path(5), 3 * len(batch()) + 70, 1)
    again = rig.open(CONFIG, clean_shutdown=True)
    assert all_offsets(again) == [*range(8), *range(10, 23)]
    assert any("segment 5 is corrupt: wrong CRC" in event for event in again.recovery_events)


def test_bit_rot_in_a_header_is_an_error_and_not_a_hang() -> None:
    rig = Rig()
    log = filled(rig)
    log.close()
    overwrite(rig.disk, path(5), b"\xff\xff\xff\xff", 2 * len(batch()) + 8)
    again = rig.open(CONFIG, clean_shutdown=True)
    with pytest.raises(KafkaError, match="no batch"):
        again.read(7, 100, 23)
    assert again.read(0, 1000, 23) is not None


def test_damaged_last_batches_are_detected_after_a_clean_stop() -> None:
    rig = Rig()
    filled(rig).close()
    overwrite(rig.disk, path(20), b"\0" * 17, 2 * len(batch()))
    rig.disk.open(path(20, ".index")).truncate(0)
    log = rig.open(CONFIG, clean_shutdown=True)
    assert log.log_end_offset == 22
    assert len(log.recovery_events) == 1


@pytest.mark.feature("ST-10", "ST-06", "ST-07")
@pytest.mark.parametrize("kept", [0, 1, 2, 3])
def test_indexes_are_truncated_with_a_file_after_a_clean_stop(kept: int) -> None:
    """The offset index is sparse and has no entries for so few batches; the time index ends with the last one."""
    rig = Rig()
    config = replace(CONFIG, index_interval_bytes=PAGE_BYTES)
    log = rig.open(config)
    for step in range(23):
        append(log, batch(1, timestamp=NOW_MS + step))
    log.close()
    rig.disk.open(path(20)).truncate(kept * len(batch()))
    again = rig.open(config, clean_shutdown=True, recovery_point=23)
    assert again.log_end_offset == 20 + kept
    assert len(again.recovery_events) == (kept < 3)
    found = again.offset_for_max_timestamp()
    assert found is not None
    assert (found.timestamp, found.offset) == (NOW_MS + 19 + kept, 19 + kept)
    again.append_as_follower(numbered(20 + kept, timestamp=NOW_MS + 100), NOW_MS)
    again.roll(NOW_MS)
    found = again.offset_for_timestamp(NOW_MS + 20 + kept)
    assert found is not None
    assert (found.timestamp, found.offset) == (NOW_MS + 100, 20 + kept)


@pytest.mark.feature("ST-10")
def test_batches_larger_than_what_is_read_at_once() -> None:
    rig = Rig()
    log = rig.open()
    large = batch(1, value=bytes(SCAN_BYTES + 5000))
    config = log.config
    log.append_as_follower(numbered(0), NOW_MS)
    log.append_as_follower(large.replace(large[:8], (1).to_bytes(8, "big"), 1), NOW_MS)
    log.append_as_follower(numbered(2), NOW_MS)
    before = all_batches(log)
    rig.kill()
    again = rig.open(config)
    assert again.recovery_events == []
    assert all_batches(again) == before
    rig.store.flip_bits(path(0), SCAN_BYTES, 1)
    assert rig.open(config).log_end_offset == 1


@pytest.mark.feature("ST-10", "ST-06", "ST-07")
@pytest.mark.parametrize("batches", [0, 1, 2])
def test_recovery_makes_the_indexes_that_appends_make(batches: int) -> None:
    """An interval of so many batches is exceeded by one more."""
    rig = Rig()
    config = replace(CONFIG, index_interval_bytes=batches * len(batch()))
    log = filled(rig, config=config)
    log.close()
    names = [name for name in rig.names() if name.endswith("index")]
    before = {name: rig.disk.read_bytes(f"{DIRECTORY}/{name}") for name in names}
    for name in names:
        overwrite(rig.disk, f"{DIRECTORY}/{name}", b"\x01" * 33, 0)
    rig.kill()
    rig.open(config).close()
    assert {name: rig.disk.read_bytes(f"{DIRECTORY}/{name}") for name in names} == before


def test_a_log_whose_end_was_deleted_by_hand_restarts_at_its_start() -> None:
    rig = Rig()
    filled(rig).close()
    for base in (10, 15, 20):
        for suffix in (".log", ".index", ".timeindex"):
            rig.disk.remove(path(base, suffix))
    log = rig.open(CONFIG, clean_shutdown=True, log_start_offset=18)
    assert (log.log_start_offset, log.log_end_offset) == (18, 18)
    assert append(log).first_offset == 18


def test_leftovers_are_removed_and_other_files_ignored() -> None:
    rig = Rig()
    filled(rig, 3).close()
    for name in ("00000000000000000007.index", "00000000000000000003.log.deleted", "00000000000000000003.log.cleaned"):
        rig.disk.open(f"{DIRECTORY}/{name}", create=True)
    kept = ["00000000000000000009-0000000001.checkpoint", "00000000000000000001-0000000001.checkpoint.deleted", "notes"]
    for name in kept:
        rig.disk.open(f"{DIRECTORY}/{name}", create=True)
    log = rig.open(CONFIG, clean_shutdown=True)
    assert log.log_end_offset == 3
    others = [name for name in rig.names() if not name.startswith("00000000000000000000.")]
    assert [name for name in others if name in kept] == sorted(kept)
    assert not [name for name in others if name.endswith((".index", ".cleaned", ".log.deleted"))]


def copied(rig: Rig, bases: list[int], target: str) -> None:
    """Writes all batches of some segments except one into a file beside them, as a cleaner does."""
    data = b"".join(rig.disk.read_bytes(path(base)) for base in bases)
    size = len(batch())
    rig.disk.open(target, create=True).pwrite(data[:size] + data[2 * size :], 0)


@pytest.mark.feature("ST-13")
def test_a_swap_is_finished_from_every_point_it_can_be_interrupted_at() -> None:
    """Two segments were copied into one; the old ones are deleted, the copy renamed, in some order of steps."""
    wanted = [0, *range(2, 23)]
    steps = [
        ("rename", path(base, suffix), f"{path(base, suffix)}.deleted")
        for base in (0, 5)
        for suffix in (".timeindex", ".index", ".log")
    ]
    steps.append(("rename", f"{path(0)}.swap", path(0)))
    for interrupted_at in range(len(steps) + 1):
        rig = Rig()
        filled(rig).close()
        copied(rig, [0, 5], f"{path(0)}.swap")
        for _, source, target in steps[:interrupted_at]:
            rig.disk.rename(source, target)
        log = rig.open(CONFIG, clean_shutdown=True)
        assert all_offsets(log) == wanted, f"interrupted at step {interrupted_at}"
        assert [segment.base_offset for segment in log.segments] == [0, 10, 15, 20]
        assert not [name for name in rig.names() if name.endswith((".swap", ".deleted"))]


@pytest.mark.feature("ST-13")
def test_a_copy_that_was_not_finished_is_rolled_back() -> None:
    rig = Rig()
    filled(rig).close()
    copied(rig, [0, 5], f"{path(0)}.cleaned")
    assert all_offsets(rig.open(CONFIG, clean_shutdown=True)) == list(range(23))
    assert f"{0:020d}.log.cleaned" not in rig.names()


@pytest.mark.feature("ST-13")
def test_a_split_of_which_only_a_part_was_renamed_is_rolled_back() -> None:
    """Kafka's split of a segment renames the last part first, so it is recognised by a `.cleaned` before a `.swap`."""
    rig = Rig()
    filled(rig).close()
    copied(rig, [5], f"{path(5)}.cleaned")
    copied(rig, [5], f"{path(7)}.swap")
    assert all_offsets(rig.open(CONFIG, clean_shutdown=True)) == list(range(23))


@pytest.mark.feature("ST-10")
@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 4), st.integers(0, 5 * len(batch()) - 1), st.integers(0, 7))
def test_a_flipped_bit_anywhere_is_never_served(segment: int, position: int, bit: int) -> None:
    """Exactly the batches before it remain, unchanged. (Base offset and leader epoch lie outside the CRC.)"""
    size = len(batch())
    if position % size < 8 or 12 <= position % size < 16:
        return
    rig = Rig()
    before = all_batches(filled(rig, 25))
    inode = rig.store.file(path(5 * segment))
    inode.cached[position] ^= 1 << bit
    log = rig.open(CONFIG)
    hit = 5 * segment + position // size
    found = all_batches(log)
    assert found == before[: len(found)]
    assert len(found) == hit
