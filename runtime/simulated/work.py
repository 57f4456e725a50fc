"""Counts the work of steps in function calls: no clock runs within a turn of a simulation.

Every call of a function is counted, including built-in ones. The same step gives the same count in every run and on
every machine. Counting makes a step several times slower.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")

Took = Callable[[str, int], None]
"""Takes the name of an API, and how many calls one step of a request of it made."""

_CALLS = frozenset(("call", "c_call"))


class WorkCounter:
    """See `runtime.world.CountWork`."""

    def __init__(self, took: Took) -> None:
        self._took = took
        self._calls = 0

    def __call__(self, name: str, step: Callable[[], T]) -> T:
        if sys.getprofile() is not None:
            return step()  # a profiler is active, or this is part of a counted step
        self._calls = 0
        sys.setprofile(self._called)
        try:
            return step()
        finally:
            sys.setprofile(None)
            self._took(name, self._calls)

    def _called(self, frame: FrameType, event: str, argument: Any) -> None:
        if event in _CALLS:
            self._calls += 1
