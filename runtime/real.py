"""The real `World`: network, disk, clocks and threads of this machine."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from typing import TypeVar

import trio

from barnabas.runtime.clocks import MonotonicClock, WallClock
from barnabas.runtime.descriptors import count_descriptors
from barnabas.runtime.disk import RealDisk
from barnabas.runtime.late import Late
from barnabas.runtime.network import RealNetwork, addresses_of
from barnabas.runtime.object_store import ObjectStore
from barnabas.runtime.world import World
from barnabas.settings.object_store import StoreSettings

T = TypeVar("T")

STORE_THREADS = 16
"""Threads for one object store: they wait for its answers most of the time."""

BLOCKING_THREADS = 8
"""Threads for fsync and recovery; more would only queue for the same disk."""


class _Threads:
    """Runs work in a thread; a cancelled caller still waits for the work to end, so its files stay valid."""

    def __init__(self) -> None:
        self._limiter = trio.CapacityLimiter(BLOCKING_THREADS)

    async def __call__(self, work: Callable[[], T]) -> T:
        return await trio.to_thread.run_sync(work, limiter=self._limiter)


class _StoreThreads:
    """Runs requests to an object store. A cancelled caller leaves its request behind, which ends at its timeout."""

    def __init__(self) -> None:
        self._limiter = trio.CapacityLimiter(STORE_THREADS)

    async def __call__(self, work: Callable[[], T]) -> T:
        return await trio.to_thread.run_sync(work, limiter=self._limiter, abandon_on_cancel=True)


def real_world(seed: int | None = None) -> World:
    """The world of this machine; `seed` fixes only its random numbers, which are fit for secrets without one."""
    return World(
        network=RealNetwork(),
        disk=RealDisk(),
        wall_clock=WallClock(),
        monotonic=MonotonicClock(),
        chance=random.SystemRandom() if seed is None else random.Random(seed),
        run_blocking=_Threads(),
        stopwatch=time.monotonic,
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        addresses_of=addresses_of,
        count_descriptors=count_descriptors,
        object_store=_open_store,
    )


def _open_store(settings: StoreSettings) -> ObjectStore:
    store: ObjectStore = Late("barnabas.runtime.stores.opening:open_store", settings, _StoreThreads()).get()
    return store
