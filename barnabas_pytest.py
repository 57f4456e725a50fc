"""The pytest plug-in of Barnabas: `barnabas_cluster`, a real cluster in a fixture, and `barnabas_simulated_cluster`.

    def test_mine(barnabas_cluster):
        barnabas_cluster.create_topic("flights", partitions=3)
        my_program(bootstrap_servers=barnabas_cluster.bootstrap_servers)
        barnabas_cluster.kill(barnabas_cluster.leader_of("flights", 0))

    async def test_mine_in_no_time(barnabas_simulated_cluster):
        cluster = barnabas_simulated_cluster
        async with Producer(bootstrap_servers=cluster.bootstrap_servers, world=cluster.world) as producer: ...

It stands beside the packages, and imports none of them into the process of the tests unless a simulated cluster is
asked for: projects have folders `protocol` and `storage`, too. The real cluster is driven by a process of its own.
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

SIMULATED = "barnabas_simulated_cluster"
STOP_SECONDS = 60.0


class BarnabasError(Exception):
    """The cluster cannot do what was asked; one line."""


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition as the brokers tell of it. Nodes are given by id; -1 leads if nobody does."""

    topic: str
    partition: int
    leader: int
    epoch: int
    replicas: list[int]
    isr: list[int]
    high_watermark: int | None
    """None if the leader did not answer."""


