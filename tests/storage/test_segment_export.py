"""A segment goes to the remote store with its indexes, epochs and producers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from barnabas.protocol.records.batch import CorruptBatch
from barnabas.settings.topic import TopicConfig
from barnabas.storage.checkpoints import parse_epochs
from barnabas.storage.log import PartitionLog
from barnabas.storage.producer_snapshot_format import decode_snapshot
from barnabas.storage.segment_export import export_segment
from tests.storage.rig import DIRECTORY, NOW_MS, Rig, append, batch, producer_batch, small_segments


def filled(rig: Rig, config: TopicConfig | None = None) -> PartitionLog:
    log = rig.open(config or small_segments())
    for number in range(12):
        append(log, producer_batch(7, 0, number, value=b"x" * 300), leader_epoch=number // 5)
    return log


@pytest.mark.feature("TS-05")
def test_a_closed_segment_goes_with_its_indexes_epochs_and_producers() -> None:
    rig = Rig()
    log = filled(rig)
    second, third = log.segments[1], log.segments[2]
    export = export_segment(log, second.base_offset)
    assert export is not None
    assert (export.base_offset, export.end_offset) == (second.base_offset, third.base_offset)
    assert export.log.count == second.size_bytes
    assert export.max_timestamp_ms == second.largest_timestamp()
    content = export.read(NOW_MS)
    export.close()
    names = f"{DIRECTORY}/{second.base_offset:020d}"
    assert content.offset_index == rig.disk.read_bytes(f"{names}.index")
    assert content.time_index == rig.disk.read_bytes(f"{names}.timeindex")
    assert content.transaction_index is None
    entry = decode_snapshot(content.producer_snapshot)[0]
    assert (entry.producer_id, entry.batches[-1].last_offset) == (7, third.base_offset - 1)
    assert parse_epochs(content.leader_epochs, "epochs") == log.epochs.entries_in(-1, third.base_offset)


@pytest.mark.feature("TS-05")
def test_its_epochs_begin_with_the_segment() -> None:
    log = filled(Rig())
    assert log.epochs.entries() == [(0, 0), (1, 5), (2, 10)]
    assert log.epochs.entries_in(3, 6) == [(0, 3), (1, 5)]
    assert log.epochs.entries_in(5, 10) == [(1, 5)]
    assert log.epochs.entries_in(11, 12) == [(2, 11)]
    assert log.epochs.entries_in(-1, 7) == [(0, 0), (1, 5)]


@pytest.mark.feature("TS-05")
def test_the_active_segment_and_unknown_ones_are_not_exported() -> None:
    log = filled(Rig())
    assert export_segment(log, log.active_segment.base_offset) is None
    assert export_segment(log, log.segments[1].base_offset + 1) is None


@pytest.mark.feature("TS-05")
def test_a_producer_snapshot_that_was_lost_is_made_from_the_segment() -> None:
    rig = Rig()
    log = filled(rig)
    second, third = log.segments[1], log.segments[2]
    sound = export_segment(log, second.base_offset)
    assert sound is not None
    expected = sound.read(NOW_MS).producer_snapshot
    file = rig.disk.open(f"{DIRECTORY}/{third.base_offset:020d}.snapshot")
    file.truncate(10)
    torn = export_segment(log, second.base_offset)
    assert torn is not None
    assert torn.read(NOW_MS).producer_snapshot == expected


@pytest.mark.feature("TS-05")
def test_recovery_writes_snapshots_that_a_power_cut_has_lost() -> None:
    rig = Rig()
    log = filled(rig)
    bases = [each.base_offset for each in log.segments[1:]]
    rig.kill()
    for base in bases:
        rig.disk.remove(f"{DIRECTORY}/{base:020d}.snapshot")
    again = rig.open(log.config)
    assert again.log_end_offset == log.log_end_offset
    for base in bases:
        assert rig.disk.exists(f"{DIRECTORY}/{base:020d}.snapshot")


@pytest.mark.feature("TS-05")
def test_a_damaged_segment_is_not_copied() -> None:
    rig = Rig()
    log = filled(rig)
    second = log.segments[1]
    second.log_file().pwrite(b"\xff", second.size_bytes - 5)
    export = export_segment(log, second.base_offset)
    assert export is not None
    with pytest.raises(CorruptBatch, match="wrong CRC"):
        export.read(NOW_MS)


@pytest.mark.feature("TS-05")
def test_a_segment_that_is_deleted_meanwhile_can_still_be_read() -> None:
    rig = Rig()
    log = rig.open(replace(small_segments(), retention_ms=0, file_delete_delay_ms=0))
    for _ in range(12):
        append(log, batch(1, value=b"x" * 300))
    log.set_high_watermark(log.log_end_offset)
    export = export_segment(log, 0)
    assert export is not None
    assert log.delete_old_segments(NOW_MS + 10_000)
    work = log.deletion_work(NOW_MS + 20_000)
    assert work is not None
    work()
    assert export.read(NOW_MS).offset_index
    assert len(export.log.file.pread(export.log.count, 0)) == export.log.count
