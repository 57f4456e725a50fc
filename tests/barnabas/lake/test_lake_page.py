"""The commands and programs of docs/lake.md, in their order, and its tables of settings."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.cli.main import run
from barnabas.dev.embedded import EmbeddedServers
from barnabas.lake.config import LakeFile

PAGE = (Path(__file__).parents[3] / "docs" / "lake.md").read_text("utf-8")
BLOCK = re.compile(r"^```(sh|python|toml|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.feature("OP-10")
def test_the_commands_of_the_page_do_what_they_say(barnabas_reset: EmbeddedServers, tmp_path: Path) -> None:
    environment = os.environ | {
        "BARNABAS_BOOTSTRAP_SERVER": str(barnabas_reset),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    printed = ""
    for kind, text in BLOCK.findall(PAGE):
        match kind:
            case "sh":
                command = ["bash", "-euo", "pipefail", "-c", text]
            case "python":
                command = [sys.executable, "-c", text]
            case "toml":
                (tmp_path / "lake.toml").write_text(text)
                continue
            case _:
                assert printed.splitlines()[-1:] == text.splitlines()[-1:], printed
                continue
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240, check=False
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
        printed = done.stdout
        if "lake check" in text:
            assert "1500 records, 1500 of them compared" in printed
        if text.startswith("barnabas topics create sales"):
            assert "shop.sales: 1 records in 1 commits, 1 dead letters" in printed


def test_the_settings_of_the_page_are_those_of_the_file() -> None:
    for name, default in re.findall(r"^\| `(\w+)` \| ([\d,]+) \|", PAGE, re.MULTILINE):
        assert LakeFile.model_fields[name].default == int(default.replace(",", "")), name
    for name in LakeFile.model_fields:
        assert name in PAGE


def test_a_missing_package_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "pyiceberg", None)
    assert run(["lake", "status", "a.b", "--catalog", "x"]) == 1
    assert "install the extra `lake`" in capsys.readouterr().err
