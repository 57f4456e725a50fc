"""The local cluster behind a page. Blocking.

A page with fault buttons starts the cluster itself, with links that can be cut, unless one is running. It stops a
cluster that a page started, itself or an earlier one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import trio

from barnabas.cluster.breakable_programs import BREAKABLE, take_page_lock, what_joins
from barnabas.cluster.errors import ClusterError
from barnabas.cluster.local import LocalCluster
from barnabas.cluster.processes import state_of
from barnabas.page.links import Links

DOWN_SECONDS = 10.0
READY_SECONDS = 60.0


class LocalSide:
    """A local cluster, with links if the page started it."""

    def __init__(self, cluster: LocalCluster, links: Links | None = None, lock: int | None = None) -> None:
        self.cluster = cluster
        self.links = links
        self._lock = lock

    def processes(self) -> Mapping[str, str]:
        """State of each node's process, from its pid file."""
        layout = self.cluster.layout
        return {node.name: state_of(layout.pid_file(node)).value for node in layout.nodes}

    @property
    def cut(self) -> list[tuple[str, str]]:
        return [] if self.links is None else self.links.cut

    def close(self) -> bool:
        """Stops the cluster if the page started it. Returns whether it did."""
        if self.links is None:
            return False
        try:
            # A controlled shutdown needs the links.
            self.links.heal()
            self.cluster.down(DOWN_SECONDS)
        finally:
            self.release_lock()
        return True

    def release_lock(self) -> None:
        """Allows another page to show fault buttons."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


async def until_ready(side: LocalSide) -> None:
    """Waits until every broker accepts writes. Raises `ClusterError` if a node exits, or after the timeout."""
    cluster = side.cluster
    missing = "no answer yet"
    with trio.move_on_after(READY_SECONDS):
        while missing := await trio.to_thread.run_sync(cluster.not_ready, abandon_on_cancel=True):
            dead = [name for name, state in side.processes().items() if state == "dead"]
            if dead:
                log_file = cluster.layout.log_file(cluster.layout.node(dead[0]))
                raise ClusterError(f"{dead[0]} has exited; see {log_file}")
            await trio.sleep(0.1)
    if missing:
        raise ClusterError(f"not ready after {READY_SECONDS:.0f} s: {missing}")


def open_read_only(data: Path) -> LocalSide:
    """The cluster in `data`, for viewing."""
    return LocalSide(LocalCluster(data))


def open_for_faults(
    data: Path, base_port: int | None, settings: Mapping[str, str], note: Callable[[str], None]
) -> LocalSide:
    """The running cluster in `data`, or a new one with links. `note` gets progress lines. Raises `ClusterError`."""
    present = LocalCluster(data)
    states = LocalSide(present).processes()
    alive = any(state in ("running", "paused") for state in states.values())
    lock = take_page_lock(data)
    if lock is None:
        raise ClusterError(f"another page controls the cluster in {data}; leave out --allow-faults to view it")
    if alive and what_joins(present.layout) is None:
        os.close(lock)
        note(f"using the running cluster in {data}; its links cannot be cut, as it was not started by a page")
        return LocalSide(present)
    if alive:
        note(f"taking over the cluster in {data} from a page that ended without stopping it")
        return LocalSide(present, Links(present.layout), lock)
    cluster = LocalCluster(data, base_port, settings, programs=BREAKABLE)
    side = LocalSide(cluster, Links(cluster.layout), lock)
    try:
        cluster.up()
    except BaseException:
        side.close()
        raise
    note(f"started six nodes in {data}")
    return side
