"""The program, commands and options of docs/registry.md."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from barnabas.cli.main import run
from barnabas.cluster.local import code_environment
from barnabas.dev.embedded import embedded

PAGE = (Path(__file__).parents[3] / "docs" / "registry.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
COMMAND = '"%s" -P -c "from barnabas.cli.main import main; main()" "$@"'


def block(kind: str) -> str:
    [found] = [text for name, text in BLOCKS if name == kind]
    return found


def test_the_program_prints_what_the_page_shows() -> None:
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(block("python"), {"__name__": "__main__"})
    assert printed.getvalue() == block("text")


@pytest.mark.feature("OP-10")
def test_the_commands_of_the_page_work(tmp_path: Path) -> None:
    script = f"barnabas() {{ {COMMAND % sys.executable}; }}\n{block('sh')}"
    with embedded(registry=True) as servers:
        environment = {
            **os.environ,
            **code_environment(),
            "BARNABAS_BOOTSTRAP_SERVER": str(servers),
            "REGISTRY": servers.registry_url,
        }
        done = subprocess.run(
            ["bash", "-euc", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == '{"id":7}'


def test_the_page_names_the_options_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["registry", "--help"]) == 0
    known = set(re.findall(r"--[a-z][a-z-]+", capsys.readouterr().out))
    shared = {"--bootstrap-server", "--data", "--command-config", "--client-config"} | {
        "--property",
        "--timeout",
        "--help",
    }
    table = PAGE[PAGE.index("| option") : PAGE.index("With Docker")]
    assert set(re.findall(r"--[a-z][a-z-]+", table)) == known - shared


def test_a_missing_package_is_named_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    for words in (["registry", "--port", "0"], ["dev", "--port", "0", "--registry", "0"]):
        assert run(words) == 1
        assert capsys.readouterr().err == (
            "the registry needs the package fastavro: install the extra `registry`, "
            "in a checkout `pip install '.[registry]'`\n"
        )


def test_a_registry_without_a_cluster_says_so_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["registry", "--port", "0", "-b", "127.0.0.1:9", "--timeout", "0.2"]) == 3
    assert capsys.readouterr().err == "127.0.0.1:9: the registry could not start within 0.2 s\n"
