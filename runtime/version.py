"""The version of the installed distribution."""

from __future__ import annotations

from functools import cache

UNKNOWN = "unknown"


@cache
def version() -> str:
    """`UNKNOWN` if the code runs from a directory that was never installed."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        return installed("barnabas")
    except PackageNotFoundError:
        return UNKNOWN
