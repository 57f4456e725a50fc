"""Logs that had no record at a clean stop: the next start need not look into them, and never believes too much."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from barnabas.runtime.simulated.disk import SimulatedDisk
from barnabas.storage import log_directory
from barnabas.storage.directories import LogDirectories
from barnabas.storage.empty_logs import EMPTY_LOGS_FILE, EmptyLog, take_empty_logs, write_empty_logs
from barnabas.storage.log_dir_work import NewLog
from barnabas.storage.log_directory import CLEAN_SHUTDOWN_FILE, format_clean_shutdown
from tests.storage.rig import NOW_MS, Rig, all_offsets, append, batch, small_segments
from tests.storage.test_power_cuts import at_each_change

CONFIG = small_segments()
TOPIC_ID = bytes(range(16))
LIST = f"/logs/a/{EMPTY_LOGS_FILE}"


def start(rig: Rig) -> LogDirectories:
    directories = LogDirectories.open(rig.disk, ["/logs/a"], 1, random.Random(rig.seed), "c" * 22)
    directories.load(lambda topic: CONFIG, NOW_MS)
    return directories


def make(directories: LogDirectories, count: int) -> None:
    for work in directories.make_work([NewLog("orders", each, TOPIC_ID, CONFIG) for each in range(count)], NOW_MS):
        directories.adopt_new(work, work())


def stopped(rig: Rig, count: int = 4, broker_epoch: int = 7) -> None:
    """A run with so many logs, of which the first alone gets records."""
    directories = start(rig)
    make(directories, count)
    append(directories.logs["orders", 0], batch(3))
    directories.close(broker_epoch)


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Directories of logs whose content was read."""
    read: list[str] = []
    original = SimulatedDisk.list

    def listing(disk: SimulatedDisk, path: str) -> list[str]:
        read.append(path)
        return original(disk, path)

    monkeypatch.setattr(SimulatedDisk, "list", listing)
    return read


@pytest.mark.feature("ST-10", "OP-08")
def test_a_start_after_a_clean_stop_looks_only_into_logs_with_records(listed: list[str]) -> None:
    rig = Rig()
    stopped(rig)
    listed.clear()
    rig.start()
    again = start(rig)
    assert listed == ["/logs/a", "/logs/a/orders-0"]
    assert {log.topic_id for log in again.logs.values()} == {TOPIC_ID}
    assert [append(again.logs["orders", each]).first_offset for each in range(4)] == [3, 0, 0, 0]
    assert not rig.disk.exists(LIST), "from now on a stop is a crash"
    rig.kill()
    listed.clear()
    after_a_kill = start(rig)
    assert [after_a_kill.logs["orders", each].log_end_offset for each in range(4)] == [4, 1, 1, 1]
    assert {"/logs/a/orders-1", "/logs/a/orders-2", "/logs/a/orders-3"} < {*listed}


@pytest.mark.feature("ST-10")
def test_files_that_are_put_into_a_directory_between_two_runs_are_found(listed: list[str]) -> None:
    """From a backup, say. To take the log for an empty one would overwrite them."""
    rig = Rig()
    stopped(rig)
    rig.start()
    for name in rig.disk.list("/logs/a/orders-0"):
        if name[0] == "0":
            file = rig.disk.open(f"/logs/a/orders-2/{name}", create=True)
            file.pwrite(rig.disk.read_bytes(f"/logs/a/orders-0/{name}"), 0)
    again = start(rig)
    assert all_offsets(again.logs["orders", 2]) == [0, 1, 2]
    assert "/logs/a/orders-1" not in listed


@pytest.mark.feature("ST-10")
def test_a_list_that_another_owner_left_behind_is_ignored(listed: list[str]) -> None:
    """Kafka removes and writes the marker, and knows no list."""
    rig = Rig()
    stopped(rig, broker_epoch=7)
    rig.start()
    rig.disk.open(f"/logs/a/{CLEAN_SHUTDOWN_FILE}").truncate(0)
    rig.disk.open(f"/logs/a/{CLEAN_SHUTDOWN_FILE}").pwrite(format_clean_shutdown(9), 0)
    listed.clear()
    start(rig)
    assert len(listed) == 5 and not rig.disk.exists(LIST)


