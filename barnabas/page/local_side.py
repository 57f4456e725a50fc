"""The cluster on this machine behind a page: its processes, and what may be done to them. Blocks.

A page that may break things starts the cluster itself, with links that can be cut, unless one runs already. Links end
with the page, and nodes without links are each alone: so the page takes with it what it has started.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import trio

from barnabas.cluster.errors import ClusterError
from barnabas.cluster.linked import LINKED, any_has_links, take_page_lock
from barnabas.cluster.local import LocalCluster
from barnabas.cluster.processes import state_of
from barnabas.page.links import Links

DOWN_SECONDS = 10.0
READY_SECONDS = 60.0


class LocalSide:
    """One cluster, which may have links of ours."""

    def __init__(self, cluster: LocalCluster, links: Links | None = None, lock: int | None = None) -> None:
        self.cluster = cluster
        self.links = links
        self._lock = lock

    def processes(self) -> Mapping[str, str]:
        """By node; cheap, asks nobody."""
        layout = self.cluster.layout
        return {node.name: state_of(layout.pid_file(node)).value for node in layout.nodes}

    @property
    def cut(self) -> list[tuple[str, str]]:
        return [] if self.links is None else self.links.cut

    def close(self) -> bool:
        """What was started for the page ends with it; True if there was something."""
        if self.links is None:
            return False
        try:
            # Nodes speak to each other to leave in good order.
            self.links.heal()
            self.cluster.down(DOWN_SECONDS)
        finally:
            self.links.close()
            (self.cluster.layout.data / "run" / "proxy.json").unlink(missing_ok=True)
            self.let_go()
        return True

    def let_go(self) -> None:
        """Another page may have the buttons from now on."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


async def until_ready(side: LocalSide) -> None:
    """Until every broker takes writes. Raises `ClusterError` when a node has ended, or it takes too long."""
    cluster = side.cluster
    missing = "it was not asked yet"
    with trio.move_on_after(READY_SECONDS):
        while missing := await trio.to_thread.run_sync(cluster.not_ready, abandon_on_cancel=True):
            dead = [name for name, state in side.processes().items() if state == "dead"]
            if dead:
                log_file = cluster.layout.log_file(cluster.layout.node(dead[0]))
                raise ClusterError(f"{dead[0]} has ended; {log_file} tells why")
            await trio.sleep(0.1)
    if missing:
        raise ClusterError(f"not ready after {READY_SECONDS:.0f} s: {missing}")


def look_on(data: Path) -> LocalSide:
    """The cluster in `data`, as it is."""
    return LocalSide(LocalCluster(data))


def open_to_faults(
    data: Path, base_port: int | None, settings: Mapping[str, str], told: Callable[[str], None]
) -> LocalSide:
    """The cluster in `data`: one that runs already, or one with links. `told` gets a line on what is being done.

    Raises `ClusterError`.
    """
    present = LocalCluster(data)
    states = LocalSide(present).processes()
    alive = any(state in ("running", "paused") for state in states.values())
    lock = take_page_lock(data)
    if lock is None:
        raise ClusterError(f"another page has the buttons of the cluster in {data}; without --allow-faults it is shown")
    if alive and not any_has_links(present.layout):
        os.close(lock)
        told(f"uses the cluster that runs in {data}; its links cannot be cut, as it was started without a page")
        return LocalSide(present)
    if alive:
        told(f"the cluster in {data} has lost its links with the page that started it: it is started anew")
        present.down(DOWN_SECONDS)
    cluster = LocalCluster(data, base_port, settings, programs=LINKED)
    side = LocalSide(cluster, Links(cluster.layout), lock)
    try:
        cluster.up()
    except BaseException:
        side.close()
        raise
    told(f"started six nodes in {data}")
    return side
