"""Core: one line about a field that pydantic refuses: the name, what is allowed, and the value."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

GOT = "got "
"""Reasons of our own end with it and the value."""


def reason_of(error: Any, known: Iterable[str]) -> str:
    """`error` is one of `ValidationError.errors()`; `known` are the names of the fields."""
    names = list(known)
    name = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(names)}"
        return f"{name} is unknown; {hint}"
    if error["type"] == "missing":
        return f"{name} is missing"
    reason = str(error["msg"]).removeprefix("Value error, ").replace("Input should", "must")
    if error["type"] == "literal_error":
        reason = reason.replace("'", "")
    if not name:
        return reason
    return f"{name} {reason}" + ("" if GOT in reason else f"; got {error['input']!r}")