@pytest.mark.parametrize("text", ["", "x", "0\n7\n", "1\n7\n0\n", "0\n7\n2\na 0 b 1\n", "0\n7\n1\na 0 ? 1\n", "\xff"])
def test_a_damaged_list_is_ignored(text: str) -> None:
    rig = Rig()
    stopped(rig)
    rig.start()
    file = rig.disk.open(LIST)
    file.truncate(0)
    file.pwrite(text.encode("latin-1"), 0)
    assert len(start(rig).logs) == 4


def test_the_list_is_read_as_it_was_written() -> None:
    rig = Rig()
    logs = {("orders", 0): EmptyLog(TOPIC_ID, 1_750_000_000_000_000_000), ("a-b", 17): EmptyLog(bytes(16), 3)}
    for epoch, expected in ((5, logs), (6, {}), (-1, {})):
        write_empty_logs(rig.disk, "/logs", 5, logs)
        assert take_empty_logs(rig.disk, "/logs", epoch) == expected
        assert take_empty_logs(rig.disk, "/logs", 5) == {}, "it counts once"


@pytest.mark.feature("ST-10")
def test_a_stop_of_a_broker_that_was_never_registered_lists_nothing() -> None:
    rig = Rig()
    stopped(rig, broker_epoch=-1)
    assert not rig.start().exists(LIST)
    assert len(start(rig).logs) == 4


@pytest.mark.feature("ST-10")
def test_a_directory_that_was_removed_while_the_broker_ran_spoils_no_stop() -> None:
    rig = Rig()
    directories = start(rig)
    make(directories, 3)
    rig.disk.remove_tree("/logs/a/orders-1")
    directories.close(7)
    rig.start()
    assert sorted(start(rig).logs) == [("orders", 0), ("orders", 2)]


@pytest.mark.feature("ST-19")
def test_many_new_logs_are_made_durable_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(3)
    directories = start(rig)
    make(directories, 40)
    synced: list[str] = []
    original = SimulatedDisk.sync_directory

    def sync_directory(disk: SimulatedDisk, path: str) -> None:
        synced.append(path)
        original(disk, path)

    monkeypatch.setattr(SimulatedDisk, "sync_directory", sync_directory)
    (work,) = directories.settle_work()
    assert work() == [] and set(synced) == {"/logs/a"}
    rig.power_cut()
    assert {log.topic_id for log in start(rig).logs.values()} == {TOPIC_ID}


def two_runs(rig: Rig, durable: dict[int, int]) -> None:
    """A stop and a start, records in a log that was empty, and the same again. `durable`: records that are flushed."""
    directories = start(rig)
    make(directories, 3)
    for run in range(2):
        log = directories.logs["orders", run]
        append(log, batch(2))
        log.flush()
        durable[run] = 2
        directories.close(10 + run)
        rig.start()
        directories = start(rig)
    append(directories.logs["orders", 2], batch(1))


def judge(after: Rig, durable: dict[int, int]) -> None:
    found = start(after)
    for each, count in durable.items():
        log = found.logs["orders", each]
        assert all_offsets(log) == list(range(count)) and log.topic_id == TOPIC_ID
    for log in found.logs.values():
        assert log.topic_id in (None, TOPIC_ID)
        append(log)


def power_cuts(seed: int) -> int:
    rig, durable = Rig(seed), dict[int, int]()
    return at_each_change(rig, lambda: two_runs(rig, durable), lambda after: judge(after, durable))


@pytest.mark.feature("ST-10", "ST-11")
def test_no_kind_of_power_cut_makes_a_start_believe_too_much() -> None:
    assert power_cuts(5) > 100


def believed_always(disk: Any, directory: str, broker_epoch: int) -> Any:
    """Without a look at the marker, and kept for the next start."""
    path = f"{directory}/{EMPTY_LOGS_FILE}"
    if not disk.exists(path):
        return {}
    data = disk.read_bytes(path)
    epoch = int(data.split()[1]) if len(data.split()) > 1 else 0
    found = take_empty_logs(disk, directory, epoch)
    disk.open(path, create=True).pwrite(data, 0)
    return found


@pytest.mark.feature("FI-11")
def test_a_list_that_is_believed_after_a_crash_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mistake is planted: the list stays, no marker is asked for, and no directory is compared."""
    unchanged: Callable[[SimulatedDisk, str], int] = lambda disk, path: 0  # noqa: E731
    monkeypatch.setattr(log_directory, "take_empty_logs", believed_always)
    monkeypatch.setattr(SimulatedDisk, "changed_ns", unchanged)
    with pytest.raises(AssertionError, match="power cut before change"):
        power_cuts(5)
