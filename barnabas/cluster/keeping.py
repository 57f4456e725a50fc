"""Starts nodes again that end by themselves: a keeper forks them and waits for their ends.

A node that left in good order, or that somebody killed by way of `LocalCluster`, stays down. Each node has a keep file
beside its pid file: which keeper looks after it, and how often it was restarted. A command that stops, kills or starts
a node takes the file away first, and the keeper lets go of it.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from barnabas.cluster.plan import Start
from barnabas.cluster.processes import ProcessId
from barnabas.runtime.backoff import Backoff
from barnabas.runtime.process import EXIT_WELL, EXIT_WRONG_ARGUMENT

FIRST_PAUSE_MS = 1_000
LONGEST_PAUSE_MS = 60_000
WELL_AFTER_SECONDS = 60.0
"""Life of a node after which its backoff is reset."""
LOCK_FILE = "lock"
"""Lock file in the directory of the pid files, held while nodes are started or stopped."""


def restart_backoff() -> Backoff:
    return Backoff(FIRST_PAUSE_MS, LONGEST_PAUSE_MS)


def pause_seconds(backoff: Backoff, lived_seconds: float) -> float:
    """The pause before a node that ended is restarted."""
    if lived_seconds >= WELL_AFTER_SECONDS:
        backoff.reset()
    return backoff.next_ms() / 1000


@dataclass(frozen=True, slots=True)
class KeepFile:
    """The file that names the keeper of one node."""

    path: Path

    @classmethod
    def beside(cls, pid_file: Path) -> KeepFile:
        return cls(pid_file.with_suffix(".keep"))

    def write(self, keeper: ProcessId, restarts: int) -> None:
        temporary = self.path.with_suffix(".keep-tmp")
        temporary.write_text(f"{keeper.pid} {keeper.start_ticks} {restarts}\n")
        temporary.replace(self.path)

    def read(self) -> tuple[ProcessId, int] | None:
        """(keeper, how often it started the node again); None if nobody keeps it."""
        try:
            pid, start_ticks, restarts = map(int, self.path.read_text().split())
        except (FileNotFoundError, ValueError):
            return None
        return ProcessId(pid, start_ticks), restarts

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)


@dataclass(slots=True)
class Kept:
    """One node and its life."""

    start: Start
    fork: Callable[[Sequence[int]], int]
    """Starts the node, without these descriptors, writes its pid file, and gives its number."""
    backoff: Backoff = field(default_factory=restart_backoff)
    pid: int = -1
    descriptor: int = -1
    began: float = 0.0
    due: float | None = None
    """Time of its restart; None while it runs."""
    is_child: bool = True
    """False if another keeper, which is gone, started it."""

    @property
    def file(self) -> KeepFile:
        return KeepFile.beside(Path(self.start.pid_file))

    @property
    def name(self) -> str:
        return Path(self.start.pid_file).stem


class Keeper:
    """Runs in a process of its own, whose children the nodes are."""

    def __init__(self, nodes: Sequence[Kept]) -> None:
        self._nodes = list(nodes)
        myself = ProcessId.of(os.getpid())
        assert myself is not None
        self._myself = myself

    def start_all(self, *inherited: int) -> None:
        """Starts all nodes for the first time; the caller holds the lock. Nodes close the descriptors in
        `inherited`."""
        for node in self._nodes:
            self._start(node, 0, inherited)

    def adopt(self) -> list[str]:
        """Keep the nodes that run already, and start the others; returns the names of those that ran. The caller holds
        the lock."""
        adopted = []
        for node in self._nodes:
            process = ProcessId.read(Path(node.start.pid_file))
            if process is None or not process.alive:
                self._start(node, 0, ())
                continue
            found = node.file.read()
            node.file.write(self._myself, 0 if found is None else found[1])
            node.pid, node.is_child = process.pid, False
            node.descriptor = os.pidfd_open(process.pid)
            node.began, node.due = time.monotonic(), None
            adopted.append(node.name)
        return adopted

    def stop(self, node: Kept, timeout_seconds: float) -> bool:
        """Stop a node in good order; False if it had to be killed. It stays down until `start`."""
        if node.descriptor < 0:
            return True
        signal.pidfd_send_signal(node.descriptor, signal.SIGTERM)
        in_time = self._ends(node, timeout_seconds)
        if not in_time:
            signal.pidfd_send_signal(node.descriptor, signal.SIGKILL)
            self._ends(node, timeout_seconds)
        self._reap(node)
        return in_time

    def start(self, node: Kept) -> None:
        """Start a node that was stopped. The caller holds the lock."""
        self._start(node, 0, ())

    def run(self, wake: int | None = None) -> None:
        """Returns when no node is kept, or when the descriptor `wake` has something to read."""
        while self._nodes:
            if self._wait(wake):
                return
            for node in list(self._nodes):
                if node.due is None:
                    self._look(node)
                elif time.monotonic() >= node.due:
                    self._start_again(node)

    def _start(self, node: Kept, restarts: int, inherited: Sequence[int]) -> None:
        node.file.write(self._myself, restarts)
        # A node that kept the lock's descriptor would hold the lock for as long as it lives.
        others = [each.descriptor for each in self._nodes if each is not node and each.descriptor >= 0]
        node.pid, node.is_child = node.fork([*inherited, *others]), True
        node.descriptor = os.pidfd_open(node.pid)
        node.began, node.due = time.monotonic(), None

    def _wait(self, wake: int | None) -> bool:
        """Until a node ends, or one is due, or `wake` can be read, and then True."""
        poll = select.poll()
        if wake is not None:
            poll.register(wake, select.POLLIN)
        for node in self._nodes:
            if node.due is None:
                poll.register(node.descriptor, select.POLLIN)
        dues = [node.due for node in self._nodes if node.due is not None]
        ready = poll.poll(max(0.0, min(dues) - time.monotonic()) * 1000 + 1 if dues else None)
        return any(descriptor == wake for descriptor, _ in ready)

    @staticmethod
    def _ends(node: Kept, timeout_seconds: float) -> bool:
        poll = select.poll()
        poll.register(node.descriptor, select.POLLIN)
        return bool(poll.poll(timeout_seconds * 1000))

    def _reap(self, node: Kept) -> int | None:
        """The exit code of a node that has ended; None while it runs. Nobody knows the code of another's child."""
        code = 1
        if node.is_child:
            pid, status = os.waitpid(node.pid, os.WNOHANG)
            if not pid:
                return None
            code = os.waitstatus_to_exitcode(status)
        elif not self._ends(node, 0):
            return None
        os.close(node.descriptor)
        node.descriptor = -1
        return code

    def _look(self, node: Kept) -> None:
        code = self._reap(node)
        if code is None:
            return
        if code in (EXIT_WELL, EXIT_WRONG_ARGUMENT) or self._restarts(node) is None:
            self._let_go(node)
            return
        now = time.monotonic()
        pause = pause_seconds(node.backoff, now - node.began)
        node.due = now + pause
        how = f"exit code {code}" if code >= 0 else f"signal {-code}"
        _add_to_log(node.start, f"{node.name} ended with {how}; it is started again in {pause:.0f} s")

    def _start_again(self, node: Kept) -> None:
        lock = os.open(Path(node.start.pid_file).with_name(LOCK_FILE), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            restarts = self._restarts(node)
            if restarts is None:
                self._let_go(node)
            else:
                self._start(node, restarts + 1, [lock])
        finally:
            os.close(lock)

    def _restarts(self, node: Kept) -> int | None:
        """Number of restarts; None if it is no longer ours to start."""
        found = node.file.read()
        return found[1] if found is not None and found[0] == self._myself else None

    def _let_go(self, node: Kept) -> None:
        if self._restarts(node) is not None:
            node.file.remove()
        self._nodes.remove(node)


def _add_to_log(start: Start, text: str) -> None:
    """The node's log belongs to nobody else while it does not run."""
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
    with open(start.log_file, "a", encoding="utf-8") as file:
        file.write(f"{stamp}.000Z WARNING cluster: {text}\n")
