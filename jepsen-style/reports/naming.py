"""Values of operations as people read them: partitions by their names, where the history has numbers for keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from operations import place_of

OF_KEYS = frozenset({"assign", "subscribe"})
"""Operations whose value is a list of keys."""


def named(f: str, value: Any) -> Any:
    """Operations of `queue` and `list-append` with names; others stay as they are."""
    if not isinstance(value, list):
        return value
    return [_place(each) if f in OF_KEYS else _micro(each) for each in value]


def named_note(key: str, value: Any) -> Any:
    """A note with names: `read_epochs`, and offsets by key."""
    if key == "read_epochs" and isinstance(value, list):
        return [[_place(each[0]), *each[1:]] if isinstance(each, list) and each else each for each in value]
    return _by_place(value) if isinstance(value, Mapping) else value


def _micro(micro: Any) -> Any:
    match micro:
        case ["send", int(key), *rest]:
            return ["send", _place(key), *rest]
        case ["poll", Mapping() as found, *rest]:
            return ["poll", _by_place(found), *rest]
    return micro


def _by_place(found: Mapping[str, Any]) -> dict[str, Any]:
    return {_place(int(key)) if key.isdecimal() and len(key) < 9 else key: each for key, each in found.items()}


def _place(key: Any) -> Any:
    return f"{place_of(key)}" if isinstance(key, int) and not isinstance(key, bool) and key >= 0 else key
