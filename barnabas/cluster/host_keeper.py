"""Shell: runs the cells of a host, one process each, and starts those again that end by themselves.

    DIR/conf/broker-1.properties   settings of a cell
    DIR/logs/broker-1.log          its log file
    DIR/run/broker-1.pid           its process

SIGTERM and SIGINT stop all cells in good order, SIGHUP restarts them one by one. If this process is killed, the cells
go on, and the next one keeps them.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import select
import signal
import socket
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from barnabas.cluster.errors import ClusterError, WrongArgument
from barnabas.cluster.host_plan import Cell
from barnabas.cluster.keeping import Keeper, Kept
from barnabas.cluster.launcher import fork_node, format_node, load_program
from barnabas.cluster.plan import MODULES, Start
from barnabas.cluster.private_files import write_private
from barnabas.kraft.format import FormatError
from barnabas.runtime.disk import RealDisk
from barnabas.runtime.process import ArgumentError, name_process
from barnabas.settings.errors import SettingsError
from barnabas.settings.node import HTTP_LISTENER
from barnabas.settings.properties import render_properties
from barnabas.storage.log_directory import LogDirectoryError, read_meta_properties

STOP_SECONDS = 40.0
"""A broker moves its leaderships for up to 30 s before it exits."""
SERVING_SECONDS = 60.0
_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class HostFiles:
    """Files of the cells of one host."""

    directory: Path

    def start_of(self, cell: Cell) -> Start:
        return Start(
            MODULES["broker"],
            cell.node_id,
            str(self.directory / "conf" / f"{cell.name}.properties"),
            cell.log_directories,
            str(self.directory / "logs" / f"{cell.name}.log"),
            str(self.directory / "run" / f"{cell.name}.pid"),
        )

    def others(self, cells: Sequence[Cell]) -> list[str]:
        """Names of cells that were started from here before, and are not among these."""
        known = {cell.name for cell in cells}
        return sorted(each.stem for each in (self.directory / "conf").glob("broker-*") if each.stem not in known)


class HostKeeper:
    """The process of `barnabas host`."""

    def __init__(self, files: HostFiles, cells: Sequence[Cell], cluster_id: str | None) -> None:
        """Checks the settings of all cells and formats new directories. Raises `ClusterError`."""
        self._cells = list(cells)
        self._starts = [files.start_of(cell) for cell in cells]
        run = files.directory / "run"
        run.mkdir(parents=True, exist_ok=True)
        self._lock = _only_one(run)
        for cell, start in zip(cells, self._starts, strict=True):
            Path(start.config_file).parent.mkdir(exist_ok=True)
            write_private(Path(start.config_file), render_properties(dict(cell.values)))
        try:
            programs = [load_program(start) for start in self._starts]
        except (ArgumentError, SettingsError) as error:
            raise WrongArgument(str(error)) from None
        self._format(cluster_id)
        pairs = zip(self._starts, programs, strict=True)
        self._nodes = [Kept(start, partial(fork_node, start, program)) for start, program in pairs]
        self._keeper = Keeper(self._nodes)

    def run(self) -> None:
        """Returns when all cells have been stopped."""
        name_process("host")
        gc.collect()
        # The collector writes into every object it looks at, which would unshare their pages.
        gc.freeze()
        with _signals(self._lock) as signals:
            adopted = self._keeper.adopt()
            for node in self._nodes:
                print(f"{node.name} {'runs already' if node.name in adopted else 'is started'}", flush=True)
            while True:
                self._keeper.run(signals)
                for number in _received(signals):
                    if number == signal.SIGHUP:
                        self._roll()
                    else:
                        self._stop_all()
                        return

    def _format(self, cluster_id: str | None) -> None:
        try:
            found = cluster_id or _cluster_id_of(self._starts)
            if found is None:
                raise WrongArgument("the cells have no log directories yet; --cluster-id says which cluster they join")
            for start in self._starts:
                format_node(start, found)
        except (FormatError, LogDirectoryError, OSError) as error:
            raise ClusterError(str(error)) from None

    def _roll(self) -> None:
        """A partition has at most one replica on this host, so only one is away whatever the order."""
        for node, cell in zip(self._nodes, self._cells, strict=True):
            began = time.monotonic()
            in_time = self._keeper.stop(node, STOP_SECONDS)
            self._keeper.start(node)
            serves = _serves(cell, SERVING_SECONDS)
            how = "" if in_time else f", killed after {STOP_SECONDS:.0f} s"
            how += "" if serves else f", not in service after {SERVING_SECONDS:.0f} s"
            print(f"{node.name} was restarted in {time.monotonic() - began:.1f} s{how}", flush=True)
            if not serves:
                print("the others are not restarted", flush=True)
                return

    def _stop_all(self) -> None:
        """All at once: cells on other hosts take their leaderships."""
        for node in self._nodes:
            if node.descriptor >= 0:
                signal.pidfd_send_signal(node.descriptor, signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS
        for node in self._nodes:
            if not self._keeper.stop(node, max(0.0, deadline - time.monotonic())):
                print(f"{node.name} was killed after {STOP_SECONDS:.0f} s", flush=True)
            node.file.remove()
            Path(node.start.pid_file).unlink(missing_ok=True)


def _cluster_id_of(starts: Sequence[Start]) -> str | None:
    """The cluster of the first directory that is formatted. Raises `LogDirectoryError`, OSError."""
    disk = RealDisk()
    for start in starts:
        for directory in start.log_directories:
            found = read_meta_properties(disk, directory)
            if found is not None:
                return found.cluster_id
    return None


def _only_one(run: Path) -> int:
    """The lock of the directory, held until this process ends. Raises `ClusterError`."""
    lock = os.open(run / "host.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ClusterError(f"another `barnabas host` keeps the cells of {run.parent}") from None
    return lock


@contextlib.contextmanager
def _signals(lock: int) -> Iterator[int]:
    """A descriptor from which the numbers of signals are read. Cells that are forked meanwhile have neither it nor the
    lock, which would outlive this process in them."""
    reading, writing = socket.socketpair()
    writing.setblocking(False)
    handled = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    for number in handled:
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(writing.fileno())

    def forget() -> None:
        signal.set_wakeup_fd(-1)
        for number in handled:
            signal.signal(number, signal.SIG_DFL)
        reading.close()
        writing.close()
        os.close(lock)

    os.register_at_fork(after_in_child=forget)
    yield reading.fileno()


def _received(descriptor: int) -> Iterator[int]:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    while poll.poll(0):
        yield from os.read(descriptor, 16)


def _serves(cell: Cell, timeout_seconds: float) -> bool:
    """Waits until the cell is in service, or until it listens if it has no HTTP page."""
    deadline = time.monotonic() + timeout_seconds
    while time.monotonic() < deadline:
        if _answers(cell):
            return True
        time.sleep(_POLL_SECONDS)
    return False


def _answers(cell: Cell) -> bool:
    page = cell.values.get(HTTP_LISTENER, "").strip()
    address = page or cell.values["listeners"].partition(",")[0].rpartition("//")[2]
    host, _colon, port = address.rpartition(":")
    try:
        if page:
            with urllib.request.urlopen(f"http://{page}/readyz", timeout=1) as answer:
                return bool(answer.status == 200)
        with socket.create_connection((host.strip("[]") or "127.0.0.1", int(port)), timeout=1):
            return True
    except OSError:
        return False
