"""A breakable node whose connections go through the proxy: its dials to other nodes, and those of clients to it.

The proxy's ports stand in `DATA/run/proxy.json`. Its clock, disk and fault points are those of `breakable_node.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

from barnabas.cluster.breakable_node import faulty_world
from barnabas.cluster.layout import Layout
from barnabas.cluster.plan import MODULES
from barnabas.cluster.proxied_network import ProxiedNetwork
from barnabas.fault_proxy.rules import CLIENT
from barnabas.runtime.process import Program
from barnabas.runtime.real import real_world
from barnabas.runtime.world import World
from barnabas.security.addresses import port_for_clients, port_for_nodes
from barnabas.settings.properties import parse_properties


def save_ways(layout: Layout, ports: Mapping[tuple[str, str], int]) -> None:
    """Before nodes are started: the proxy's port of each way."""
    path = layout.data / "run" / "proxy.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({f"{source}>{target}": port for (source, target), port in ports.items()}))


def _read_ways(layout: Layout) -> dict[tuple[str, str], int]:
    """None saved: no proxy."""
    try:
        ports = json.loads((layout.data / "run" / "proxy.json").read_text())
    except FileNotFoundError:
        return {}
    return {(pair.partition(">")[0], pair.partition(">")[2]): port for pair, port in ports.items()}


def load(text: str, name: str, overrides: Mapping[str, str]) -> Program:
    """The node that a configuration file `DATA/conf/NODE.properties` describes. Raises `SettingsError`."""
    path = Path(name)
    layout = Layout.open(path.parents[1], shape=path.parent)
    node = layout.node(path.stem)
    ports = _read_ways(layout)
    known_at = {each.name: [port_for_nodes(layout, each)] for each in layout.nodes}
    for (source, target), port in ports.items():
        if source == CLIENT:
            known_at[target].append(port)
    ways = {at: ports[node.name, each] for each in known_at for at in known_at[each] if (node.name, each) in ports}
    more = dict(overrides)
    own = ports.get((CLIENT, node.name))
    if own is not None:
        listeners, _line = parse_properties(text, name)["listeners"]
        more["advertised.listeners"] = listeners.replace(f":{port_for_clients(layout, node)}", f":{own}")

    def world() -> World:
        itself = {} if own is None else {own: port_for_clients(layout, node)}
        return faulty_world(layout, node, ProxiedNetwork(real_world().network, ways, itself))

    program: Program = import_module(MODULES[node.role]).load(text, name, more, world)
    return program
