"""The layout of a cluster of processes: ports, directories, the files of its nodes. Starts nothing.

    DATA/cluster.json               cluster id, base port
    DATA/conf/broker-1.properties   settings of a node, made from a shape for these ports
    DATA/broker-1/data              its log directory
    DATA/logs/broker-1.log          its log file
    DATA/run/broker-1.pid           its process
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from barnabas.cluster.cells import cell_settings, host_name, host_number, shared_port
from barnabas.cluster.errors import ClusterError, WrongArgument
from barnabas.cluster.membership import Members
from barnabas.cluster.node_values import log_directories_in, shifted
from barnabas.cluster.private_files import write_private
from barnabas.protocol.primitives import uuid_to_string
from barnabas.runtime.uuids import random_uuid
from barnabas.settings.errors import SettingsError
from barnabas.settings.node import HTTP_LISTENER
from barnabas.settings.properties import parse_properties, render_properties

LOCAL_SHAPE = Path(__file__).resolve().parent / "shape"
"""A link to `cluster-configs/local`, so that it is there wherever this package was installed."""
DEFAULT_BASE_PORT = 9092
PORTS_NEEDED = 500
"""Brokers listen from the base port on, controllers a hundred above; their HTTP pages are 200 higher. Addresses of
hosts begin 400 above it."""
VOTERS, BOOTSTRAP_SERVERS = "controller.quorum.voters", "controller.quorum.bootstrap.servers"
_ADDRESS_KEYS = (
    "listeners",
    "advertised.listeners",
    VOTERS,
    BOOTSTRAP_SERVERS,
    HTTP_LISTENER,
)
_OWN_ADDRESS_KEYS = ("listeners", "advertised.listeners", HTTP_LISTENER)
FIRST_BROKER, FIRST_CONTROLLER = "broker-1", "controller-101"
"""Nodes that are added have their settings."""


@dataclass(frozen=True, slots=True)
class Node:
    """One node of a cluster, by the name of its configuration file."""

    name: str
    """`broker-1`"""
    role: str
    """`broker` or `controller`; a combined node is a broker here."""
    id: int
    port: int
    http_port: int | None = None
    """Port of its HTTP page; None: it has none."""

    @property
    def is_broker(self) -> bool:
        return self.role == "broker"


@dataclass(frozen=True, slots=True)
class Layout:
    """The nodes and paths of one cluster."""

    data: Path
    cluster_id: str
    base_port: int
    nodes: tuple[Node, ...]
    """Brokers first, each kind by id."""
    is_secure: bool = False
    """It has certificates, users and ACLs (`cluster up --secure`)."""
    has_living_voters: bool = False
    """The metadata log keeps the voters, and files name only controllers to ask."""
    cells: int = 1
    """Brokers on a host."""
    has_s3: bool = False
    """It has an S3 server of its own (`cluster up --s3`)."""

    @classmethod
    def open(cls, data: Path, base_port: int | None = None, shape: Path = LOCAL_SHAPE) -> Layout:
        """The layout of a cluster that is in `data`, or of a new one; writes nothing.

        Without `base_port` it is the one that the cluster had before; once secure, it stays secure. Raises
        `ClusterError`.
        """
        saved = _read_saved(data / "cluster.json")
        port = base_port or saved.get("base_port") or DEFAULT_BASE_PORT
        if not isinstance(port, int) or not 0 < port < 65536 - PORTS_NEEDED:
            raise WrongArgument(f"--base-port {port}: 1 to {65535 - PORTS_NEEDED}, nodes need ports above it")
        cluster_id = str(saved.get("cluster_id") or _new_cluster_id())
        members = Members.read(data)
        nodes = tuple(_with_members(list(_nodes(shape, port)), members))
        is_secure, has_s3 = bool(saved.get("secure")), bool(saved.get("s3"))
        found = cls(data, cluster_id, port, nodes, is_secure, members.has_living_voters, members.cells)
        return replace(found, has_s3=has_s3)

    def save(self) -> None:
        """Remembers the cluster's id and ports."""
        self.data.mkdir(parents=True, exist_ok=True)
        saved: dict[str, object] = {"cluster_id": self.cluster_id, "base_port": self.base_port}
        if self.is_secure:
            saved["secure"] = True
        if self.has_s3:
            saved["s3"] = True
        (self.data / "cluster.json").write_text(json.dumps(saved) + "\n")

    def node(self, name: str) -> Node:
        """Raises `ClusterError` for a name that no node has."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise WrongArgument(f"there is no node {name}; there are " + ", ".join(node.name for node in self.nodes))

    @property
    def brokers(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if node.is_broker)

    @property
    def controllers(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if not node.is_broker)

    @property
    def quorum_answerers(self) -> tuple[Node, ...]:
        """The nodes to ask about the quorum. Brokers pass the question on; without controllers they are combined."""
        return self.controllers or self.brokers

    @property
    def bootstrap_servers(self) -> str:
        """Bootstrap servers for clients, over PLAINTEXT: of each broker, or one address of each host."""
        if self.cells > 1:
            hosts = sorted({host_number(node.id, self.cells) for node in self.brokers})
            return ",".join(f"127.0.0.1:{shared_port(self.base_port, host)}" for host in hosts)
        return ",".join(f"127.0.0.1:{node.port}" for node in self.brokers)

    def host_of(self, node: Node) -> str | None:
        """The host that a broker shares with others."""
        return host_name(node.id, self.cells) if self.cells > 1 and node.is_broker else None

    def log_directory(self, node: Node) -> Path:
        return self.data / node.name / "data"

    def config_file(self, node: Node) -> Path:
        return self.data / "conf" / f"{node.name}.properties"

    def log_file(self, node: Node) -> Path:
        return self.data / "logs" / f"{node.name}.log"

    def pid_file(self, node: Node) -> Path:
        return self.data / "run" / f"{node.name}.pid"

    def render_config(self, node: Node, overrides: Mapping[str, str], shape: Path = LOCAL_SHAPE) -> None:
        """Writes the node's configuration: the shape's, at this cluster's ports and directory, then
        `overrides`. Only its owner may read it, since it may have passwords.
        """
        source = shape / f"{node.name}.properties"
        added = not source.exists()
        if added:
            source = shape / f"{_first_of(node.role)}.properties"
        values = read_shape(source)
        shift = self.base_port - _lowest_port(shape)
        for key in _ADDRESS_KEYS:
            if key in values:
                own = node.id - _id_of(_first_of(node.role)) if added and key in _OWN_ADDRESS_KEYS else 0
                values[key] = ",".join(shifted(address, shift + own) for address in values[key].split(","))
        if added:
            values["node.id"] = str(node.id)
        if added and node.is_broker:
            values["broker.rack"] = f"rack-{node.id}"
        if self.has_living_voters:
            self._name_controllers(values)
        if self.cells > 1 and node.is_broker:
            values |= cell_settings(node.id, self.cells, self.base_port)
        values["log.dirs"] = str(self.log_directory(node))
        values |= overrides
        target = self.config_file(node)
        heading = f"# Made from {source} each time `cluster up` starts the node.\n"
        write_private(target, heading + render_properties(values))

    def name_controllers(self, node: Node) -> None:
        """Lets the file of a node that has one name the present controllers instead of voters."""
        path = self.config_file(node)
        if path.exists():
            values = read_shape(path)
            self._name_controllers(values)
            write_private(path, render_properties(values))

    def _name_controllers(self, values: dict[str, str]) -> None:
        values.pop(VOTERS, None)
        values[BOOTSTRAP_SERVERS] = ",".join(f"127.0.0.1:{each.port}" for each in self.controllers)

    def log_directories(self, node: Node) -> list[str]:
        """The directories that the node's configuration names."""
        return log_directories_in(read_shape(self.config_file(node)))


