"""Invocations together with what came of them, for checkers whose operations have values of their own.

Knows no workload. What was never completed counts as `info`, open to the end of the history.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from operations import NEMESIS, Operation, Outcome

NEVER = 2**62
"""The `ended` of what has no completion."""


class Attempt(NamedTuple):
    """One operation of one process, whole."""

    process: int
    f: str
    asked: Any
    type: Outcome
    value: Any
    """Value of the completion, or of the invocation if the completion has none."""
    began: int
    """The `i` of the invocation."""
    ended: int
    """The `i` of the completion, or NEVER."""
    began_ns: int
    ended_ns: int
    error: str | None
    """Kafka's name of it."""
    node: str | None
    note: Mapping[str, Any]

    @property
    def evidence(self) -> list[int]:
        """The `i` that a finding names."""
        return [self.began] if self.ended == NEVER else [self.began, self.ended]


def attempts(history: Iterable[Operation]) -> list[Attempt]:
    """In the order of their invocations. Faults are left out."""
    found: list[Attempt | None] = []
    under_way: dict[int, tuple[int, Operation]] = {}
    for operation in history:
        if operation.process == NEMESIS or isinstance(operation.process, str):
            continue
        if operation.type == "invoke":
            under_way[operation.process] = len(found), operation
            found.append(_open(operation.process, operation))
        elif operation.process in under_way:
            index, invocation = under_way.pop(operation.process)
            found[index] = _closed(operation.process, invocation, operation)
    return [attempt for attempt in found if attempt is not None]


def _open(process: int, invocation: Operation) -> Attempt:
    asked, t_ns = invocation.value, invocation.t_ns
    return Attempt(process, invocation.f, asked, "info", asked, invocation.i, NEVER, t_ns, NEVER, None, None, {})


def _closed(process: int, invocation: Operation, completion: Operation) -> Attempt:
    assert completion.type != "invoke"
    return Attempt(
        process=process,
        f=invocation.f,
        asked=invocation.value,
        type=completion.type,
        value=invocation.value if completion.value is None else completion.value,
        began=invocation.i,
        ended=completion.i,
        began_ns=invocation.t_ns,
        ended_ns=completion.t_ns,
        error=completion.error[0] if completion.error else None,
        node=completion.node,
        note=completion.note or {},
    )
