"""Everything around the simulated nodes: hosts with disks and clocks, links, random numbers, faults and the trace.

All of it comes from one seed. Each part draws from a stream of its own, so that one more draw in one place does not
shift all others. Knows nodes as names with at most one living process.
"""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from collections.abc import Awaitable, Callable

import trio

from barnabas.runtime.simulated.chance import Stream, make_stream
from barnabas.runtime.simulated.clocks import SimulatedClock
from barnabas.runtime.simulated.disk import SimulatedDisk
from barnabas.runtime.simulated.links import Wires
from barnabas.runtime.simulated.network import Fabric, SimulatedNetwork
from barnabas.runtime.simulated.object_store import Bucket, SimulatedObjectStore
from barnabas.runtime.simulated.process import SimulatedProcess
from barnabas.runtime.simulated.store import Store
from barnabas.runtime.simulated.virtual_time import VirtualTime
from barnabas.runtime.world import CountWork, World

WALL_START_MS = 1_750_000_000_000.0
TRACE_TAIL = 1000
MAX_WALL_SKEW_MS = 500.0
MAX_RATE_PPM = 200.0


class Host:
    """The parts of a node that outlive its process."""

    def __init__(self, name: str, universe: Universe) -> None:
        chance = universe.stream(f"host/{name}")
        self.name = name
        self.wall_clock = SimulatedClock(
            universe.time,
            WALL_START_MS + chance.uniform(-MAX_WALL_SKEW_MS, MAX_WALL_SKEW_MS),
            chance.uniform(-MAX_RATE_PPM, MAX_RATE_PPM),
        )
        self.monotonic = SimulatedClock(
            universe.time, chance.uniform(0, 1e9), chance.uniform(-MAX_RATE_PPM, MAX_RATE_PPM)
        )
        self.store = Store(universe.stream(f"disk/{name}"), self.wall_clock.now_ms)
        self.locks: dict[str, SimulatedProcess] = {}
        self.blocking_ms = (0.2, 1.0)
        """Duration of blocking work: (minimum, mean of the addition); see `slow_disk`."""
        self.process: SimulatedProcess | None = None
        self.lives = 0


