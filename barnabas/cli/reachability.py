"""Explains why no broker answers: nothing listens, or the port speaks HTTP."""

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


def hint(addresses: Sequence[Address]) -> str:
    """The answers of the addresses, as a clause for the text of a timeout; empty if they accept connections."""
    found = [text for host, port in addresses if (text := _problem((host, port)))]
    return f"; {'; '.join(found)}" if found else ""


def _problem(address: Address) -> str:
    name = f"{address[0]}:{address[1]}"
    try:
        with socket.create_connection(address, timeout=PROBE_SECONDS) as connection:
            connection.settimeout(PROBE_SECONDS)
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            try:
                answer = connection.recv(5)
            except OSError:
                return ""
    except ConnectionRefusedError:
        return f"{name} refuses connections"
    except OSError as error:
        return f"{name}: {error.strerror or error}"
    return f"{name} speaks HTTP, not the Kafka protocol" if answer == b"HTTP/" else ""


def _listens(address: Address) -> bool:
    try:
        with socket.create_connection(address, timeout=PROBE_SECONDS):
            return True
    except OSError:
        return False
