"""Detects that packages of Barnabas are hidden behind others of the same names.

A project may have its own folders `protocol`, `storage` and so on. If one comes first on Python's path, ours cannot be
imported, and the first import would fail with some missing name. This module raises an ImportError of one line instead.
It imports nothing but Python's own modules.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

FOR_CLIENTS = ("protocol", "runtime")
FOR_CLUSTERS = ("protocol", "runtime", "settings", "storage", "kraft", "broker")

_ROOT = os.path.realpath(os.path.dirname(os.path.dirname(__file__)))


def refuse_shadowed_packages(names: tuple[str, ...]) -> None:
    """ImportError, in one line, if Python has or would import another package under one of the names."""
    for name in names:
        place = _place_of(name)
        if place is None:
            raise ImportError(
                f"barnabas is not complete: its package {name} is missing beside {__package__}", name=name
            )
        if os.path.realpath(place) != os.path.join(_ROOT, name):
            raise ImportError(
                f"barnabas needs its own package {name}, but {place} comes first on Python's path: take that folder "
                "off the path (python -P, pytest --import-mode=importlib), or give it another name",
                name=name,
                path=place,
            )


def _place_of(name: str) -> str | None:
    """Folder or file that `import name` would import; None if there is none."""
    module = sys.modules.get(name)
    try:
        spec = find_spec(name) if module is None else module.__spec__
    except ValueError:
        # A module that was put into sys.modules by hand.
        spec = None
    if spec is None:
        return None if module is None else str(getattr(module, "__file__", None) or f"a module {name} made in memory")
    if spec.submodule_search_locations:
        return next(iter(spec.submodule_search_locations))
    return spec.origin
