"""A disk that fails, or is full, at any operation of a move between directories: the log stays what it is, in one of
the two.
"""

from __future__ import annotations

import errno
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.runtime.simulated.store import DiskFault
from tests.broker.replication.test_plain_log_dir_moves import KEY, Node, State


class Failing:
    """Lets operations in one directory fail from some number on, until it is repaired."""

    def __init__(self, node: Node, prefix: str, kind: str, code: int, after: int) -> None:
        self.prefix, self.kind, self.code, self.left = prefix, kind, code, after
        self.struck = self.is_repaired = False
        node.rig.store.faults.append(DiskFault(frozenset()))  # otherwise nobody looks
        node.rig.store.strike = self.strike  # type: ignore[method-assign]

    def strike(self, operation: str, path: str) -> DiskFault | None:
        if self.is_repaired or operation != self.kind or not path.startswith(self.prefix):
            return None
        self.left -= 1
        if self.left >= 0:
            return None
        self.struck = True
        return DiskFault(frozenset({self.kind}), "", self.code, 1.0, None)


def filled(nursery: trio.Nursery) -> Node:
    values: list[Any] = [0, False]
    node = Node(lambda strategy: values.pop(0) if values else 1, nursery)
    for _ in range(7):
        node.write(0, 0, most=1)
    return node


async def moved_in_spite_of(kind: str, code: int, after: int) -> bool:
    """Return True if the disk was struck."""
    async with trio.open_nursery() as nursery:
        node = filled(nursery)
        node.begin()
        assert node.move is not None
        home, target = node.move.home, node.move.target
        failing = Failing(node, target.path, kind, code, after)
        for round_ in range(30):
            node.accept()
            await trio.sleep(0.5)
            node.moves.look()
            if round_ == 20:
                failing.is_repaired = True
        place = node.directories.directory_of(*KEY)
        if failing.struck and code == errno.EIO:
            assert target.failure is not None and node.directories.online == [home]
            assert len(node.moves) == 0 and not node.directories.futures.logs
            if place is home:
                assert node.partition.log is node.log and State.of(node.log) == node.state
                # The controller would look for the replica in the directory that failed.
                assert node.taken_back == ([home.directory_id] if node.move.is_assigned else [])
            else:
                assert place is None and node.move.is_accepted, "it failed when the log was there"
        else:
            assert target.failure is None and place is target
            node.check()
            assert node.swaps == 1 and node.taken_back == []
        nursery.cancel_scope.cancel()
    return failing.struck


@pytest.mark.feature("RE-18", "RE-19")
@pytest.mark.parametrize(
    ("kind", "code"),
    [("open", errno.EIO), ("write", errno.EIO), ("sync", errno.EIO), ("write", errno.ENOSPC), ("open", errno.EMFILE)],
)
def test_a_log_is_whole_in_one_directory_whatever_fails(kind: str, code: int) -> None:
    for after in range(100):
        clock = trio.testing.MockClock(autojump_threshold=0)
        if not trio.run(moved_in_spite_of, kind, code, after, clock=clock):
            return
    raise AssertionError("it never came to its end")
