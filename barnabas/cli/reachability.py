"""Finds out at once that the local cluster does not run."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path

PROBE_SECONDS = 0.5
Address = tuple[str, int]


def missing_local_cluster(data: Path, addresses: Sequence[Address]) -> str:
    """One line if no node of the cluster in `data` runs and nothing listens on its addresses; otherwise empty.

    A cluster that is starting or failing over is not missing: some node of it runs.
    """
    from barnabas.cluster.layout import Layout
    from barnabas.cluster.processes import State, state_of

    if any(_listens(address) for address in addresses):
        return ""
    layout = Layout.open(data)
    if any(state_of(layout.pid_file(node)) in (State.RUNNING, State.PAUSED) for node in layout.nodes):
        return ""
    host, port = addresses[0]
    return (
        f"no cluster runs in {data.absolute()}, and nothing listens on {host}:{port}; "
        "start one with `make up` or `barnabas cluster up`, or give -b HOST:PORT"
    )


def _listens(address: Address) -> bool:
    try:
        with socket.create_connection(address, timeout=PROBE_SECONDS):
            return True
    except OSError:
        return False
