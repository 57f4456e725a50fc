"""Guarantees of a log to its writers and readers."""

from __future__ import annotations

import errno
import re
import struct

import pytest

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.records.batch import CorruptBatch, read_header
from barnabas.protocol.records.record import decode_records
from barnabas.runtime.real import real_world
from barnabas.settings.topic import TopicConfig
from barnabas.storage.fetched_batches import UnexpectedAppendOffset
from barnabas.storage.folder import Folder
from barnabas.storage.log import PartitionLog
from barnabas.storage.log_results import OffsetOutOfRange
from barnabas.storage.names import SNAPSHOT_SUFFIX
from barnabas.storage.producer_snapshot_format import decode_snapshot
from barnabas.storage.recovery import LastRun
from tests.storage.rig import (
    DIRECTORY,
    NOW_MS,
    Rig,
    all_batches,
    all_offsets,
    append,
    batch,
    heads,
    numbered,
    producer_batch,
    small_segments,
)


def read_bytes(log: PartitionLog, offset: int, max_bytes: int = 1 << 20, upper: int | None = None) -> bytes:
    part = log.read(offset, max_bytes, log.log_end_offset if upper is None else upper)
    return b"" if part is None else part.file.pread(part.size_bytes, part.position)


def offsets_in(data: bytes) -> list[int]:
    return [record.offset for position, _ in heads(data) for record in decode_records(data, position)]


@pytest.mark.feature("ST-01")
def test_files_are_named_by_base_offset_in_twenty_digits() -> None:
    rig = Rig()
    log = rig.open(small_segments(segment_bytes=150))
    append(log, batch(3))
    append(log, batch(2))
    assert rig.names() == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "00000000000000000003.index",
        "00000000000000000003.log",
        "00000000000000000003.snapshot",
        "00000000000000000003.timeindex",
    ]


@pytest.mark.feature("ST-03", "ST-14")
def test_a_leader_numbers_batches_and_writes_them_once() -> None:
    log = Rig().open()
    first = append(log, batch(3), leader_epoch=4)
    second = append(log, batch(2), batch(1), leader_epoch=4)
    assert (first.first_offset, first.last_offset) == (0, 2)
    assert (second.first_offset, second.last_offset, second.duplicate) == (3, 5, False)
    assert log.log_end_offset == 6
    assert all_offsets(log) == list(range(6))
    assert [read_header(data).partition_leader_epoch for data in all_batches(log)] == [4, 4, 4]
    assert log.size_bytes == sum(len(data) for data in all_batches(log))


def test_batches_may_begin_anywhere_in_the_buffer() -> None:
    log = Rig().open()
    buffer = bytearray(b"head" + batch(2) + b"tail")
    log.append_as_leader(memoryview(buffer), [(4, read_header(buffer, 4))], 0, NOW_MS)
    assert all_offsets(log) == [0, 1]


def test_log_append_time_is_written_into_the_batch() -> None:
    log = Rig().open(TopicConfig(message_timestamp_type="LogAppendTime"))
    result = append(log, batch(2, timestamp=1), now_ms=77_000)
    assert result.log_append_time_ms == 77_000
    (data,) = all_batches(log)
    assert [record.timestamp for record in decode_records(data)] == [77_000, 77_000]
    assert log.active_segment.max_timestamp.timestamp == 77_000


def test_too_large_batches_are_refused_and_nothing_is_appended() -> None:
    log = Rig().open(TopicConfig(max_message_bytes=200, segment_bytes=300))
    with pytest.raises(KafkaError) as refused:
        append(log, batch(1, value=bytes(200)))
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
    with pytest.raises(KafkaError) as refused:
        append(log, *[batch(1, value=bytes(90))] * 3)
    assert refused.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
    assert log.log_end_offset == 0
    assert log.size_bytes == 0


def test_a_deposed_leader_cannot_append() -> None:
    log = Rig().open()
    append(log, leader_epoch=3)
    with pytest.raises(KafkaError) as refused:
        append(log, leader_epoch=2)
    assert refused.value.code is ErrorCode.FENCED_LEADER_EPOCH


