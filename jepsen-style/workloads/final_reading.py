"""The end of a run: a few processes read all keys from their beginning, until nothing is missing.

Each begins as a new client, and restarts a few times if it makes no progress. A core: it gives the next step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

READERS = 3
"""Number of processes that read everything; the others rest."""
FRUITLESS_SECONDS = 10.0
"""Time without a new record after which a reader restarts."""
RESTARTS = 2
"""Number of fruitless attempts after which it gives up: records that it has not seen cannot be read."""


@dataclass(slots=True)
class Reader:
    """One of them."""

    step: str = "crash"
    """Its next step: crash, debug, assign, poll, done."""
    positions: dict[int, int] = field(default_factory=dict)
    """By key, behind the last record it read."""
    progressed: bool = True
    since_ns: int = 0
    """Time of its last progress."""
    restarts: int = 0
    gave_up: bool = False


class FinalReading:
    """The final reading of one run."""

    def __init__(self, processes: int, keys: Sequence[int], highest: Mapping[int, int]) -> None:
        """`highest` is the highest offset that anybody has seen of each key; it may still grow."""
        self._processes = processes
        self.keys = list(keys)
        self._highest = highest
        self.readers = {thread: Reader() for thread in range(min(READERS, processes))}

    def next_step(self, process: int, now_ns: int) -> str | None:
        """None: nothing, now or ever."""
        reader = self.readers.get(process % self._processes)
        if reader is None or reader.step == "done":
            return None
        if reader.step == "poll":
            self._look(reader, now_ns)
        return None if reader.step == "done" else reader.step

    def _look(self, reader: Reader, now_ns: int) -> None:
        if all(reader.positions.get(key, 0) > offset for key, offset in self._highest.items()):
            reader.step = "done"
        elif reader.progressed:
            reader.progressed, reader.since_ns = False, now_ns
        elif now_ns - reader.since_ns > FRUITLESS_SECONDS * 1e9:
            reader.restarts += 1
            reader.gave_up = reader.restarts > RESTARTS
            reader.step = "done" if reader.gave_up else "crash"

    def done(self, process: int, step: str, *, ok: bool) -> None:
        """A step of a process has ended; one of before the final phase changes nothing."""
        reader = self.readers.get(process % self._processes)
        if reader is None or reader.step != step:
            return
        if step == "crash":
            reader.step, reader.positions, reader.progressed = "debug", {}, True
        elif step == "debug":
            reader.step = "assign"
        elif step == "assign" and ok:
            reader.step = "poll"

    def lost_client(self, process: int) -> None:
        """Its client ended: the next one has nothing assigned."""
        reader = self.readers.get(process % self._processes)
        if reader is not None and reader.step == "poll":
            reader.step, reader.positions = "assign", {}

    def read(self, process: int, key: int, offset: int) -> None:
        reader = self.readers.get(process % self._processes)
        if reader is not None and offset >= reader.positions.get(key, 0):
            reader.positions[key] = offset + 1
            reader.progressed = True

    @property
    def is_done(self) -> bool:
        return all(reader.step == "done" for reader in self.readers.values())
