"""The options of a development node, and its settings as a properties file of Kafka's keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from barnabas.cluster.errors import WrongArgument
from barnabas.settings.node import ADVERTISED_AS_SEEN, HTTP_LISTENER
from barnabas.settings.properties import render_properties

NODE_ID = 1
NODE_NAME = "broker-1"
DEFAULT_PORT = 9092
LOOPBACK = "127.0.0.1"
EVERYWHERE = ("", "0.0.0.0", "::")
"""Hosts that stand for all addresses of the machine."""

_ONE_NODE = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
}
"""Internal topics of Kafka have three replicas and fifty partitions; one node has room for one replica."""
_NOTHING_TO_WAIT_FOR = {"group.initial.rebalance.delay.ms": "0"}
"""The first rebalance of a group begins at once, as in Kafka's own settings of a single node."""


@dataclass(frozen=True, slots=True)
class NewDevTopic:
    """A topic to create at the start; nothing happens if it exists."""

    name: str
    partitions: int = 1

    @classmethod
    def parse(cls, text: str) -> NewDevTopic:
        """`NAME` or `NAME:PARTITIONS`. Raises `WrongArgument`."""
        name, colon, partitions = text.partition(":")
        if not name or (colon and not (partitions.isascii() and partitions.isdigit() and int(partitions) > 0)):
            raise WrongArgument(f"--topic must be NAME or NAME:PARTITIONS, e.g. orders:3; got {text!r}")
        return cls(name, int(partitions) if colon else 1)


@dataclass(frozen=True, slots=True)
class DevOptions:
    """A development node as its user wants it."""

    port: int = DEFAULT_PORT
    """Port for clients; 0: any free one."""
    host: str = LOOPBACK
    """Address to listen on. If it is not of this machine alone, each client gets the address that it came in by."""
    directory: Path | None = None
    """Directory of its data, kept afterwards; None: in memory."""
    is_secure: bool = False
    """It has certificates, users and ACLs."""
    http_port: int | None = None
    """Port of health, metrics and decisions; None: not served."""
    registry_port: int | None = None
    """Port of a schema registry, 0 any free one; None: there is none."""
    topics: Sequence[NewDevTopic] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    """Further settings of the node; they win."""

    def properties(self, directory: Path, ports: DevPorts, security: Mapping[str, str]) -> str:
        """The text of a configuration file. `security`: settings that replace and complete those of a plain node."""
        host = "" if self.host in EVERYWHERE else _in_url(self.host)
        clients = f"PLAINTEXT://{host}:{ports.clients}"
        values = {
            "process.roles": "broker,controller",
            "node.id": str(NODE_ID),
            "listeners": clients,
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"{NODE_ID}@{LOOPBACK}:{ports.controller}",
            "log.dirs": str(directory),
            **_ONE_NODE,
            **_NOTHING_TO_WAIT_FOR,
            **security,
        }
        values["listeners"] += f",CONTROLLER://{LOOPBACK}:{ports.controller}"
        if self.host != LOOPBACK and not self.is_secure:
            values[ADVERTISED_AS_SEEN] = "PLAINTEXT"
        if self.http_port is not None:
            values[HTTP_LISTENER] = f"{self.host}:{self.http_port}"
        return render_properties(values | dict(self.settings))


@dataclass(frozen=True, slots=True)
class DevPorts:
    """Ports that a development node listens on."""

    clients: int
    controller: int


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host
