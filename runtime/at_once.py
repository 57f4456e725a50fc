"""Core: work that is written in steps, and its callers that need not pause between them."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

T = TypeVar("T")

Stepwise = Generator[None, None, T]
"""Work in progress: each `next` is a short step; the generator returns the result."""


def at_once(steps: Generator[Any, Any, T]) -> T:
    """Run all steps now, and return their result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
