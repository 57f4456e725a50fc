"""Nodes whose links lead through a proxy of the page that started them: how they are known, and what joins them.

Without their proxy such nodes are each alone; and a node without links, among others that have them, could be cut off
from nobody.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from barnabas.cluster.errors import ClusterError
from barnabas.cluster.layout import Layout
from barnabas.cluster.plan import MODULES, Programs
from barnabas.cluster.processes import ProcessId

_MARK = "BARNABAS_LINKS"
"""In the environment of such nodes."""

LINKED = Programs(dict.fromkeys(MODULES, "barnabas.cluster.proxied_node"), {_MARK: "proxy"})
"""The programs of nodes with links."""


def has_links(process: ProcessId) -> bool:
    """True if a node was started to use the links of a page, which may be gone."""
    try:
        with open(f"/proc/{process.pid}/environ", "rb") as file:
            return any(each.startswith(_MARK.encode() + b"=") for each in file.read().split(b"\0"))
    except OSError:
        return False


def any_has_links(layout: Layout) -> bool:
    """True if a running node uses links."""
    processes = (ProcessId.read(layout.pid_file(node)) for node in layout.nodes)
    return any(process is not None and process.alive and has_links(process) for process in processes)


def what_joins(layout: Layout) -> Programs | None:
    """The programs of a node that joins the running ones; None if they have no links. Raises `ClusterError`."""
    if not any_has_links(layout):
        return None
    lock = take_page_lock(layout.data)
    if lock is None:
        return LINKED
    os.close(lock)
    raise ClusterError(
        "the links of this cluster have ended with the page that made them: "
        "`barnabas cluster down` ends its nodes, too, and `barnabas page --allow-faults` starts it again"
    )


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
