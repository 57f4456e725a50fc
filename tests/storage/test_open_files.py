"""Logs keep a bounded number of files open, and a process without descriptors loses nothing."""

from __future__ import annotations

import gc
import os
import random
import resource
from pathlib import Path

import pytest

from barnabas.runtime.disk import RealDisk
from barnabas.runtime.simulated.disk import SimulatedDisk
from barnabas.settings.topic import TopicConfig
from barnabas.storage.directories import LogDirectories
from barnabas.storage.log import PartitionLog
from barnabas.storage.log_dir_work import NewLog
from barnabas.storage.open_files import UNBOUNDED, limit_for_logs
from tests.storage.rig import NOW_MS, PRODUCERS, Rig, all_offsets, append, batch

TOPIC_ID = b"orders-id-bytes!"
CONFIG = TopicConfig(segment_bytes=300)


def start(rig: Rig, limit: int) -> LogDirectories:
    directories = LogDirectories.open(rig.disk, ["/logs/a"], 1, rig.store.chance, "c" * 22)
    directories.files.limit = limit
    directories.producer_state = PRODUCERS
    directories.load(lambda topic: CONFIG, NOW_MS)
    return directories


def make(directories: LogDirectories, count: int) -> list[PartitionLog]:
    for work in directories.make_work([NewLog("orders", each, TOPIC_ID, CONFIG) for each in range(count)], NOW_MS):
        directories.adopt_new(work, work())
    return [directories.logs["orders", each] for each in range(count)]


def descriptors(rig: Rig) -> int:
    assert isinstance(rig.disk, SimulatedDisk)
    return rig.disk.descriptors.used


@pytest.mark.feature("OP-08", "ST-17")
def test_files_stay_below_the_limit_whatever_the_logs_do() -> None:
    rig = Rig()
    directories = start(rig, 5)
    logs = make(directories, 12)
    chance = random.Random(7)
    expected = dict.fromkeys(range(12), 0)
    for _ in range(400):
        place = chance.randrange(12)
        log = logs[place]
        action = chance.randrange(5)
        if action < 3:
            append(log, batch(2))
            expected[place] += 2
        elif action == 3:
            assert all_offsets(log) == list(range(expected[place]))
        elif expected[place] > 2:
            expected[place] = log.truncate_to(expected[place] - 1)
        assert len(directories.files) <= 5
        assert descriptors(rig) <= 5
    directories.close(3)
    again = start(rig, 5)
    for place in range(12):
        assert all_offsets(again.logs["orders", place]) == list(range(expected[place]))


@pytest.mark.feature("OP-08")
def test_a_region_outlives_the_file_that_was_closed_for_others() -> None:
    rig = Rig()
    directories = start(rig, 1)
    first, second = make(directories, 2)
    append(first, batch(3))
    part = first.read(0, 1000, 3)
    assert part is not None
    append(second, batch(1))
    assert (first.open_files, second.open_files) == (0, 1)
    read = part.file.pread(part.size_bytes, part.position)
    assert len(read) == part.size_bytes
    assert descriptors(rig) == 2, "the file of the second log, and the region's"
    del part
    assert descriptors(rig) == 1
    assert all_offsets(first) == [0, 1, 2]


@pytest.mark.feature("OP-08")
def test_a_region_outlives_its_segment() -> None:
    rig = Rig()
    (log,) = make(start(rig, 10), 1)
    while len(log.segments) < 3:
        append(log, batch(3))
    log.set_high_watermark(log.log_end_offset)
    part = log.read(0, 1000, 3)
    assert part is not None
    read = part.file.pread(part.size_bytes, part.position)
    log.advance_log_start_offset(log.active_segment.base_offset)
    assert log.delete_old_segments(NOW_MS) > 0
    work = log.deletion_work(NOW_MS + CONFIG.file_delete_delay_ms)
    assert work is not None
    work()
    assert part.file.pread(part.size_bytes, part.position) == read


