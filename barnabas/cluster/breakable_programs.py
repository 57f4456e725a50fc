"""The programs of nodes that can be broken, and how such nodes are known: a node that joins them must be one, too.

A node without links that can be cut, among others that have them, could be cut off from nobody.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from barnabas.cluster.layout import Layout
from barnabas.cluster.plan import MODULES, Programs
from barnabas.cluster.processes import ProcessId

_MARK = "BARNABAS_BREAKABLE"
"""In the environment of such nodes."""

BREAKABLE = Programs(dict.fromkeys(MODULES, "barnabas.cluster.breakable_node"), {_MARK: "1"})


def is_breakable(process: ProcessId) -> bool:
    """True if a node was started with the programs of this file."""
    try:
        with open(f"/proc/{process.pid}/environ", "rb") as file:
            return any(each.startswith(_MARK.encode() + b"=") for each in file.read().split(b"\0"))
    except OSError:
        return False


def what_joins(layout: Layout) -> Programs | None:
    """The programs of a node that joins the running ones; None if none of them can be broken."""
    processes = (ProcessId.read(layout.pid_file(node)) for node in layout.nodes)
    known = any(process is not None and process.alive and is_breakable(process) for process in processes)
    return BREAKABLE if known else None


def take_page_lock(data: Path) -> int | None:
    """Held as long as the page with the buttons lives, whatever ends it. None if another has it."""
    run = data / "run"
    run.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(run / "page.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor
