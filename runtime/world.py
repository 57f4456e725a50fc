"""The `World`: the one seam between a node and everything outside it.

A node gets its network, disk, clocks, chance and blocking work from the `World` it is started with, and from
nowhere else. `runtime.real.real_world` makes the real one; `runtime.simulated` has a twin of every part, and replays
from a seed. Nothing here knows the Kafka protocol.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from barnabas.runtime.object_store import ObjectStore
from barnabas.settings.object_store import StoreSettings

T = TypeVar("T")

Bytes = bytes | bytearray | memoryview
"""Anything that can be sent or written."""


class ConnectionLost(Exception):
    """The peer closed or reset the connection, or `close` was called on it."""


class DialFailed(Exception):
    """No connection: unreachable, unknown name, or timed out. No evidence that the peer is dead."""


class DialRefused(DialFailed):
    """The host of the peer refused the connection (ECONNREFUSED): the process is gone."""


class File(Protocol):
    """An open file. All calls are synchronous and raise OSError as the operating system does."""

    @property
    def path(self) -> str: ...

    def size(self) -> int:
        """Bytes in the file now."""

    def pread(self, count: int, offset: int) -> bytes:
        """Up to `count` bytes from `offset`; fewer only at the end of the file."""

    def pwrite(self, data: Bytes, offset: int) -> None:
        """Write all of `data` at `offset`. After an OSError any prefix of it may have been written."""

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Make the contents and the size durable (fsync). Slow: call it through `World.run_blocking`."""

    def close(self) -> None:
        """A file that nobody refers to any more is closed as well."""


