"""The fixture `barnabas_check` of the pytest plug-in: a check of an application as a test.

    def test_my_application(barnabas_check):
        barnabas_check(["python", "my_app.py"], promise="exactly-once", minutes=2)

The check runs in a process of its own; nothing of it is loaded into the test process.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from barnabas.check import callable_app

App = Sequence[str] | Callable[[], object]
_BROKEN = 1
_REST_S = 600.0
"""Time of a check besides the one with faults, at most."""
_ROOT = Path(__file__).resolve().parents[2]


class PromiseBroken(AssertionError):
    """The application does not keep its promise; the message has the verdict and the stories."""


class CannotCheck(Exception):
    """There is no verdict; the message is the reason."""


@dataclass(frozen=True, slots=True)
class Checked:
    """A check whose promise holds."""

    line: str
    """The verdict."""
    directory: Path
    """Report, logs and events."""


class Checker:
    """Runs checks; each has a directory of its own."""

    def __init__(self, directory: Callable[[], Path]) -> None:
        self._directory = directory

    def __call__(
        self, app: App, *, promise: str = "at-least-once", minutes: float = 2.0, options: Sequence[str] = ()
    ) -> Checked:
        """`app` is a command, or a function at the top level of a module, which each instance calls. `options` are
        further options of `barnabas check`, such as `["--instances", "5"]`. Raises `PromiseBroken`, `CannotCheck`."""
        directory = self._directory()
        command = command_of(app)
        words = ["--out", str(directory), "--promise", promise, "--minutes", str(minutes), *options, "--", *command]
        with (directory.parent / f"{directory.name}.txt").open("w+") as file:
            done = subprocess.run(
                [sys.executable, "-P", "-m", "barnabas.cli.main", "check", *words],
                env={**os.environ, "PYTHONPATH": os.pathsep.join([str(_ROOT), *filter(None, sys.path)])},
                stdout=file,
                stderr=subprocess.PIPE,
                text=True,
                timeout=minutes * 60 + _REST_S,
                check=False,
            )
            file.seek(0)
            printed = file.read().rstrip()
        if done.returncode == _BROKEN and printed:
            raise PromiseBroken(printed)
        if done.returncode:
            raise CannotCheck(done.stderr.strip() or f"the check ended with exit code {done.returncode}")
        return Checked(printed.partition("\n")[0], directory)


def command_of(app: App) -> list[str]:
    """The command of an instance. Raises `CannotCheck` for a function that another process cannot find."""
    if not callable(app):
        return [str(word) for word in app]
    code: Any = getattr(app, "__code__", None)
    name = getattr(app, "__qualname__", "")
    if code is None or not name.isidentifier():
        raise CannotCheck(f"the application must be a function at the top level of a module; got {app!r}")
    return [sys.executable, callable_app.__file__, code.co_filename, name]


@pytest.fixture
def barnabas_check(tmp_path_factory: pytest.TempPathFactory) -> Checker:
    """A function that runs an application under faults, and fails the test if its promise is broken."""
    return Checker(lambda: tmp_path_factory.mktemp("check") / "run")
