"""Commands explain at once, in one line, why no broker answers."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import barnabas
from barnabas.cli.main import run
from barnabas.cluster.ports import free_base_port


@pytest.fixture
def http_port() -> Iterator[int]:
    """A port that answers anything with HTTP 400."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

    thread = threading.Thread(target=serve)
    thread.start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


@pytest.mark.feature("TO-02")
@pytest.mark.parametrize("words", [["topics", "list"], ["produce", "t"], ["consume", "t"], ["perf", "consume", "t"]])
def test_a_local_cluster_that_does_not_run_is_reported_without_waiting(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("BARNABAS_BOOTSTRAP_SERVER", raising=False)
    monkeypatch.delenv("BARNABAS_CLIENT_CONFIG", raising=False)
    port = free_base_port()
    (tmp_path / "cluster.json").write_text(f'{{"cluster_id": "x", "base_port": {port}}}')
    # Without the check the command would wait for an hour.
    assert run([*words, "--data", str(tmp_path), "--timeout", "3600"]) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"no cluster runs in {tmp_path}, and nothing listens on 127.0.0.1:{port}; start one with")


def test_a_port_that_speaks_http_is_named(http_port: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topics", "list", "-b", f"127.0.0.1:{http_port}", "--timeout", "0.3"]) == 3
    error = capsys.readouterr().err
    assert f"127.0.0.1:{http_port} failed: the server answers in HTTP; use the port of a Kafka listener" in error


def test_an_address_that_refuses_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    port = free_base_port()
    assert run(["topics", "list", "-b", f"127.0.0.1:{port}", "--timeout", "0.3"]) == 3
    assert f"127.0.0.1:{port}: [Errno 111] Connection refused" in capsys.readouterr().err


def test_the_version_is_that_of_the_distribution(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    found = re.fullmatch(r"barnabas (\S+) \(Python 3\.\d+\.\d+\S*\)\n", capsys.readouterr().out)
    assert found is not None and found[1] == barnabas.__version__ != "unknown"
