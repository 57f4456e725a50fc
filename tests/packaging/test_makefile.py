"""`make` with a Python that is too old, and `make clean`."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OLD_PYTHON = """\
#!/bin/sh
case "$1" in
    -c) exit 1 ;;
    --version) echo Python 3.10.13 ;;
    -m) mkdir -p .venv/bin && cp "$0" .venv/bin/python ;;
esac
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    old = tmp_path / "python3.10"
    old.write_text(OLD_PYTHON)
    old.chmod(0o755)
    return tmp_path


def make(checkout: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["make", *words], cwd=checkout, capture_output=True, text=True, check=False)


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_an_old_python_is_refused_before_an_environment_exists(checkout: Path) -> None:
    done = make(checkout, "up", "PYTHON=./python3.10")
    assert done.returncode != 0
    assert "make: needs Python 3.11 or newer; ./python3.10 is Python 3.10.13" in done.stdout
    assert not (checkout / ".venv").exists()


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_an_environment_of_an_old_python_is_named(checkout: Path) -> None:
    (checkout / ".venv/bin").mkdir(parents=True)
    shutil.copy(checkout / "python3.10", checkout / ".venv/bin/python")
    done = make(checkout, "up")
    assert done.returncode != 0
    assert "make: .venv has Python 3.10.13; needs Python 3.11 or newer: rm -rf .venv" in done.stdout


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_clean_removes_what_a_failed_start_left(checkout: Path) -> None:
    """`cluster.json` is written last, so a failed first start leaves the configuration files only."""
    (checkout / ".venv").mkdir()
    (checkout / ".venv/installed").touch()
    (checkout / ".venv/bin").mkdir()
    (checkout / ".venv/bin/python").touch()
    (checkout / "data/conf").mkdir(parents=True)
    (checkout / "data/conf/broker-1.properties").touch()
    (checkout / "barnabas.egg-info").mkdir()
    done = make(checkout, "clean", "DATA=data")
    assert done.returncode == 0, done.stderr
    assert not (checkout / "data").exists()
    assert not (checkout / "barnabas.egg-info").exists()
