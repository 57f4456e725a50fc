"""The processes of nodes, known by pid files, and never mixed up with another process that got the same
number.

A pid file holds the number and the start time of the process (field 22 of /proc/PID/stat, in clock ticks
since the machine started): both together are never given twice. Signals go through a pidfd that was checked
against them. Linux only.
"""

from __future__ import annotations

import os
import select
import signal
from dataclasses import dataclass
from enum import Enum
from pathlib import Path


class State(Enum):
    """State of the process of a node."""

    STOPPED = "stopped"
    """It left in good order, or never ran."""
    RUNNING = "running"
    PAUSED = "paused"
    DEAD = "dead"
    """It ended without being asked to."""


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A process, beyond doubt."""

    pid: int
    start_ticks: int

    @classmethod
    def of(cls, pid: int) -> ProcessId | None:
        """The process that has the number now; None if there is none, or only its remains."""
        stat = _read_stat(pid)
        return None if stat is None or stat[0] in "ZX" else cls(pid, stat[1])

    @classmethod
    def read(cls, path: Path) -> ProcessId | None:
        """Reads a pid file; None if there is none or it is cut off."""
        try:
            pid, start_ticks = path.read_text().split()
            return cls(int(pid), int(start_ticks))
        except (FileNotFoundError, ValueError):
            return None

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".tmp")
        temporary.write_text(f"{self.pid} {self.start_ticks}\n")
        temporary.replace(path)

    @property
    def alive(self) -> bool:
        return ProcessId.of(self.pid) == self

    def send(self, number: signal.Signals) -> bool:
        """Sends the signal if the process is still this one; False if it is gone."""
        descriptor = self._open()
        if descriptor is None:
            return False
        try:
            signal.pidfd_send_signal(descriptor, number)
        except ProcessLookupError:
            return False
        finally:
            os.close(descriptor)
        return True

    def wait_gone(self, timeout_seconds: float) -> bool:
        """Waits until the process has ended; False if it has not within the time."""
        descriptor = self._open()
        if descriptor is None:
            return True
        try:
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            return bool(poll.poll(timeout_seconds * 1000))
        finally:
            os.close(descriptor)

    def _open(self) -> int | None:
        """A descriptor that means this process for as long as it is open; None if the process is gone."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return None
        if self.alive:
            return descriptor
        os.close(descriptor)
        return None


def state_of(pid_file: Path) -> State:
    """The state of the process in `pid_file`; the file is removed by the command that stops a node in
    good order.
    """
    process = ProcessId.read(pid_file)
    if process is None:
        return State.STOPPED
    stat = _read_stat(process.pid)
    if stat is None or stat[0] in "ZX" or stat[1] != process.start_ticks:
        return State.DEAD
    return State.PAUSED if stat[0] in "Tt" else State.RUNNING


def _read_stat(pid: int) -> tuple[str, int] | None:
    """(state letter, start time in ticks); a process counts as running until its last thread has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name, in brackets, may hold blanks and brackets; what follows the last one does not.
    fields = text.rpartition(")")[2].split()
    state, threads = fields[0], int(fields[17])
    if state == "Z" and threads > 1:
        # Only the first thread has ended: the others still hold the process's files, its listening port too.
        state = "R"
    return state, int(fields[19])
