"""Late parts: made once, when they are asked for; their handlers load them in the worker and then serve."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.protocol.api_keys import ApiKey
from barnabas.runtime.late import Late
from barnabas.runtime.rooms import Rooms

SOURCE = """
made = []

def make(*arguments):
    made.append(arguments)
    return arguments

def handlers(log):
    def in_steps(call):
        yield None
        log.append(("heartbeat", call))
    return {3: lambda call: log.append(("metadata", call)), 12: in_steps}
"""
KEYS = (ApiKey.METADATA, ApiKey.HEARTBEAT)


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a module that is not loaded yet."""
    name = f"late_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    yield name


def is_imported(name: str) -> bool:
    import sys

    return name in sys.modules


def test_a_part_is_made_when_it_is_asked_for_and_once(room: str) -> None:
    late: Late[Any] = Late(f"{room}:make", 1, 2)
    assert not is_imported(room) and late.here is None
    late.load()
    assert late.is_loaded and is_imported(room) and late.here is None
    assert late.get() == (1, 2) == late.here
    assert late.get() is late.here


def test_a_part_that_is_there_needs_no_module() -> None:
    part = object()
    late = Late.made(part)
    assert late.is_loaded and late.get() is late.here is part


def test_the_first_request_loads_in_the_worker(room: str) -> None:
    log: list[Any] = []
    handlers = Rooms(are_late=True).handlers(f"{room}:handlers", KEYS, log)
    assert handlers.keys() == set(KEYS) and not is_imported(room)
    steps = handlers[ApiKey.HEARTBEAT]("call")  # type: ignore[arg-type]
    assert steps is not None
    work = next(steps)
    assert work is not None and not is_imported(room) and not log
    work()  # the worker does this
    assert is_imported(room)
    assert list(steps) == [None]
    assert log == [("heartbeat", "call")]


def test_later_requests_go_to_the_handler_itself(room: str) -> None:
    log: list[Any] = []
    handlers = Rooms(are_late=True).handlers(f"{room}:handlers", KEYS, log)
    first = handlers[ApiKey.METADATA]("first")  # type: ignore[arg-type]
    assert first is not None
    work = next(first)
    assert work is not None
    work()
    assert list(first) == [] and log == [("metadata", "first")]
    assert handlers[ApiKey.METADATA]("second") is None  # type: ignore[arg-type]
    assert log == [("metadata", "first"), ("metadata", "second")]


def test_other_nodes_load_at_once(room: str) -> None:
    log: list[Any] = []
    handlers = Rooms(are_late=False).handlers(f"{room}:handlers", KEYS, log)
    assert is_imported(room)
    assert handlers[ApiKey.METADATA]("call") is None  # type: ignore[arg-type]
    assert log == [("metadata", "call")]
