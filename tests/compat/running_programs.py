"""Programs with other people's clients, each in a process of its own, that are killed and started again.

librdkafka since 2.10 may deadlock when a broker leaves the metadata while an OffsetForLeaderEpoch is in flight
(confluentinc/librdkafka#5476, open): its main thread and a broker's wait for each other. No broker can prevent it, so
a test restarts such a program, as a supervisor would (`Program.revive`), and reports it. Any other standstill counts
against the cluster.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.compat.java import FLAGS

SOURCES = Path(__file__).parent / "programs"
BEGIN_SECONDS = 60.0
LISTEN_SECONDS = 10.0
LIBRARY_THREAD = "rdk:main"
"""The thread of a librdkafka client that does something once a second, whatever happens; two on a busy machine."""
LOCKED = "librdkafka has locked itself up"
LOOK_SECONDS = 1.0
STILL_LOOKS = 15
"""Looks without a movement after which a thread counts as deadlocked."""


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


class LibraryMotion:
    """Whether the threads of librdkafka in a process move, as the kernel counts it."""

    def __init__(self, pid: int) -> None:
        self._tasks = Path(f"/proc/{pid}/task")
        self._turns: dict[str, int] = {}
        self._still: dict[str, int] = {}
        """How many looks in a row found a thread where it was."""
        self._looked_at = 0.0

    @property
    def has_ended(self) -> bool:
        """A main thread stands still for ever."""
        if time.monotonic() - self._looked_at >= LOOK_SECONDS:
            self._looked_at = time.monotonic()
            self._look()
        return any(looks >= STILL_LOOKS for looks in self._still.values())

    def _look(self) -> None:
        turns = dict(filter(None, map(turns_of, self._tasks.glob("*"))))
        self._still = {
            thread: self._still.get(thread, 0) + 1 if self._turns.get(thread) == count else 0
            for thread, count in turns.items()
        }
        self._turns = turns


def turns_of(task: Path) -> tuple[str, int] | None:
    """How often a library's main thread was given a processor; None for another one, or one that is gone."""
    try:
        lines = (task / "status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return None
    status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    if status["Name"] != LIBRARY_THREAD:
        return None
    return task.name, int(status["voluntary_ctxt_switches"]) + int(status["nonvoluntary_ctxt_switches"])


class Program:
    """One process; `began` when it said so."""

    def __init__(
        self, name: str, command: Sequence[str], log: Path | None = None, on_line: Callable[[str], None] | None = None
    ) -> None:
        """Its stderr goes to `log`, or to ours; a thread calls `on_line` with each complete line of its stdout."""
        self.name = name
        self.command = command
        self.revivals: list[str] = []
        """Reasons of its restarts."""
        self._log = log
        self._on_line = on_line
        self._process: subprocess.Popen[str] | None = None
        self._motion: LibraryMotion | None = None
        self._began = threading.Event()
        self._listener: threading.Thread | None = None

    def start(self) -> None:
        errors = None if self._log is None else self._log.open("a")
        try:
            self._process = subprocess.Popen(
                self.command, stdout=subprocess.PIPE, stderr=errors, text=True, stdin=subprocess.PIPE
            )
        finally:
            if errors is not None:
                errors.close()
        self._motion = LibraryMotion(self._process.pid)
        self._began = threading.Event()
        self._listener = threading.Thread(target=self._listen, args=(self._process, self._began), daemon=True)
        self._listener.start()

    def _listen(self, process: subprocess.Popen[str], began: threading.Event) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if line.strip() == "began":
                began.set()
            elif self._on_line is not None and line.endswith("\n"):
                # An incomplete line: it was killed while it wrote.
                self._on_line(line)

    def wait_began(self) -> float:
        """Gives the seconds it took."""
        since = time.monotonic()
        assert self._began.wait(BEGIN_SECONDS), f"{self.name} does not begin: {self.last_words}"
        return time.monotonic() - since

    def send(self, what: object) -> bool:
        """Writes one line of JSON. Returns False if the pipe is full: the program does not read."""
        assert self._process is not None and self._process.stdin is not None
        pipe = self._process.stdin
        try:
            if not select.select([], [pipe], [], 0)[1]:
                return False
            pipe.write(json.dumps(what) + "\n")
            pipe.flush()
        except BrokenPipeError:
            return False  # `trouble` says why
        return True

    def end_input(self) -> None:
        """It takes that for a wish to end."""
        assert self._process is not None and self._process.stdin is not None
        try:
            self._process.stdin.close()
        except BrokenPipeError:
            pass  # `trouble` says why

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def ended(self) -> bool:
        """It was started, and ended by itself."""
        return self._process is not None and self._process.poll() not in (None, -signal.SIGKILL)

    @property
    def trouble(self) -> str:
        """Why it goes on no more, if it does not."""
        if self.ended:
            assert self._process is not None
            return f"ended with {self._process.returncode}"
        if self.running and self._motion is not None and self._motion.has_ended:
            return LOCKED
        return ""

    def revive(self, command: Callable[[], Sequence[str]] | None = None) -> bool:
        """Restarts the program if it is in trouble; returns whether it was. `command` builds the new command line after
        all its output has been read.
        """
        trouble = self.trouble
        if not trouble:
            return False
        self.revivals.append(trouble)
        print(f"{self.name} {trouble}: it is restarted", file=sys.stderr, flush=True)
        self.kill()
        if command is not None:
            self.command = command()
        self.start()
        return True

    def kill(self) -> None:
        """Sends SIGKILL, and waits until the process has ended and all its output has been read."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self.end_input()
            assert self._listener is not None and self._process.stdout is not None
            self._listener.join(LISTEN_SECONDS)
            self._process.stdout.close()

    def wait_ended(self, seconds: float) -> str:
        """Until it has ended by itself, in good order; else what is wrong with it, and it is killed."""
        deadline = time.monotonic() + seconds
        while self.running and not self.trouble and time.monotonic() < deadline:
            assert self._process is not None
            try:
                self._process.wait(LOOK_SECONDS / 10)
            except subprocess.TimeoutExpired:
                continue
        wrong = "does not end" if self.running and not self.trouble else self.trouble
        self.kill()
        return "" if wrong == "ended with 0" else wrong

    @property
    def last_words(self) -> str:
        return self._log.read_text()[-2000:] if self._log is not None and self._log.exists() else ""
