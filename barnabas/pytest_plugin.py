"""The pytest plug-in of Barnabas: `barnabas_cluster`, a real cluster as a fixture, `barnabas_broker`, one broker in the
test process, with `barnabas_proxy` before it (`barnabas.dev.fixtures`), `barnabas_check`, an application under faults
(`barnabas.check.fixtures`), and `barnabas_simulated_cluster`.

    def test_mine(barnabas_cluster):
        barnabas_cluster.create_topic("flights", partitions=3)
        my_program(bootstrap_servers=barnabas_cluster.bootstrap_servers)
        barnabas_cluster.kill(barnabas_cluster.leader_of("flights", 0))

    async def test_mine_in_virtual_time(barnabas_simulated_cluster):
        cluster = barnabas_simulated_cluster
        async with Producer(bootstrap_servers=cluster.bootstrap_servers, world=cluster.world) as producer: ...

A driver process runs the real cluster. The plug-in loads the code of nodes into the test process only if a simulated
cluster is used.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from barnabas.testing.simulated import SimulatedClusterForTests

pytest_plugins = ["barnabas.dev.fixtures", "barnabas.check.fixtures"]

SIMULATED = "barnabas_simulated_cluster"
STOP_SECONDS = 60.0


class BarnabasError(Exception):
    """A call of the cluster has failed; the message is one line."""


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition as the brokers report it. Nodes are ids; leader -1 means none."""

    topic: str
    partition: int
    leader: int
    epoch: int
    replicas: list[int]
    isr: list[int]
    high_watermark: int | None
    """None if the leader did not answer."""


