"""Core: frees large messages, and long lists of them, in steps.

Python frees an object, and whatever only that object holds, at one go: 65,000 elements take 10 ms and more. Here their
arrays are emptied a piece at a time. Arrays that something else holds, too, are left alone.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from typing import Any

from barnabas.protocol.schema import Struct

STEP_ELEMENTS = 256
"""Elements that are freed in one step. Elements of longer arrays are not looked into."""


def empty_in_steps(values: list[Any]) -> Generator[None, None, None]:
    """Free the values of a long list that only the list holds, except for the first ones."""
    while len(values) > STEP_ELEMENTS:
        del values[-STEP_ELEMENTS:]
        yield None


class _Owner:
    """Holds a list as a message does."""

    def __init__(self) -> None:
        self.values: list[Any] = []


def _count_alone() -> tuple[int, int]:
    """The reference counts that the functions below see of a message and of an array that nothing else holds."""
    holder = [_Owner()]
    message = holder.pop()
    values = getattr(message, "values")  # noqa: B009 - counted as it is below
    return sys.getrefcount(message), sys.getrefcount(values)


_MESSAGE_ALONE, _ARRAY_ALONE = _count_alone()


def free_in_steps(holder: list[Any]) -> Generator[None, None, None]:
    """Take the message out of `holder`, and free it unless something else holds it."""
    message = holder.pop()
    if sys.getrefcount(message) <= _MESSAGE_ALONE:
        yield from _empty_arrays(message)


def _empty_arrays(message: Struct) -> Generator[None, None, None]:
    for spec in message.FIELDS:
        element = spec.type.element
        if element is None:
            continue
        values = getattr(message, spec.name)
        if type(values) is not list or sys.getrefcount(values) > _ARRAY_ALONE:
            continue
        if element.struct is not None and len(values) <= STEP_ELEMENTS:
            while values:
                yield from _empty_arrays(values[-1])
                values.pop()
        while len(values) > STEP_ELEMENTS:
            del values[-STEP_ELEMENTS:]
            yield None
