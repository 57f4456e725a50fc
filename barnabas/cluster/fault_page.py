"""Faults inside of the process of one node: a page in a file, which the node maps and the nemesis writes to.

    0   the offset of its wall clock, in milliseconds, signed
    8   1: its disk is full; 2: its disk fails
    9   a fault point is armed, where it 1: ends, 2: ends because its power is cut, 3: freezes
    10  1: that has happened
    11  how often its power was cut, modulo 256
    16  the name of the fault point, UTF-8, filled up with zeros

Bytes change one at a time and in an order in which every state between makes sense, so there is no lock.
"""

from __future__ import annotations

import struct
from pathlib import Path

from barnabas.cluster.layout import Layout
from barnabas.cluster.shared_memory import map_shared

PAGE_BYTES = 128
_OFFSET = struct.Struct("<q")
_DISK, _ARMED, _STRUCK, _POWER_CUTS, _NAME = 8, 9, 10, 11, 16

DISK_WELL, DISK_FULL, DISK_FAILS = 0, 1, 2
DEATH, POWER_CUT, FREEZE = 1, 2, 3
"""Actions at a fault point."""


class FaultPage:
    """The page of one node."""

    def __init__(self, path: Path) -> None:
        """Made, with nothing wrong, if it is not there."""
        self._page = map_shared(path, PAGE_BYTES)

    @property
    def clock_offset_ms(self) -> int:
        offset: int = _OFFSET.unpack_from(self._page, 0)[0]
        return offset

    @clock_offset_ms.setter
    def clock_offset_ms(self, offset_ms: int) -> None:
        _OFFSET.pack_into(self._page, 0, offset_ms)

    @property
    def power_cuts(self) -> int:
        return self._page[_POWER_CUTS]

    def power_is_cut(self) -> None:
        """The machine did not boot, but the node shall believe so."""
        self._page[_POWER_CUTS] = (self._page[_POWER_CUTS] + 1) % 256

    @property
    def disk(self) -> int:
        return self._page[_DISK]

    @disk.setter
    def disk(self, state: int) -> None:
        self._page[_DISK] = state

    def arm(self, point: str, what: int) -> None:
        """DEATH, POWER_CUT or FREEZE when the node comes to `point`. Raises ValueError for a name that is too long."""
        name = point.encode()
        if len(name) >= PAGE_BYTES - _NAME:
            raise ValueError(f"{point}: the name of a fault point is too long")
        self.disarm()
        self._page[_NAME:] = name.ljust(PAGE_BYTES - _NAME, b"\0")
        self._page[_ARMED] = what

    def disarm(self) -> bool:
        """True if the node has come there since it was armed."""
        self._page[_ARMED] = 0
        struck, self._page[_STRUCK] = self._page[_STRUCK], 0
        return bool(struck)

    @property
    def is_armed(self) -> bool:
        return self._page[_ARMED] != 0

    def strikes_at(self, point: str) -> bool:
        return self._page[_NAME:].rstrip(b"\0") == point.encode()

    def strike(self) -> int:
        """It happens now; gives what."""
        what = self._page[_ARMED]
        self._page[_ARMED] = 0
        if what == POWER_CUT:
            self.power_is_cut()
        self._page[_STRUCK] = 1
        return what


def page_of(layout: Layout, name: str) -> FaultPage:
    """The fault page of a node."""
    return FaultPage(layout.data / "run" / "faults" / name)
