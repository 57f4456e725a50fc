"""A cluster of simulated nodes: started, stopped, killed and watched in one process, under virtual time.

The twin of `LocalCluster` for a `runtime.simulated.Universe`: the same configuration files, node names and
words, but each node is a task, its host, disk, clock and wires are simulated, and methods that wait are
coroutines. Knows no faults beyond a node's own life; those of wires and disks are the universe's.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import trio

from barnabas.broker.node import run_broker
from barnabas.broker.parts import BrokerParts
from barnabas.client.cluster import Cluster, ClusterSettings
from barnabas.cluster.errors import ClusterError
from barnabas.cluster.layout import LOCAL_SHAPE, Node
from barnabas.kraft.format import FormatRequest, format_directories
from barnabas.kraft.initial_controllers import VERSIONS
from barnabas.kraft.metadata.bootstrap import bootstrap_records
from barnabas.kraft.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from barnabas.kraft.sole_controller import run_controller
from barnabas.runtime.simulated import Universe
from barnabas.runtime.uuids import random_uuid
from barnabas.runtime.world import Chance, World
from barnabas.settings.broker import BrokerSettings, load_broker_settings
from barnabas.settings.controller import ControllerSettings, load_controller_settings
from barnabas.settings.node import HTTP_LISTENER
from barnabas.settings.properties import parse_properties, render_properties

log = logging.getLogger(__name__)

CLUSTER_ID = "c2ltdWxhdGVkLWNsdXN0ZQ"
BROKER_PORT = 9092
CONTROLLER_PORT = 9093
HTTP_PORT = 9292
FIRST_CONTROLLER = 101
DATA = "data"
"""Each node's log directory is `/NAME/data` on its own disk, so that a path names its node."""

current_node: ContextVar[str] = ContextVar("current_node", default="")
"""The name of the node, or client, whose task this is."""


@dataclass(slots=True)
class SimulatedNode:
    """A node and, while it runs, the way into it."""

    node: Node
    settings: BrokerSettings | ControllerSettings
    controller: ControllerSettings | None = None
    """The other role of a combined node."""
    stop: trio.Event = field(default_factory=trio.Event)
    is_up: bool = False
    """It runs and reported that it serves."""
    handle: Any = None
    """The handle of a node that is up: `BrokerParts` for a broker; None otherwise."""
    ended: trio.Event = field(default_factory=trio.Event)
    """Set while the node does not run."""
    failure: BaseException | None = None
    """The error that ended its last life; None for a kill or a stop."""

    @property
    def running(self) -> bool:
        return not self.ended.is_set()

    @property
    def broker(self) -> BrokerParts | None:
        """The broker's parts; None while it is not up, or for a controller."""
        return self.handle if isinstance(self.handle, BrokerParts) else None

    def went_down(self) -> None:
        """It no longer runs, or its scope is about to end."""
        self.is_up, self.handle = False, None


class Size(NamedTuple):
    """Numbers of nodes."""

    brokers: int
    controllers: int
    first_voters: int | None = None
    """Number of controllers that are formatted as the voters of a quorum whose voters can change; None: the voters are
    those of the files."""


SettingsOf = Callable[[str], Mapping[str, str]]
"""Settings of a node by its name."""


class _Started:
    """A `trio.TaskStatus` that outlives a node which never starts."""

    def __init__(self, report: Callable[[Any], None]) -> None:
        self._report = report

    def started(self, value: Any = None) -> None:
        self._report(value)


