"""The CPU time that nodes used while they were attacked, used again by processes that have nothing to do with them.

All nodes, the producer and the attacker share the cores of one machine. If several nodes have work at once, as when all
of them apply the same metadata, the producer waits for a core, however short their steps are. Twins show how long: each
uses as much CPU time as its node did, at the same times, while the nodes are idle. If the producer waits
longer during the attack, the nodes are to blame.

`python -m attacks.cpu_twins` is one twin: it reads the seconds of CPU time of each slot from its standard input.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from attacks.process_meter import prefer

SLOT_SECONDS = 0.02
END_SECONDS = 5.0
"""Patience for a twin that could not use its time in time."""


def cpu_seconds_of(pid: int) -> float:
    """CPU time of all threads; 0 if the process has ended."""
    nanoseconds = 0
    for task in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        try:
            nanoseconds += int(task.read_text().split()[0])
        except (FileNotFoundError, ProcessLookupError):
            continue  # the thread has ended
    return nanoseconds / 1e9


class CpuRecorder:
    """Records the CPU time of nodes, slot by slot, from `start` to `stop`."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._pids = dict(pids)
        self.slots: dict[str, list[float]] = {name: [] for name in pids}
        """Seconds in each slot, by node."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._record, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _record(self) -> None:
        last = {name: cpu_seconds_of(pid) for name, pid in self._pids.items()}
        next_at = time.monotonic() + SLOT_SECONDS
        while not self._over.wait(max(0.0, next_at - time.monotonic())):
            passed = max(1, round((time.monotonic() - next_at) / SLOT_SECONDS) + 1)
            next_at += passed * SLOT_SECONDS
            for name, pid in self._pids.items():
                now = cpu_seconds_of(pid)
                # A slot that was missed is shared out.
                self.slots[name] += [max(0.0, now - last[name]) / passed] * passed
                last[name] = now


def beyond_idle(slots: Sequence[float], idle_rate: float) -> list[float]:
    """CPU time of a twin: the nodes run as well, and use what they use when they are idle."""
    return [max(0.0, used - idle_rate * SLOT_SECONDS) for used in slots]


def run_twins(
    slots: Mapping[str, Sequence[float]], environment: Mapping[str, str], *, preferred: bool
) -> tuple[float, float]:
    """Run the twins of all nodes to their end, `preferred` if those are. Returns when they began and ended, on the
    monotonic clock."""
    twins = [
        subprocess.Popen(
            [sys.executable, "-m", "attacks.cpu_twins"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            start_new_session=True,  # as nodes: the kernel divides the cores between sessions
        )
        for _ in slots
    ]
    try:
        for twin, used in zip(twins, slots.values(), strict=True):
            assert twin.stdin is not None and twin.stdout is not None
            twin.stdin.write(json.dumps(list(used)).encode() + b"\n")
            twin.stdin.flush()
            twin.stdout.readline()
            if preferred:
                prefer(twin.pid)
        began = time.monotonic()
        for twin in twins:
            assert twin.stdin is not None
            twin.stdin.close()
        for twin, used in zip(twins, slots.values(), strict=True):
            twin.wait(len(used) * SLOT_SECONDS + END_SECONDS + sum(used) * len(twins))
        return began, time.monotonic()
    finally:
        for twin in twins:
            twin.kill()
            twin.wait()
            if twin.stdout is not None:
                twin.stdout.close()


def use(slots: Sequence[float]) -> None:
    """Use that much CPU time in each slot; what does not fit into one continues in the next."""
    began = time.monotonic()
    for number, seconds in enumerate(slots):
        time.sleep(max(0.0, began + number * SLOT_SECONDS - time.monotonic()))
        until = time.thread_time() + seconds
        while time.thread_time() < until:
            pass


def main() -> None:
    slots = json.loads(sys.stdin.readline())
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.read()
    use(slots)


if __name__ == "__main__":
    main()
