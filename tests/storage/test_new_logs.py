"""New logs: few syncs, and still no records are lost or assigned to another topic."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

import pytest

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.runtime.simulated.disk import SimulatedDisk, SimulatedFile
from barnabas.runtime.simulated.process import NodeKilled
from barnabas.runtime.simulated.store import DiskFault
from barnabas.settings.topic import TopicConfig
from barnabas.storage.checkpoints import MalformedCheckpoint, format_topic_ids, parse_topic_ids
from barnabas.storage.directories import LogDirectories
from barnabas.storage.log_dir_work import NewLog
from barnabas.storage.names import directory_name
from barnabas.storage.partition_metadata import (
    PARTITION_METADATA_FILE,
    MalformedPartitionMetadata,
    read_partition_metadata,
)
from tests.storage.rig import NOW_MS, Rig, all_offsets, append, batch, small_segments

CONFIG = small_segments()
OLD_ID, NEW_ID = bytes(15) + b"\x01", bytes(15) + b"\x02"


def start(rig: Rig, *paths: str) -> LogDirectories:
    directories = LogDirectories.open(rig.disk, paths or ["/logs/a"], 1, random.Random(rig.seed), "c" * 22)
    directories.load(lambda topic: CONFIG, NOW_MS)
    return directories


def make(directories: LogDirectories, count: int = 3, topic_id: bytes = OLD_ID, topic: str = "orders") -> None:
    wanted = [NewLog(topic, partition, topic_id, CONFIG) for partition in range(count)]
    for work in directories.make_work(wanted, NOW_MS):
        directories.adopt_new(work, work())


def is_readable(rig: Rig, partition: int) -> bool:
    try:
        return read_partition_metadata(rig.disk, f"/logs/a/{directory_name('orders', partition)}") is not None
    except MalformedPartitionMetadata:
        return False


def dies_at_each_change(
    act: Callable[[LogDirectories], None], then: Callable[[Rig], None], *, power_cut: bool, seed: int = 0
) -> int:
    """Kill the process in every changing disk operation of `act`; returns their number."""
    change = 0
    while True:
        change += 1
        rig = Rig(seed + change)
        directories = start(rig)
        rig.process.dies_at_change = rig.process.changes + change
        rig.process.dies_by_power_cut = power_cut
        try:
            act(directories)
        except NodeKilled:
            rig.start()
            then(rig)
        else:
            return change


@pytest.mark.feature("ST-19", "ST-11")
def test_after_a_power_cut_every_log_has_its_topic_id() -> None:
    unreadable = kept = 0
    for seed in range(80):
        rig = Rig(seed)
        directories = start(rig)
        make(directories)
        for log in directories.logs.values():
            append(log, batch(3))
        rig.power_cut()
        unreadable += sum(not is_readable(rig, partition) for partition in range(3))
        again = start(rig)
        assert len(again.logs) == 3, "their names are durable"
        for log in again.logs.values():
            assert log.topic_id == OLD_ID
            kept += log.log_end_offset > 0
            with pytest.raises(KafkaError) as refused:
                again.find(log.topic, log.partition, NEW_ID)
            assert refused.value.code is ErrorCode.INCONSISTENT_TOPIC_ID
    assert unreadable > 20 and kept > 20, "or this has shown nothing"


@pytest.mark.feature("ST-19", "FI-08")
def test_durable_topic_ids_take_precedence_over_unsynced_files() -> None:
    """A power cut may leave anything in an unsynced file: even another id."""
    rig = Rig()
    directories = start(rig)
    make(directories, 1)
    append(directories.logs["orders", 0], batch(3))
    rig.kill()
    path = f"/logs/a/orders-0/{PARTITION_METADATA_FILE}"
    content = rig.disk.read_bytes(path)
    rig.disk.open(path).pwrite(content[:-2].replace(b"A", b"B", 1) + content[-2:], 0)
    assert read_partition_metadata(rig.disk, "/logs/a/orders-0") not in (None, OLD_ID)
    again = start(rig)
    assert again.logs["orders", 0].topic_id == OLD_ID
    assert read_partition_metadata(rig.disk, "/logs/a/orders-0") == OLD_ID
    assert all_offsets(again.logs["orders", 0]) == [0, 1, 2]


@pytest.mark.feature("ST-19", "ST-11")
@pytest.mark.parametrize("power_cut", [False, True])
def test_a_death_while_logs_are_made(power_cut: bool) -> None:
    """The leftovers are empty, and are reused when the logs are requested again."""

    def restart(rig: Rig) -> None:
        again = start(rig)
        for log in again.logs.values():
            assert log.topic_id in (None, OLD_ID) and log.log_end_offset == 0
        missing = [index for index in range(3) if again.find("orders", index, OLD_ID) is None]
        for work in again.make_work([NewLog("orders", index, OLD_ID, CONFIG) for index in missing], NOW_MS):
            again.adopt_new(work, work())
        assert [append(again.logs["orders", index]).first_offset for index in range(3)] == [0, 0, 0]
        rig.power_cut()
        assert {log.topic_id for log in start(rig).logs.values()} == {OLD_ID}

    assert dies_at_each_change(make, restart, power_cut=power_cut) > 15


@pytest.mark.feature("ST-19", "ST-11")
def test_a_topic_of_the_same_name_never_gets_the_records_of_the_old_one() -> None:
    """The old log is deleted, one of the same name is created, and the power fails anywhere on the way."""
    old_came_back = 0

    def act(directories: LogDirectories) -> None:
        make(directories, 1, OLD_ID)
        append(directories.logs["orders", 0], batch(5))
        directories.delete("orders", 0, NOW_MS)
        make(directories, 1, NEW_ID)

    def restart(rig: Rig) -> None:
        nonlocal old_came_back
        log = start(rig).logs.get(("orders", 0))
        if log is not None and log.log_end_offset:
            assert log.topic_id == OLD_ID
            old_came_back += 1

    for seed in range(0, 5000, 1000):
        dies_at_each_change(act, restart, power_cut=True, seed=seed)
    assert old_came_back, "or this has shown nothing"


@pytest.mark.feature("ST-19")
def test_new_logs_are_completed() -> None:
    for seed in range(30):
        rig = Rig(seed)
        directories = start(rig)
        make(directories)
        directories.delete("orders", 1, NOW_MS)
        (work,) = directories.settle_work()
        assert work() == []
        assert rig.disk.read_bytes("/logs/a/topic-id-checkpoint") == b"0\n0\n"
        assert directories.settle_work() == []
        rig.power_cut()
        assert is_readable(rig, 0) and is_readable(rig, 2)
        assert ("orders", 1) not in start(rig).logs, "what is gone does not come back without a name of its own"


@pytest.mark.feature("ST-10")
def test_a_clean_stop_leaves_no_new_logs() -> None:
    rig = Rig(7)
    directories = start(rig)
    make(directories)
    directories.close(1)
    rig.power_cut()
    assert all(is_readable(rig, partition) for partition in range(3))


@pytest.mark.feature("ST-17")
@pytest.mark.parametrize("operation", ["write", "sync"])
def test_a_disk_that_fails_while_logs_are_made(operation: str) -> None:
    rig = Rig()
    directories = start(rig, "/logs/a", "/logs/b")
    rig.store.faults.append(DiskFault(frozenset({operation}), "/logs/a/", errno.EIO))
    make(directories, 4)
    assert [directory.path for directory in directories.online] == ["/logs/b"]
    assert [log.directory for log in directories.logs.values()] == ["/logs/b/orders-1", "/logs/b/orders-3"]
    missing = [NewLog("orders", index, OLD_ID, CONFIG, directories.directories[0].directory_id) for index in (0, 2)]
    for work in directories.make_work(missing, NOW_MS):
        directories.adopt_new(work, work())
    assert sorted(log.directory for log in directories.logs.values()) == [f"/logs/b/orders-{it}" for it in range(4)]


def test_making_many_costs_no_more_syncs_than_making_one(monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    sync, sync_directory = SimulatedFile.sync, SimulatedDisk.sync_directory

    def counted_sync(file: SimulatedFile) -> None:
        synced.append(file.path)
        sync(file)

    def counted_sync_directory(disk: SimulatedDisk, path: str) -> None:
        synced.append(path)
        sync_directory(disk, path)

    monkeypatch.setattr(SimulatedFile, "sync", counted_sync)
    monkeypatch.setattr(SimulatedDisk, "sync_directory", counted_sync_directory)
    directories = start(Rig())
    for count in (1, 50):
        synced.clear()
        make(directories, count, topic=f"of-{count}")
        assert synced == ["/logs/a/topic-id-checkpoint.tmp", "/logs/a"]


@pytest.mark.feature("ST-11")
def test_the_first_name_is_durable_before_there_is_a_second() -> None:
    """Otherwise a log could seem to begin at its second segment."""
    for seed in range(60):
        rig = Rig(seed)
        directories = start(rig)
        make(directories, 1)
        log = directories.logs["orders", 0]
        while len(log.segments) == 1:
            append(log, batch(3))
        rig.power_cut()
        found = start(rig).logs["orders", 0]
        assert found.log_start_offset == 0
        assert all_offsets(found) == list(range(found.log_end_offset))


def test_a_malformed_list_of_topic_ids() -> None:
    ids = {("orders", 0): OLD_ID, ("a", 12): NEW_ID}
    assert parse_topic_ids(format_topic_ids(ids), "x") == ids
    for broken in (b"1\n0\n", b"0\n2\norders 0 AAAAAAAAAAAAAAAAAAAAAQ\n", b"0\n1\norders 0 ?\n", b"\xff"):
        with pytest.raises(MalformedCheckpoint):
            parse_topic_ids(broken, "x")
    rig = Rig()
    make(start(rig), 1)
    rig.disk.open("/logs/a/topic-id-checkpoint").truncate(3)
    rig.kill()
    assert start(rig).logs["orders", 0].topic_id == OLD_ID, "partition.metadata says it, too"


def test_config_of_new_logs_is_their_own() -> None:
    directories = start(Rig())
    other = TopicConfig(segment_bytes=12_345)
    assert directories.make(NewLog("x", 0, OLD_ID, other), NOW_MS) is directories.logs["x", 0]
    assert directories.logs["x", 0].config is other
