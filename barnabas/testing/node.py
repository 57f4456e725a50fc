"""A node of a cluster for tests: the usual broker or controller, on a network whose links can be cut."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from barnabas.cluster.layout import Layout
from barnabas.cluster.plan import MODULES
from barnabas.runtime.process import Program
from barnabas.runtime.real import real_world
from barnabas.runtime.world import World
from barnabas.testing.wires import SeverableNetwork, Wires


def open_wires(layout: Layout) -> Wires:
    """The links between the nodes of a cluster."""
    return Wires(layout.data / "run" / "wires", [node.name for node in layout.nodes])


def load(text: str, name: str, overrides: Mapping[str, str]) -> Program:
    """The node of a configuration file `DATA/conf/NODE.properties`. Raises `SettingsError`."""
    path = Path(name)
    layout = Layout.open(path.parents[1], shape=path.parent)
    node = layout.node(path.stem)
    wires, ports = open_wires(layout), {each.port: each.name for each in layout.nodes}

    def severable_world() -> World:
        world = real_world()
        return replace(world, network=SeverableNetwork(world.network, wires, node.name, ports))

    program: Program = import_module(MODULES[node.role]).load(text, name, overrides, severable_world)
    return program
