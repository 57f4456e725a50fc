"""Shared parts of the load generators: CPU and memory of a cluster's processes, and results as lines of JSON.

A line has the same fields as those of the generators in PEER, so that one table takes both. It depends neither on
Kafka nor on what is measured.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def read_pids(command: str, environment: Mapping[str, str] | None = None) -> list[int]:
    """`command` prints lines "role pid"."""
    printed = subprocess.run(
        command, shell=True, capture_output=True, text=True, check=True, env=environment
    ).stdout
    return [int(words[1]) for words in map(str.split, printed.splitlines()) if len(words) > 1]


def with_descendants(pids: Iterable[int]) -> set[int]:
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = stat_of(int(name))
            if fields:
                children.setdefault(int(fields[1]), []).append(int(name))
    found: set[int] = set()
    left = list(pids)
    while left:
        pid = left.pop()
        if pid not in found:
            found.add(pid)
            left += children.get(pid, [])
    return found


def stat_of(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name; none if it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return []
    return text[text.rindex(")") + 2 :].split()


def cpu_s(pids: Iterable[int]) -> float:
    return sum(int(fields[11]) + int(fields[12]) for fields in map(stat_of, pids) if fields) / _TICKS_PER_S


def memory_mib(pids: Iterable[int]) -> tuple[float, float]:
    """(PSS, RSS): with shared pages divided among those who share them, and without."""
    sums = {"Pss": 0, "Rss": 0}
    for pid in with_descendants(pids):
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        for line in lines:
            name, _, rest = line.partition(":")
            if name in sums:
                sums[name] += int(rest.split()[0])
    return sums["Pss"] / 1024, sums["Rss"] / 1024


def _machine_s() -> tuple[float, float]:
    """CPU that all processes together have had, and what the hypervisor gave to others."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return (ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6]) / _TICKS_PER_S, ticks[7] / _TICKS_PER_S


class Meter:
    """CPU used while it was entered: by the cluster, by this program with its children, by other processes."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._servers = with_descendants(pids)
        self.fields: dict[str, float] = {}

    def __enter__(self) -> Meter:
        self._began = self._readings()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        wall, server, client, machine, steal = (
            now - then for now, then in zip(self._readings(), self._began, strict=True)
        )
        self.fields = {
            "wall_s": round(wall, 2),
            "client_cpu_s": round(client, 2),
            "steal_s": round(steal, 2),
            "load1": os.getloadavg()[0],
        }
        if self._servers:
            self.fields["server_cpu_s"] = round(server, 2)
            self.fields["other_cpu_s"] = round(max(0.0, machine - server - client), 2)

    def _readings(self) -> tuple[float, ...]:
        own = os.getpid()
        times = os.times()
        # Children that have ended are in `times`.
        client = times.user + times.system + times.children_user + times.children_system
        client += cpu_s(with_descendants([own]) - {own})
        return time.monotonic(), cpu_s(self._servers), client, *_machine_s()


class Results:
    """One line of JSON for each measurement, printed and added to a file."""

    def __init__(self, path: str | None, target: str) -> None:
        self._path = path
        self._target = target

    def add(self, name: str, unit: str, run: int, value: float | None, **more: Any) -> None:
        """`value` None: it could not be measured."""
        fields = {"name": name, "value": value, "unit": unit, "target": self._target, "run": run, **more}
        rounded = {key: round(each, 4) if isinstance(each, float) else each for key, each in fields.items()}
        line = json.dumps({**rounded, "ts": round(time.time(), 1)})
        print(line, flush=True)
        if self._path:
            with open(self._path, "a") as file:
                file.write(line + "\n")


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
