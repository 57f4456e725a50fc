"""Names of a package that are imported at their first use, so that importing one of its modules loads no other one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module


def lazy_names(package: str, homes: Mapping[str, Sequence[str]]) -> Callable[[str], object]:
    """A module-level `__getattr__` (PEP 562) for `package`; `homes` has the names by the module that defines them."""
    home_of = {name: home for home, names in homes.items() for name in names}

    def getattr_(name: str) -> object:
        home = home_of.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found: object = getattr(import_module(home), name)
        setattr(sys.modules[package], name, found)
        return found

    return getattr_
