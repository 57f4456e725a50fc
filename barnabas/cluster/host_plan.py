"""Core: the settings of the cells of a host, made from one configuration file.

Cells are brokers that share a host, one process and one core each. The first has the id and the ports of the file; each
further one has the next id, and ports that are a constant distance higher.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from barnabas.cluster.errors import WrongArgument
from barnabas.cluster.node_values import log_directories_in, shifted
from barnabas.settings.host import HOST, SHARED_LISTENERS
from barnabas.settings.node import HTTP_LISTENER, LEAST_MEMORY_BYTES, MEMORY_LIMIT

MOST_CELLS = 64
LARGEST_DISTANCE = 1_000
MOST_MEMORY_BYTES = 1 << 30
"""Default limit of one broker."""
_LISTENING_KEYS = ("listeners", HTTP_LISTENER)
_ADDRESS_KEYS = (*_LISTENING_KEYS, "advertised.listeners")
_DIRECTORY_KEYS = ("log.dirs", "log.dir", "metadata.log.dir")
_DIVIDED_KEYS = ("max.connections", "max.connections.per.ip", "max.connection.creation.rate", MEMORY_LIMIT)
"""Limits of a host, which its cells share equally."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Properties of a host that settings depend on."""

    name: str
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Cell:
    """One broker of a host."""

    node_id: int
    values: Mapping[str, str]

    @property
    def name(self) -> str:
        return f"broker-{self.node_id}"

    @property
    def log_directories(self) -> list[str]:
        """The directories to format."""
        return log_directories_in(self.values)


def cells_of(values: Mapping[str, str], count: int, machine: Machine, source: str) -> list[Cell]:
    """The cells of a host. `values` are those of the file `source`. Raises `WrongArgument`."""
    if not 1 <= count <= MOST_CELLS:
        raise WrongArgument(f"--cells {count}: 1 to {MOST_CELLS}")
    if values.get("process.roles", "").strip() != "broker":
        raise WrongArgument(f"{source}: process.roles must be broker, so that cells can be added")
    node_id = values.get("node.id", "")
    if not (node_id.isascii() and node_id.isdigit()):
        raise WrongArgument(f"{source}: node.id must be a number, that of the first cell; got {node_id!r}")
    for key in ("listeners", "log.dirs"):
        if not values.get(key, "").strip() and not (key == "log.dirs" and values.get("log.dir", "").strip()):
            raise WrongArgument(f"{source}: {key} must be set")
    distance = _port_distance(values, source)
    return [_cell(values, count, machine, int(node_id) + place, place * distance) for place in range(count)]


def _cell(values: Mapping[str, str], count: int, machine: Machine, node_id: int, shift: int) -> Cell:
    own = dict(values)
    own["node.id"] = str(node_id)
    own.setdefault(HOST, machine.name)
    for key in _ADDRESS_KEYS:
        if own.get(key, "").strip():
            own[key] = ",".join(shifted(each, shift) for each in _parts(own[key]))
    for key in _DIRECTORY_KEYS:
        if own.get(key, "").strip():
            own[key] = ",".join(f"{each.rstrip('/')}/cell-{node_id}" for each in _parts(own[key]))
    for key in _DIVIDED_KEYS:
        text = own.get(key, "").strip()
        if text.isascii() and text.isdigit():
            own[key] = str(max(int(text) // count, 1))
    if MEMORY_LIMIT not in own:
        share = min(MOST_MEMORY_BYTES, machine.memory_bytes // 4 // count)
        own[MEMORY_LIMIT] = str(max(share, LEAST_MEMORY_BYTES))
    return Cell(node_id, own)


def _port_distance(values: Mapping[str, str], source: str) -> int:
    """The smallest distance between cells at which no two of them, however many there are, have a port in common."""
    own = [_port(each) for key in _LISTENING_KEYS for each in _parts(values.get(key, ""))]
    shared = [_port(each) for each in _parts(values.get(SHARED_LISTENERS, ""))]
    for distance in range(1, LARGEST_DISTANCE + 1):
        spans = [range(port, port + MOST_CELLS * distance, distance) for port in own]
        if _are_apart(spans, shared):
            if max(span[-1] for span in spans) > 65535:
                break
            return distance
    raise WrongArgument(
        f"{source}: {MOST_CELLS} cells have no ports beside {', '.join(map(str, [*own, *shared]))}; choose others"
    )


def _are_apart(spans: Sequence[range], shared: Sequence[int]) -> bool:
    return not any(set(one) & set(other) for one, other in combinations(spans, 2)) and not any(
        port in span for port in shared for span in spans
    )


def _parts(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]


def _port(address: str) -> int:
    port = address.rpartition(":")[2]
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise WrongArgument(f"{address}: the port must be a number from 1 to 65535, those of further cells follow it")
    return int(port)
