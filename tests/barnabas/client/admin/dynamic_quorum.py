"""Controllers in processes of their own, whose voters may change (KIP-853)."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from barnabas.cluster.ports import free_base_port

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
START_SECONDS = 20.0


class DynamicQuorum:
    """Three controllers; the test formats one of them as the only voter."""

    def __init__(self, path: Path) -> None:
        self._path = path
        base_port = free_base_port((0, 1, 2))
        self.ports = {node_id: base_port + node_id - 1 for node_id in (1, 2, 3)}
        self.servers = ",".join(f"127.0.0.1:{port}" for port in self.ports.values())
        self.processes: dict[int, subprocess.Popen[bytes]] = {}

    def config(self, node_id: int) -> str:
        return str(self._path / f"{node_id}.properties")

    def start(self, node_id: int, how: str) -> None:
        """`how`: `--standalone` or `--no-initial-controllers`."""
        Path(self.config(node_id)).write_text(
            f"process.roles=controller\nnode.id={node_id}\ncontroller.listener.names=CONTROLLER\n"
            f"listeners=CONTROLLER://127.0.0.1:{self.ports[node_id]}\nlog.dirs={self._path}/{node_id}\n"
            f"controller.quorum.bootstrap.servers={self.servers}\n"
        )
        form = ["storage", "format", "-c", self.config(node_id), "-t", CLUSTER_ID, how]
        subprocess.run([str(Path(sys.executable).with_name("barnabas")), *form], check=True, capture_output=True)
        self.run(node_id)

    def run(self, node_id: int) -> None:
        """Start a controller on the directory that it has."""
        command = [sys.executable, "-m", "barnabas.kraft", self.config(node_id)]
        with (self._path / f"{node_id}.log").open("wb") as log:
            self.processes[node_id] = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

    def kill(self, *node_ids: int) -> None:
        for node_id in node_ids:
            self.processes[node_id].kill()
            self.processes[node_id].wait()

    def log_directory(self, node_id: int) -> Path:
        return self._path / str(node_id)

    def stop(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()

    def directory_id(self, node_id: int) -> str:
        found = re.search(r"directory.id=(\S+)", (self._path / str(node_id) / "meta.properties").read_text())
        assert found is not None
        return found.group(1)

    def wait_for(self, what: str, condition: Callable[[], bool], seconds: float = START_SECONDS) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
