"""The cluster of one test: its nodes, their settings and directories."""

from __future__ import annotations

import gc
import random
import shutil
import signal
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from barnabas.cluster.probe import NoAnswer
from barnabas.cluster.status import broker_view
from barnabas.kraft.format import FormatError, FormatRequest, format_directories
from barnabas.protocol.primitives import uuid_to_string
from barnabas.protocol.schema import Message
from barnabas.runtime.disk import RealDisk
from barnabas.runtime.uuids import random_uuid
from barnabas.settings.node import HTTP_LISTENER
from tests.kafka.node import REMOTE_STORAGE, Node, Refused, comes_true
from tests.kafka.peers import HARNESS, Peers, take_authorizer, take_builders
from tests.kafka.ports import Ports

STOP_SECONDS = 30.0
KILL_SECONDS = 10.0
READY_SECONDS = 60.0

SMALL = {"log.cleaner.dedupe.buffer.size": "2097152"}
"""Settings of each node unless the test chose them: many nodes share the memory of one machine."""
PERSISTER = "group.share.persister.class.name"
SHARE_STATE = {
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
}
"""For tests with a persister that stores nothing, which would work with one broker."""


_ANONYMOUS = "User:ANONYMOUS"
_DEFAULT_PROTOCOLS = "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"


def _new_id() -> str:
    return uuid_to_string(random_uuid(random.SystemRandom()))


