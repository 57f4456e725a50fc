"""Messages as JSON values, in the form that Kafka's own tools print and read.

Names are in camel case, bytes are base64, uuids URL-safe base64 without padding; a tagged field with its
default is left out. Records are only shown as empty or null (KIP-673), and unknown tagged fields not at all.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable
from typing import Any, TypeVar

from barnabas.protocol.primitives import uuid_from_string, uuid_to_string
from barnabas.protocol.schema import FieldSpec, Message, Struct, WireType, parse_versions

M = TypeVar("M", bound=Message)

_INTEGERS = {
    "int8": (-(2**7), 2**7),
    "int16": (-(2**15), 2**15),
    "int32": (-(2**31), 2**31),
    "int64": (-(2**63), 2**63),
    "uint16": (0, 2**16),
    "uint32": (0, 2**32),
}
_NOT_A_NUMBER_NAMES = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class JsonFormError(ValueError):
    """The value is not the JSON form of the message; the error has the place."""


def json_name(spec: FieldSpec) -> str:
    """`high_watermark` is `highWatermark`."""
    first, *others = spec.name.split("_")
    return first + "".join([word.capitalize() for word in others])


def to_json(message: Message, version: int) -> dict[str, Any]:
    """The JSON value of a message."""
    return _struct_to_json(message, version, message.FLEXIBLE_FROM)


def from_json(kind: type[M], value: Any, version: int) -> M:
    """The message with the values of `value`. Raises `JsonFormError`, also for names that this version lacks."""
    return _struct_from_json(kind, value, version, kind.FLEXIBLE_FROM, kind.__name__)


def _is_tagged(spec: FieldSpec, version: int, flexible_from: int | None) -> bool:
    return spec.tag >= 0 and flexible_from is not None and version >= flexible_from


def _struct_to_json(message: Struct, version: int, flexible_from: int | None) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for spec in message.FIELDS:
        value = getattr(message, spec.name)
        if version not in parse_versions(spec.versions):
            continue
        form = _value_to_json(spec.type, value, version, flexible_from)
        # Compared in this form: a default with unknown tagged fields is a default here.
        default = _value_to_json(spec.type, spec.make_default(), version, flexible_from)
        if _is_tagged(spec, version, flexible_from) and form == default:
            continue
        shown[json_name(spec)] = form
    return shown


def _value_to_json(wire_type: WireType[Any], value: Any, version: int, flexible_from: int | None) -> Any:
    if value is None:
        return None
    if wire_type.element is not None:
        return [_value_to_json(wire_type.element, item, version, flexible_from) for item in value]
    if wire_type.struct is not None:
        return _struct_to_json(value, version, flexible_from)
    match wire_type.name:
        case "uuid":
            return uuid_to_string(value)
        case "bytes":
            return base64.b64encode(value).decode("ascii")
        case "records":
            return ""
        case "float64" if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case _:
            return value


S = TypeVar("S", bound=Struct)


def _struct_from_json(kind: type[S], value: Any, version: int, flexible_from: int | None, where: str) -> S:
    if not isinstance(value, dict):
        raise JsonFormError(f"{where} is no object")
    rest = dict(value)
    found: dict[str, Any] = {}
    for spec in kind.FIELDS:
        name = json_name(spec)
        if version not in parse_versions(spec.versions):
            continue
        if name not in rest:
            if not _is_tagged(spec, version, flexible_from):
                raise JsonFormError(f"{where} lacks {name}")
            continue
        item = rest.pop(name)
        place = f"{where}.{name}"
        if item is None:
            if version not in parse_versions(spec.nullable):
                raise JsonFormError(f"{place} may not be null in version {version}")
            found[spec.name] = None
        else:
            found[spec.name] = _value_from_json(spec.type, item, version, flexible_from, place)
    if rest:
        raise JsonFormError(f"{where} has no {next(iter(rest))} in version {version}")
    return kind(**found)


def _value_from_json(
    wire_type: WireType[Any], value: Any, version: int, flexible_from: int | None, where: str
) -> Any:
    if wire_type.element is not None:
        if not isinstance(value, list):
            raise JsonFormError(f"{where} is no array")
        element = wire_type.element
        return [
            _value_from_json(element, item, version, flexible_from, f"{where}[{i}]")
            for i, item in enumerate(value)
        ]
    if wire_type.struct is not None:
        return _struct_from_json(wire_type.struct, value, version, flexible_from, where)
    if wire_type.name in _INTEGERS:
        lowest, end = _INTEGERS[wire_type.name]
        if type(value) is not int or not lowest <= value < end:
            raise JsonFormError(f"{where} is no {wire_type.name}: {value!r}")
        return value
    return _PRIMITIVES[wire_type.name](value, where)


def _bool(value: Any, where: str) -> bool:
    if type(value) is not bool:
        raise JsonFormError(f"{where} is no bool: {value!r}")
    return value


def _float(value: Any, where: str) -> float:
    if isinstance(value, str) and value in _NOT_A_NUMBER_NAMES:
        return _NOT_A_NUMBER_NAMES[value]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise JsonFormError(f"{where} is no number: {value!r}")
    return float(value)


def _string(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise JsonFormError(f"{where} is no string: {value!r}")
    return value


def _uuid(value: Any, where: str) -> bytes:
    try:
        return uuid_from_string(_string(value, where))
    except ValueError as error:
        raise JsonFormError(f"{where}: {error}") from None


def _bytes(value: Any, where: str) -> bytes:
    try:
        return base64.b64decode(_string(value, where), validate=True)
    except (binascii.Error, ValueError) as error:
        raise JsonFormError(f"{where} is no base64: {error}") from None


_PRIMITIVES: dict[str, Callable[[Any, str], Any]] = {
    "bool": _bool,
    "float64": _float,
    "string": _string,
    "uuid": _uuid,
    "bytes": _bytes,
    "records": _bytes,
}