def _read_saved(path: Path) -> dict[str, object]:
    try:
        saved = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ClusterError(f"{path} cannot be read: {error}") from None
    if not isinstance(saved, dict):
        raise ClusterError(f"{path} is not what `cluster up` wrote")
    return saved


def _new_cluster_id() -> str:
    return uuid_to_string(random_uuid(random.SystemRandom()))


def _nodes(shape: Path, base_port: int) -> Iterator[Node]:
    shift = base_port - _lowest_port(shape)
    for path in _files(shape):
        role = path.stem.partition("-")[0]
        values = read_shape(path)
        http = values.get(HTTP_LISTENER)
        http_port = _port(http) + shift if http else None
        yield Node(path.stem, role, int(values["node.id"]), _port(values["listeners"]) + shift, http_port)


def _with_members(nodes: list[Node], members: Members) -> list[Node]:
    """The nodes of a shape without those that left, and with those that joined."""
    added = {FIRST_BROKER: members.added, FIRST_CONTROLLER: members.added_controllers}
    joined = [_like(node, node_id) for node in nodes for node_id in added.get(node.name, ())]
    nodes = sorted([*nodes, *joined], key=lambda node: not node.is_broker)
    return [node for node in nodes if node.name not in members.removed]


def _like(first: Node, node_id: int) -> Node:
    """A further node of the role of `first`, on ports of its own."""
    further = node_id - first.id
    http_port = None if first.http_port is None else first.http_port + further
    return Node(f"{first.role}-{node_id}", first.role, node_id, first.port + further, http_port)


def _first_of(role: str) -> str:
    return FIRST_BROKER if role == "broker" else FIRST_CONTROLLER


def _id_of(name: str) -> int:
    return int(name.rpartition("-")[2])


def _files(shape: Path) -> list[Path]:
    found = [*sorted(shape.glob("broker-*.properties")), *sorted(shape.glob("controller-*.properties"))]
    if not found:
        raise WrongArgument(f"{shape} holds no broker-*.properties and controller-*.properties")
    return found


def _lowest_port(shape: Path) -> int:
    return min(_port(read_shape(path)["listeners"]) for path in _files(shape))


def read_shape(path: Path) -> dict[str, str]:
    """Settings of one file. Raises `ClusterError`."""
    try:
        found = parse_properties(path.read_text(), str(path))
    except (OSError, SettingsError) as error:
        raise ClusterError(f"{path} cannot be read: {error}") from None
    return {key: value for key, (value, _line) in found.items()}


def _port(listeners: str) -> int:
    """The port of the first listener."""
    _host, _colon, port = listeners.partition(",")[0].rpartition(":")
    return int(port)