class SimulatedCluster:
    """Brokers `broker-1`… and controllers `controller-101`…, each on a host of its own name."""

    def __init__(
        self,
        universe: Universe,
        nursery: trio.Nursery,
        overrides: Mapping[str, str] | SettingsOf | None = None,
        shape: Path = LOCAL_SHAPE,
        features: Mapping[str, int] | None = None,
        size: Size | tuple[int, int] | None = None,
    ) -> None:
        """`overrides` are settings of every node, or a function of its name; `features` levels other than the
        production ones; `nursery` runs the nodes. Nodes of a `size` are each like the first of the shape.
        """
        counts = None if size is None else Size(*size)
        first_voters = None if counts is None else counts.first_voters
        self._features = dict(features or {})
        self.universe = universe
        self._nursery = nursery
        self.nodes: dict[str, SimulatedNode] = {}
        self.on_failure: Callable[[str, BaseException], None] | None = None
        """Called when a node ends by itself; without it the error is raised."""
        self.dress: Callable[[str, World], World] | None = None
        """Asked at each start of a node for what it is to take for its world."""
        for name, path in _names_of(shape, counts):
            voters = None if counts is None else range(FIRST_CONTROLLER, FIRST_CONTROLLER + counts.controllers)
            own = overrides(name) if callable(overrides) else overrides or {}
            self.nodes[name] = _load(name, path, own, voters, are_fixed=first_voters is None)
            self.nodes[name].ended.set()
        self._first_voters = _voters(self.controllers[:first_voters], universe.stream("directories"))
        self._dynamic = first_voters is not None
        self._formatted: set[str] = set()
        """Names of controllers that had a disk before: an empty one makes an observer of them."""

    @property
    def brokers(self) -> list[SimulatedNode]:
        return [node for node in self.nodes.values() if node.node.is_broker]

    @property
    def controllers(self) -> list[SimulatedNode]:
        return [node for node in self.nodes.values() if not node.node.is_broker]

    @property
    def bootstrap(self) -> list[tuple[str, int]]:
        """Bootstrap servers for clients."""
        return [(node.node.name, node.node.port) for node in self.brokers]

    def node_of(self, node_id: int) -> SimulatedNode:
        return next(node for node in self.nodes.values() if node.node.id == node_id)

    # ---- life

    def up(self) -> list[str]:
        """Start what does not run; gives the names. Returns before they are up."""
        missing = [name for name, node in self.nodes.items() if not node.running]
        for name in missing:
            self.start(name)
        return missing

    def start(self, name: str) -> None:
        """Start one node on what its disk holds, formatting it if that is nothing. Returns before it is up."""
        node = self.nodes[name]
        if node.running:
            raise ClusterError(f"{name} runs already")
        node.stop, node.ended, node.failure = trio.Event(), trio.Event(), None
        self._nursery.start_soon(self._live, node)

    async def stop(self, name: str) -> None:
        """Ask a node to leave in good order, and wait until it has."""
        node = self.nodes[name]
        node.stop.set()
        await node.ended.wait()

    def kill(self, name: str) -> None:
        """SIGKILL: what the node wrote stays."""
        self.universe.kill(name)
        self.nodes[name].went_down()

    def power_cut(self, name: str) -> None:
        """A power cut: chance decides about everything that was not synced; the host is dark until the node is
        restarted."""
        self.universe.power_cut(name)
        self.nodes[name].went_down()

    async def down(self) -> None:
        """Stop brokers, then controllers, in good order."""
        for group in (self.brokers, self.controllers):
            async with trio.open_nursery() as nursery:
                for node in group:
                    if node.running:
                        nursery.start_soon(self.stop, node.node.name)

    # ---- looking and waiting

    def not_ready(self) -> str:
        """Reason why not every node is up, or known to every broker; empty if all are."""
        for name, node in self.nodes.items():
            if not node.is_up:
                return f"{name} is not up"
        expected = {node.node.id for node in self.brokers}
        for node in self.brokers:
            services = node.broker
            assert services is not None
            alive = set(services.metadata.alive_nodes(services.settings.inter_broker_listener_name))
            if alive != expected:
                return f"{node.node.name} sees brokers {sorted(alive)}"
        return ""

    async def wait_until(self, what_is_missing: Callable[[], str], timeout_seconds: float) -> float:
        """Look again and again until `what_is_missing` gives nothing; gives the seconds it took."""
        began = trio.current_time()
        while missing := what_is_missing():
            if trio.current_time() - began > timeout_seconds:
                raise ClusterError(f"not within {timeout_seconds:.0f} s: {missing}")
            await trio.sleep(0.05)
        return trio.current_time() - began

    async def wait_ready(self, timeout_seconds: float = 60.0) -> float:
        return await self.wait_until(self.not_ready, timeout_seconds)

    @contextlib.asynccontextmanager
    async def client(self, world: World, settings: ClusterSettings | None = None) -> AsyncIterator[Cluster]:
        """A client of this cluster in a world of its own, for the length of the block."""
        async with trio.open_nursery() as nursery:
            cluster = Cluster(world, nursery, self.bootstrap, settings=settings)
            yield cluster
            nursery.cancel_scope.cancel()

    # ---- inside

    async def _live(self, node: SimulatedNode) -> None:
        name = node.node.name
        current_node.set(name)
        try:
            await self.universe.run_node(name, partial(self._run, node))
        except Exception as error:
            self.universe.trace(f"{name} failed")
            node.failure = error
            if self.on_failure is None:
                raise
            self.on_failure(name, error)
        finally:
            node.went_down()
            node.ended.set()

    async def _run(self, node: SimulatedNode, world: World) -> None:
        settings = node.settings
        if self.dress is not None:
            world = self.dress(node.node.name, world)

        def up(handle: Any) -> None:
            node.is_up, node.handle = True, handle
            self.universe.trace(f"{node.node.name} is up")

        def format_disk() -> Sequence[str]:
            request = FormatRequest(
                CLUSTER_ID,
                settings.node_id,
                settings.all_log_dirs,
                bootstrap_records(self._features),
                ignore_formatted=True,
                metadata_directory=settings.metadata_directory,
                voters=self._voters_for(node),
            )
            return format_directories(world.disk, request, world.chance)

        await world.run_blocking(format_disk)
        self._formatted.add(node.node.name)
        if isinstance(settings, BrokerSettings):
            await run_broker(settings, world, stop=node.stop, controller=node.controller, task_status=_Started(up))
        else:
            await run_controller(settings, world, stop=node.stop, task_status=_Started(up))

    def _voters_for(self, node: SimulatedNode) -> VoterSet | None:
        """The first voters, for one of them that is formatted for the first time."""
        is_first = self._dynamic and node.node.name not in self._formatted
        return self._first_voters if is_first and self._first_voters.voter(node.node.id) is not None else None


