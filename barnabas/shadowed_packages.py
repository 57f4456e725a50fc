"""Whether the packages that this one stands on are its own.

`protocol`, `storage` and the like are names that a project may have for folders of its own. If such a folder comes
first on the path of Python, ours cannot be imported, and the first line that tries would fail with something about a
name that is missing. Said here instead, once and in one line. Imports nothing but Python.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

FOR_CLIENTS = ("protocol", "runtime")
FOR_CLUSTERS = ("protocol", "runtime", "settings", "storage", "kraft", "broker")

_ROOT = os.path.realpath(os.path.dirname(os.path.dirname(__file__)))


def refuse_shadowed_packages(names: tuple[str, ...]) -> None:
    """Raises ImportError, one line, if Python has or would import another package under one of the names."""
    for name in names:
        place = _place_of(name)
        if place is None:
            raise ImportError(f"barnabas is not whole: its package {name} is missing beside {__package__}", name=name)
        if os.path.realpath(place) != os.path.join(_ROOT, name):
            raise ImportError(
                f"barnabas has a package {name} of its own, but {place} comes first on Python's path: take that folder "
                "off the path (python -P, pytest --import-mode=importlib), or give it another name",
                name=name,
                path=place,
            )


def _place_of(name: str) -> str | None:
    """The folder, or file, of what `import name` gives; None if there is none."""
    module = sys.modules.get(name)
    try:
        spec = find_spec(name) if module is None else module.__spec__
    except ValueError:
        # A module that somebody put there by hand.
        spec = None
    if spec is None:
        return None if module is None else str(getattr(module, "__file__", None) or f"a module {name} made in memory")
    if spec.submodule_search_locations:
        return next(iter(spec.submodule_search_locations))
    return spec.origin
