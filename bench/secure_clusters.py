"""Two secure clusters side by side, of Apache Kafka and ours, with the same certificates, cipher suite, users, rights.

Every node of both has the settings of `barnabas cluster up --secure`, whose keys are Kafka's: clients use
SASL_PLAINTEXT, SASL_SSL and SSL, nodes talk TLS to each other.
"""

from __future__ import annotations

import os
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from measuring import read_pids

from barnabas import sync
from barnabas.cli.connection import ADMIN_SSL_CONFIG, Connection
from barnabas.cli.local_users import rights_on_own
from barnabas.client.admin.scram import ScramMechanism, UserScramCredentialUpsertion
from barnabas.client.admin.settings import AdminSettings
from barnabas.cluster.local import LocalCluster
from barnabas.runtime.http_token import HttpToken
from barnabas.security.addresses import PORTS_ABOVE
from barnabas.security.client_files import MECHANISM
from barnabas.security.local_security import LocalSecurity
from barnabas.security.node_files import broker_settings, controller_settings
from barnabas.security.users import ADMIN
from barnabas.settings.properties import render_properties

KAFKA, OURS = "kafka-4.3.1", "barnabas"
USERS = ("alice", "bob")
SETTINGS = {
    "ssl.enabled.protocols": "TLSv1.3",
    "ssl.cipher.suites": "TLS_AES_256_GCM_SHA384",
    "group.initial.rebalance.delay.ms": "0",
}
KAFKA_ABOVE = 1000
"""Ports of Kafka's nodes above those of ours."""
READY_SECONDS = 180.0


@dataclass(frozen=True)
class Side:
    """One cluster, as its clients see it."""

    name: str
    ports: tuple[int, ...]
    """Those of the brokers' listeners PLAINTEXT."""
    http_ports: tuple[int, ...]
    """Pages of all nodes; Kafka has none."""
    security: LocalSecurity
    read_pids: Callable[[], list[int]]

    def bootstrap(self, protocol: str) -> str:
        return ",".join(f"127.0.0.1:{port + PORTS_ABOVE[protocol]}" for port in self.ports)

    def settings(self, user: str, protocol: str) -> dict[str, str]:
        """Settings with which librdkafka connects as a user: with its certificate over SSL, else with its password."""
        values = {"security.protocol": protocol, "ssl.ca.location": str(self.security.authority_file)}
        if protocol == "SSL":
            key = str(self.security.key_file(user))
            return values | {"ssl.certificate.location": key, "ssl.key.location": key}
        password = self.security.users.read()[user]
        return values | {"sasl.mechanism": MECHANISM, "sasl.username": user, "sasl.password": password}

    @contextmanager
    def admin(self) -> Iterator[sync.Admin]:
        """A client that may do everything; it has a certificate and needs no password."""
        file = self.security.directory.parent / ADMIN_SSL_CONFIG
        connection = Connection(self.bootstrap("SSL"), client_config=file)
        with sync.Admin(**connection.settings(AdminSettings.model_fields)) as admin:
            yield admin

    def metrics(self, name: str) -> list[float]:
        """The values of a metric on all nodes, whatever its labels."""
        found: list[float] = []
        for port in self.http_ports:
            token = HttpToken.parse(self.security.http_token_file.read_bytes())
            head = {"Authorization": token.authorization}
            request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers=head)
            with urllib.request.urlopen(request, timeout=10) as answer:
                lines = answer.read().decode().splitlines()
            found += [float(line.rpartition(" ")[2]) for line in lines if line.startswith(name)]
        return found


@contextmanager
def secure_clusters(data: Path, peer: Path, base_port: int, wanted: Sequence[str]) -> Iterator[list[Side]]:
    """The wanted ones of KAFKA and OURS, ready, with the users and their rights on what is named after them."""
    ours = LocalCluster(data, base_port, SETTINGS)
    ours.make_secure()
    security = LocalSecurity.of(data)
    security.ensure(ours.layout)
    kafka = KafkaNodes(peer, data / "kafka", base_port + KAFKA_ABOVE)
    sides = []
    try:
        if KAFKA in wanted:
            kafka.up(ours)
            sides.append(Side(KAFKA, kafka.ports, (), security, kafka.read_pids))
        if OURS in wanted:
            ours.up()
            ports = tuple(node.port for node in ours.layout.brokers)
            pages = tuple(node.http_port for node in ours.nodes if node.http_port is not None)
            sides.append(Side(OURS, ports, pages, security, lambda: _pids_of(ours)))
        for side in sides:
            _prepare(side)
        yield sides
    finally:
        kafka.stop()
        ours.down()


class KafkaNodes:
    """The nodes of Kafka, which a program of the peer's folder starts and stops."""

    def __init__(self, peer: Path, run: Path, port: int) -> None:
        self._program = str(peer / "kafka_peer.sh")
        self._run = run
        self.ports = (port, port + 1, port + 2)
        self._environment = {
            **os.environ,
            "KAFKA_PEER_RUN": str(run),
            "KAFKA_PEER_BROKER_PORTS": " ".join(map(str, self.ports)),
            "KAFKA_PEER_CONTROLLER_PORTS": " ".join(str(port + 100 + each) for each in range(3)),
        }

    def up(self, like: LocalCluster) -> None:
        """Start them with the certificates of `like`, whose nodes have the same names."""
        self._do("format")
        security = LocalSecurity.of(like.layout.data)
        for node in like.nodes:
            files = security.files_of(node)
            if node.is_broker:
                listeners = security.addresses.listeners(replace(node, port=self.ports[node.id - 1]))
                values = broker_settings(listeners, files, security.users.read())
            else:
                values = controller_settings(files)
            with (self._run / "conf" / f"{node.name}.properties").open("a") as file:
                file.write("\n" + render_properties(values | SETTINGS))
        self._do("start")

    def stop(self) -> None:
        if self._run.exists():
            self._do("stop")

    def read_pids(self) -> list[int]:
        return read_pids(f"{self._program} pids", self._environment)

    def _do(self, verb: str) -> None:
        subprocess.run([self._program, verb], env=self._environment, stdout=subprocess.DEVNULL, check=True)


def _pids_of(cluster: LocalCluster) -> list[int]:
    return [status.pid for status in cluster.processes() if status.pid is not None]


def _prepare(side: Side) -> None:
    _wait(side)
    passwords = side.security.users.read()
    with side.admin() as admin:
        admin.alter_user_scram_credentials(
            [UserScramCredentialUpsertion(user, ScramMechanism.SCRAM_SHA_512, passwords[user]) for user in USERS]
        )
        admin.create_acls([right for user in USERS for right in rights_on_own(user)])


def _wait(side: Side) -> None:
    """Until all brokers are known."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    settings: dict[str, Any] = {"bootstrap.servers": side.bootstrap("SSL"), "log_level": 0}
    client = AdminClient(settings | side.settings(ADMIN, "SSL"))
    end = time.monotonic() + READY_SECONDS
    while True:
        try:
            if len(client.list_topics(timeout=5).brokers) == len(side.ports):
                return
        except KafkaException:
            if time.monotonic() > end:
                raise
        if time.monotonic() > end:
            raise TimeoutError(f"{side.name}: not all brokers are there after {READY_SECONDS:.0f} s")
        time.sleep(0.1)
