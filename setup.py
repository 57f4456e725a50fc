"""Compiles the hottest modules with mypyc if BARNABAS_COMPILED=1; everything else is in pyproject.toml.

Needs a C compiler and mypy: `make compiled` in a checkout, or `BARNABAS_COMPILED=1 pip install --no-build-isolation …`
if mypy, setuptools and wheel are installed. `.ci/wheels` makes wheels of it. Without it the same modules run as Python.
"""

from __future__ import annotations

import os
from typing import Any

from setuptools import setup

MODULES = ["barnabas/protocol/records/layout.py", "barnabas/protocol/records/scan.py"]


def extensions() -> list[Any]:
    if os.environ.get("BARNABAS_COMPILED") != "1":
        return []
    from mypyc.build import mypycify

    # Only these modules are read here: what they import may not be installed. `make check` checks all types.
    alone = ["--config-file=", "--follow-imports=skip", "--ignore-missing-imports"]
    # One library for each module: the name of a library for several cannot be predicted.
    return [
        extension
        for place, module in enumerate(MODULES)
        for extension in mypycify([*alone, module], opt_level="3", target_dir=f"build/mypyc-{place}")
    ]


setup(ext_modules=extensions())
