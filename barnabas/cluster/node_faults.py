"""Faults of the nodes of a local cluster, without root: links, clocks, disks, and ends at a fault point.

Nodes look for them in files that they map into memory, so a fault is there at once, also for a node that is started
later. Power cuts and packets need root; `jepsen-style` has them.
"""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.cluster.fault_page import DEATH, DISK_FULL, DISK_WELL, FREEZE, POWER_CUT, FaultPage, page_of
from barnabas.cluster.layout import Layout
from barnabas.cluster.wires import Wires, open_wires


class NodeFaults:
    """The faults of one cluster, whose nodes run `barnabas.cluster.breakable_node`. Names as in `LocalCluster`; raises
    `ClusterError` for an unknown one."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    # ---- links between nodes; clients still reach all of them

    def cut(self, source: str, target: str) -> None:
        """Nothing passes in this direction, and neither end notices."""
        self._wires.cut(source, target)

    def mend(self, source: str, target: str) -> None:
        """Undo `cut`: what was held goes on."""
        self._wires.mend(source, target)

    def partition(self, groups: Iterable[Iterable[str]]) -> None:
        """Cut the links between nodes of different groups, both ways, and no others. Nodes in no group are one more
        group."""
        sides = [[self._layout.node(name).name for name in group] for group in groups]
        named = {name for side in sides for name in side}
        sides.append([node.name for node in self._layout.nodes if node.name not in named])
        wires = self._wires
        wires.heal()
        wires.partition(sides)

    def heal(self) -> None:
        """Undo `cut` and `partition`."""
        self._wires.heal()

    @property
    def _wires(self) -> Wires:
        return open_wires(self._layout)

    # ---- inside of one node

    def set_clock(self, name: str, offset_ms: int) -> None:
        """The wall clock of the node is off by this much; 0: it is right."""
        self._page(name).clock_offset_ms = offset_ms

    def fill_disk(self, name: str, *, full: bool) -> None:
        """The disk of the node takes nothing that makes a file longer (ENOSPC)."""
        self._page(name).disk = DISK_FULL if full else DISK_WELL

    def kill_at(self, name: str, point: str, *, power_cut: bool = False) -> None:
        """The node ends when it next comes to this fault point (`fault_points`)."""
        self._page(name).arm(point, POWER_CUT if power_cut else DEATH)

    def pause_at(self, name: str, point: str) -> None:
        """The node freezes when it next comes to this fault point."""
        self._page(name).arm(point, FREEZE)

    def disarm(self, name: str) -> bool:
        """Undo `kill_at` and `pause_at`; True if it had struck."""
        return self._page(name).disarm()

    def power_is_cut(self, name: str) -> None:
        """The node shall believe that its machine boots before its next start."""
        self._page(name).power_is_cut()

    def repair(self) -> None:
        """Undo everything."""
        self.heal()
        for node in self._layout.nodes:
            page = self._page(node.name)
            page.clock_offset_ms, page.disk = 0, DISK_WELL
            page.disarm()

    def _page(self, name: str) -> FaultPage:
        return page_of(self._layout, self._layout.node(name).name)
