"""A controller's process: from a configuration file to a running node in the real world."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import trio

from barnabas.kraft.controller_apis import load_late_parts
from barnabas.kraft.sole_controller import run_controller
from barnabas.runtime.process import Program, host_name, run_process
from barnabas.runtime.real import real_world
from barnabas.runtime.world import World
from barnabas.settings.controller import ControllerSettings, load_controller_settings

load_late_parts()


def load(text: str, name: str, overrides: Mapping[str, str], make_world: Callable[[], World] = real_world) -> Program:
    """The controller that the text of a configuration file describes. Raises `SettingsError`."""
    settings, warnings = load_controller_settings(text, name, overrides, hostname=host_name())
    if settings.not_acted_on:
        warnings.append("set, but without effect here: " + ", ".join(settings.not_acted_on))
    return Program(f"controller-{settings.node_id}", _Run(settings, make_world), warnings)


class _Run:
    """Runs the controller with these settings."""

    def __init__(self, settings: ControllerSettings, make_world: Callable[[], World]) -> None:
        self._settings = settings
        self._make_world = make_world

    async def __call__(self, stop: trio.Event, *, task_status: trio.TaskStatus[Any]) -> None:
        await run_controller(self._settings, self._make_world(), stop=stop, task_status=task_status)


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code of `python -m barnabas.kraft CONFIG`."""
    return run_process("kraft", sys.argv[1:] if argv is None else argv, load)