class Universe:
    """One simulated world of many nodes. Use it inside one `run_simulation`."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.hosts: dict[str, Host] = {}
        self.coverage: Counter[str] = Counter()
        """Number of times that any node reached each fault point."""
        self.last_reached: dict[tuple[str, str], float] = {}
        """Time of the last visit, by node and fault point."""
        self.trace_tail: deque[str] = deque(maxlen=TRACE_TAIL)
        """The last events, for the report of a failure."""
        self.time = VirtualTime()
        self._digest = hashlib.blake2b(digest_size=16)
        self.wires = Wires(self.time, self.stream("latency"), (0.2, 0.3))
        self.fabric = Fabric(self.wires, self.stream("network"), self.trace)
        self.buckets: dict[str, Bucket] = {}
        """Object stores by their URL."""
        self._armed: dict[tuple[str, str], tuple[int, bool]] = {}
        self.count_work: CountWork | None = None
        """Counts the steps of requests of nodes that are started from now on; see `work`."""
        self.on_strike: Callable[[str, bool], bool | None] | None = None
        """Called when an armed kill is due, with the node and True for a power cut. Returns True for a power cut, False
        for a kill, None to let the node live."""

    def stream(self, name: str) -> Stream:
        """Random numbers for one purpose, fixed by the seed and `name`."""
        return make_stream(self.seed, name)

    def trace(self, event: str) -> None:
        """Add an event to the trace; it is the same in two runs of one seed."""
        line = f"{self.time.now:.6f} {event}"
        self.trace_tail.append(line)
        self._digest.update(line.encode())

    def digest(self) -> str:
        """A hash of the trace so far."""
        return self._digest.hexdigest()

    def host(self, name: str) -> Host:
        """The host of that name, made on first use."""
        host = self.hosts.get(name)
        if host is None:
            host = self.hosts[name] = Host(name, self)
            self.fabric.names[name] = name
            self.wires.add_host(name, down=False)
        return host

    def disk(self, name: str) -> Store:
        """The disk of a node, with its faults."""
        return self.host(name).store

    def bucket(self, url: str) -> Bucket:
        """The object store at that URL, made on first use."""
        bucket = self.buckets.get(url)
        if bucket is None:
            chance = self.stream(f"bucket/{url}")
            start_ms = WALL_START_MS + chance.uniform(-MAX_WALL_SKEW_MS, MAX_WALL_SKEW_MS)
            clock = SimulatedClock(self.time, start_ms, chance.uniform(-MAX_RATE_PPM, MAX_RATE_PPM))
            bucket = self.buckets[url] = Bucket(chance, self.time, clock, self.trace)
        return bucket

    def is_alive(self, name: str) -> bool:
        process = self.host(name).process
        return process is not None and process.alive

    async def run_node(self, name: str, main: Callable[[World], Awaitable[object]]) -> bool:
        """Run `main` as a node until it returns (True) or is killed (False). Raises what it raises while alive."""
        world = make_world(name, self)
        process = self.hosts[name].process
        assert process is not None
        with trio.CancelScope() as process.scope:
            try:
                await main(world)
            except BaseException as error:
                # Errors after a kill have no meaning, except those that stop the whole program.
                if process.alive or _stops_program(error):
                    raise
            finally:
                survived = process.alive
                process.ended(False)
        return survived

    def kill(self, name: str) -> None:
        """SIGKILL: the node stops where it is. Its writes stay, and reachable peers notice."""
        self._end(name, power_cut=False)

    def power_cut(self, name: str) -> None:
        """The host loses power: unsynced writes are lost at random, and no peer is notified.

        It is reachable again, and refuses connections, after `boot` or the next start of the node.
        """
        self._end(name, power_cut=True)

    def boot(self, name: str) -> None:
        """The host has power again; its node does not run yet."""
        self.wires.add_host(name, down=False)

    def slow_disk(self, name: str, blocking_ms: tuple[float, float]) -> None:
        """Set the duration of a node's blocking work: (minimum, mean of the addition)."""
        host = self.host(name)
        host.blocking_ms = blocking_ms
        if host.process is not None:
            host.process.blocking_ms = blocking_ms

    def kill_at(self, name: str, point: str, *, occurrence: int = 1, power_cut: bool = False) -> None:
        """Kill the node when it reaches the fault point for the `occurrence`-th time from now."""
        self._armed[name, point] = (occurrence, power_cut)

    def kill_at_change(self, name: str, after: int, *, power_cut: bool = False) -> None:
        """Kill the node in its `after`-th disk change or sync from now (counting from 1)."""
        process = self.hosts[name].process
        assert process is not None and process.alive, f"{name} does not run"
        process.dies_at_change = process.changes + after
        process.dies_by_power_cut = power_cut

    def disarm(self, name: str) -> None:
        """Cancel every pending `kill_at` and `kill_at_change` of the node."""
        for key in [key for key in self._armed if key[0] == name]:
            del self._armed[key]
        process = self.host(name).process
        if process is not None:
            process.dies_at_change = None

    # --- what processes call ---

    def reached(self, process: SimulatedProcess, point: str) -> None:
        self.coverage[point] += 1
        self.last_reached[process.name, point] = self.time.now
        armed = self._armed.get((process.name, point))
        if armed is not None:
            occurrence, power_cut = armed
            if occurrence > 1:
                self._armed[process.name, point] = (occurrence - 1, power_cut)
            else:
                del self._armed[process.name, point]
                decided = self.strikes(process, power_cut=power_cut)
                if decided is not None:
                    self.end(process, power_cut=decided)

    def strikes(self, process: SimulatedProcess, *, power_cut: bool) -> bool | None:
        return power_cut if self.on_strike is None else self.on_strike(process.name, power_cut)

    def end(self, process: SimulatedProcess, *, power_cut: bool) -> None:
        if self.hosts[process.name].process is process:
            self._end(process.name, power_cut=power_cut)

    def _end(self, name: str, *, power_cut: bool) -> None:
        host = self.host(name)
        self.trace(f"{name} {'power cut' if power_cut else 'kill'}")
        if host.process is not None:
            host.process.ended(power_cut)
        if power_cut:
            host.store.power_cut()
            self.wires.add_host(name, down=True)


def make_world(name: str, universe: Universe) -> World:
    """Start a new life of the node `name`: its world, until it is killed. Boots its host if that is dark."""
    host = universe.host(name)
    assert host.process is None or not host.process.alive, f"{name} still runs"
    universe.boot(name)
    host.lives += 1
    universe.trace(f"{name} start {host.lives}")
    process = SimulatedProcess(name, universe, universe.stream(f"process/{name}/{host.lives}"), host.blocking_ms)
    host.process = process
    return World(
        network=SimulatedNetwork(universe.fabric, process),
        disk=SimulatedDisk(host.store, process, host.locks),
        wall_clock=host.wall_clock,
        monotonic=host.monotonic,
        chance=universe.stream(f"node/{name}/{host.lives}"),
        run_blocking=process.run_blocking,
        fault_point=process.fault_point,
        stopwatch=host.monotonic.seconds,
        count_work=universe.count_work,
        object_store=lambda settings: SimulatedObjectStore(universe.bucket(settings.url), process, settings.timeout_ms),
    )


def _stops_program(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(_stops_program(inner) for inner in error.exceptions)
    return isinstance(error, KeyboardInterrupt | SystemExit)