@dataclass(slots=True)
class Cluster:
    """The cluster of one test."""

    folder: Path
    ports: Ports
    records: list[Message]
    id: str = field(default_factory=_new_id)
    nodes: dict[int, Node] = field(default_factory=dict)
    voters: str = ""

    def add(self, wanted: Iterable[dict[str, Any]]) -> list[Node]:
        """Writes settings and formats directories of new nodes. Raises `Refused`."""
        added = [self._place(each) for each in wanted]
        quorum = [node for node in added if node.role == "controller"]
        if quorum:
            self.voters = ",".join(f"{node.id}@localhost:{node.port}" for node in quorum)
        for node in added:
            node.settings["controller.quorum.voters"] = self.voters
            lines = (f"{key}={_escaped(value)}\n" for key, value in node.settings.items())
            node.settings_file.write_text("".join(lines))
            node.load()
            self._format(node)
            self.nodes[node.id] = node
        return added

    def _place(self, wanted: dict[str, Any]) -> Node:
        identity, role = int(wanted["id"]), str(wanted["role"])
        settings = SMALL | {key: str(value) for key, value in wanted["settings"].items()}
        disks = [str(self.folder / f"{role}-{identity}-disk-{disk}") for disk in range(wanted.get("disks", 1))]
        log_dirs = wanted.get("log_dirs") or disks
        ports: dict[str, int] = {}
        peers, denial = take_builders(settings), take_authorizer(settings)
        settings = _with_plaintext(settings, role, peers)
        for key in ("listeners", "advertised.listeners"):
            if settings.get(key):
                settings[key] = ",".join(self._with_port(each, ports) for each in settings[key].split(","))
        if settings.get(PERSISTER) == "":
            settings = SHARE_STATE | settings
        if settings.get(HTTP_LISTENER):
            settings[HTTP_LISTENER] = f"127.0.0.1:{self.ports.draw()}"
        # Kafka's LocalTieredStorage makes a directory if the test names none.
        if settings.get(REMOTE_STORAGE, "").endswith(".LocalTieredStorage"):
            settings = {"rsm.config.dir": str(self.folder / "remote")} | settings
        for key in ("log.dir", "broker.id"):
            settings.pop(key, None)
        settings |= {"process.roles": role, "node.id": str(identity), "log.dirs": ",".join(log_dirs)}
        return Node(identity, role, settings, log_dirs, ports, self.folder, peers, denial)

    def _with_port(self, listener: str, ports: dict[str, int]) -> str:
        name, _, address = listener.strip().partition("://")
        host, _, port = address.rpartition(":")
        if port != "0":
            ports.setdefault(name, int(port))
        elif name not in ports:
            ports[name] = self.ports.draw()
        return f"{name}://{host}:{port if port != '0' else ports[name]}"

    def _format(self, node: Node) -> None:
        directories = list(node.log_dirs)
        metadata = node.settings.get("metadata.log.dir")
        if metadata and metadata not in directories:
            directories.append(metadata)
        request = FormatRequest(self.id, node.id, directories, self.records, ignore_formatted=True)
        try:
            format_directories(RealDisk(), request, random.SystemRandom())
        except (FormatError, OSError) as error:
            raise Refused(f"{type(error).__name__}: {error}") from None

    def start(self, ids: Iterable[int]) -> None:
        starting = [self.nodes[identity] for identity in ids if not self.nodes[identity].runs()]
        programs = [node.load() for node in starting]
        gc.collect()
        gc.freeze()
        for node, program in zip(starting, programs, strict=True):
            node.start(program)
        self._await_brokers({node.id for node in starting})

    def _await_brokers(self, fresh: set[int]) -> None:
        running = {node.id: node for node in self.nodes.values() if node.role == "broker" and node.runs()}
        asked = {identity: node for identity, node in running.items() if identity in fresh}
        waiting_for = ""

        def ready() -> bool:
            nonlocal waiting_for
            for node in self.nodes.values():
                if node.pid is not None and not node.runs():
                    raise RuntimeError(f"{node.name} ended: {node.last_words()}")
            for node in asked.values():
                try:
                    unseen = running.keys() - broker_view(node.plaintext_port).brokers
                except NoAnswer as error:
                    waiting_for = f"{node.name}: {error}"
                    return False
                if unseen:
                    waiting_for = f"{node.name} does not see brokers {sorted(unseen)}"
                    return False
            return True

        if not comes_true(ready, READY_SECONDS):
            raise RuntimeError(f"the cluster is not ready after {READY_SECONDS:.0f} s: {waiting_for}")

    def stop(self, identity: int) -> None:
        node = self.nodes[identity]
        if not node.end(signal.SIGTERM, STOP_SECONDS):
            node.end(signal.SIGKILL, KILL_SECONDS)

    def drop(self, keep: bool) -> list[str]:
        """Kills all nodes; reports those that had ended without being asked to."""
        for node in self.nodes.values():
            node.end(signal.SIGKILL, KILL_SECONDS)
        lost = [node for node in self.nodes.values() if node.ended_by_itself]
        reports = [f"{node.name} ended by itself: {node.last_words()}" for node in lost]
        for node in self.nodes.values():
            for directory in node.log_dirs:
                shutil.rmtree(directory, ignore_errors=True)
        if not keep and not lost:
            shutil.rmtree(self.folder, ignore_errors=True)
        return reports


def _with_plaintext(settings: dict[str, str], role: str, peers: Peers) -> dict[str, str]:
    """The settings of a node that answers questions in plain text; controllers get them from their brokers."""
    protocols = settings.get("listener.security.protocol.map") or _DEFAULT_PROTOCOLS
    mighty = (settings.get("super.users") or "").split(";")
    pairs = ((name.strip(), protocol) for name, _, protocol in (each.partition(":") for each in protocols.split(",")))
    plaintext = {
        name
        for name, protocol in pairs
        if protocol == "PLAINTEXT" and (peers.of(name) is None or peers.of(name) in mighty)
    }
    names = {each.strip().partition("://")[0] for each in settings.get("listeners", "").split(",")}
    if not names - {""} or (names & plaintext and not (role == "controller" and peers.by_listener)):
        return settings
    added = {}
    if role == "broker":
        added["listener.security.protocol.map"] = f"{protocols},{HARNESS}:PLAINTEXT"
        for key in ("listeners", "advertised.listeners"):
            if settings.get(key):
                added[key] = f"{settings[key]},{HARNESS}://localhost:0"
    if settings.get("authorizer.class.name"):
        added["super.users"] = ";".join(filter(None, [*mighty, _ANONYMOUS]))
    return settings | added


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n")
