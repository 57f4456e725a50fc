"""Runs of `barnabas check` as a user starts them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from barnabas.cluster.local import code_environment
from tests.compat.available import APART, kafka_libs
from tests.compat.java import FLAGS

EXAMPLES = Path(__file__).parents[2] / "examples" / "check"
RUN_SECONDS = 600


@dataclass(frozen=True)
class CheckRun:
    """A run that has ended."""

    code: int
    printed: str
    complaints: str
    found: dict[str, Any]
    """`check.json` of its directory."""
    directory: Path


def check(directory: Path, command: Sequence[str], *options: str, cwd: Path | None = None) -> CheckRun:
    """Run it to its end."""
    out = directory / "check"
    done = subprocess.run(
        [sys.executable, "-P", "-m", "barnabas.cli.main", "check", "--out", str(out), *options, "--", *command],
        env=code_environment(),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )
    found = json.loads((out / "check.json").read_text()) if (out / "check.json").exists() else {}
    return CheckRun(done.returncode, done.stdout, done.stderr, found, out)


def check_example(directory: Path, name: str, *options: str) -> CheckRun:
    return check(directory, command_of(name), *options)


def command_of(name: str) -> list[str]:
    """Runs an example as its page says."""
    libs = kafka_libs()
    if (EXAMPLES / f"{name}.java").exists() and libs is not None:
        return ["java", *FLAGS, "-cp", f"{libs}{os.sep}*", str(EXAMPLES / f"{name}.java")]
    return [str(APART.get(name.partition("_")[0], sys.executable)), str(EXAMPLES / f"{name}.py")]