@pytest.mark.feature("ST-05")
def test_a_read_gives_whole_batches_from_the_one_with_the_offset() -> None:
    log = Rig().open()
    for _ in range(4):
        append(log, batch(3))
    size = len(batch(3))
    assert offsets_in(read_bytes(log, 4)) == list(range(3, 12)), "the batch with offset 4 begins at 3"
    assert offsets_in(read_bytes(log, 0, max_bytes=2 * size)) == list(range(6))
    assert offsets_in(read_bytes(log, 0, max_bytes=2 * size + 70)) == list(range(6)), "no cut batch"
    assert offsets_in(read_bytes(log, 6, upper=9)) == [6, 7, 8]
    assert offsets_in(read_bytes(log, 6, upper=11)) == [6, 7, 8], "not the batch that reaches the bound"
    assert log.read(9, 1 << 20, 11) is None
    assert log.read(12, 1 << 20, 12) is None


@pytest.mark.feature("ST-05")
def test_the_first_batch_is_given_even_if_it_is_too_big() -> None:
    log = Rig().open()
    append(log, batch(1, value=bytes(5000)))
    append(log)
    assert offsets_in(read_bytes(log, 0, max_bytes=10)) == [0]
    assert log.read(0, 10, 2, at_least_one_batch=False) is None


@pytest.mark.feature("ST-05", "ST-18")
def test_offsets_outside_the_log_are_out_of_range() -> None:
    log = Rig().open()
    append(log, batch(5))
    log.set_high_watermark(5)
    log.advance_log_start_offset(2)
    with pytest.raises(OffsetOutOfRange):
        log.read(1, 1000, 5)
    with pytest.raises(OffsetOutOfRange):
        log.read(6, 1000, 5)
    assert log.read(2, 1000, 5) is not None


