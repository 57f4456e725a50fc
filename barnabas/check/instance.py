"""One instance of the application: a process that is started, struck and started again.

Both output streams go to one log file of bounded size. The instance has a session of its own; signals go to its whole
process group, so a program behind a shell or a launcher is met, too.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import trio

from barnabas.check.errors import CannotRun
from barnabas.cluster.processes import ProcessId

KEPT_BYTES = 1 << 20
"""Size at which a log file is put aside. One older file is kept."""
KEPT_LINES = 5
_LINE_CHARACTERS = 300
_CHUNK_BYTES = 64 << 10
_LAST_WORDS_S = 0.5
"""Time to read the rest of the streams of an instance that has ended."""
_RESTART_S = 0.5
"""Pause before an instance that ended by itself is started again."""
Tell = Callable[[str, str], None]
"""Called with the name of the instance and one line about it."""


class BoundedLog:
    """A file that is put aside when it is full."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO = path.open("wb")
        self._size = 0
        self._last: deque[bytes] = deque(maxlen=KEPT_LINES)
        self._open_line = b""

    def write(self, data: bytes) -> None:
        if self._size + len(data) > KEPT_BYTES:
            self._file.close()
            self._path.replace(self._path.with_suffix(".log.1"))
            self._file = self._path.open("wb")
            self._size = 0
        self._file.write(data)
        self._file.flush()
        self._size += len(data)

    def remember(self, data: bytes) -> None:
        """Keeps the last lines of standard error at hand."""
        *lines, rest = (self._open_line + data).split(b"\n")
        self._last.extend(line for line in lines if line.strip())
        self._open_line = rest[-_LINE_CHARACTERS * 4 :]

    def last_lines(self) -> list[str]:
        lines = [*self._last, *([self._open_line] if self._open_line.strip() else [])]
        return [line.decode(errors="replace").strip()[:_LINE_CHARACTERS] for line in lines[-KEPT_LINES:]]

    def forget_lines(self) -> None:
        self._last.clear()
        self._open_line = b""

    def close(self) -> None:
        self._file.close()


class Instance:
    """A process that runs while it is wanted."""

    def __init__(self, number: int, command: Sequence[str], environment: Mapping[str, str], out: Path) -> None:
        """`out` is the directory of the run."""
        self.number = number
        self.name = f"instance-{number}"
        self.starts = 0
        self.own_ends: list[str] = []
        """Ends that nobody asked for: what the exit code and the last line say."""
        self.ignored_sigterm = 0
        self._command = command
        self._environment = {**os.environ, **environment}
        self._log = BoundedLog(out / "logs" / f"{self.name}.log")
        self._pid_file = out / "run" / f"{self.name}.pid"
        self._process: trio.Process | None = None
        self._wanted = trio.Event()
        self._is_struck = False
        """It is being ended on purpose."""

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    def want(self) -> None:
        """It should run from now on."""
        self._wanted.set()

    async def run(self, tell: Tell) -> None:
        """Starts the process whenever it should run and does not. Raises `CannotRun` if it cannot be started."""
        while True:
            await self._wanted.wait()
            await self._run_once(tell)
            if self._wanted.is_set() and not self._is_struck:
                await trio.sleep(_RESTART_S)

    async def _run_once(self, tell: Tell) -> None:
        try:
            process = await trio.lowlevel.open_process(
                list(self._command),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self._environment,
                start_new_session=True,
            )
        except OSError as error:
            raise CannotRun(f"{self._command[0]} cannot be started: {error.strerror}") from None
        self._process = process
        self._is_struck = False
        self.starts += 1
        self._log.forget_lines()
        if (itself := ProcessId.of(process.pid)) is not None:
            itself.write(self._pid_file)
        tell(self.name, f"{self.name} starts as process {process.pid}")
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._keep, process.stdout, False)
                nursery.start_soon(self._keep, process.stderr, True)
                await process.wait()
                self._kill_group(process)
                # What left the group may hold the streams open.
                nursery.cancel_scope.deadline = trio.current_time() + _LAST_WORDS_S
        finally:
            if process.returncode is None:
                self._kill_group(process)
                with trio.CancelScope(shield=True):
                    await process.wait()
            self._pid_file.unlink(missing_ok=True)
        if not self._is_struck:
            ended = _described(process.returncode)
            last = _telling(self._log.last_lines())
            self.own_ends.append(f"{ended}: {last}" if last else f"{ended}, without a word on standard error")
            tell(self.name, f"{self.name} ends by itself, {self.own_ends[-1]}")

    async def _keep(self, stream: trio.abc.ReceiveStream | None, is_error: bool) -> None:
        assert stream is not None
        async with stream:
            async for data in stream:
                self._log.write(bytes(data))
                if is_error:
                    self._log.remember(bytes(data))

    # ---- faults

    async def kill(self) -> None:
        """SIGKILL; returns when it has ended. It is not started again before `want`."""
        self._wanted = trio.Event()
        if self._process is not None and self.is_running:
            self._is_struck = True
            self._signal(signal.SIGKILL)
            await self._process.wait()

    async def terminate(self, grace_s: float) -> bool:
        """SIGTERM, and SIGKILL after `grace_s`; False if that was needed. It is not started again before `want`."""
        self._wanted = trio.Event()
        if self._process is None or not self.is_running:
            return True
        self._is_struck = True
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)
        with trio.move_on_after(grace_s):
            await self._process.wait()
        if not self.is_running:
            return True
        self.ignored_sigterm += 1
        self._signal(signal.SIGKILL)
        await self._process.wait()
        return False

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def last_lines(self) -> list[str]:
        """The last lines of standard error."""
        return self._log.last_lines()

    def close(self) -> None:
        self._log.close()

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self.is_running:
            try:
                os.killpg(self._process.pid, number)
            except ProcessLookupError:
                return

    @staticmethod
    def _kill_group(process: trio.Process) -> None:
        """Ends the process and what it started; its number stays taken while any of that runs."""
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return


def _telling(lines: Sequence[str]) -> str:
    """The last line that names an error, else the last one; empty without lines. Libraries log while they are ended."""
    named = [line for line in lines if "Error" in line or "Exception" in line]
    return (named or list(lines) or [""])[-1]


def _described(code: int | None) -> str:
    if code is None:
        return "without an exit code"
    return f"with exit code {code}" if code >= 0 else f"by {signal.Signals(-code).name}"