@pytest.mark.feature("OP-08", "ST-17")
def test_a_process_without_descriptors_closes_files_of_logs_for_others() -> None:
    """Even if the limit is wrong, because clients took what was meant for files."""
    rig = Rig()
    directories = start(rig, 1000)
    logs = make(directories, 20)
    assert isinstance(rig.disk, SimulatedDisk)
    rig.disk.descriptors.allowed = 24
    for _ in range(6):
        for log in logs:
            append(log, batch(2))
    for log in logs:
        log.flush()
    directories.note_failures(directories.checkpoint_work()())
    assert directories.online == directories.directories
    assert all(log.failure is None for log in logs)
    assert [all_offsets(log) for log in logs] == [list(range(12))] * 20


@pytest.mark.feature("OP-08")
@pytest.mark.parametrize(
    ("descriptors", "limit"), [(None, UNBOUNDED), ((9, 1000), 500), ((9, 3), 1), ((0, 1), 1), ((0, 0), 1)]
)
def test_half_of_the_descriptors_are_for_files_of_logs(descriptors: tuple[int, int] | None, limit: int) -> None:
    assert limit_for_logs(descriptors) == limit


@pytest.mark.feature("OP-08")
def test_a_log_without_records_has_no_files_of_its_own() -> None:
    """Kafka opens such a directory as an empty log."""
    rig = Rig()
    (log,) = make(start(rig, 10), 1)
    assert rig.disk.list("/logs/a/orders-0") == ["partition.metadata"]
    assert log.read(0, 100, 1) is None
    assert log.offset_for_timestamp(0) is None
    assert log.delete_old_segments(NOW_MS + (1 << 40)) == 0
    log.roll(NOW_MS)
    log.flush()
    assert rig.disk.list("/logs/a/orders-0") == ["partition.metadata"]


@pytest.mark.feature("OP-08", "ST-11")
@pytest.mark.parametrize("end", ["clean", "kill", "power"])
def test_a_log_that_got_its_first_record_has_it_after_a_restart(end: str) -> None:
    for seed in range(20):
        rig = Rig(seed)
        directories = start(rig, 10)
        with_records, empty = make(directories, 2)
        append(with_records, batch(3))
        if end == "clean":
            directories.close(1)
            files = {f"{0:020d}{suffix}" for suffix in (".log", ".index", ".timeindex")}
            assert set(rig.disk.list("/logs/a/orders-0")) >= files
            assert rig.disk.list("/logs/a/orders-1") == ["partition.metadata"]
        elif end == "kill":
            rig.kill()
        else:
            with_records.flush()
            rig.power_cut()
        again = start(rig, 10)
        found = again.logs["orders", 0]
        assert (all_offsets(found), found.recovery_events) == ([0, 1, 2], [])
        assert again.logs["orders", 1].log_end_offset == empty.log_end_offset == 0
        append(again.logs["orders", 1], batch(2))
        assert all_offsets(again.logs["orders", 1]) == [0, 1]


@pytest.mark.feature("OP-08", "ST-17")
def test_a_real_process_with_few_descriptors_loads_and_uses_many_logs(tmp_path: Path) -> None:
    def opened() -> LogDirectories:
        directories = LogDirectories.open(RealDisk(), [str(tmp_path / "a")], 1, random.Random(1), "c" * 22)
        directories.load(lambda topic: CONFIG, NOW_MS)
        return directories

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    gc.collect()
    used = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 12, before[1]))
    try:
        directories = opened()
        for log in make(directories, 60):
            append(log, batch(2), leader_epoch=1)
        directories.abandon()
        directories = opened()
        for each in range(60):
            log = directories.logs["orders", each]
            append(log, batch(2), leader_epoch=2)
            assert all_offsets(log) == [0, 1, 2, 3]
        directories.close(1)
        assert directories.online == directories.directories
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