class BarnabasCluster:
    """Three brokers and three controllers, each a process on this machine. Methods block until it is done, and raise
    `BarnabasError`.

    In tests on an event loop call them in a thread (`trio.to_thread.run_sync(cluster.kill, "broker-1")`), or what else
    the loop has to do waits with them.
    """

    def __init__(self, data: Path, settings: Mapping[str, str]) -> None:
        """`settings` of all nodes, by Kafka's names. Returns when the cluster takes writes."""
        self._driver = subprocess.Popen(
            [sys.executable, "-P", "-m", "barnabas.testing.driver"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=_environment(),
            start_new_session=True,
        )
        try:
            told = self._ask({"data": str(data), "settings": dict(settings)})
        except BaseException:
            self.close()
            raise
        self.bootstrap_servers: str = told["bootstrap_servers"]
        """What clients are given: `host:port` of each broker, with commas."""
        self.brokers: list[str] = told["brokers"]
        """Names, `broker-1` to `broker-3`."""
        self.controllers: list[str] = told["controllers"]
        """Names, `controller-101` to `controller-103`."""
        self.data = Path(told["data"])
        """What the nodes keep; their logs are in `logs/NAME.log`."""

    # ---- faults

    def kill(self, *names: str) -> None:
        """Ends nodes at once (SIGKILL), all at the same time, and returns when they are gone."""
        self._call("kill", *names)

    def stop(self, name: str) -> bool:
        """Asks a node to leave in good order, and waits until it has; False if it had to be killed."""
        left: bool = self._call("stop", name)
        return left

    def start(self, *names: str) -> None:
        """Starts nodes that were killed or stopped, on the data they have. `wait_ready` waits until they serve."""
        self._call("start", *names)

    def pause(self, name: str) -> None:
        """Freezes a node (SIGSTOP): it answers nothing, notices nothing, and its connections stay."""
        self._call("pause", name)

    def resume(self, name: str) -> None:
        """Lets a paused node go on."""
        self._call("resume", name)

    def partition(self, *groups: Iterable[str]) -> None:
        """Cuts the wires between nodes of different groups; nobody tells them. Nodes that are in no group are one more
        group; clients still reach everybody. Takes the place of the partition before.
        """
        self._call("partition", *[list(group) for group in groups])

    def heal(self) -> None:
        """Undoes `partition`."""
        self._call("heal")

    def repair(self) -> list[str]:
        """Undoes every fault and waits until the cluster takes writes; gives the names of nodes that had to be started.
        The fixture does it after each test.
        """
        started: list[str] = self._call("repair")
        return started

    # ---- looking and waiting

    def create_topic(
        self, name: str, partitions: int = 1, replicas: int = 3, configs: Mapping[str, str] | None = None
    ) -> str:
        """A topic that can be written to; gives its name."""
        self._call("create_topic", name, partitions, replicas, dict(configs or {}))
        return name

    def partitions(self, topic: str) -> list[Partition]:
        """Who leads and keeps the partitions of a topic."""
        return [Partition(**each) for each in self._call("partitions", topic)]

    def leader_of(self, topic: str, partition: int = 0, other_than: str = "") -> str:
        """The name of the broker that leads a partition; with `other_than`, once that is another one."""
        leader: str = self._call("leader_of", topic, partition, other_than)
        return leader

    def active_controller(self, other_than: str = "") -> str:
        """The name of the controller that decides, once there is one, and not `other_than`."""
        active: str = self._call("active_controller", other_than)
        return active

    def wait_ready(self) -> float:
        """Waits until all brokers take writes; gives the seconds it took."""
        seconds: float = self._call("wait_ready")
        return seconds

    def log_of(self, name: str) -> str:
        """What a node has logged."""
        return (self.data / "logs" / f"{name}.log").read_text(errors="replace")

    def close(self) -> None:
        """Stops all nodes, in good order."""
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

    def _ask(self, question: Mapping[str, Any]) -> Any:
        assert self._driver.stdin is not None and self._driver.stdout is not None
        try:
            self._driver.stdin.write(json.dumps(question) + "\n")
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
    """Ours, with the packages beside this file first: the driver must not find others of their names."""
    root = str(Path(__file__).resolve().parent)
    path = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{path}" if path else root}


# ---- fixtures


@pytest.fixture(scope="session")
def barnabas_settings() -> Mapping[str, str]:
    """Settings of all nodes of `barnabas_cluster`, by Kafka's names; a project's conftest.py may have its own.

    Without any, everything is Kafka's default, except that groups settle in half a second and that
    records stay, however long ago their timestamps say they were written.
    """
    return {}


@pytest.fixture(scope="session")
def barnabas_shared_cluster(
    barnabas_settings: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BarnabasCluster]:
    """The cluster of all tests of this run, or of this worker; nobody repairs it between them."""
    cluster = BarnabasCluster(tmp_path_factory.mktemp("barnabas"), barnabas_settings)
    yield cluster
    cluster.close()


@pytest.fixture
def barnabas_cluster(barnabas_shared_cluster: BarnabasCluster) -> Iterator[BarnabasCluster]:
    """A cluster of three brokers and three controllers where everything runs, whatever tests before did to it.

    It is started once in a run: tests use topics and groups of their own.
    """
    yield barnabas_shared_cluster
    barnabas_shared_cluster.repair()


@pytest.fixture
def barnabas_simulated_cluster(request: pytest.FixtureRequest) -> SimulatedClusterForTests:
    """A cluster in this process under virtual time, for a test that is a coroutine function on trio.

    `@pytest.mark.barnabas_simulated(seed=2, settings={"num.partitions": "3"})` chooses another seed, which is another
    order of everything that happens, and settings of the nodes; `longest_seconds=3600` lets the test take an hour of
    virtual time instead of ten minutes. The whole test runs in the simulation, so it may use no
    thread, no socket and no fixture that is itself a coroutine.
    """
    from barnabas.testing.simulated import SimulatedClusterForTests

    if not getattr(request.function, "_barnabas_simulated", False):
        pytest.fail(f"{SIMULATED} is for tests that are coroutine functions: async def {request.function.__name__}")
    mark = request.node.get_closest_marker("barnabas_simulated")
    return SimulatedClusterForTests(**(mark.kwargs if mark else {}))


# ---- hooks


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", f"barnabas_simulated(seed=1, settings=None, longest_seconds=600): how {SIMULATED} is made"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    """A test of the simulated cluster looks synchronous to all other plug-ins, and runs its own loop."""
    if isinstance(item, pytest.Function) and SIMULATED in item.fixturenames and inspect.iscoroutinefunction(item.obj):
        item.obj = _in_simulation(item.obj)


def _in_simulation(test: Callable[..., Any]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*args: Any, **fixtures: Any) -> None:
        cluster: SimulatedClusterForTests = fixtures[SIMULATED]
        cluster.run(functools.partial(test, *args, **fixtures))

    run._barnabas_simulated = True  # type: ignore[attr-defined]  # told to the fixture
    return run
