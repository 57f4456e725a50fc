"""Core: CRC-32C, by the extension of the package `crc32c`.

The package itself also loads the parser of its command line and `importlib.metadata`: 40 modules that no node needs.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Any

Crc = Callable[..., int]
"""(data, value so far = 0) → CRC."""


def _loaded() -> Crc:
    package = find_spec("crc32c")
    assert package is not None and package.submodule_search_locations is not None, "crc32c is not installed"
    spec = PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
    if spec is None or spec.loader is None:  # another build of the package
        from crc32c import crc32c

        return crc32c
    extension: Any = module_from_spec(spec)
    spec.loader.exec_module(extension)
    found: Crc = extension.crc32c
    return found


crc32c = _loaded()
