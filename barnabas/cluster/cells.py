"""Core: the hosts of a local cluster whose brokers share them, and the settings that make a broker a cell of its host.

Hosts are numbered from 1; with four cells, brokers 1 to 4 are those of `host-1`.
"""

from __future__ import annotations

from barnabas.settings.host import HOST, SHARED_LISTENERS

SHARED_PORTS_ABOVE = 400
"""The address that the cells of a host share: its port above the base port, and its number."""


def host_number(broker_id: int, cells: int) -> int:
    return (broker_id - 1) // cells + 1


def host_name(broker_id: int, cells: int) -> str:
    return f"host-{host_number(broker_id, cells)}"


def shared_port(base_port: int, host: int) -> int:
    return base_port + SHARED_PORTS_ABOVE + host - 1


def cell_settings(broker_id: int, cells: int, base_port: int) -> dict[str, str]:
    """Settings of a broker that shares its host with others: the host, its rack, and the address of all its cells."""
    host = host_number(broker_id, cells)
    return {
        HOST: host_name(broker_id, cells),
        "broker.rack": f"rack-{host}",
        SHARED_LISTENERS: f"PLAINTEXT://127.0.0.1:{shared_port(base_port, host)}",
    }
