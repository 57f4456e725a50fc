"""The process of a broker: from a configuration file to a running node in the real world."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import trio

from barnabas.broker.node import run_broker
from barnabas.runtime.process import Program, host_name, run_process
from barnabas.runtime.real import real_world
from barnabas.runtime.world import World
from barnabas.settings.broker import BrokerSettings, load_broker_settings


def load(text: str, name: str, overrides: Mapping[str, str], make_world: Callable[[], World] = real_world) -> Program:
    """The program for the text of a configuration file. Raises `SettingsError`."""
    settings, warnings = load_broker_settings(text, name, overrides, hostname=host_name())
    if settings.not_acted_on:
        warnings.append("these keys have no effect here: " + ", ".join(settings.not_acted_on))
    return Program(f"broker-{settings.node_id}", _Run(settings, make_world), warnings)


class _Run:
    def __init__(self, settings: BrokerSettings, make_world: Callable[[], World]) -> None:
        self._settings = settings
        self._make_world = make_world

    async def __call__(self, stop: trio.Event, *, task_status: trio.TaskStatus[Any]) -> None:
        await run_broker(self._settings, self._make_world(), stop=stop, task_status=task_status)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `python -m barnabas.broker CONFIG`; returns its exit code."""
    return run_process("broker", sys.argv[1:] if argv is None else argv, load)