def _voters(controllers: Iterable[SimulatedNode], chance: Chance) -> VoterSet:
    return VoterSet.of(
        Voter(
            ReplicaKey(node.node.id, random_uuid(chance)),
            (Endpoint(node.settings.controller_listener_names[0], node.node.name, node.node.port),),
            VERSIONS,
        )
        for node in controllers
    )


def _names_of(shape: Path, size: Size | None) -> Iterator[tuple[str, Path]]:
    """Each node with its properties file."""
    if size is None:
        yield from ((path.stem, path) for path in sorted(shape.glob("*.properties")))
        return
    brokers, controllers, _ = size
    for node_id in range(1, brokers + 1):
        yield f"broker-{node_id}", shape / "broker-1.properties"
    for node_id in range(FIRST_CONTROLLER, FIRST_CONTROLLER + controllers):
        yield f"controller-{node_id}", shape / f"controller-{FIRST_CONTROLLER}.properties"


def _load(
    name: str, path: Path, overrides: Mapping[str, str], voter_ids: Iterable[int] | None, *, are_fixed: bool = True
) -> SimulatedNode:
    values = {key: value for key, (value, _line) in parse_properties(path.read_text(), str(path)).items()}
    role, _, node_id = name.partition("-")
    port = BROKER_PORT if role == "broker" else CONTROLLER_PORT
    voters = [voter.partition("@")[0] for voter in values["controller.quorum.voters"].split(",")]
    if voter_ids is not None:
        voters = list(map(str, voter_ids))
        values |= {"broker.rack": f"rack-{node_id}"} if role == "broker" else {}
    listener = values["listeners"].partition(":")[0]
    values |= {
        "node.id": node_id,
        "listeners": f"{listener}://{name}:{port}",
        **_quorum(voters, are_fixed=are_fixed),
        "log.dirs": f"/{name}/{DATA}",
        HTTP_LISTENER: f"{name}:{HTTP_PORT}",
        **overrides,
    }
    if not are_fixed:
        del values["controller.quorum.voters"]
    values["log.dirs"] = values["log.dirs"].replace("{name}", name)
    text = render_properties(values)
    settings: BrokerSettings | ControllerSettings
    if role == "broker":
        settings, _warnings = load_broker_settings(text, str(path))
    else:
        settings, _warnings = load_controller_settings(text, str(path))
    return SimulatedNode(Node(name, role, settings.node_id, port), settings)


def _quorum(ids: Iterable[str], *, are_fixed: bool) -> dict[str, str]:
    """The setting that names the controllers: as voters, or as those to ask for the voters."""
    addresses = {each: f"controller-{each}:{CONTROLLER_PORT}" for each in ids}
    if are_fixed:
        return {"controller.quorum.voters": ",".join(f"{each}@{address}" for each, address in addresses.items())}
    return {"controller.quorum.bootstrap.servers": ",".join(addresses.values())}
