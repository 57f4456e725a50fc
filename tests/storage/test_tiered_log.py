"""A log whose first offsets are only in the remote store: local retention, restarts, truncation."""

from __future__ import annotations

from dataclasses import replace

import pytest

from barnabas.settings.topic import TopicConfig
from barnabas.storage.log import PartitionLog
from barnabas.storage.log_checkpoints import start_to_note
from barnabas.storage.log_results import OffsetOutOfRange
from barnabas.storage.producer_snapshot_format import CorruptSnapshot, encode_snapshot
from tests.storage.rig import DIRECTORY, NOW_MS, Rig, all_offsets, append, batch, producer_batch, small_segments

DAY_MS = 86_400_000


def tiered(**changes: int) -> TopicConfig:
    config = small_segments(local_retention_bytes=0, retention_ms=-1, file_delete_delay_ms=0, **changes)
    return replace(config, remote_storage_enable=True, remote_log_storage_system_enable=True)


def filled(rig: Rig, config: TopicConfig | None = None, count: int = 30) -> PartitionLog:
    """A log of several segments, with a leader epoch for every ten records; all of them committed."""
    log = rig.open(config or tiered())
    for number in range(count):
        append(log, batch(1, value=b"x" * 300), leader_epoch=number // 10)
    log.set_high_watermark(log.log_end_offset)
    return log


def copied(log: PartitionLog, segments: int) -> int:
    """The first segments are remote; returns the offset after them."""
    end = log.segments[segments].base_offset
    log.highest_copied_offset = end - 1
    return end


@pytest.mark.feature("TS-02")
def test_local_retention_deletes_only_what_is_copied_and_the_log_start_stays() -> None:
    log = filled(Rig())
    log.flush()
    assert log.delete_old_segments(NOW_MS) == 0, "nothing is copied"

    end = copied(log, 3)
    assert log.delete_old_segments(NOW_MS) == 3
    assert (log.log_start_offset, log.local_log_start_offset) == (0, end)
    assert log.epochs.entries() == [(0, 0), (1, 10), (2, 20)], "epochs of what is remote are kept"
    with pytest.raises(OffsetOutOfRange):
        log.read(end - 1, 1000, log.log_end_offset)
    assert log.read(end, 1000, log.log_end_offset) is not None


@pytest.mark.feature("TS-02")
def test_a_segment_whose_epochs_would_be_lost_is_not_deleted() -> None:
    rig = Rig()
    log = filled(rig)
    copied(log, 3)
    assert log.recovery_point == 0
    assert log.delete_old_segments(NOW_MS) == 0
    log.flush()
    assert log.delete_old_segments(NOW_MS) == 3


@pytest.mark.feature("TS-02")
def test_the_active_segment_is_closed_when_local_retention_wants_it_gone() -> None:
    log = filled(Rig())
    active = log.active_segment
    assert active.size_bytes
    log.delete_old_segments(NOW_MS)
    assert log.segments[-2] is active, "only closed segments are copied"
    assert not log.active_segment.size_bytes
    count = len(log.segments)
    log.delete_old_segments(NOW_MS)
    assert len(log.segments) == count, "an empty segment is not closed again"


@pytest.mark.feature("TS-01")
def test_without_copies_the_whole_retention_counts_and_moves_the_log_start() -> None:
    log = filled(Rig(), replace(tiered(), remote_log_copy_disable=True, retention_bytes=1500, local_retention_bytes=-2))
    assert log.delete_old_segments(NOW_MS) > 0
    assert log.log_start_offset == log.local_log_start_offset > 0


@pytest.mark.feature("TS-02")
def test_records_deleted_by_a_client_leave_the_disk_even_if_they_were_never_copied() -> None:
    log = filled(Rig())
    start = log.segments[2].base_offset
    log.advance_log_start_offset(start)
    assert log.local_log_start_offset == start
    assert log.delete_old_segments(NOW_MS) == 2


def restarted(rig: Rig, log: PartitionLog, *, clean: bool) -> PartitionLog:
    noted, recovery_point = start_to_note(log) or 0, log.recovery_point
    high_watermark = log.high_watermark
    if clean:
        log.close()
    rig.power_cut()
    return rig.open(
        log.config,
        recovery_point=recovery_point,
        clean_shutdown=clean,
        log_start_offset=noted,
        high_watermark=high_watermark,
    )


@pytest.mark.feature("TS-01")
@pytest.mark.parametrize("clean", [True, False])
def test_a_restart_keeps_the_log_start_and_all_epochs(clean: bool) -> None:
    rig = Rig()
    log = filled(rig)
    log.flush()
    log.advance_log_start_offset(12)
    end = copied(log, 8)
    assert log.delete_old_segments(NOW_MS) == 8
    assert end > 12
    again = restarted(rig, log, clean=clean)
    assert (again.log_start_offset, again.local_log_start_offset, again.log_end_offset) == (12, end, 30)
    assert again.epochs.entries() == [(1, 12), (2, 20)]
    assert again.high_watermark >= end
    assert again.highest_copied_offset == -1, "this has to be proven again"


@pytest.mark.feature("TS-01")
def test_an_old_recovery_point_does_not_cost_the_epochs_of_what_is_remote() -> None:
    """The checkpoint is written once a minute; local retention has deleted behind it meanwhile."""
    rig = Rig()
    log = filled(rig)
    log.flush()
    end = copied(log, len(log.segments) - 1)
    log.delete_old_segments(NOW_MS)
    rig.kill()
    again = rig.open(log.config, recovery_point=5, log_start_offset=0)
    assert again.local_log_start_offset == end > 20
    assert again.epochs.entries() == [(0, 0), (1, 10), (2, 20)]


@pytest.mark.feature("TS-01")
def test_a_topic_that_is_tiered_no_longer_begins_at_its_first_file() -> None:
    rig = Rig()
    log = filled(rig)
    log.flush()
    end = copied(log, 3)
    log.delete_old_segments(NOW_MS)
    log.close()
    rig.kill()
    again = rig.open(small_segments(), clean_shutdown=True, log_start_offset=0)
    assert again.log_start_offset == again.local_log_start_offset == end

    log.end_tiering()
    assert (log.log_start_offset, log.highest_copied_offset) == (end, -1)


@pytest.mark.feature("TS-08")
def test_a_replica_begins_behind_what_is_remote() -> None:
    rig = Rig()
    leader = filled(rig)
    log = rig.open(tiered(), directory="/logs/orders-1")
    append(log, batch(3))
    snapshot = encode_snapshot([])
    log.start_behind_remote(20, 5, leader.epochs.entries(), snapshot, NOW_MS)
    assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (5, 20, 20)
    assert (log.high_watermark, log.highest_copied_offset) == (20, 19)
    assert log.epochs.entries() == [(0, 5), (1, 10)]
    with pytest.raises(OffsetOutOfRange):
        log.read(19, 1000, 20)
    rig.power_cut()
    again = rig.open(tiered(), directory="/logs/orders-1", recovery_point=20, log_start_offset=5)
    assert (again.log_start_offset, again.local_log_start_offset, again.log_end_offset) == (5, 20, 20)
    assert again.epochs.entries() == [(0, 5), (1, 10)]


@pytest.mark.feature("TS-08")
def test_it_knows_the_producers_of_what_is_remote() -> None:
    rig = Rig()
    leader = rig.open(tiered())
    append(leader, producer_batch(7, 0, 0, 5, transactional=True))
    assert leader.producers is not None
    snapshot = encode_snapshot(leader.producers.entries.values())
    log = rig.open(tiered(), directory="/logs/orders-1")
    log.start_behind_remote(5, 0, [(0, 0)], snapshot, NOW_MS)
    assert log.producers is not None
    assert log.producers.entries[7].transaction_first_offset == 0
    assert log.last_stable_offset == 0, "the transaction is open"
    with pytest.raises(CorruptSnapshot):
        log.start_behind_remote(9, 0, [(0, 0)], snapshot[:-1], NOW_MS)
    assert log.log_end_offset == 5, "nothing has changed"


@pytest.mark.feature("TS-08")
def test_a_crash_while_it_begins_leaves_a_part_of_the_former_log_or_all_of_it() -> None:
    for stop in range(1, 200):
        rig = Rig(seed=stop)
        log = filled(rig)
        log.flush()
        seen = 0

        class Stopped(Exception): ...

        def count(stop: int = stop) -> None:
            nonlocal seen
            seen += 1
            if seen == stop:
                raise Stopped

        rig.store.before_names_change = count
        try:
            log.start_behind_remote(100, 40, [(3, 30), (4, 60)], encode_snapshot([]), NOW_MS)
            done = True
        except Stopped:
            done = False
        rig.store.before_names_change = None
        rig.power_cut()
        again = rig.open(log.config, recovery_point=min(log.recovery_point, 0), log_start_offset=0)
        if again.local_log_start_offset == 100:
            assert again.epochs.entries() == [(3, 40), (4, 60)]
            assert again.log_end_offset == 100
        else:
            assert not done
            assert again.log_end_offset <= 30
        if done:
            return
    raise AssertionError("it never came to its end")


@pytest.mark.feature("TS-07")
def test_copies_beyond_a_truncation_count_no_longer() -> None:
    log = filled(Rig())
    copied(log, 6)
    log.truncate_to(10)
    assert log.highest_copied_offset == 9
    assert all_offsets(log) == list(range(10))


@pytest.mark.feature("TS-02")
def test_the_log_start_of_a_tiered_log_is_always_noted() -> None:
    rig = Rig()
    log = filled(rig)
    log.flush()
    copied(log, 3)
    log.delete_old_segments(NOW_MS)
    assert start_to_note(log) is None, "0 is the default"
    log.advance_log_start_offset(3)
    assert start_to_note(log) == 3
    assert rig.disk.exists(DIRECTORY)
