"""The object store of a universe: one bucket for all nodes, with drawn latencies and faults.

It has a clock of its own and outlives every process and every loss of power. A request takes effect at the store
between its departure and its answer, whatever happens to its sender meanwhile: an answer can be lost, and a request
that nobody waits for any more can still arrive.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, TypeVar

import trio

from barnabas.runtime.object_store import (
    NoSuchObject,
    ObjectExists,
    Part,
    StoredObject,
    StoreError,
    StoreRefused,
    pieces_of,
    size_of,
)
from barnabas.runtime.simulated.chance import Stream
from barnabas.runtime.simulated.clocks import SimulatedClock
from barnabas.runtime.simulated.process import NodeKilled, SimulatedProcess
from barnabas.runtime.simulated.virtual_time import VirtualTime

T = TypeVar("T")

DEFAULT_CAPACITY_BYTES = 1 << 40
KEPT_CHANGES_MS = 60_000.0
"""A list can be behind by at most this time."""
_PIECE_BYTES = 1 << 20


class FaultKind(Enum):
    """The fate of a request."""

    UNAVAILABLE = "unavailable"
    """Answered with an error at once (503), without effect."""
    LOST = "lost"
    """Never arrives; its sender waits until its timeout."""
    ANSWER_LOST = "answer lost"
    """Takes effect; its sender waits for the answer until its timeout."""
    LATE = "late"
    """Takes effect after the timeout of its sender, up to a minute later."""
    REFUSED = "refused"
    """Wrong credentials."""
    FULL = "full"
    """No room: only puts fail."""


@dataclass(slots=True)
class StoreFault:
    """Requests that meet a fault: `put`, `get`, `size`, `delete`, `list` of the keys that begin with `prefix`."""

    kind: FaultKind
    operations: frozenset[str]
    prefix: str = ""
    probability: float = 1.0
    remaining: int | None = None
    """Number of times that it still strikes; None: without limit."""


ALL_OPERATIONS = frozenset({"put", "get", "size", "delete", "list"})


@dataclass(slots=True)
class _Stored:
    data: bytes
    modified_ms: int


@dataclass(slots=True)
class Bucket:
    """The objects, and the faults of the store."""

    chance: Stream
    time: VirtualTime
    clock: SimulatedClock
    trace: Callable[[str], None]
    capacity_bytes: int = DEFAULT_CAPACITY_BYTES
    latency_ms: tuple[float, float] = (2.0, 8.0)
    """Duration of a request and its answer together: (minimum, mean of the addition)."""
    bytes_per_ms: float = 100_000.0
    list_lag_ms: float = 0.0
    """Lists are behind by up to this time."""
    faults: list[StoreFault] = field(default_factory=list)
    objects: dict[str, _Stored] = field(default_factory=dict)
    met: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Number of requests by operation and fate; the fate of most is `served`."""
    _changes: deque[tuple[float, str, _Stored | None]] = field(default_factory=deque)
    """(time, key, its object before the change), the newest last."""

    # --- what a nemesis and a checker do ---

    def fail(
        self,
        kind: FaultKind,
        *operations: str,
        prefix: str = "",
        probability: float = 1.0,
        remaining: int | None = None,
    ) -> StoreFault:
        """Let requests meet a fault from now on, by default all of them. Remove the fault from `faults` to end it."""
        assert ALL_OPERATIONS.issuperset(operations), operations
        fault = StoreFault(kind, frozenset(operations) or ALL_OPERATIONS, prefix, probability, remaining)
        self.faults.append(fault)
        self.trace(f"store {kind.value} {sorted(fault.operations)} {probability}")
        return fault

    def heal(self) -> None:
        """End every fault, also slowness, lists that are behind, and lack of room."""
        self.faults.clear()
        self.capacity_bytes = DEFAULT_CAPACITY_BYTES
        self.list_lag_ms = 0.0
        self.latency_ms = (2.0, 8.0)
        self.trace("store healed")

    @property
    def used_bytes(self) -> int:
        return sum(len(stored.data) for stored in self.objects.values())

    def flip_bit(self, key: str) -> None:
        """Damage an object."""
        stored = self.objects[key]
        data = bytearray(stored.data)
        data[self.chance.randrange(len(data))] ^= 1 << self.chance.randrange(8)
        stored.data = bytes(data)

    # --- what requests do on arrival ---

    def strike(self, operation: str, key: str) -> FaultKind | None:
        """The fault that this request meets, if any."""
        for fault in self.faults:
            if operation not in fault.operations or not key.startswith(fault.prefix) or fault.remaining == 0:
                continue
            if fault.probability < 1.0 and self.chance.random() >= fault.probability:
                continue
            if fault.kind is FaultKind.FULL and operation != "put":
                continue
            if fault.remaining is not None:
                fault.remaining -= 1
            return fault.kind
        return None

    def put(self, key: str, data: bytes, *, if_absent: bool) -> None:
        old = self.objects.get(key)
        if if_absent and old is not None:
            raise ObjectExists(f"put {key}: there is an object with this key")
        if self.used_bytes + len(data) - (0 if old is None else len(old.data)) > self.capacity_bytes:
            raise StoreError(f"put {key}: the store is full")
        self._change(key, _Stored(data, self.clock.now_ms()))

    def find(self, key: str) -> bytes | None:
        stored = self.objects.get(key)
        return None if stored is None else stored.data

    def delete(self, key: str) -> None:
        if key in self.objects:
            self._change(key, None)

    def list(self, prefix: str) -> list[StoredObject]:
        seen: dict[str, _Stored | None] = dict(self.objects)
        if self.list_lag_ms:
            as_of = self.time.now - self.chance.uniform(0.0, self.list_lag_ms) / 1000.0
            for when, key, before in reversed(self._changes):
                if when <= as_of:
                    break
                seen[key] = before
        return [
            StoredObject(key, len(stored.data), stored.modified_ms)
            for key, stored in sorted(seen.items())
            if stored is not None and key.startswith(prefix)
        ]

    def _change(self, key: str, stored: _Stored | None) -> None:
        changes, now = self._changes, self.time.now
        changes.append((now, key, self.objects.get(key)))
        while changes[0][0] < now - KEPT_CHANGES_MS / 1000.0:
            changes.popleft()
        if stored is None:
            del self.objects[key]
        else:
            self.objects[key] = stored


