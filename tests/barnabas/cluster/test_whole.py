"""Six real nodes, driven by the command line as a user would."""

import io
import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.cli.main import run
from barnabas.cluster.ports import free_base_port

WAIT_SECONDS = 60.0


class Shell:
    """Runs commands against one cluster."""

    def __init__(self, data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.data = ["--data", str(data)]
        self._capsys = capsys
        self._monkeypatch = monkeypatch

    def __call__(self, command: str, *words: str, expect: int = 0, stdin: str = "") -> str:
        """Standard output of a command."""
        self._monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        code = run([*command.split(), *words, *self.data])
        captured = self._capsys.readouterr()
        assert code == expect, captured.err
        return captured.out

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self("cluster status", "--json"))
        return found


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    shell = Shell(tmp_path, capsys, monkeypatch)
    yield shell
    shell("cluster down")


def lines_of(first: int, last: int) -> str:
    return "".join(f"key-{number}:value-{number}\n" for number in range(first, last))


def asked(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def await_answer(port: int, expected: tuple[int, str]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while (answer := asked(port, "/readyz")) != expected:
        assert time.monotonic() < deadline, f"still {answer}"
        time.sleep(0.05)


@pytest.mark.feature("OB-04", "OB-06")
def test_every_node_reports_health_and_metrics(shell: Shell) -> None:
    base = free_base_port()
    shell("cluster up", "--base-port", str(base), "--set", "broker.session.timeout.ms=2000")
    brokers, controllers = range(base + 200, base + 203), range(base + 300, base + 303)
    for port in (*brokers, *controllers):
        assert (asked(port, "/healthz"), asked(port, "/readyz")) == ((200, "ok\n"), (200, "ready\n"))
        status, page = asked(port, "/metrics")
        assert status == 200
        assert "\nprocess_cpu_seconds_total " in page and "\nkafka_server_raftmetrics_current_epoch " in page
    shell("cluster kill", "controller-101")
    shell("cluster kill", "controller-102")
    await_answer(controllers[2], (503, "this controller neither leads the quorum nor follows its leader\n"))
    await_answer(brokers[0], (503, "the broker is fenced, or may be\n"))
    assert asked(brokers[0], "/healthz") == (200, "ok\n")
    shell("cluster start", "controller-101")
    shell("cluster start", "controller-102")
    await_answer(brokers[0], (200, "ready\n"))


@pytest.mark.feature("OP-02", "AD-03")
def test_records_survive_a_killed_leader_and_a_restart_of_everything(shell: Shell) -> None:
    out = shell("cluster up", "--base-port", str(free_base_port()))
    assert out.startswith("ready after")
    created = shell("topics create", "events", "-p", "2", "-r", "3")
    assert created == "created events: 2 partitions, replication factor 3\n"
    shell("produce", "events", "-k", ":", stdin=lines_of(0, 50))
    before = shell.status()
    assert before["quorum"]["leader"] in (101, 102, 103)
    assert before["brokers"] == [1, 2, 3]
    assert sum(partition["high_watermark"] for partition in before["partitions"]) == 50

    leader = before["partitions"][0]["leader"]
    shell("cluster kill", f"broker-{leader}")
    shell("produce", "events", "-k", ":", stdin=lines_of(50, 100))
    shell("cluster start", f"broker-{leader}")
    shell("cluster down")
    assert {node["state"] for node in shell.status()["nodes"]} == {"stopped"}

    shell("cluster up")
    assert shell("topics list") == "events\n"
    read = shell("consume", "events", "--from-beginning", "--max-messages", "100", "-k", ":")
    assert sorted(read.splitlines()) == sorted(lines_of(0, 100).splitlines())
    shell("topics delete", "events")
    assert shell("topics list") == ""


def test_a_refused_command_is_an_error_of_one_line(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    shell("cluster up", "--base-port", str(free_base_port()))
    for words, message in (
        (["topics", "delete", "nothing"], "nothing: there is no such topic"),
        (["topics", "create", "two words"], "INVALID_TOPIC_EXCEPTION"),
        (["consume", "nothing", "-n", "1"], "there is no topic nothing"),
        (["produce", "nothing"], "there is no topic nothing"),
    ):
        assert run([*words, *shell.data]) == 1
        captured = capsys.readouterr()
        assert message in captured.err
        assert len(captured.err.splitlines()) == 1, captured.err
        assert captured.out == ""
