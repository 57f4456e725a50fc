"""Shortages (of descriptors, memory, room) refuse an operation for now and are no disk failure."""

from __future__ import annotations

import errno
import os

import pytest

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.runtime.simulated.disk import SimulatedFile
from barnabas.runtime.simulated.store import DiskFault
from barnabas.settings.topic import TopicConfig
from barnabas.storage.directories import LogDirectories
from barnabas.storage.log import PartitionLog
from barnabas.storage.log_dir_work import NewLog
from tests.storage.rig import NOW_MS, PRODUCERS, Rig, all_offsets, append, batch

SHORTAGES = [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EDQUOT]
names_of = lambda code: errno.errorcode[code]  # noqa: E731 - what a parameter is called


def start(rig: Rig) -> LogDirectories:
    directories = LogDirectories.open(rig.disk, ["/logs/a"], 1, rig.store.chance, "cluster")
    directories.producer_state = PRODUCERS
    directories.load(lambda topic: TopicConfig(segment_bytes=300), NOW_MS)
    return directories


def made(directories: LogDirectories) -> PartitionLog | None:
    return directories.make(NewLog("orders", 0, bytes(16), TopicConfig(segment_bytes=300)), NOW_MS)


@pytest.mark.feature("ST-17")
@pytest.mark.parametrize("code", SHORTAGES, ids=names_of)
def test_a_roll_that_a_shortage_stops_refuses_the_append_and_the_next_one_succeeds(code: int) -> None:
    rig = Rig()
    directories = start(rig)
    log = made(directories)
    assert log is not None
    while log.active_segment.size_bytes + len(batch()) <= 300:
        append(log)
    written = log.log_end_offset
    fault = DiskFault(frozenset({"open"}), "/logs/a/orders-0/", code)
    rig.store.faults.append(fault)
    for _ in range(3):
        with pytest.raises(KafkaError) as refused:
            append(log)
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.failure is None
    assert directories.online == directories.directories
    rig.store.faults.remove(fault)
    append(log)
    assert len(log.segments) == 2
    assert all_offsets(log) == list(range(written + 1))


@pytest.mark.feature("ST-17")
@pytest.mark.parametrize("code", SHORTAGES, ids=names_of)
def test_a_log_that_a_shortage_stops_is_created_later(code: int) -> None:
    rig = Rig()
    directories = start(rig)
    fault = DiskFault(frozenset({"open"}), "/logs/a/", code)
    rig.store.faults.append(fault)
    assert made(directories) is None
    assert directories.online == directories.directories
    rig.store.faults.remove(fault)
    log = made(directories)
    assert log is not None
    append(log)
    assert all_offsets(log) == [0]


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE], ids=names_of)
def test_background_work_without_a_descriptor_is_postponed(code: int) -> None:
    rig = Rig()
    directories = start(rig)
    log = made(directories)
    assert log is not None
    append(log, leader_epoch=1)
    work = log.flushes.work()
    assert work is not None
    fault = DiskFault(frozenset({"open"}), "/logs/a/", code)
    rig.store.faults.append(fault)
    directories.note_failures(directories.checkpoint_work()())
    for settle in directories.settle_work():
        directories.note_failures(settle())
    with pytest.raises(KafkaError):
        log.flush()
    with pytest.raises(OSError, match=os.strerror(code)) as failed:
        work()
    assert work.passes(failed.value)
    assert directories.online == directories.directories
    rig.store.faults.remove(fault)
    log.flush()
    assert log.recovery_point == log.log_end_offset == 1
    assert [settle() for settle in directories.settle_work()] == [[]]


@pytest.mark.feature("ST-17")
def test_a_sync_without_room_is_a_failed_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel reports it once, and has dropped what it could not write."""
    rig = Rig()
    directories = start(rig)
    log = made(directories)
    assert log is not None
    append(log)

    def sync(file: SimulatedFile) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), file.path)

    monkeypatch.setattr(SimulatedFile, "sync", sync)
    with pytest.raises(KafkaError):
        log.flush()
    assert log.failure is not None
    assert directories.online == []


@pytest.mark.feature("ST-17")
def test_logs_that_nobody_uses_hold_no_descriptors() -> None:
    """A broker may have more logs than it may open files."""
    rig = Rig()
    directories = start(rig)
    log = made(directories)
    assert log is not None
    assert log.open_files == 0
    for _ in range(4):
        append(log)
    written = log.log_end_offset
    rig.kill()
    again = start(rig).logs["orders", 0]
    assert again.open_files == 0
    append(again)
    assert all_offsets(again) == list(range(written + 1))
