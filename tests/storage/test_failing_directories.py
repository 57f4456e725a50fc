"""A log dir whose disk fails at any operation of its node: it goes offline once, the other one goes on, and after a
repair and a restart every log has what was durable.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from contextlib import suppress

import pytest

from barnabas.protocol.errors import KafkaError
from barnabas.runtime.simulated.store import DiskFault
from barnabas.storage.directories import LogDirectories
from barnabas.storage.future_logs import take_over
from barnabas.storage.log_dir_work import NewLog
from barnabas.storage.log_directory import LogDirectory, LogDirectoryError
from tests.storage.rig import NOW_MS, Rig, all_offsets, append, small_segments

CONFIG = small_segments()
PATHS = ["/logs/a", "/logs/b"]
TOPIC_ID = bytes(15) + b"\x01"
NEW = 7


def opened(rig: Rig) -> LogDirectories:
    return LogDirectories.open(rig.disk, PATHS, 1, random.Random(1), "the cluster")


def started(rig: Rig) -> LogDirectories:
    node = opened(rig)
    node.load(lambda topic: CONFIG, NOW_MS)
    return node


def place(node: LogDirectories, which: int) -> LogDirectory:
    return node.directories[which]


def make(node: LogDirectories, index: int, which: int) -> None:
    new = NewLog("orders", index, TOPIC_ID, CONFIG, place(node, which).directory_id)
    for work in node.make_work([new], NOW_MS):
        node.adopt_new(work, work())


def future(node: LogDirectories, index: int, which: int) -> None:
    new = NewLog("orders", index, TOPIC_ID, CONFIG)
    work = node.future_work(new, place(node, which), NOW_MS)
    node.adopt_future(work, work())


def filled(rig: Rig) -> LogDirectories:
    """Logs 0 and 2 are in the first directory, 1 and 3 in the second; 1 is on its way to the first."""
    node = started(rig)
    for index in range(4):
        make(node, index, index % 2)
        for _ in range(12):
            append(node.logs["orders", index])
        node.logs["orders", index].set_high_watermark(9)
        node.logs["orders", index].flush()
    future(node, 1, 0)
    node.note_failures(node.checkpoint_work()())
    return node


def deletes_records(node: LogDirectories) -> None:
    for index in (0, 1):
        node.logs["orders", index].advance_log_start_offset(9)
    node.delete_old_segments(NOW_MS)


def removes(node: LogDirectories) -> None:
    """What was deleted before is due."""
    work = node.deletion_work(NOW_MS + CONFIG.file_delete_delay_ms)
    if work is not None:
        node.note_failures(work())


def forgets_topic_id(node: LogDirectories) -> None:
    """A log of an old version gets its topic id when it is used."""
    for index in (0, 1):
        node.logs["orders", index].topic_id = None
        assert (node.find("orders", index, TOPIC_ID) is not None) == (("orders", index) in node.logs)


def settles(node: LogDirectories) -> None:
    for work in node.settle_work():
        node.note_failures(work())


def moves(node: LogDirectories) -> None:
    """The future log has all when it takes over."""
    copy = node.futures.logs["orders", 1]
    with suppress(KafkaError):
        for data in node.logs["orders", 1].batches(0):
            copy.append_as_follower(bytearray(data), NOW_MS)
        copy.flush()
    current = node.logs["orders", 1]
    promoted = node.promote_future(("orders", 1), NOW_MS, lambda log: take_over(current, log))
    assert promoted == (place(node, 0).failure is None)


def retires(node: LogDirectories) -> None:
    for index in (0, 1):
        node.mark_stray("orders", index, NOW_MS)
    for index in (2, 3):
        node.delete("orders", index, NOW_MS)


OPERATIONS: dict[str, Callable[[LogDirectories], object]] = {
    "make": lambda node: [make(node, NEW + which, which) for which in (0, 1)],
    "settle": settles,
    "checkpoint": lambda node: node.note_failures(node.checkpoint_work()()),
    "register": lambda node: node.note_failures(node.note_epoch(9)),
    "note boot": lambda node: node.note_failures(node.note_boot()),
    "delete records": deletes_records,
    "find": forgets_topic_id,
    "begin a move": lambda node: future(node, 3, 0),
    "drop a move": lambda node: node.drop_future(("orders", 1), NOW_MS),
    "move": moves,
    "retire": retires,
    "remove": removes,
    "close": lambda node: node.close(9),
}
TAKE_AWAY = ("retire", "remove", "move")
WAIT_FOR_ROOM = ("make", "settle", "checkpoint", "register", "begin a move")
"""Operations that a full disk only postpones."""


class Failing:
    """Lets operations in the first directory fail from some number on."""

    def __init__(self, rig: Rig, kind: str, code: int, after: int) -> None:
        self.kind, self.code, self.left = kind, code, after
        self.struck = False
        rig.store.faults.append(DiskFault(frozenset()))  # otherwise nobody looks
        rig.store.strike = self.strike  # type: ignore[method-assign]

    def strike(self, operation: str, path: str) -> DiskFault | None:
        if operation != self.kind or not path.startswith(PATHS[0]):
            return None
        self.left -= 1
        if self.left >= 0:
            return None
        self.struck = True
        return DiskFault(frozenset({self.kind}), "", self.code, 1.0, None)


@pytest.mark.feature("RE-18", "ST-17")
@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("kind", ["open", "write", "sync", "read"])
def test_one_directory_fails_and_the_other_one_goes_on(name: str, kind: str) -> None:
    fails_at_each_operation(name, kind, errno.EIO)


@pytest.mark.feature("ST-17", "OP-06")
@pytest.mark.parametrize("name", WAIT_FOR_ROOM)
def test_a_full_directory_stays(name: str) -> None:
    fails_at_each_operation(name, "write", errno.ENOSPC)


def fails_at_each_operation(name: str, kind: str, code: int) -> None:
    for after in range(200):
        rig = Rig(seed=after)
        node = filled(rig)
        if name == "remove":
            retires(node)
        lost: list[tuple[str, int]] = []
        node.on_offline = lambda directory, logs: lost.append((directory.path, len(logs)))  # noqa: B023
        no_room: list[str] = []
        node.on_no_room = lambda directory: no_room.append(directory.path)  # noqa: B023
        here = [log for log in node.logs.values() if log.directory.startswith(PATHS[0])]
        failing = Failing(rig, kind, code, after)
        OPERATIONS[name](node)
        if code == errno.ENOSPC:
            assert len(node.online) == 2 and not lost
            assert not no_room or (failing.struck and {*no_room} == {PATHS[0]})
            assert no_room or not failing.struck or name not in ("make", "begin a move")
        elif failing.struck:
            failure = place(node, 0).failure
            assert failure is not None and failure.errno == code
            assert [path for path, _ in lost] == PATHS[:1] and node.online == [place(node, 1)]
            assert all(log.failure is not None for log in here if log in node.logs.values()) and not [
                log for log in node.logs.values() if log.directory.startswith(PATHS[0])
            ]
        else:
            assert not lost and len(node.online) == 2
        goes_on(node, name)
        del rig.store.strike
        rig.store.faults.clear()
        comes_back(rig, name)
        if not failing.struck:
            return
    raise AssertionError("it never came to its end")


def goes_on(node: LogDirectories, name: str) -> None:
    """The second directory takes records, and new logs."""
    if name == "close":
        return
    if name not in TAKE_AWAY:
        append(node.logs["orders", 3])
        node.logs["orders", 3].flush()
    make(node, 20, 1)
    assert os.path.dirname(node.logs["orders", 20].directory) == PATHS[1]


def comes_back(rig: Rig, name: str) -> None:
    """After a repair."""
    rig.kill()
    again = opened(rig)
    works = again.load_work(lambda topic: CONFIG, NOW_MS)
    for work in works:
        again.adopt(work, work())
    target = again.directories[0].directory_id
    again.settle_copies(lambda topic, index: target if index == 1 and name == "move" else None, NOW_MS)
    assert len(again.online) == 2
    for index in range(4):
        log = again.logs.get(("orders", index))
        if log is None:
            assert name in ("retire", "remove")
            continue
        assert all_offsets(log)[-12:] == list(range(log.log_start_offset, log.log_end_offset))[-12:]
        assert log.log_start_offset in (0, 9) and log.log_end_offset in (12, 13), log
        assert log.topic_id == TOPIC_ID
        # That of a log that has just moved was not written down.
        assert log.high_watermark >= 9 or (index == 1 and name == "move")


@pytest.mark.feature("ST-17")
@pytest.mark.parametrize("kind", ["open", "write", "sync", "read"])
def test_a_directory_may_fail_at_any_moment_of_a_start(kind: str) -> None:
    for after in range(200):
        rig = Rig(seed=after)
        filled(rig)
        rig.kill()
        failing = Failing(rig, kind, errno.EIO, after)
        node = opened(rig)
        for work in node.load_work(lambda topic: CONFIG, NOW_MS):
            node.adopt(work, work())
        with suppress(LogDirectoryError):
            node.settle_copies(lambda topic, index: None, NOW_MS)
        node.note_failures(node.note_boot())
        assert (place(node, 0).failure is not None) == failing.struck
        assert sorted(index for _, index in node.logs) == ([1, 3] if failing.struck else [0, 1, 2, 3])
        for index in (1, 3):
            append(node.logs["orders", index])
        if not failing.struck:
            return
    raise AssertionError("it never came to its end")
