"""Programs with other people's clients, each in a process of its own, that are killed and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from tests.compat.java import FLAGS

SOURCES = Path(__file__).parent / "transformers"
BEGIN_SECONDS = 60.0


def python_command(program: str, *words: str) -> list[str]:
    return [sys.executable, str(SOURCES / program), *words]


def java_command(classes: Path, libs: Path, program: str, *words: str) -> list[str]:
    return ["java", *FLAGS, "-cp", f"{classes}{os.pathsep}{libs}{os.sep}*", program, *words]


def compile_java(target: Path, libs: Path) -> Path:
    """The classes of all Java programs, in `target`."""
    sources = [str(path) for path in sorted(SOURCES.glob("*.java"))]
    done = subprocess.run(
        ["javac", "-d", str(target), "-cp", f"{libs}{os.sep}*", *sources], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return target


class Program:
    """One process; `began` when it said so."""

    def __init__(self, name: str, command: Sequence[str], log: Path) -> None:
        self.name = name
        self._command = command
        self._log = log
        self._process: subprocess.Popen[str] | None = None
        self._began = threading.Event()

    def start(self) -> None:
        with self._log.open("a") as errors:
            self._process = subprocess.Popen(
                self._command, stdout=subprocess.PIPE, stderr=errors, text=True, stdin=subprocess.DEVNULL
            )
        self._began = threading.Event()
        threading.Thread(target=self._listen, args=(self._process, self._began), daemon=True).start()

    @staticmethod
    def _listen(process: subprocess.Popen[str], began: threading.Event) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if line.strip() == "began":
                began.set()

    def wait_began(self) -> float:
        """Gives the seconds it took."""
        since = time.monotonic()
        assert self._began.wait(BEGIN_SECONDS), f"{self.name} does not begin: {self.last_words}"
        return time.monotonic() - since

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def ended(self) -> bool:
        """It was started, and ended by itself."""
        return self._process is not None and self._process.poll() not in (None, -signal.SIGKILL)

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    @property
    def last_words(self) -> str:
        return self._log.read_text()[-2000:] if self._log.exists() else ""
