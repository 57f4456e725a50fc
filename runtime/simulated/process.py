"""One life of a simulated node: from its start to its end or its kill.

After a kill the node cannot reach the outside, not even in its `finally` blocks: its files and disk raise EBADF, its
connections are lost, its fault points and blocking work raise `NodeKilled`.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Protocol, TypeVar

import trio

from barnabas.runtime.simulated.chance import Stream
from barnabas.runtime.simulated.virtual_time import pass_time

T = TypeVar("T")


class NodeKilled(BaseException):
    """The node was killed at this point. Not an Exception: no handler in the node may take it for an error of its
    own."""


class Executioner(Protocol):
    """Ends processes: the universe."""

    def reached(self, process: SimulatedProcess, point: str) -> None:
        """The process reached a fault point; may kill it."""

    def strikes(self, process: SimulatedProcess, *, power_cut: bool) -> bool | None:
        """An armed kill is due: True if its power is cut, False for a kill, None to let it live."""

    def end(self, process: SimulatedProcess, *, power_cut: bool) -> None:
        """Kill it."""


class SimulatedProcess:
    """One process of a node. Disk, clocks and name outlive it and belong to the host."""

    def __init__(self, name: str, universe: Executioner, chance: Stream, blocking_ms: tuple[float, float]) -> None:
        self.name = name
        self.alive = True
        self.scope: trio.CancelScope | None = None
        """Cancelled by a kill."""
        self.chance = chance
        self.blocking_ms = blocking_ms
        """Duration of blocking work: (minimum, mean of an exponential addition)."""
        self.changes = 0
        """Number of disk operations that changed something or made it durable."""
        self.dies_at_change: int | None = None
        self.dies_by_power_cut = False
        self.on_end: list[Callable[[bool], None]] = []
        """Called once when the process ends; the argument is True if its power was cut."""
        self._universe = universe

    def fault_point(self, name: str) -> None:
        """The `World.fault_point` of this process."""
        if self.alive:
            self._universe.reached(self, name)
        if not self.alive:
            raise NodeKilled(f"{self.name} at {name}")

    async def run_blocking(self, work: Callable[[], T]) -> T:
        """The `World.run_blocking`: other tasks run for a drawn time before the work, and for another before its
        result.

        As with a thread, cancelling the caller does not undo work that has begun.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        await self._blocking_pause()
        try:
            return work()
        finally:
            # A thread's result, or its error, arrives later than its effects.
            if self.alive:
                await self._blocking_pause()

    def check_alive(self) -> None:
        """Raises OSError (EBADF) after the end of the process."""
        if not self.alive:
            raise OSError(errno.EBADF, f"{self.name} was killed")

    def about_to_change(self) -> bool:
        """Count a changing disk operation; True if the process has to die in the middle of it (see `die`)."""
        if not self.alive:
            raise OSError(errno.EBADF, f"{self.name} was killed")
        self.changes += 1
        if self.changes != self.dies_at_change:
            return False
        power_cut = self._universe.strikes(self, power_cut=self.dies_by_power_cut)
        self.dies_by_power_cut = bool(power_cut)
        return power_cut is not None

    def die(self) -> None:
        """End the process here; always raises NodeKilled."""
        self._universe.end(self, power_cut=self.dies_by_power_cut)
        raise NodeKilled(f"{self.name} at disk operation {self.changes}")

    def ended(self, power_cut: bool) -> None:
        """Close everything that the process held, as its kernel does (or, without power, cannot do)."""
        if self.alive:
            self.alive = False
            for close in self.on_end:
                close(power_cut)
            self.on_end.clear()
            if self.scope is not None:
                self.scope.cancel()

    async def _blocking_pause(self) -> None:
        least_ms, mean_ms = self.blocking_ms
        drawn_ms = least_ms + (self.chance.expovariate(1.0 / mean_ms) if mean_ms > 0 else 0.0)
        await pass_time(drawn_ms / 2000.0)
        if not self.alive:
            raise NodeKilled(f"{self.name} during blocking work")
