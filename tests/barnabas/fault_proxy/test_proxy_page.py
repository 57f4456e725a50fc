"""The commands, programs and tests of docs/proxy.md, on other ports than the page's."""

from __future__ import annotations

import io
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

import pytest

from barnabas.cli.main import run
from barnabas.cluster.local import code_environment
from barnabas.cluster.ports import free_base_port
from tests.barnabas.testing.test_plugin import run_pytest

PAGE = (Path(__file__).parents[3] / "docs" / "proxy.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w+(?: fails)?)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
PORTS = (9092, 9093, 9094, 9095)
STAYS = re.compile(r"barnabas (dev|proxy(?! replay)) ")
LINE_SECONDS = 60


def blocks(kind: str) -> list[str]:
    return [text for each, text in BLOCKS if each == kind]


@pytest.fixture(scope="module")
def moved() -> Callable[[str], str]:
    """Replaces the ports of the page by free ones."""
    base = free_base_port(range(len(PORTS) + 1))

    def move(text: str) -> str:
        return re.sub(r"\b909[2-5]\b", lambda found: str(base + int(found[0]) - PORTS[0]), text)

    return move


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a shell that finds this `barnabas`."""
    folder = tmp_path_factory.mktemp("bin")
    program = folder / "barnabas"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -P -c "from barnabas.cli.main import main; main()" "$@"\n')
    program.chmod(0o755)
    return {**code_environment(), "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}


@contextmanager
def running(command: str, shell: dict[str, str], folder: Path) -> Iterator[None]:
    process = subprocess.Popen(
        ["bash", "-c", f"exec {command}"], stdout=subprocess.PIPE, env=shell, cwd=folder, text=True
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert "is ready" in line, f"{command}: {line}"
        yield
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=LINE_SECONDS)
        assert process.returncode == 0, command
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture(scope="module")
def folder(
    moved: Callable[[str], str], shell: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """Where commands run, beside the node of the page's first command."""
    path = tmp_path_factory.mktemp("page")
    (path / "faults.yaml").write_text(*blocks("yaml"))
    token = re.search(r"`proxy\.token` has `(\S+)`", PAGE)
    assert token is not None
    (path / "proxy.token").write_text(f"{token[1]}\n")
    first = blocks("sh")[0].splitlines()[0]
    assert first.startswith("barnabas dev")
    with running(f"{first} --port {moved('9092')}", shell, path):
        yield path


@pytest.mark.parametrize("number", range(len(blocks("sh"))))
def test_the_commands_work(number: int, moved: Callable[[str], str], shell: dict[str, str], folder: Path) -> None:
    lines = [line for line in moved(blocks("sh")[number]).splitlines() if not line.startswith("barnabas dev")]
    assert STAYS.match(lines[0])
    if any(line.startswith("curl ") for line in lines) and shutil.which("curl") is None:
        pytest.skip("there is no curl")
    outputs = []
    with running(lines[0], shell, folder):
        for line in lines[1:]:
            done = subprocess.run(
                ["bash", "-o", "pipefail", "-c", line],
                capture_output=True,
                text=True,
                env=shell,
                cwd=folder,
                timeout=LINE_SECONDS,
                check=False,
            )
            assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
            outputs.append(done.stdout)
    if "consume" in lines[-1]:
        assert outputs[-1] == "order 1\n"
    if "replay" in lines[-1]:
        assert re.match(r"(\d+) requests sent on \d connections, \1 answered$", outputs[-1]), outputs[-1]


def test_a_wrong_rule_is_refused_as_the_page_shows(capsys: pytest.CaptureFixture[str]) -> None:
    [command], expected = blocks("sh fails"), blocks("text")[0]
    assert run(shlex.split(command)[1:]) == 2
    assert capsys.readouterr().err == expected


def test_the_program_prints_what_the_page_shows(folder: Path, moved: Callable[[str], str]) -> None:
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(moved(blocks("python")[0]), {"__name__": "__main__"})
    assert printed.getvalue() == blocks("text")[1]


@pytest.mark.feature("OP-10")
def test_the_tests_of_the_page_pass(tmp_path: Path) -> None:
    (tmp_path / "test_page.py").write_text(blocks("python")[1])
    result = run_pytest(tmp_path)
    assert "1 passed" in result.stdout, result.stdout + result.stderr


def test_the_page_names_the_options_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["proxy", "--help"]) == 0
    known = set(re.findall(r"--[a-z][a-z-]+", capsys.readouterr().out)) - {"--help"}
    table = PAGE[PAGE.index("| option") : PAGE.index("With `--to-config`")]
    assert set(re.findall(r"^\| `(--[a-z-]+)`", table, re.MULTILINE)) == known
