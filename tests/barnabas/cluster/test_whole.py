"""Six real nodes, driven by the command line as a user would."""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.cli.main import run
from barnabas.cluster.ports import free_base_port


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


@pytest.mark.feature("OP-02", "AD-03")
def test_records_survive_a_killed_leader_and_a_restart_of_everything(shell: Shell) -> None:
    out = shell("cluster up", "--base-port", str(free_base_port()))
    assert out.startswith("ready after")
    assert shell("topics create", "events", "-p", "2", "-r", "3") == "created events: 2 partitions, 3 replicas each\n"
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


def test_a_refused_command_is_told_in_one_line(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    shell("cluster up", "--base-port", str(free_base_port()))
    for words, told in (
        (["topics", "delete", "nothing"], "there is no topic nothing"),
        (["topics", "create", "two words"], "INVALID_TOPIC_EXCEPTION"),
        (["consume", "nothing", "-n", "1"], "there is no topic nothing"),
        (["produce", "nothing"], "there is no topic nothing"),
    ):
        assert run([*words, *shell.data]) == 1
        captured = capsys.readouterr()
        assert told in captured.err
        assert len(captured.err.splitlines()) == 1, captured.err
        assert captured.out == ""
