"""A node for those who break clusters: a broker or a controller as ever, in a world that can be made worse.

Its wall clock, disk and fault points look at its `FaultPage`, its links to other nodes at the `Wires` of the cluster.
What it runs is production code. `LocalCluster.faults` is the other side.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from barnabas.cluster.fault_page import DISK_FULL, DISK_WELL, FREEZE, POWER_CUT, FaultPage, page_of
from barnabas.cluster.layout import Layout, Node
from barnabas.cluster.plan import MODULES
from barnabas.cluster.power import cut_power
from barnabas.cluster.wires import SeverableNetwork, open_wires
from barnabas.runtime.disk import RealDisk, RealFile
from barnabas.runtime.process import Program
from barnabas.runtime.real import real_world
from barnabas.runtime.simulated.disk import renamed_point
from barnabas.runtime.world import Bytes, Clock, Network, World
from barnabas.security.addresses import port_for_nodes


def load(text: str, name: str, overrides: Mapping[str, str]) -> Program:
    """The node of a configuration file `DATA/conf/NODE.properties`. Raises `SettingsError`."""
    path = Path(name)
    layout = Layout.open(path.parents[1], shape=path.parent)
    node = layout.node(path.stem)

    def world() -> World:
        return faulty_world(layout, node, severable_network(layout, node, real_world().network))

    program: Program = import_module(MODULES[node.role]).load(text, name, overrides, world)
    return program


def severable_network(layout: Layout, node: Node, network: Network) -> SeverableNetwork:
    """The network of a node of this layout, whose links the wires of the cluster can cut."""
    names = {port: each.name for each in layout.nodes for port in (each.port, port_for_nodes(layout, each))}
    return SeverableNetwork(network, open_wires(layout), node.name, names)


def faulty_world(layout: Layout, node: Node, network: Network | None = None) -> World:
    """The real disk, with the faults on the page of the node."""
    world = real_world()
    page = page_of(layout, node.name)
    points = _FaultPoints(page, str(layout.log_directory(node)))
    return replace(
        world,
        network=network or world.network,
        disk=_FaultyDisk(page, points.passed),
        wall_clock=_WrongClock(world.wall_clock, page),
        fault_point=points.passed,
    )


class _WrongClock:
    """Wall time with an offset."""

    def __init__(self, clock: Clock, page: FaultPage) -> None:
        self._clock = clock
        self._page = page

    def now_ms(self) -> int:
        return self._clock.now_ms() + self._page.clock_offset_ms


class _FaultPoints:
    """Ends or freezes the process at the armed fault point."""

    def __init__(self, page: FaultPage, directory: str) -> None:
        self._page = page
        self._directory = directory

    def passed(self, name: str) -> None:
        page = self._page
        if page.is_armed and page.strikes_at(name):
            what = page.strike()
            if what == POWER_CUT:
                cut_power(self._directory)
            os.kill(os.getpid(), signal.SIGSTOP if what == FREEZE else signal.SIGKILL)


class _FaultyDisk(RealDisk):
    """The disk, which may be full, or fail. Each rename is a fault point, as on a simulated disk."""

    def __init__(self, page: FaultPage, fault_point: Callable[[str], None]) -> None:
        super().__init__()
        self._page = page
        self._fault_point = fault_point

    def open(self, path: str, *, create: bool = False) -> RealFile:
        if create and self._page.disk != DISK_WELL and not os.path.exists(path):
            self._fail(path)
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return _FaultyFile(path, self._open(path, flags), self._page)

    def make_directories(self, path: str) -> None:
        if self._page.disk != DISK_WELL and not os.path.isdir(path):
            self._fail(path)
        super().make_directories(path)

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        self._fault_point(renamed_point(target))

    def boot_id(self) -> str:
        return f"{super().boot_id()} {self._page.power_cuts}"

    def space_bytes(self, path: str) -> tuple[int, int]:
        total, usable = super().space_bytes(path)
        return total, 0 if self._page.disk == DISK_FULL else usable

    def _fail(self, path: str) -> None:
        _fail(self._page.disk, path)


class _FaultyFile(RealFile):
    """A file on it. A full disk takes what lies inside of the file, and refuses what makes it longer."""

    __slots__ = ("_page",)

    def __init__(self, path: str, descriptor: int, page: FaultPage) -> None:
        super().__init__(path, descriptor)
        self._page = page

    def pwrite(self, data: Bytes, offset: int) -> None:
        state = self._page.disk
        if state != DISK_WELL and (state != DISK_FULL or offset + len(data) > self.size()):
            _fail(state, self.path)
        super().pwrite(data, offset)

    def sync(self) -> None:
        if self._page.disk not in (DISK_WELL, DISK_FULL):
            _fail(self._page.disk, self.path)
        super().sync()


def _fail(state: int, path: str) -> None:
    code = errno.ENOSPC if state == DISK_FULL else errno.EIO
    raise OSError(code, os.strerror(code), path)
