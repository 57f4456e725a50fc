"""Counts the calls of Python functions, and a node that does so when it is asked: SIGUSR1 begins, SIGUSR2 ends and
writes DATA/calls/NODE.json. `calls.py` starts such nodes.

Each call of a function written in Python counts, trio's own among them, and each time that a coroutine or a generator
goes on. Functions written in C do not.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping
from cProfile import Profile
from importlib import import_module
from pathlib import Path
from types import CodeType
from typing import Any

import trio

from barnabas.cluster.plan import MODULES
from barnabas.runtime.process import Program

BEGIN, END = signal.SIGUSR1, signal.SIGUSR2
ROOT = Path(__file__).resolve().parents[1]


class CallCounter:
    """Counts the calls of this thread between `begin` and `end`."""

    def __init__(self) -> None:
        self._profile = Profile(builtins=False)

    def begin(self) -> None:
        self._profile = Profile(builtins=False)
        self._profile.enable()

    def end(self) -> dict[str, int]:
        """Calls by function: its file and its name."""
        self._profile.disable()
        counts: dict[str, int] = {}
        for entry in self._profile.getstats():
            if isinstance(entry.code, CodeType):
                name = name_of(entry.code)
                counts[name] = counts.get(name, 0) + entry.callcount
        return counts


def name_of(code: CodeType) -> str:
    path = code.co_filename.rpartition("/site-packages/")[2].removeprefix(f"{ROOT}/").removeprefix("barnabas/")
    return f"{path} {code.co_qualname}"


def files_of(data: Path, node: str) -> tuple[Path, Path]:
    """(exists while calls are counted, the counts)"""
    return data / "calls" / f"{node}.begun", data / "calls" / f"{node}.json"


def load(text: str, name: str, overrides: Mapping[str, str]) -> Program:
    """The node of a configuration file `DATA/conf/NODE.properties`. Raises `SettingsError`."""
    path = Path(name)
    role = path.stem.partition("-")[0]
    program: Program = import_module(MODULES[role]).load(text, name, overrides)

    async def run(stop: trio.Event, *, task_status: trio.TaskStatus[Any]) -> None:
        begun, counted = files_of(path.parents[1], path.stem)
        counter = CallCounter()

        def begin(*_: object) -> None:
            begun.touch()
            counter.begin()

        def end(*_: object) -> None:
            counts = counter.end()
            written = counted.with_suffix(".new")
            written.write_text(json.dumps(counts))
            os.replace(written, counted)

        signal.signal(BEGIN, begin)
        signal.signal(END, end)
        await program.run(stop, task_status=task_status)

    return Program(program.name, run, program.warnings)