@pytest.mark.feature("ST-05")
@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (b"\0" * 12, "length 0"),
        (struct.pack(">qi", 0, 13), "length 13"),
        (struct.pack(">qi", 0, 1 << 30), "length 1073741824"),
        (struct.pack(">qiib", 0, 60, 0, 3), "magic 3"),
    ],
    ids=["a frame of nothing", "too short", "longer than the file", "of the future"],
)
def test_damaged_batches_are_refused_and_not_sent(
    damage: bytes, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Bytes of an old segment were overwritten. Batches behind them can be read."""
    rig = Rig()
    log = rig.open(small_segments())
    while len(log.segments) < 4:
        append(log, batch(2))
    second, third = log.segments[1], log.segments[2]
    second.log_file().pwrite(damage, 0)
    for _ in range(3):
        with pytest.raises(CorruptBatch, match=f"{second.log_path} at byte 0: .*{problem}"):
            log.read(second.base_offset, 1 << 20, log.log_end_offset)
    assert sum("cannot be read" in record.getMessage() for record in caplog.records) == 1, "logged once"
    assert offsets_in(read_bytes(log, third.base_offset))[0] == third.base_offset
    assert offsets_in(read_bytes(log, 0))[0] == 0
    log.set_high_watermark(log.log_end_offset)
    log.advance_log_start_offset(third.base_offset)
    assert offsets_in(read_bytes(log, third.base_offset))[0] == third.base_offset


@pytest.mark.feature("ST-05")
def test_damage_where_a_reader_stopped_is_noticed_when_it_comes_back() -> None:
    rig = Rig()
    log = rig.open(small_segments(segment_bytes=1 << 20, segment_index_bytes=1 << 20))
    for _ in range(200):
        append(log)
    part = log.read(0, 10 * len(batch()), log.log_end_offset)
    assert part is not None and offsets_in(read_bytes(log, 0, max_bytes=part.size_bytes))[-1] == 9
    log.active_segment.log_file().pwrite(bytes(12), part.size_bytes)
    with pytest.raises(CorruptBatch, match="length 0"):
        log.read(10, 1 << 20, log.log_end_offset)


@pytest.mark.feature("ST-14")
def test_a_gap_is_read_as_the_next_offset_that_exists() -> None:
    log = Rig().open()
    log.append_as_follower(numbered(0, 36), NOW_MS)
    log.append_as_follower(numbered(38, 2), NOW_MS)
    assert read_bytes(log, 36) == read_bytes(log, 37) == read_bytes(log, 38)
    assert offsets_in(read_bytes(log, 36)) == [38, 39]


@pytest.mark.feature("ST-15")
def test_a_reader_at_the_tail_touches_no_file() -> None:
    rig = Rig()
    log = rig.open(small_segments(segment_bytes=1 << 20))
    for _ in range(100):
        append(log, batch(2))
    position = log.log_end_offset
    rig.store.fail("read")
    for _ in range(50):
        append(log, batch(2))
        append(log, batch(1))
        part = log.read(position, 1 << 20, log.log_end_offset)
        assert part is not None
        # Up to a roll, if there was one between the two.
        ends = [segment.size_bytes for segment in log.segments]
        assert part.position + part.size_bytes in ends
        # A consumer gets less: up to a high watermark that lags one batch behind.
        assert log.read(position, 1 << 20, log.log_end_offset - 1) is not None
        position = log.log_end_offset
    with pytest.raises(KafkaError):
        log.read(3, 100, 50)


def test_a_reader_that_is_behind_finds_its_place_again_without_a_search() -> None:
    rig = Rig()
    log = rig.open(small_segments(segment_bytes=1 << 20, segment_index_bytes=1 << 20))
    for _ in range(200):
        append(log)
    part = log.read(0, 10 * len(batch()), log.log_end_offset)
    assert part is not None
    rig.store.fail("read")
    assert log.active_segment.position_of(10) == part.size_bytes


@pytest.mark.feature("ST-02")
def test_a_segment_is_full_by_size() -> None:
    log = Rig().open(small_segments(segment_bytes=3 * len(batch())))
    for _ in range(7):
        append(log)
    assert [segment.base_offset for segment in log.segments] == [0, 3, 6]
    assert all_offsets(log) == list(range(7))


@pytest.mark.feature("ST-02")
def test_a_segment_is_full_by_the_time_of_its_records() -> None:
    log = Rig().open(TopicConfig(segment_ms=1000))
    append(log, batch(1, timestamp=NOW_MS))
    append(log, batch(1, timestamp=NOW_MS + 1000))
    assert len(log.segments) == 1
    append(log, batch(1, timestamp=NOW_MS + 1001))
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_records_without_time_roll_by_the_clock() -> None:
    log = Rig().open(TopicConfig(segment_ms=1000))
    append(log, batch(1, timestamp=-1), now_ms=NOW_MS + 5)
    append(log, batch(1, timestamp=-1), now_ms=NOW_MS + 1001)
    assert [segment.base_offset for segment in log.segments] == [0, 1]


def test_jitter_brings_the_roll_forward_and_is_the_same_each_time() -> None:
    def rolled_at() -> int:
        log = Rig().open(TopicConfig(segment_ms=10_000, segment_jitter_ms=5_000))
        append(log, batch(1, timestamp=NOW_MS))
        for later in range(0, 20_000, 100):
            append(log, batch(1, timestamp=NOW_MS + later))
            if len(log.segments) == 2:
                return later
        raise AssertionError("never rolled")

    assert 5_000 <= rolled_at() < 10_100
    assert rolled_at() == rolled_at()


@pytest.mark.feature("ST-02")
def test_a_segment_is_full_when_its_index_is() -> None:
    log = Rig().open(small_segments(segment_bytes=1 << 20, segment_index_bytes=24))
    for later in range(5):
        append(log, batch(1, timestamp=NOW_MS + later))
    # A time index of 24 bytes has two entries, one of which is reserved for closing the segment.
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4]


@pytest.mark.feature("ST-02")
def test_a_segment_holds_offsets_that_fit_32_bits() -> None:
    log = Rig().open()
    log.append_as_follower(numbered(0), NOW_MS)
    log.append_as_follower(numbered(1 << 31), NOW_MS)
    log.append_as_follower(numbered(1 << 33), NOW_MS)
    assert all_offsets(log) == [0, 1 << 31, 1 << 33]
    for segment in log.segments:
        assert segment.offset_index.accepts(segment.read_end_offset() - 1)


def test_a_follower_takes_fetched_bytes_as_they_are() -> None:
    fetched = numbered(0, 3) + numbered(3, 2, leader_epoch=1) + numbered(9, 1, leader_epoch=4)
    log = Rig().open()
    assert log.append_as_follower(memoryview(fetched + numbered(10)[:40]), NOW_MS) == 10
    assert b"".join(all_batches(log)) == fetched
    assert log.epochs.entries() == [(0, 0), (1, 3), (4, 9)]


@pytest.mark.parametrize("damage", ["crc", "offset", "epoch"])
def test_a_follower_rejects_invalid_batches_completely(damage: str) -> None:
    log = Rig().open()
    log.append_as_follower(numbered(0, 3, leader_epoch=2), NOW_MS)
    second = {
        "crc": numbered(4, leader_epoch=2)[:-1] + b"?",
        "offset": numbered(3, leader_epoch=2),
        "epoch": numbered(4, leader_epoch=1),
    }[damage]
    with pytest.raises(UnexpectedAppendOffset if damage == "offset" else CorruptBatch):
        log.append_as_follower(numbered(3, leader_epoch=2) + second, NOW_MS)
    assert log.log_end_offset == 3
    assert all_offsets(log) == [0, 1, 2]


@pytest.mark.feature("RE-13")
def test_a_follower_ignores_batches_of_a_later_leader() -> None:
    """A response was being read while its sender was deposed, truncated its log and followed the next leader: batches
    before the next leader's are uncommitted leftovers, and would not be detected behind them (KAFKA-18723).
    """
    log = Rig().open()
    log.append_as_follower(numbered(0, 3, leader_epoch=1), NOW_MS, 1)
    mixed = numbered(3, 2, leader_epoch=1) + numbered(5, leader_epoch=2) + numbered(6, leader_epoch=1)
    assert log.append_as_follower(mixed, NOW_MS, 1) == 5
    assert log.append_as_follower(numbered(5, leader_epoch=2), NOW_MS, 1) == 5, "nor anything else of it"
    assert log.epochs.latest_epoch == 1, "so that the next leader says from where on it has others"
    assert log.append_as_follower(numbered(5, leader_epoch=2), NOW_MS, 2) == 6


def test_a_fetch_larger_than_a_segment_is_spread() -> None:
    log = Rig().open(small_segments(segment_bytes=3 * len(batch())))
    log.append_as_follower(b"".join(numbered(offset) for offset in range(10)), NOW_MS)
    assert [segment.base_offset for segment in log.segments] == [0, 3, 6, 9]
    assert all_offsets(log) == list(range(10))


def test_an_empty_follower_takes_the_whole_batch_that_the_start_lies_in() -> None:
    log = Rig().open(log_start_offset=5)
    assert log.log_end_offset == 5
    log.append_as_follower(numbered(3, 4), NOW_MS)
    assert (log.log_start_offset, log.log_end_offset) == (5, 7)
    assert offsets_in(read_bytes(log, 5)) == [3, 4, 5, 6]


@pytest.mark.feature("ST-18")
def test_offsets_keep_their_order() -> None:
    log = Rig().open()
    append(log, batch(10))
    log.set_high_watermark(99)
    assert log.high_watermark == 10
    log.set_high_watermark(4)
    with pytest.raises(OffsetOutOfRange):
        log.advance_log_start_offset(5)
    assert log.advance_log_start_offset(3)
    assert not log.advance_log_start_offset(2)
    log.set_high_watermark(1)
    assert log.log_start_offset <= log.last_stable_offset <= log.high_watermark <= log.log_end_offset
    log.truncate_to(1)
    assert log.log_start_offset <= log.last_stable_offset <= log.high_watermark <= log.log_end_offset


@pytest.mark.feature("CR-14")
def test_deleted_records_are_invisible_at_once_and_freed_later() -> None:
    rig = Rig()
    log = rig.open(small_segments(segment_bytes=3 * len(batch())))
    for _ in range(8):
        append(log)
    log.set_high_watermark(8)
    log.advance_log_start_offset(4)
    with pytest.raises(OffsetOutOfRange):
        log.read(3, 1000, 8)
    assert "00000000000000000000.log" in rig.names()
    assert log.delete_old_segments(NOW_MS) == 1
    assert "00000000000000000000.log.expired.deleted" in rig.names()
    assert log.deletion_work(NOW_MS + 59_999) is None
    work = log.deletion_work(NOW_MS + 60_000)
    assert work is not None
    work()
    assert not [name for name in rig.names() if name.startswith("00000000000000000000.")]
    assert all_offsets(log) == [4, 5, 6, 7]


@pytest.mark.feature("ST-03")
def test_a_running_read_survives_the_deletion_of_its_segment() -> None:
    rig = Rig()
    log = rig.open(small_segments(segment_bytes=3 * len(batch())))
    for _ in range(8):
        append(log)
    part = log.read(0, 1 << 20, 8)
    assert part is not None
    log.set_high_watermark(8)
    log.advance_log_start_offset(6)
    assert log.delete_old_segments(NOW_MS) == 2
    assert offsets_in(part.file.pread(part.size_bytes, part.position)) == [0, 1, 2]


@pytest.mark.feature("CR-01")
def test_when_every_segment_is_due_the_log_goes_on_empty() -> None:
    rig = Rig()
    log = rig.open(small_segments(segment_bytes=3 * len(batch()), retention_ms=1000))
    for _ in range(5):
        append(log)
    log.set_high_watermark(4)
    log.delete_old_segments(NOW_MS + 2000)
    assert log.log_start_offset == 3, "nothing above the high watermark goes"
    log.set_high_watermark(5)
    log.delete_old_segments(NOW_MS + 2000)
    assert (log.log_start_offset, log.log_end_offset) == (5, 5)
    assert append(log).first_offset == 5


def test_truncation_removes_batches_and_their_epochs() -> None:
    log = Rig().open(small_segments(segment_bytes=3 * len(batch(2))))
    for epoch in range(8):
        append(log, batch(2), leader_epoch=epoch)
    assert log.truncate_to(10) == 10
    assert all_offsets(log) == list(range(10))
    assert log.latest_epoch == 4
    assert log.truncate_to(7) == 6, "offset 7 was inside a batch, which is gone as a whole"
    assert all_offsets(log) == list(range(6))
    append(log, batch(3), leader_epoch=9)
    assert all_offsets(log) == list(range(9))
    assert log.end_offset_for_epoch(2) == (2, 6)


def test_truncating_at_or_behind_the_end_only_drops_announced_epochs() -> None:
    log = Rig().open()
    append(log, batch(2), leader_epoch=1)
    log.epochs.assign(2, 2)
    assert log.truncate_to(5) == 2
    assert log.epochs.entries() == [(1, 0)]


def test_the_metadata_log_may_restart_at_the_end_of_a_snapshot() -> None:
    rig = Rig()
    log = rig.open()
    append(log, batch(5), leader_epoch=1)
    log.truncate_fully_and_start_at(1000)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (1000, 1000, 1000)
    assert append(log, batch(2), leader_epoch=7).first_offset == 1000
    assert log.epochs.entries() == [(7, 1000)]
    log.close()
    rig.kill()
    again = rig.open(clean_shutdown=True)
    assert (again.log_start_offset, again.log_end_offset) == (1000, 1002)


@pytest.mark.feature("ST-07")
def test_time_lookups_find_the_first_record_at_or_after_it() -> None:
    log = Rig().open(small_segments(segment_bytes=1500))
    for step in range(40):
        append(log, batch(3, timestamp=NOW_MS + 100 * step), leader_epoch=step // 10)
    for step in range(40):
        found = log.offset_for_timestamp(NOW_MS + 100 * step + 1)
        assert found == (NOW_MS + 100 * step + 1, 3 * step + 1, step // 10)
        found = log.offset_for_timestamp(NOW_MS + 100 * step + 50)
        assert found is None if step == 39 else found == (NOW_MS + 100 * step + 100, 3 * step + 3, (step + 1) // 10)
    assert log.offset_for_timestamp(0) == (NOW_MS, 0, 0)
    assert log.offset_for_timestamp(NOW_MS + 10_000) is None
    assert log.offset_for_max_timestamp() == (NOW_MS + 3902, 119, 3)


@pytest.mark.feature("ST-07")
def test_time_lookups_in_a_log_whose_time_goes_back() -> None:
    log = Rig().open(small_segments(segment_bytes=1 << 20))
    times = [50, 40, 90, 10, 90, 95, 20]
    for time in times:
        append(log, batch(1, timestamp=time))
    for wanted in range(100):
        first = next((offset for offset, time in enumerate(times) if time >= wanted), None)
        found = log.offset_for_timestamp(wanted)
        assert (found.offset if found else None) == first
    log.set_high_watermark(7)
    log.advance_log_start_offset(4)
    found = log.offset_for_timestamp(45)
    assert found is not None
    assert found.offset == 4, "what was deleted is not found"


def test_an_empty_log_has_no_times() -> None:
    log = Rig().open()
    assert log.offset_for_timestamp(0) is None
    assert log.offset_for_max_timestamp() is None


@pytest.mark.feature("OP-06")
def test_a_full_disk_refuses_the_append_and_leaves_the_log_as_it_was() -> None:
    rig = Rig()
    log = rig.open(small_segments(segment_bytes=1 << 20))
    for _ in range(10):
        append(log)
    before = all_batches(log)
    rig.store.capacity_bytes = rig.store.used_bytes + 50
    with pytest.raises(KafkaError) as refused:
        append(log)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.failure is None, "there may be room again"
    assert all_batches(log) == before
    rig.store.capacity_bytes += 1000
    assert append(log, batch(1, value=b"next")).first_offset == 10
    log.close()
    rig.kill()
    assert all_offsets(rig.open(small_segments(), clean_shutdown=True)) == list(range(11))


@pytest.mark.feature("OP-06")
def test_a_disk_that_is_full_at_a_roll_leaves_the_log_as_it_was() -> None:
    rig = Rig()
    config = small_segments(segment_bytes=3 * len(batch()))
    log = rig.open(config)
    for _ in range(3):
        append(log)
    rig.store.capacity_bytes = rig.store.used_bytes + 5
    for _ in range(3):
        with pytest.raises(KafkaError):
            append(log)
    assert all_offsets(log) == [0, 1, 2]
    rig.store.capacity_bytes += 10_000
    assert append(log).first_offset == 3
    rig.kill()
    assert all_offsets(rig.open(config)) == [0, 1, 2, 3]


@pytest.mark.feature("ST-11", "OP-06")
@pytest.mark.parametrize("room", [0, 5, 12])
def test_a_flush_that_a_full_disk_stopped_is_completed_by_the_next(room: int) -> None:
    """Everything below the recovery point is durable, in a rolled segment as in the active one."""
    rig = Rig()
    config = small_segments(segment_bytes=10 * len(batch()), index_interval_bytes=2 * len(batch()))
    log = rig.open(config)
    for step in range(15):
        append(log, batch(1, timestamp=NOW_MS + step))
    assert len(log.segments) == 2
    rig.store.capacity_bytes = rig.store.used_bytes + room
    with pytest.raises(KafkaError):
        log.flush()
    assert log.recovery_point == 0
    rig.store.capacity_bytes = 1 << 40
    log.flush()
    assert log.recovery_point == 15
    rig.power_cut()
    assert all_offsets(rig.open(config, recovery_point=15)) == list(range(15))


def test_a_disk_that_fails_puts_the_log_out_of_service() -> None:
    rig = Rig()
    log = rig.open()
    reported: list[OSError] = []
    log.health.on_failure = reported.append
    append(log)
    rig.store.fail("write", remaining=1)
    for _ in range(2):
        with pytest.raises(KafkaError) as refused:
            append(log)
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    with pytest.raises(KafkaError):
        log.read(0, 100, 1)
    assert [error.errno for error in reported] == [errno.EIO]
    assert log.log_end_offset == 1


@pytest.mark.feature("ST-04", "ST-10")
@pytest.mark.parametrize("probability", [0.1, 0.4, 1.0])
def test_data_of_a_failed_sync_is_rewritten_before_it_counts_as_flushed(probability: float) -> None:
    """The page cache still has it, and the next sync of the same pages succeeds without writing them."""
    failed = 0
    for seed in range(12):
        rig = Rig(seed)
        log = rig.open(small_segments())
        append(log, batch(4))
        log.flush()
        recovery_point = log.recovery_point
        for sequence in range(30):
            append(log, producer_batch(7, 0, sequence))
        rig.store.fail("sync", probability=probability)
        try:
            log.flush()
            recovery_point = log.recovery_point
        except KafkaError:
            failed += 1
        rig.store.faults.clear()
        rig.kill()

        again = rig.open(small_segments(), recovery_point=recovery_point)
        again.flush()
        expected, snapshots = all_batches(again), [name for name in rig.names() if name.endswith(SNAPSHOT_SUFFIX)]
        rig.power_cut()
        third = rig.open(small_segments(), recovery_point=again.recovery_point)
        assert all_batches(third) == expected
        assert len(expected) == 31
        assert third.recovery_events == []
        for name in snapshots:
            decode_snapshot(rig.disk.read_bytes(f"{DIRECTORY}/{name}"))
    assert failed > 3


def test_no_sync_succeeds_after_a_failed_one() -> None:
    rig = Rig()
    log = rig.open()
    append(log)
    work = log.flushes.work()
    assert work is not None
    rig.store.fail("sync", remaining=1)
    with pytest.raises(OSError, match="Input/output error"):
        work()
    with pytest.raises(KafkaError):
        log.flush()
    assert log.recovery_point == 0


@pytest.mark.feature("ST-04", "RE-11")
def test_nothing_is_synced_unless_it_is_asked_for() -> None:
    rig = Rig()
    log = rig.open()
    rig.store.fail("sync")
    for _ in range(20):
        append(log)
    assert log.recovery_point == 0
    assert not log.flushes.are_due(NOW_MS + 10**9)


@pytest.mark.feature("ST-04")
def test_flush_messages_bounds_what_a_power_cut_takes() -> None:
    rig = Rig(seed=5)
    log = rig.open(TopicConfig(flush_messages=10))
    for appended in range(1, 60):
        append(log)
        assert appended - log.recovery_point < 10
    rig.power_cut()
    assert rig.open(recovery_point=log.recovery_point).log_end_offset >= 50


@pytest.mark.feature("ST-04")
def test_flush_ms_is_due_that_long_after_the_first_unflushed_record() -> None:
    log = Rig().open(TopicConfig(flush_ms=1000))
    assert not log.flushes.are_due(NOW_MS)
    append(log)
    assert not log.flushes.are_due(NOW_MS)
    assert not log.flushes.are_due(NOW_MS + 999)
    assert log.flushes.are_due(NOW_MS + 1000)
    log.flush()
    append(log)
    assert not log.flushes.are_due(NOW_MS + 1000)


def test_a_flush_that_was_overtaken_by_a_truncation_moves_no_recovery_point() -> None:
    log = Rig().open()
    append(log, batch(10))
    work = log.flushes.work()
    assert work is not None
    log.truncate_to(0)
    append(log, batch(4))
    work()
    log.flushes.done(work.offset)
    assert log.recovery_point == 0
    log.flush()
    assert log.recovery_point == 4
    assert log.flushes.work() is None


@pytest.mark.feature("ST-04", "FI-08")
@pytest.mark.parametrize("seed", range(4))
def test_a_flush_that_was_overtaken_by_appends_and_a_roll_is_not_all_that_the_segment_needs(seed: int) -> None:
    """The records between are not covered by the first flush, and must be covered by the next."""
    rig = Rig(seed=seed)
    log = rig.open()
    append(log, batch(10))
    work = log.flushes.work()
    assert work is not None
    work()
    append(log, batch(4, value=b"v" * 5000))
    log.roll(NOW_MS)
    log.flushes.done(work.offset)
    assert log.recovery_point == 10
    assert log.flushes.are_wanted
    append(log, batch(3))
    log.flush()
    assert log.recovery_point == 17
    before = all_batches(log)
    rig.power_cut()
    for recovery_point in (0, 10, 17):
        assert all_batches(rig.open(recovery_point=recovery_point)) == before


def test_a_truncation_of_flushed_records_is_reported_before_it_happens() -> None:
    log = Rig().open()
    reported: list[tuple[int, int]] = []
    log.on_recovery_point_lowered = lambda log: reported.append((log.recovery_point, log.log_end_offset))
    for _ in range(10):
        append(log)
    log.flush()
    for _ in range(3):
        append(log)
    log.truncate_to(11)
    assert reported == []
    log.truncate_to(7)
    assert reported == [(7, 11)]


@pytest.mark.feature("OP-06")
def test_a_truncation_that_cannot_be_reported_changes_nothing() -> None:
    """A retry reports it: the offset from which records are removed, which is where a batch begins."""
    log = Rig().open()
    reported: list[tuple[int, int]] = []

    def report(log: PartitionLog) -> None:
        reported.append((log.recovery_point, log.log_end_offset))
        if len(reported) == 1:
            raise OSError(errno.ENOSPC, "no space left")

    log.on_recovery_point_lowered = report
    for _ in range(2):
        append(log, batch(5), leader_epoch=3)
    log.set_high_watermark(10)
    log.flush()
    with pytest.raises(KafkaError):
        log.truncate_to(7)
    assert log.failure is None
    assert (log.log_end_offset, log.recovery_point, log.high_watermark) == (10, 10, 10)
    assert all_offsets(log) == list(range(10))
    assert log.truncate_to(7) == 5
    assert reported == [(5, 10), (5, 10)]
    assert (log.log_end_offset, log.recovery_point, log.high_watermark) == (5, 5, 5)


def test_errors_name_the_log() -> None:
    log = Rig().open()
    with pytest.raises(OffsetOutOfRange, match=re.escape("PartitionLog(orders-0, start 0, ")):
        log.read(7, 10, 10)


def test_the_same_on_the_disk_of_this_machine(tmp_path: object) -> None:
    disk = real_world().disk
    directory = f"{tmp_path}/orders-0"
    config = small_segments()
    log = PartitionLog.open(
        Folder(disk, directory), key=("orders", 0), config=config, now_ms=NOW_MS, producer_state=None
    )
    for step in range(50):
        append(log, batch(2, timestamp=NOW_MS + step), leader_epoch=step // 20)
    before = all_batches(log)
    log.close()
    again = PartitionLog.open(
        Folder(disk, directory),
        key=("orders", 0),
        config=config,
        now_ms=NOW_MS,
        last_run=LastRun(clean_shutdown=True),
    )
    assert all_batches(again) == before
    assert again.epochs.entries() == [(0, 0), (1, 40), (2, 80)]
    assert again.recovery_events == []
    assert again.open_files == 2 * len(again.segments), "the log and the offset index, since all was read"
    again.close()
    assert again.open_files == 0


def test_a_log_moves_with_its_renamed_directory() -> None:
    rig = Rig()
    log = rig.open(small_segments())
    for _ in range(30):
        append(log)
    log.rename_directory(f"{DIRECTORY}.gone-delete")
    assert all_offsets(log) == list(range(30))
    assert rig.disk.list("/logs") == ["orders-0.gone-delete"]
