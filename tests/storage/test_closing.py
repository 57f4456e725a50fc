"""A clean stop of many logs: everything is durable after a few syncs of the volume, whatever happens meanwhile."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from barnabas.protocol.records.batch import read_header
from barnabas.runtime.disk import RealDisk
from barnabas.runtime.simulated.disk import SimulatedDisk, SimulatedFile
from barnabas.storage import directories as directories_module
from barnabas.storage.directories import LogDirectories
from barnabas.storage.log_directory import CLEAN_SHUTDOWN_FILE
from tests.storage.rig import Rig, all_batches, all_offsets, append, batch
from tests.storage.test_empty_logs import make, start
from tests.storage.test_power_cuts import at_each_change

pytestmark = pytest.mark.feature("ST-10", "ST-11")


@pytest.fixture(autouse=True)
def two_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directories_module, "MANY_SYNCS", 2)


class Run:
    """Three logs through several lives. `durable` is what no power cut may take."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.appended = [0, 0, 0]
        self.durable = [0, 0, 0]

    def live(self, epoch: int) -> None:
        directories = start(self.rig)
        if not directories.logs:
            make(directories, 3)
        for each in range(epoch % 2, 3):
            append(directories.logs["orders", each], batch(2), leader_epoch=epoch // 2)
            self.appended[each] += 2
        directories.logs["orders", 2].flush()
        self.durable[2] = self.appended[2]
        directories.close(10 + epoch)
        self.durable = list(self.appended)
        self.rig.start()

    def check(self, after: Rig) -> None:
        was_clean = after.disk.exists(f"/logs/a/{CLEAN_SHUTDOWN_FILE}")
        found = start(after)
        for (_, each), log in found.logs.items():
            offsets = all_offsets(log)
            least = self.appended[each] if was_clean else self.durable[each]
            assert offsets == list(range(len(offsets))) and least <= len(offsets) <= self.appended[each]
            if was_clean and offsets:
                snapshot = f"{log.directory}/{len(offsets):020}.snapshot"
                assert after.disk.size(snapshot), "a clean start does not read the batches of producers"
            heads = [read_header(memoryview(data)) for data in all_batches(log)]
            assert [epoch for epoch, _ in log.epochs.entries()] == sorted({it.partition_leader_epoch for it in heads})
            append(log, leader_epoch=99)


def test_no_power_cut_takes_what_was_durable() -> None:
    rig = Rig(5)
    run = Run(rig)

    def lives() -> None:
        for epoch in range(4):
            run.live(epoch)

    assert at_each_change(rig, lives, run.check) > 100


def test_a_stop_of_many_logs_takes_few_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(3)
    directories = start(rig)
    make(directories, 40)
    for log in directories.logs.values():
        append(log, batch(2))
    synced: list[str] = []
    sync, sync_directory = SimulatedFile.sync, SimulatedDisk.sync_directory

    def count(file: SimulatedFile) -> None:
        synced.append("a file")
        sync(file)

    def count_directory(disk: SimulatedDisk, path: str) -> None:
        synced.append(path)
        sync_directory(disk, path)

    monkeypatch.setattr(SimulatedFile, "sync", count)
    monkeypatch.setattr(SimulatedDisk, "sync_directory", count_directory)
    directories.close(7)
    assert len(synced) < 20, synced
    rig.power_cut()
    assert {tuple(all_offsets(log)) for log in start(rig).logs.values()} == {(0, 1)}


def test_logs_on_another_volume_are_closed_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """They may lie behind links."""

    def uncertain(disk: SimulatedDisk, paths: Sequence[str], *, since: str | None = None) -> Sequence[str]:
        return paths[-1:]

    rig = Rig(4)
    run = Run(rig)
    monkeypatch.setattr(SimulatedDisk, "sync_together", uncertain)
    run.live(0)
    rig.power_cut()
    run.check(rig)


def test_a_volume_that_lost_something_is_not_marked_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(disk: SimulatedDisk, paths: Sequence[str], *, since: str | None = None) -> Sequence[str]:
        raise OSError(errno.EIO, os.strerror(errno.EIO), paths[0])

    rig = Rig(4)
    directories: LogDirectories = start(rig)
    make(directories, 3)
    append(directories.logs["orders", 1], batch(2))
    directories.logs["orders", 1].flush()
    with monkeypatch.context() as patched:
        patched.setattr(SimulatedDisk, "sync_together", lost)
        directories.close(7)
    assert not rig.start().exists(f"/logs/a/{CLEAN_SHUTDOWN_FILE}")
    assert all_offsets(start(rig).logs["orders", 1]) == [0, 1]


def test_a_real_volume_is_asked_by_the_lock_that_is_held(tmp_path: Path) -> None:
    disk, lock = RealDisk(), f"{tmp_path}/.lock"
    release = disk.lock(lock)
    left = disk.sync_together([str(tmp_path)], since=lock)
    assert left in ((), [], [str(tmp_path)]), "nothing, or all of it on a kernel that does not report lost writes"
    release()
    release_again = disk.lock(lock)
    release_again()
