"""The process of a broker or a combined node: from a configuration file to a running node in the real world."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import trio

from barnabas.broker.dispatch import load_rooms
from barnabas.broker.node import run_broker
from barnabas.runtime.process import Program, host_name, run_process
from barnabas.runtime.real import real_world
from barnabas.runtime.world import World
from barnabas.settings.broker import BrokerSettings, load_broker_settings
from barnabas.settings.combined import is_combined, load_combined_settings, roles_in
from barnabas.settings.controller import ControllerSettings

load_rooms()


def load(text: str, name: str, overrides: Mapping[str, str], make_world: Callable[[], World] = real_world) -> Program:
    """The program for the text of a configuration file: a broker, or a combined node. Raises `SettingsError`."""
    controller = None
    if is_combined(roles_in(text, name, overrides)):
        both, warnings = load_combined_settings(text, name, overrides, hostname=host_name())
        settings, controller = both.broker, both.controller
    else:
        settings, warnings = load_broker_settings(text, name, overrides, hostname=host_name())
    if settings.not_acted_on:
        warnings.append("these keys have no effect here: " + ", ".join(settings.not_acted_on))
    role = "broker" if controller is None else "node"
    return Program(f"{role}-{settings.node_id}", _Run(settings, controller, make_world), warnings)


class _Run:
    def __init__(
        self, settings: BrokerSettings, controller: ControllerSettings | None, make_world: Callable[[], World]
    ) -> None:
        self._settings = settings
        self._controller = controller
        self._make_world = make_world

    async def __call__(self, stop: trio.Event, *, task_status: trio.TaskStatus[Any]) -> None:
        world = self._make_world()
        await run_broker(self._settings, world, stop=stop, controller=self._controller, task_status=task_status)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `python -m barnabas.broker CONFIG`; returns its exit code."""
    return run_process("broker", sys.argv[1:] if argv is None else argv, load)
