"""How much memory records that were not delivered yet may take, and who gets it first. A core.

Memory is given in the order in which it was asked for: whoever needs much is not overtaken by those who need little.
The bytes themselves are Python's; what is counted here is what Kafka would take from its pool: a whole batch when a
batch is begun, more if its first record is larger.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class Waiter:
    """One who waits for memory."""

    __slots__ = ("granted", "on_granted", "size_bytes")

    def __init__(self, size_bytes: int, on_granted: Callable[[], None]) -> None:
        self.size_bytes = size_bytes
        self.on_granted = on_granted
        self.granted = False


class BufferPool:
    """All methods are for one task at a time; none waits."""

    def __init__(self, total_bytes: int) -> None:
        self.total_bytes = total_bytes
        self.available_bytes = total_bytes
        self._waiters: deque[Waiter] = deque()

    @property
    def queued(self) -> int:
        """How many wait."""
        return len(self._waiters)

    def try_allocate(self, size_bytes: int) -> bool:
        """Take it if it is there and nobody has asked before. ValueError if there can never be so much."""
        if size_bytes > self.total_bytes:
            raise ValueError(f"{size_bytes} bytes of a pool of {self.total_bytes}")
        if self._waiters or size_bytes > self.available_bytes:
            return False
        self.available_bytes -= size_bytes
        return True

    def wait(self, size_bytes: int, on_granted: Callable[[], None]) -> Waiter:
        """Stand in line. `on_granted` is called once, when the memory is the waiter's; until then `cancel` leaves."""
        waiter = Waiter(size_bytes, on_granted)
        self._waiters.append(waiter)
        self._serve()
        return waiter

    def cancel(self, waiter: Waiter) -> None:
        """Leave the line; memory that was granted meanwhile goes back."""
        if waiter.granted:
            waiter.granted = False
            self.deallocate(waiter.size_bytes)
            return
        if waiter in self._waiters:
            self._waiters.remove(waiter)
            self._serve()

    def deallocate(self, size_bytes: int) -> None:
        """Give memory back."""
        self.available_bytes += size_bytes
        assert self.available_bytes <= self.total_bytes, "more was given back than taken"
        self._serve()

    def _serve(self) -> None:
        while self._waiters and self._waiters[0].size_bytes <= self.available_bytes:
            waiter = self._waiters.popleft()
            self.available_bytes -= waiter.size_bytes
            waiter.granted = True
            waiter.on_granted()