class _Request(Generic[T]):
    """Work that the store does when the request arrives; its result or its error is the answer."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._results: list[T] = []
        self._error: StoreError | None = None

    def arrive(self, _argument: object) -> None:
        try:
            self._results.append(self._work())
        except StoreError as error:
            self._error = error

    def answer(self) -> T:
        if self._error is not None:
            raise self._error
        [result] = self._results
        return result


class SimulatedObjectStore:
    """The bucket as one process sees it."""

    def __init__(self, bucket: Bucket, process: SimulatedProcess, timeout_ms: int) -> None:
        self._bucket = bucket
        self._process = process
        self._timeout_ms = timeout_ms

    async def put(self, key: str, parts: Sequence[Part], *, if_absent: bool = False) -> None:
        data = b"".join(pieces_of(parts, _PIECE_BYTES))
        assert len(data) == size_of(parts)
        await self._ask("put", key, lambda: self._bucket.put(key, data, if_absent=if_absent), len(data))

    async def get(self, key: str, start: int = 0, count: int | None = None) -> bytes:
        data = await self._find("get", key)
        wanted = data[start:] if count is None else data[start : start + count]
        await trio.sleep(len(wanted) / self._bucket.bytes_per_ms / 1000.0)
        return wanted

    async def size(self, key: str) -> int:
        return len(await self._find("size", key))

    async def delete(self, key: str) -> None:
        await self._ask("delete", key, lambda: self._bucket.delete(key))

    async def list(self, prefix: str) -> list[StoredObject]:
        return await self._ask("list", prefix, lambda: self._bucket.list(prefix))

    async def close(self) -> None:
        await trio.lowlevel.checkpoint()

    async def _find(self, operation: str, key: str) -> bytes:
        data = await self._ask(operation, key, lambda: self._bucket.find(key))
        if data is None:
            raise NoSuchObject(f"{operation} {key}: there is no such object")
        return data

    async def _ask(self, operation: str, key: str, work: Callable[[], T], sent_bytes: int = 0) -> T:
        """Send a request, and wait for its answer or for the timeout."""
        self._check_alive(operation)
        bucket = self._bucket
        fault = bucket.strike(operation, key)
        bucket.met[operation, "served" if fault is None else fault.value] += 1
        if fault is not None:
            bucket.trace(f"{self._process.name} store {operation} {key} {fault.value}")
        least_ms, mean_ms = bucket.latency_ms
        upload_ms = sent_bytes / bucket.bytes_per_ms
        ways_ms = least_ms + (bucket.chance.expovariate(1.0 / mean_ms) if mean_ms > 0 else 0.0)
        request = _Request(work)
        if fault in (None, FaultKind.ANSWER_LOST):
            self._send(request, upload_ms, ways_ms / 2)
        elif fault is FaultKind.LATE:
            self._send(request, upload_ms, self._timeout_ms + bucket.chance.uniform(0.0, 60_000.0))
        if fault in (FaultKind.LOST, FaultKind.ANSWER_LOST, FaultKind.LATE):
            await self._pause(self._timeout_ms, operation)
            raise StoreError(f"{operation} {key}: no answer in {self._timeout_ms} ms")
        if upload_ms + ways_ms >= self._timeout_ms:
            await self._pause(self._timeout_ms, operation)
            raise StoreError(f"{operation} {key}: no answer in {self._timeout_ms} ms")
        await self._pause(upload_ms + ways_ms, operation)
        if fault is FaultKind.UNAVAILABLE:
            raise StoreError(f"{operation} {key}: 503 Service Unavailable")
        if fault is FaultKind.REFUSED:
            raise StoreRefused(f"{operation} {key}: 403 Forbidden: the access key is not known")
        if fault is FaultKind.FULL:
            raise StoreError(f"{operation} {key}: the store is full")
        return request.answer()

    def _send(self, request: _Request[T], upload_ms: float, way_ms: float) -> None:
        """The request is sent as its bytes are, and arrives later; a process that dies first has sent only a part."""
        time = self._bucket.time
        sent = time.now + upload_ms / 1000.0

        def depart(_argument: object) -> None:
            if self._process.alive:
                time.call_at(sent + way_ms / 1000.0, request.arrive, None)

        time.call_at(sent, depart, None)

    async def _pause(self, pause_ms: float, operation: str) -> None:
        await trio.sleep(pause_ms / 1000.0)
        self._check_alive(operation)

    def _check_alive(self, operation: str) -> None:
        if not self._process.alive:
            raise NodeKilled(f"{self._process.name} during {operation} at the object store")


