"""A node in a network namespace of its own, with an address of its own: what happens to its packets is the kernel's.

Where each node lives stands in `DATA/run/namespaces.json`. Its clock, disk and fault points are those of
`breakable_node.py`. Linux, and root.
"""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import trio

from barnabas.cluster.breakable_node import faulty_world
from barnabas.cluster.layout import Layout
from barnabas.cluster.plan import MODULES
from barnabas.runtime.process import CannotRun, Program
from barnabas.security.addresses import PORTS_ABOVE

_CLONE_NEWNET = 0x40000000


@dataclass(frozen=True, slots=True)
class Home:
    """The network namespace and address of a node."""

    namespace: str
    """Its name in `ip netns`."""
    address: str


def save_homes(layout: Layout, homes: Mapping[str, Home]) -> None:
    """Before nodes are started."""
    path = layout.data / "run" / "namespaces.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({name: [home.namespace, home.address] for name, home in homes.items()}))


def load(text: str, name: str, overrides: Mapping[str, str]) -> Program:
    """The node that a configuration file `DATA/conf/NODE.properties` describes. Raises `SettingsError`."""
    path = Path(name)
    layout = Layout.open(path.parents[1], shape=path.parent)
    node = layout.node(path.stem)
    homes_by_node = json.loads((layout.data / "run" / "namespaces.json").read_text())
    homes = {each: Home(*home) for each, home in homes_by_node.items()}
    for each in layout.nodes:
        for port in [each.port + above for above in PORTS_ABOVE.values()]:
            text = text.replace(f"127.0.0.1:{port}", f"{homes[each.name].address}:{port}")
    program: Program = import_module(MODULES[node.role]).load(
        text, name, overrides, lambda: faulty_world(layout, node)
    )
    return Program(program.name, _MoveIn(program, homes[node.name].namespace), program.warnings)


class _MoveIn:
    """Enters the namespace, then runs the node. No thread may have been started yet: they stay where they began."""

    def __init__(self, program: Program, namespace: str) -> None:
        self._program = program
        self._namespace = namespace

    async def __call__(self, stop: trio.Event, *, task_status: trio.TaskStatus[Any]) -> None:
        _enter(self._namespace)
        await self._program.run(stop, task_status=task_status)


def _enter(namespace: str) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    with open(f"/run/netns/{namespace}", "rb") as file:
        if library.setns(file.fileno(), _CLONE_NEWNET) != 0:
            raise CannotRun(f"namespace {namespace}: {os.strerror(ctypes.get_errno())}")
