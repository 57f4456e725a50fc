"""Core: parts of a node that are made, and whose modules are loaded, when they are first needed."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Late(Generic[T]):
    """A part of a node, by the name of what makes it."""

    def __init__(self, maker: str, *arguments: Any) -> None:
        """`maker`: `module:function` or `module:Class`, to be called with `arguments`."""
        self._maker = maker
        self._arguments = arguments
        self._make: Callable[..., T] | None = None
        self.here: T | None = None
        """The part, once it was made."""

    @classmethod
    def made(cls, part: T) -> Late[T]:
        """One whose part is there already."""
        late = cls("")
        late._make, late.here = lambda: part, part
        return late

    @property
    def is_loaded(self) -> bool:
        return self._make is not None

    def load(self) -> None:
        """Load the module, and what it imports. Any thread may call it."""
        module, _, name = self._maker.partition(":")
        self._make = getattr(import_module(module), name)

    def maker(self) -> Callable[..., T]:
        """The function that makes the part. To load it may take tens of milliseconds."""
        if self._make is None:
            self.load()
        assert self._make is not None
        return self._make

    def get(self) -> T:
        """The part, made now if it is not here."""
        if self.here is None:
            self.here = self.maker()(*self._arguments)
        return self.here
