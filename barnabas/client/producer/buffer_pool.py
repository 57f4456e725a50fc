"""Core: buffer.memory, the memory that undelivered records may take, granted in order.

Memory is granted in the order of the requests: large requests are not overtaken by small ones. Only sizes are counted
here, as Kafka counts them: a whole batch when a batch is begun, more if its first record is larger.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class Waiter:
    """A request that waits for memory."""

    __slots__ = ("granted", "on_granted", "size_bytes")

    def __init__(self, size_bytes: int, on_granted: Callable[[], None]) -> None:
        self.size_bytes = size_bytes
        self.on_granted = on_granted
        self.granted = False


class BufferPool:
    """Not for concurrent use; no method waits."""

    def __init__(self, total_bytes: int) -> None:
        self.total_bytes = total_bytes
        self.available_bytes = total_bytes
        self._waiters: deque[Waiter] = deque()

    @property
    def queued(self) -> int:
        """Number of waiting requests."""
        return len(self._waiters)

    def try_allocate(self, size_bytes: int) -> bool:
        """Take memory if it is available and nobody waits for any. ValueError if it exceeds the pool."""
        if size_bytes > self.total_bytes:
            raise ValueError(f"size must be at most {self.total_bytes} bytes; got {size_bytes}")
        if self._waiters or size_bytes > self.available_bytes:
            return False
        self.available_bytes -= size_bytes
        return True

    def wait(self, size_bytes: int, on_granted: Callable[[], None]) -> Waiter:
        """Join the queue. `on_granted` is called once, when the memory is granted; until then `cancel` leaves the
        queue."""
        waiter = Waiter(size_bytes, on_granted)
        self._waiters.append(waiter)
        self._serve()
        return waiter

    def cancel(self, waiter: Waiter) -> None:
        """Leave the queue; memory that was granted meanwhile is returned."""
        if waiter.granted:
            waiter.granted = False
            self.deallocate(waiter.size_bytes)
            return
        if waiter in self._waiters:
            self._waiters.remove(waiter)
            self._serve()

    def deallocate(self, size_bytes: int) -> None:
        self.available_bytes += size_bytes
        assert self.available_bytes <= self.total_bytes, "more was given back than taken"
        self._serve()

    def _serve(self) -> None:
        while self._waiters and self._waiters[0].size_bytes <= self.available_bytes:
            waiter = self._waiters.popleft()
            self.available_bytes -= waiter.size_bytes
            waiter.granted = True
            waiter.on_granted()