class BarnabasCluster:
    """Three brokers and three controllers as processes on this machine. Methods block until they are done, and raise
    `BarnabasError`.

    Tests on an event loop call them in a thread (`trio.to_thread.run_sync(cluster.kill, "broker-1")`), otherwise they
    block the loop.
    """

    def __init__(self, data: Path, settings: Mapping[str, str]) -> None:
        """`settings` are for all nodes, under Kafka's names. Returns when the cluster accepts writes."""
        self._driver = subprocess.Popen(
            [sys.executable, "-P", "-m", "barnabas.testing.driver"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=_environment(),
            start_new_session=True,
        )
        try:
            started = self._ask({"data": str(data), "settings": dict(settings)})
        except BaseException:
            self.close()
            raise
        self.bootstrap_servers: str = started["bootstrap_servers"]
        """Bootstrap servers for clients: `host:port` of each broker, with commas."""
        self.brokers: list[str] = started["brokers"]
        """Names, `broker-1` to `broker-3`."""
        self.controllers: list[str] = started["controllers"]
        """Names, `controller-101` to `controller-103`."""
        self.data = Path(started["data"])
        """Data directory of all nodes; their logs are in `logs/NAME.log`."""

    # ---- faults

    def kill(self, *names: str) -> None:
        """Kill nodes (SIGKILL), all at the same time, and return when they are gone."""
        self._call("kill", *names)

    def stop(self, name: str) -> bool:
        """Stop a node gracefully, and wait until it has ended; False if it had to be killed."""
        left: bool = self._call("stop", name)
        return left

    def start(self, *names: str) -> None:
        """Start killed or stopped nodes on their data. `wait_ready` waits until they serve."""
        self._call("start", *names)

    def pause(self, name: str) -> None:
        """Freeze a node (SIGSTOP): it does not respond, and its connections stay open."""
        self._call("pause", name)

    def resume(self, name: str) -> None:
        """Continue a paused node."""
        self._call("resume", name)

    def partition(self, *groups: Iterable[str]) -> None:
        """Drop traffic between nodes of different groups without closing connections. Nodes in no group are one more
        group; clients still reach all nodes. Replaces an earlier partition.
        """
        self._call("partition", *[list(group) for group in groups])

    def heal(self) -> None:
        """Undo `partition`."""
        self._call("heal")

    def set_clock(self, name: str, offset_ms: int) -> None:
        """Set the wall clock of a node wrong by this much; 0 sets it right."""
        self._call("set_clock", name, offset_ms)

    def fill_disk(self, name: str, full: bool = True) -> None:
        """Let the disk of a node be full: what makes a file longer fails with ENOSPC. `full=False` gives it room
        again."""
        self._call("fill_disk", name, full)

    def repair(self) -> list[str]:
        """Undo all faults and wait until the cluster accepts writes; returns the names of nodes that had to be started.
        The fixture calls it after each test.
        """
        started: list[str] = self._call("repair")
        return started

    # ---- state

    def create_topic(
        self, name: str, partitions: int = 1, replicas: int = 3, configs: Mapping[str, str] | None = None
    ) -> str:
        """Create a topic, wait until it has leaders, and return its name."""
        self._call("create_topic", name, partitions, replicas, dict(configs or {}))
        return name

    def partitions(self, topic: str) -> list[Partition]:
        """Leaders and replicas of a topic's partitions."""
        return [Partition(**each) for each in self._call("partitions", topic)]

    def leader_of(self, topic: str, partition: int = 0, other_than: str = "") -> str:
        """Name of the broker that leads a partition; with `other_than`, waits until it is another one."""
        leader: str = self._call("leader_of", topic, partition, other_than)
        return leader

    def active_controller(self, other_than: str = "") -> str:
        """Name of the active controller; waits until there is one, and until it is not `other_than`."""
        active: str = self._call("active_controller", other_than)
        return active

    def wait_ready(self) -> float:
        """Wait until all brokers accept writes; returns the seconds it took."""
        seconds: float = self._call("wait_ready")
        return seconds

    def log_of(self, name: str) -> str:
        """The log of a node."""
        return (self.data / "logs" / f"{name}.log").read_text(errors="replace")

    def close(self) -> None:
        """Stop all nodes gracefully."""
        assert self._driver.stdin is not None and self._driver.stdout is not None
        self._driver.stdin.close()
        try:
            self._driver.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._driver.kill()
            self._driver.wait()
        self._driver.stdout.close()

    def _call(self, name: str, *arguments: Any) -> Any:
        return self._ask({"call": name, "arguments": arguments})

    def _ask(self, request: Mapping[str, Any]) -> Any:
        assert self._driver.stdin is not None and self._driver.stdout is not None
        try:
            self._driver.stdin.write(json.dumps(request) + "\n")
            self._driver.stdin.flush()
            line = self._driver.stdout.readline()
        except (BrokenPipeError, ValueError):
            line = ""
        if not line:
            raise BarnabasError("the process that drives the cluster has ended")
        answer = json.loads(line)
        if "error" in answer:
            raise BarnabasError(answer["error"])
        return answer["value"]


def _environment() -> dict[str, str]:
    """Our environment, with this package first on the path: the driver must run the same version."""
    root = str(Path(__file__).resolve().parents[1])
    path = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{path}" if path else root}


# ---- fixtures


@pytest.fixture(scope="session")
def barnabas_settings() -> Mapping[str, str]:
    """Settings of all nodes of `barnabas_cluster`, under Kafka's names; a project's conftest.py may override it.

    The defaults are Kafka's, except that groups rebalance within half a second, and that records are kept whatever
    their timestamps are.
    """
    return {}


@pytest.fixture(scope="session")
def barnabas_shared_cluster(
    barnabas_settings: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BarnabasCluster]:
    """The cluster of all tests of this run, or of this worker; it is not repaired between them."""
    cluster = BarnabasCluster(tmp_path_factory.mktemp("barnabas"), barnabas_settings)
    yield cluster
    cluster.close()


@pytest.fixture
def barnabas_cluster(barnabas_shared_cluster: BarnabasCluster) -> Iterator[BarnabasCluster]:
    """A cluster of three brokers and three controllers, all of them running, whatever earlier tests did.

    It is started once in a run: tests use their own topics and groups.
    """
    yield barnabas_shared_cluster
    barnabas_shared_cluster.repair()


@pytest.fixture
def barnabas_simulated_cluster(request: pytest.FixtureRequest) -> SimulatedClusterForTests:
    """A cluster in this process under virtual time, for a test that is a coroutine function on trio.

    `@pytest.mark.barnabas_simulated(seed=2, settings={"num.partitions": "3"})` chooses another seed, which is another
    order of events, and settings of the nodes; `longest_seconds=3600` allows the test an hour of virtual time instead
    of ten minutes. The whole test runs in the simulation, so it must not use threads, sockets or coroutine fixtures.
    """
    from barnabas.testing.simulated import SimulatedClusterForTests

    if not getattr(request.function, "_barnabas_simulated", False):
        pytest.fail(f"{SIMULATED} is for tests that are coroutine functions: async def {request.function.__name__}")
    mark = request.node.get_closest_marker("barnabas_simulated")
    return SimulatedClusterForTests(**(mark.kwargs if mark else {}))


# ---- hooks


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "barnabas_topic(partitions=1): settings of the fixture barnabas_topic"
    )
    config.addinivalue_line(
        "markers", f"barnabas_simulated(seed=1, settings=None, longest_seconds=600): settings of {SIMULATED}"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    """Make a test of the simulated cluster synchronous for all other plug-ins; it runs its own loop."""
    if isinstance(item, pytest.Function) and SIMULATED in item.fixturenames and inspect.iscoroutinefunction(item.obj):
        item.obj = _in_simulation(item.obj)


def _in_simulation(test: Callable[..., Any]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*args: Any, **fixtures: Any) -> None:
        cluster: SimulatedClusterForTests = fixtures[SIMULATED]
        cluster.run(functools.partial(test, *args, **fixtures))

    run._barnabas_simulated = True  # type: ignore[attr-defined]  # read by the fixture
    return run
