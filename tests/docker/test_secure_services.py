"""The profile `secure` of docker-compose.yml without docker: the commands of its services by the image's entrypoint, as
processes of this machine. Only paths, and addresses of nodes, are others.
"""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from barnabas.cluster.local import code_environment
from barnabas.cluster.ports import free_base_port
from tests.docker.compose_file import ROOT, command
from tests.eventually import eventually

BROKERS = ("broker-1", "broker-2", "broker-3")
CONTROLLERS = ("controller-101", "controller-102", "controller-103")
CLIENTS, CERTIFIED, INTERNAL, NODES, QUORUM, HTTP = (10 * number for number in range(6))
"""Ports of nodes above the base port; brokers and controllers take them by their number in their kind."""
VOLUME = "/var/lib/barnabas-security"
START_SECONDS = 120.0
STOP_SECONDS = 40.0


@dataclass(frozen=True)
class Services:
    """The services of the profile, in one directory."""

    directory: Path
    base_port: int

    @property
    def volume(self) -> Path:
        return self.directory / "security"

    @property
    def clients(self) -> Path:
        """The files that were copied out."""
        return self.directory / "clients"

    def port(self, node: str, kind: int) -> int:
        if node in CONTROLLERS:
            return self.base_port + kind + 3 + CONTROLLERS.index(node)
        return self.base_port + kind + BROKERS.index(node)

    @property
    def variables(self) -> dict[str, str]:
        ports = {f"KAFKA_PORT_{number}": self.port(node, CLIENTS) for number, node in enumerate(BROKERS, 1)}
        ports |= {f"KAFKA_SSL_PORT_{number}": self.port(node, CERTIFIED) for number, node in enumerate(BROKERS, 1)}
        return {name: str(port) for name, port in ports.items()}

    # -- the image

    def start(self, *words: str, container: str = "") -> subprocess.Popen[bytes]:
        """The entrypoint with a command. Its output goes to a pipe, that of a container that stays to its log."""
        data = self.directory / (container or "step")
        data.mkdir(exist_ok=True)
        script = data / "entrypoint"
        text = (ROOT / "docker" / "entrypoint").read_text().replace(VOLUME, str(self.volume))
        script.write_text(text.replace("/var/lib/barnabas", str(data)))
        environment = {
            **code_environment(),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "CLUSTER_ID": "barnabas-compose-tests",
            "BARNABAS_CONFIGS": str(self.volume / "conf"),
        }
        own = [word.replace(VOLUME, str(self.volume)) for word in words]
        own = [word.replace("/etc/barnabas", str(ROOT / "cluster-configs" / "compose")) for word in own]
        with (data / "log").open("ab") as log:
            out = log if container else subprocess.PIPE
            return subprocess.Popen(["sh", script, *own], cwd=data, env=environment, stdout=out, stderr=log)

    def run(self, *words: str) -> bytes:
        """The output of a command that ends."""
        process = self.start(*words)
        out, _ = process.communicate(timeout=START_SECONDS)
        assert process.returncode == 0, (self.directory / "step" / "log").read_text()
        return out

    def place(self) -> None:
        """Give nodes addresses of this machine; those of clients are in place."""
        for node in (*BROKERS, *CONTROLLERS):
            file = self.volume / "conf" / f"{node}.properties"
            file.write_text(self._placed(file.read_text(), node))
        internal = self.volume / "internal.properties"
        internal.write_text(self._placed(internal.read_text(), BROKERS[0]))

    def _placed(self, text: str, own: str) -> str:
        for node in BROKERS:
            text = text.replace(f"{node}:9092", f"127.0.0.1:{self.port(node, INTERNAL)}")
            text = text.replace(f"{node}:9094", f"127.0.0.1:{self.port(node, NODES)}")
        for node in CONTROLLERS:
            text = text.replace(f"{node}:9093", f"127.0.0.1:{self.port(node, QUORUM)}")
        ports = {"9092": INTERNAL, "19092": CLIENTS, "19192": CERTIFIED, "9094": NODES, "9093": QUORUM}
        for container_port, kind in ports.items():
            text = text.replace(f"://:{container_port}", f"://127.0.0.1:{self.port(own, kind)}")
        text = text.replace("0.0.0.0:9292", f"127.0.0.1:{self.port(own, HTTP)}")
        return text.replace("/var/lib/barnabas/data", str(self.directory / own / "data"))

    def is_healthy(self, node: str) -> bool:
        check = [sys.executable, "-IS", str(ROOT / "docker" / "healthcheck"), str(self.port(node, HTTP))]
        return subprocess.run(check, capture_output=True, timeout=30, check=False).returncode == 0

    # -- clients

    def barnabas(self, *words: str, stdin: str = "", code: int = 0) -> str:
        """The output of our command line, in the directory of the files that were copied out."""
        done = subprocess.run(
            [sys.executable, "-m", "barnabas.cli.main", *words],
            cwd=self.clients,
            env=code_environment(),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    directory = tmp_path_factory.mktemp("secure")
    made = Services(directory, free_base_port(range(60)))
    running: dict[str, subprocess.Popen[bytes]] = {}
    try:
        made.run(*command("secure-files", made.variables))
        made.place()
        for node in (*CONTROLLERS, *BROKERS):
            running[node] = made.start(*command(f"secure-{node}", made.variables), container=node)
        eventually(lambda: all(made.is_healthy(node) for node in running), START_SECONDS)
        made.run(*command("secure-users", made.variables))
        made.clients.mkdir()
        subprocess.run(["tar", "-x"], cwd=made.clients, input=made.run("client-files"), timeout=60, check=True)
        yield made
    finally:
        for process in running.values():
            process.terminate()
        codes = {node: process.wait(STOP_SECONDS) for node, process in running.items()}
        assert codes == dict.fromkeys(running, 0)


pytestmark = [pytest.mark.feature("OP-01", "SE-10")]


@pytest.mark.feature("SE-01", "SE-04", "SE-08")
def test_a_user_writes_and_reads_with_the_files_that_were_copied_out(services: Services) -> None:
    own = ("--command-config", "alice/client.properties")
    services.barnabas("topics", "create", "alice-flights", *own)
    services.barnabas("produce", "alice-flights", *own, stdin="one\ntwo\n")
    assert services.barnabas("consume", "alice-flights", "-o", "beginning", "-e", "-q", *own) == "one\ntwo\n"
    by_certificate = ("--command-config", "alice/client-ssl.properties")
    assert services.barnabas("consume", "alice-flights", "-o", "beginning", "-e", "-q", *by_certificate) == "one\ntwo\n"
    refused = services.barnabas("topics", "create", "flights", *own, code=1)
    assert "AUTHORIZATION_FAILED" in refused
    services.barnabas("topics", "create", "flights", "--command-config", "admin/client.properties")


@pytest.mark.feature("SE-01")
def test_strangers_are_refused(services: Services) -> None:
    servers = f"127.0.0.1:{services.port('broker-1', CLIENTS)}"
    services.barnabas("topics", "list", "--bootstrap-server", servers, code=1)
    lines = (services.clients / "alice" / "client.properties").read_text()
    guess = services.clients / "guess.properties"
    guess.write_text(lines.replace('password="', 'password="x'))
    assert "SASL_AUTHENTICATION_FAILED" in services.barnabas("topics", "list", "--command-config", str(guess), code=1)


@pytest.mark.parametrize(("node", "kind"), [("broker-1", NODES), ("controller-101", QUORUM)])
def test_nodes_accept_only_certificates_of_nodes(services: Services, node: str, kind: int) -> None:
    def accepts(key: Path | None) -> bool:
        context = ssl.create_default_context(cafile=services.volume / "nodes-ca.pem")
        if key is not None:
            context.load_cert_chain(key)
        with socket.create_connection(("127.0.0.1", services.port(node, kind)), timeout=10) as plain:
            try:
                with context.wrap_socket(plain, server_hostname=node) as connection:
                    # ApiVersions, version 0: with TLS 1.3 a refusal comes after the handshake.
                    connection.sendall(bytes.fromhex("0000000a" "00120000" "00000001" "ffff"))
                    return len(connection.recv(4)) == 4
            except (ssl.SSLError, ConnectionError):
                return False

    assert accepts(services.volume / "nodes" / "broker-2-node.pem")
    assert not accepts(services.clients / "admin" / "key.pem")
    assert not accepts(None)


def test_another_start_keeps_keys_and_passwords(services: Services) -> None:
    kept = [file for file in services.volume.rglob("*") if file.suffix in (".pem", ".key", ".json", ".secret")]
    before = {file: file.read_bytes() for file in kept}
    services.run(*command("secure-files", services.variables))
    services.place()
    services.run(*command("secure-users", services.variables))
    assert {file: file.read_bytes() for file in kept} == before
