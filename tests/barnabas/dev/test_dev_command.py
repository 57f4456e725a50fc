"""`barnabas dev` as a process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest

from barnabas import sync
from barnabas.cluster.local import code_environment
from barnabas.dev.directory import remove_left_over

NODE = [sys.executable, "-P", "-c", "from barnabas.cli.main import main; main()", "dev"]


@contextmanager
def dev_node(*options: str, port: str = "0") -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A running node and its bootstrap servers."""
    process = subprocess.Popen(
        [*NODE, "--port", port, *options], stdout=subprocess.PIPE, text=True, env=code_environment()
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        found = re.match(r"(\S+) is ready after", line)
        assert found is not None, line
        yield process, found[1]
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def refusal(*options: str) -> tuple[int, str]:
    """Exit code and message of a node that does not start."""
    done = subprocess.run(
        [*NODE, *options], capture_output=True, text=True, env=code_environment(), timeout=60, check=False
    )
    return done.returncode, done.stderr.strip()


def test_a_node_serves_until_ctrl_c() -> None:
    with dev_node("--topic", "orders:3") as (process, servers):
        with sync.Producer(bootstrap_servers=servers) as producer:
            assert producer.send("orders", b"1", partition=2).partition == 2
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0


def test_a_node_has_a_registry_if_it_is_wanted() -> None:
    with dev_node("--registry", "0") as (process, _):
        assert process.stdout is not None
        url = process.stdout.readline().split()[0]
        with urlopen(f"{url}/subjects", timeout=20) as answer:
            assert answer.read() == b"[]"
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0


def test_records_survive_a_restart_in_a_directory(tmp_path: Path) -> None:
    for expected in range(2):
        with dev_node("--dir", str(tmp_path), "--topic", "orders") as (process, servers):
            with sync.Producer(bootstrap_servers=servers) as producer:
                assert producer.send("orders", b"x").offset == expected
            process.send_signal(signal.SIGTERM)
            assert process.wait(10) == 0


def test_a_node_that_cannot_run_gives_its_reason_in_one_line(tmp_path: Path) -> None:
    with dev_node("--dir", str(tmp_path)) as (_, servers):
        port = servers.rpartition(":")[2]
        assert refusal("--port", port) == (1, f"port {port} is taken by another process; --port 0 takes any free one")
        code, message = refusal("--port", "0", "--dir", str(tmp_path))
        assert (code, message) == (1, f"{tmp_path}/data is in use by another process")
    assert refusal("--topic", "orders:0")[0] == 2
    (tmp_path / "data" / "meta.properties").write_text("version=2\n")
    code, message = refusal("--port", "0", "--dir", str(tmp_path))
    assert code == 1
    assert message.endswith("meta.properties: version 2, expected 1")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have one loopback address")
def test_clients_get_the_address_that_they_came_in_by() -> None:
    with dev_node("--host", "0.0.0.0") as (_, servers):
        port = int(servers.rpartition(":")[2])
        for host in ("127.0.0.1", "127.0.0.2"):
            with sync.Admin(bootstrap_servers=f"{host}:{port}") as admin:
                [node] = admin.describe_cluster().nodes
                assert (node.host, node.port) == (host, port)
                assert admin.list_consumer_group_offsets("nobody") == {"nobody": {}}


def test_memory_of_killed_nodes_is_given_back() -> None:
    with dev_node() as (process, _):
        owned = [
            Path(os.readlink(path)).parent
            for path in Path(f"/proc/{process.pid}/fd").iterdir()
            if os.readlink(path).endswith("/owner")
        ]
        process.kill()
    [left] = owned
    assert left.exists()
    remove_left_over(left.parent)
    assert not left.exists()
