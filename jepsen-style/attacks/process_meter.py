"""CPU seconds, memory and peak memory of a process. Linux only."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PREFERRED = "-15"
"""For /proc/PID/autogroup: a nice value."""
_RESET_PEAK = "5"
"""For /proc/PID/clear_refs: the highest memory counts from now on."""


@dataclass(frozen=True, slots=True)
class Usage:
    cpu_seconds: float
    resident_mb: float
    peak_mb: float


def usage_of(pid: int) -> Usage | None:
    """None if the process has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat.rpartition(")")[2].split()
    if fields[0] in "ZX":
        return None
    memory = dict(line.split(":", 1) for line in status.splitlines())
    return Usage((int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND, _mb(memory["VmRSS"]), _mb(memory["VmHWM"]))


def prefer(pid: int) -> None:
    """Run the session of this process before other work on the machine: Linux divides the cores between sessions, and
    `nice` counts only within one. Raises OSError if that is not allowed, or if the kernel has no autogroups."""
    Path(f"/proc/{pid}/autogroup").write_text(_PREFERRED)


def reset_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text(_RESET_PEAK)


def _mb(text: str) -> float:
    return int(text.split(maxsplit=1)[0]) / 1024
