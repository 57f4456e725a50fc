"""Faults that wait for a node of the simulated cluster to come to a point, or to change its disk so many times."""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.runtime.simulated import Universe
from worlds.cluster import current_fault


@dataclass(slots=True)
class Armed:
    """A fault that waits for a node to come somewhere."""

    fault: str
    """For the coverage table."""
    point: str | None = None
    freezes: bool = False


class ArmedFaults:
    """The last one of each node."""

    def __init__(self, universe: Universe) -> None:
        self._universe = universe
        self._armed: dict[str, Armed] = {}
        self._struck: dict[str, bool] = {}

    def kill_at(self, name: str, point: str, *, power_cut: bool) -> None:
        self._arm(name, Armed("kill-at", point))
        self._universe.kill_at(name, point, power_cut=power_cut)

    def pause_at(self, name: str, point: str) -> None:
        self._arm(name, Armed("pause-at", point, freezes=True))
        self._universe.kill_at(name, point)

    def kill_at_write(self, name: str, count: int, *, power_cut: bool) -> None:
        self._arm(name, Armed("kill-at-write"))
        self._universe.kill_at_change(name, count, power_cut=power_cut)

    def _arm(self, name: str, armed: Armed) -> None:
        armed.fault = current_fault.get() or armed.fault
        self._armed[name] = armed
        self._struck[name] = False

    def disarm(self, name: str) -> bool:
        """Returns whether the last fault of this node has struck."""
        self._universe.disarm(name)
        return self._struck.pop(name, False)

    def struck(self, name: str) -> Armed:
        """The fault of this node strikes."""
        self._struck[name] = True
        return self._armed[name]
