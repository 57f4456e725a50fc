"""Loads the late parts of a node: before it serves, or each with the first request that needs it.

A broker for development has few kinds of clients, and should be there at once: it loads a part in the worker, while
other requests are served. All other nodes load everything before they serve.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from barnabas.protocol.api_keys import ApiKey
from barnabas.runtime.call import Call
from barnabas.runtime.dispatch import Handler
from barnabas.runtime.late import Late
from barnabas.runtime.steps import Steps

Handlers = dict[ApiKey, Handler]


class Rooms:
    """Makes the late parts of one node."""

    def __init__(self, *, are_late: bool) -> None:
        """Unless they `are_late`, their modules are loaded at once."""
        self._are_late = are_late

    def part(self, maker: str, *arguments: Any) -> Late[Any]:
        late = Late[Any](maker, *arguments)
        if not self._are_late:
            late.load()
        return late

    def handlers(self, maker: str, keys: Iterable[ApiKey], *arguments: Any) -> Handlers:
        """The handlers of `keys`, from a maker that returns them by key."""
        late: Late[Mapping[ApiKey, Handler]] = self.part(maker, *arguments)
        if late.is_loaded:
            return {key: late.get()[key] for key in keys}
        return {key: partial(_serve, late, key) for key in keys}


def _serve(late: Late[Mapping[ApiKey, Handler]], key: ApiKey, call: Call) -> Steps | None:
    return _load_and_serve(late, key, call) if late.here is None else late.here[key](call)


def _load_and_serve(late: Late[Mapping[ApiKey, Handler]], key: ApiKey, call: Call) -> Steps:
    yield late.load
    steps = late.get()[key](call)
    if steps is not None:
        yield from steps
