"""Core: messages as JSON values for people and traces: bounded, without secrets, without the bytes of records."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from barnabas.fault_proxy.error_answers import ERROR_FIELDS
from barnabas.protocol.errors import ErrorCode, error_code
from barnabas.protocol.primitives import uuid_to_string
from barnabas.protocol.schema import FieldSpec, Struct, parse_versions
from barnabas.protocol.structs import SECRETS

MOST_VALUES = 400
"""Values of a message that are shown; of the others only their number is."""
MOST_CHARACTERS = 200
HIDDEN = "[hidden]"
_SECRET_CONFIG = re.compile(r"password|secret|jaas|credential|\.key$", re.IGNORECASE)
_CONFIG_NAMES = ("name", "config_name")


def shown(struct: Any, version: int, most_values: int = MOST_VALUES) -> dict[str, Any]:
    """The fields that this version carries, by their names here. Where `most_values` are reached, a list ends with the
    number of its items that are left out."""
    return _Writer(version, most_values).struct(struct)


def errors_in(struct: Any, version: int) -> list[str]:
    """Names of the errors in a response, each once, in their order."""
    return list(dict.fromkeys(error_code(code).name for code in _codes(struct, version) if code != ErrorCode.NONE))


@cache
def has_secrets(kind: type[Struct]) -> bool:
    """True if messages of this kind have fields that no trace may contain."""
    for spec in kind.FIELDS:
        inner = (spec.type.element or spec.type).struct
        if spec.name in SECRETS or (inner is not None and has_secrets(inner)):
            return True
    return False


def names_secret_configs(struct: Any) -> bool:
    """True if a request changes configs that are passwords or keys."""
    if _is_secret_config(struct):
        return True
    for spec in struct.FIELDS:
        value = getattr(struct, spec.name)
        if isinstance(value, list) and any(isinstance(each, Struct) and names_secret_configs(each) for each in value):
            return True
    return False


class _Writer:
    def __init__(self, version: int, most_values: int) -> None:
        self._version = version
        self._left = most_values

    def struct(self, struct: Any) -> dict[str, Any]:
        is_secret = _is_secret_config(struct)
        written: dict[str, Any] = {}
        for spec in struct.FIELDS:
            if self._version not in parse_versions(spec.versions):
                continue
            value = getattr(struct, spec.name)
            if spec.name in SECRETS or (is_secret and spec.name == "value"):
                written[spec.name] = HIDDEN
            else:
                written[spec.name] = self._value(spec, value)
        return written

    def _value(self, spec: FieldSpec, value: Any) -> Any:
        if isinstance(value, list):
            return self._list(spec, value)
        if isinstance(value, Struct):
            return self.struct(value)
        self._left -= 1
        kind = (spec.type.element or spec.type).name
        if value is None or isinstance(value, bool | float):
            return value
        if isinstance(value, int):
            return error_code(value).name if spec.name in ERROR_FIELDS else value
        if isinstance(value, str):
            return value if len(value) <= MOST_CHARACTERS else f"{value[:MOST_CHARACTERS]}…"
        if kind == "uuid":
            return uuid_to_string(bytes(value))
        return {"bytes": len(value)}

    def _list(self, spec: FieldSpec, items: list[Any]) -> list[Any]:
        written: list[Any] = []
        for number, each in enumerate(items):
            if self._left <= 0:
                written.append(f"{len(items) - number} more")
                break
            written.append(self.struct(each) if isinstance(each, Struct) else self._value(spec, each))
        return written


def _codes(struct: Any, version: int) -> Iterator[int]:
    for spec in struct.FIELDS:
        if version not in parse_versions(spec.versions):
            continue
        value = getattr(struct, spec.name)
        if spec.name in ERROR_FIELDS:
            yield value
        elif isinstance(value, list):
            for each in value:
                if isinstance(each, Struct):
                    yield from _codes(each, version)


def _is_secret_config(struct: Any) -> bool:
    names = [getattr(struct, name) for name in _CONFIG_NAMES if hasattr(struct, name)]
    return hasattr(struct, "value") and any(isinstance(name, str) and _SECRET_CONFIG.search(name) for name in names)
