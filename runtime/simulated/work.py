"""The work of steps, counted in calls: what a step costs, where no clock runs within a turn.

Every call of a function is counted, of Python's own ones, too. The same step gives the same count, in any run and on
any machine. Counting makes a step several times slower.
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
            return step()  # somebody profiles all of it, or this is part of a step that is counted
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
