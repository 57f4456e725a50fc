"""docker-compose.yml as a cluster for tests: a project of its own on free ports, removed at the end.

Uses the docker of the environment (DOCKER_HOST). Faults go to docker directly, because docker-compose 1 takes seconds
to start.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from barnabas.cluster.probe import NoAnswer, ask
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from barnabas.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RequestPartitionData,
    RequestTopicData,
)

ROOT = Path(__file__).resolve().parents[2]
IMAGE = "barnabas"
BROKERS = ("broker-1", "broker-2", "broker-3")
CONTROLLERS = ("controller-101", "controller-102", "controller-103")
NODES = (*BROKERS, *CONTROLLERS)
DECISIONS = "http://127.0.0.1:9292/decisions"
_POLL_SECONDS = 0.1


def no_docker() -> str | None:
    """Reason why the tests cannot run here, in one line; None if they can."""
    if shutil.which("docker") is None:
        return "there is no docker command"
    answer = subprocess.run(["docker", "version"], capture_output=True, text=True, timeout=30, check=False)
    if answer.returncode != 0:
        return f"no docker daemon answers: {(answer.stderr.strip() or answer.stdout.strip()).splitlines()[-1]}"
    if compose_command() is None:
        return "there is neither `docker compose` nor docker-compose"
    return None if base_image() else "there is no image to build upon"


def base_image() -> str:
    """The base image to build upon; empty if none is available."""
    found = subprocess.run([ROOT / "docker" / "base-image"], capture_output=True, text=True, timeout=600, check=False)
    return found.stdout.strip()


def compose_command() -> list[str] | None:
    plugin = ["docker", "compose"]
    if subprocess.run([*plugin, "version"], capture_output=True, timeout=30, check=False).returncode == 0:
        return plugin
    return ["docker-compose"] if shutil.which("docker-compose") else None


class ComposedCluster:
    """Six containers. All waits together are limited to `time_limit_seconds`."""

    def __init__(self, project: str, cluster_id: str, time_limit_seconds: float) -> None:
        command = compose_command()
        assert command is not None
        self._compose = [*command, "--project-name", project]
        self.project = project
        self.cluster_id = cluster_id
        self.ports = free_ports(3)
        self._ends_at = time.monotonic() + time_limit_seconds
        self._environment = {**os.environ, "CLUSTER_ID": cluster_id, "BARNABAS_BASE_IMAGE": base_image()}
        for number, port in enumerate(self.ports, start=1):
            self._environment[f"KAFKA_PORT_{number}"] = str(port)
        for number, port in zip((1, 2, 3, 101, 102, 103), free_ports(6), strict=True):
            self._environment[f"HTTP_PORT_{number}"] = str(port)
        (self.page_port,) = free_ports(1)
        self._environment["PAGE_PORT"] = str(self.page_port)

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    # -- commands

    def compose(self, *words: str) -> str:
        return self._run([*self._compose, *words])

    def docker(self, *words: str) -> str:
        return self._run(["docker", *words])

    def _run(self, command: list[str]) -> str:
        left = self._ends_at - time.monotonic()
        assert left > 0, "the time is over"
        done = subprocess.run(
            command, cwd=ROOT, env=self._environment, capture_output=True, text=True, timeout=left, check=False
        )
        assert done.returncode == 0, f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def remove(self) -> None:
        """Removes containers, network and volumes, even after the time limit."""
        self._ends_at = max(self._ends_at, time.monotonic() + 60)
        self.compose("--profile", "page", "down", "--volumes", "--remove-orphans", "--timeout", "5")

    # -- nodes

    def containers(self) -> dict[str, str]:
        """Container ids by node."""
        form = '{{.Label "com.docker.compose.service"}} {{.ID}}'
        mine = f"label=com.docker.compose.project={self.project}"
        lines = self.docker("ps", "--all", "--filter", mine, "--format", form).splitlines()
        return dict(line.split(" ", 1) for line in lines)

    def container(self, node: str) -> str:
        return self.containers()[node]

    def inspect(self, node: str, form: str) -> str:
        return self.docker("inspect", "--format", form, self.container(node)).strip()

    def health(self) -> dict[str, str]:
        containers = {name: container for name, container in self.containers().items() if name in NODES}
        if not containers:
            return {}
        states = self.docker("inspect", "--format", "{{.State.Health.Status}}", *containers.values()).split()
        return dict(zip(containers, states, strict=True))

    def wait_healthy(self, timeout_seconds: float = 240.0) -> float:
        def all_are() -> bool:
            return self.health() == dict.fromkeys(NODES, "healthy")

        return self.wait_for("six containers are healthy", all_are, timeout_seconds)

    def decisions_of(self, node: str) -> list[dict[str, Any]]:
        """A node's decisions, fetched from inside its container."""
        program = f"import urllib.request; print(urllib.request.urlopen('{DECISIONS}', timeout=20).read().decode())"
        answer = json.loads(self.docker("exec", self.container(node), "python", "-c", program))
        return list(answer["decisions"])

    def signal(self, name: str, *nodes: str) -> None:
        containers = self.containers()
        self.docker("kill", "--signal", name, *(containers[node] for node in nodes))

    def start(self, *nodes: str) -> None:
        containers = self.containers()
        self.docker("start", *(containers[node] for node in nodes))

    def active_controller(self) -> str | None:
        """The active controller, according to the first broker that answers."""
        partition = RequestTopicData(
            topic_name="__cluster_metadata", partitions=[RequestPartitionData(partition_index=0)]
        )
        for port in self.ports:
            try:
                answer = ask(port, DescribeQuorumRequest(topics=[partition]), DescribeQuorumResponse)
            except NoAnswer:
                continue
            if answer.error_code == 0 and answer.topics[0].partitions[0].leader_id > 0:
                return f"controller-{answer.topics[0].partitions[0].leader_id}"
        return None

    def described(self, port: int) -> DescribeClusterResponse:
        """Raises `NoAnswer`."""
        return ask(port, DescribeClusterRequest(), DescribeClusterResponse)

    def wait_for(self, what: str, is_so: Callable[[], bool], timeout_seconds: float) -> float:
        """Polls until `is_so`; returns the seconds."""
        began = time.monotonic()
        ends_at = min(began + timeout_seconds, self._ends_at)
        while not is_so():
            assert time.monotonic() < ends_at, f"not within {time.monotonic() - began:.0f} s: {what}"
            time.sleep(_POLL_SECONDS)
        return time.monotonic() - began


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