class Disk(Protocol):
    """Files by path. Directory entries (new names, renames, removals) are durable only after `sync_directory`."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing; `create` makes an empty file where there is none."""

    def exists(self, path: str) -> bool: ...

    def is_directory(self, path: str) -> bool: ...

    def list(self, path: str) -> list[str]:
        """Names in a directory, sorted."""

    def make_directories(self, path: str) -> None: ...

    def rename(self, source: str, target: str) -> None:
        """Atomic; replaces `target`."""

    def remove(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None: ...

    def sync_directory(self, path: str) -> None: ...

    def size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int: ...

    def changed_ns(self, path: str) -> int:
        """Time at which the file or directory itself changed last (its ctime). While it is the same, no entry of a
        directory was created, renamed or removed."""

    def read_bytes(self, path: str) -> bytes: ...

    def space_bytes(self, path: str) -> tuple[int, int]:
        """(total, usable) bytes of the volume that holds `path`."""

    def boot_id(self) -> str:
        """Changes with each loss of power: while it stays the same, everything that was written is there. Empty:
        unknown."""

    def when_short(self, spare_some: Callable[[], bool]) -> None:
        """Call `spare_some` whenever the process has no descriptor left, and try again if it returns True."""

    def sync_soon(self, path: str) -> None:
        """Write out everything on the volume of `path` at once, so that many syncs that follow have little to do. It
        replaces none of them. Slow.
        """

    def sync_together(self, paths: Sequence[str], *, since: str | None = None) -> Sequence[str]:
        """Make directories and the files in them durable at once, with everything else on the volume of the first one.
        Returns those for which that is not certain, perhaps all: each of them is to be synced. Slow.

        Raises OSError if something is lost now, and with `since`, a lock that this process has on the volume, if
        something on the volume was lost since it was taken.
        """

    def lock(self, path: str) -> Callable[[], None]:
        """Take the exclusive lock file `path`; returns its release. BlockingIOError if another process holds it."""


class Connection(Protocol):
    """A stream of bytes to one peer. Every call after `close`, or after the peer is gone, raises `ConnectionLost`."""

    @property
    def peer_host(self) -> str: ...

    @property
    def peer_port(self) -> int: ...

    @property
    def local_address(self) -> tuple[str, int]:
        """Host and port of this end."""
        ...

    async def receive_into(self, buffer: memoryview) -> int:
        """Wait for bytes; returns how many were put into `buffer` (at least 1). The end raises `ConnectionLost`."""

    def send_now(self, views: Sequence[Bytes]) -> int:
        """Send what fits into the socket now; returns the number of bytes taken, which may be 0.

        The next bytes to be sent must be those that were not taken: they may be encrypted already.
        """

    def send_file_now(self, file: File, offset: int, count: int) -> int:
        """Send up to `count` bytes of `file` from `offset` now; returns the number of bytes taken, which may be 0.

        Raises EOFError if the file ends before `offset + 1`.
        """

    async def wait_writable(self) -> None: ...

    def has_ended(self) -> bool:
        """True if the peer closed or reset its side. Bytes that it sent before may still be received."""

    def close(self) -> None:
        """Close at once; tasks that wait on the connection get `ConnectionLost`."""


class Listener(Protocol):
    """A listening port."""

    @property
    def port(self) -> int: ...

    async def accept(self) -> Connection: ...

    def close(self) -> None: ...


class Network(Protocol):
    """Outgoing and incoming connections."""

    async def dial(self, host: str, port: int) -> Connection:
        """Connect; raises `DialRefused` or `DialFailed`. The caller bounds the time."""

    async def listen(self, host: str, port: int, *, shared: bool = False) -> Listener:
        """Listen; port 0 picks a free one. Raises OSError (EADDRINUSE, EADDRNOTAVAIL, EACCES).

        With `shared`, other processes of the user may listen on the same address; each connection goes to one of
        them."""


class Clock(Protocol):
    """A clock in whole milliseconds: since the Unix epoch (wall) or since some fixed point (monotonic)."""

    def now_ms(self) -> int: ...


class Chance(Protocol):
    """The part of `random.Random` that nodes may use."""

    def random(self) -> float: ...

    def randrange(self, start: int, stop: int) -> int:
        """start <= n < stop"""

    def randbytes(self, n: int) -> bytes: ...


class RunBlocking(Protocol):
    """Runs slow synchronous work (fsync, recovery) away from the event loop."""

    def __call__(self, work: Callable[[], T]) -> Awaitable[T]: ...


class CountWork(Protocol):
    """Counts the work of steps that hold the event loop."""

    def __call__(self, name: str, step: Callable[[], T]) -> T:
        """Take the step of a request of the API with this name, and count what it does."""


def no_fault(name: str) -> None:
    """The fault point of the real world: does nothing."""


def as_written(_name: str, value: int) -> int:
    """The `World.tuned` of the real world: constants stay as they are in the code."""
    return value


def unmeasured() -> float | None:
    """CPU time that nobody measures."""
    return None


def stopped() -> float:
    """A stopwatch that measures nothing."""
    return 0.0


def no_address(_name: str) -> list[str]:
    """A look-up where peers go by their names."""
    return []


@dataclass(frozen=True, slots=True)
class World:
    """All that a node may touch."""

    network: Network
    disk: Disk
    wall_clock: Clock
    monotonic: Clock
    chance: Chance
    run_blocking: RunBlocking
    fault_point: Callable[[str], None] = no_fault
    """Called with a name (`log.append.written`) at places where a crash is interesting; a simulation may kill the
    node there by raising."""
    tuned: Callable[[str, int], int] = as_written
    """Replaces an inner constant, by its name and value. A simulation draws smaller ones, so that rare situations occur
    there with little data."""
    step_cpu_seconds: Callable[[], float | None] = unmeasured
    """CPU time of the present step of the event loop so far; None: it is not measured."""
    stopwatch: Callable[[], float] = stopped
    """Seconds since some fixed point, as precise as possible: for measurements, and for fair turns."""
    memory_bytes: int = 4 << 30
    """The memory of the machine."""
    addresses_of: Callable[[str], list[str]] = no_address
    """The IP addresses of a host, as `Connection.peer_host` shows them. Slow: call it through `run_blocking`. Raises
    OSError."""
    count_descriptors: Callable[[], tuple[int, int]] | None = None
    """(open descriptors of this process, their limit); None if there is no limit."""
    count_work: CountWork | None = None
    """Takes every step of every request, if their work is counted."""
    object_store: Callable[[StoreSettings], ObjectStore] | None = None
    """Opens the object store of tiered storage. It connects to nothing yet. Raises `SettingsError`, also if a library
    is not installed."""


@dataclass(frozen=True, slots=True)
class FileRegion:
    """Bytes of a file that go to a socket without passing through this process. `len()` gives their number."""

    file: File
    offset: int
    count: int

    def __len__(self) -> int:
        return self.count


Chunk = Bytes | FileRegion
"""One piece of an outgoing frame."""
