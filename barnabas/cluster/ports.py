"""Free ports of this machine."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterable
from pathlib import Path

from barnabas.cluster.errors import ClusterError

_FIRST, _LAST = 20_000, 32_000
"""Below the range from which Linux draws ports for outgoing connections, which come and go."""
_TRIES = 200
_OUTGOING = Path("/proc/sys/net/ipv4/ip_local_port_range")
_USUALLY_OUTGOING = (32_768, 60_999)


def is_free(port: int) -> bool:
    """True if a node could listen on `port` of 127.0.0.1 now."""
    with socket.socket() as probe:
        # As the nodes do: what is left of closed connections does not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def is_for_outgoing(ports: Iterable[int]) -> int | None:
    """The first of these ports that this machine may give to any outgoing connection for a while; None if it gives
    none of them."""
    try:
        first, last = map(int, _OUTGOING.read_text().split())
    except (OSError, ValueError):
        first, last = _USUALLY_OUTGOING
    return next((port for port in ports if first <= port <= last), None)


def free_base_port(offsets: Iterable[int] = (0, 1, 2, 100, 101, 102, 200, 201, 202, 300, 301, 302)) -> int:
    """A base port such that all of base + offsets are free; raises `ClusterError` if there seems to be none."""
    needed = list(offsets)
    chance = random.SystemRandom()
    for _ in range(_TRIES):
        base = chance.randrange(_FIRST, _LAST)
        if all(is_free(base + offset) for offset in needed):
            return base
    raise ClusterError(f"no free ports between {_FIRST} and {_LAST + max(needed)}")
