"""Core: Avro schemas as types of columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from barnabas.lake.column_types import MOST_DIGITS, TypesDiffer

_PRIMITIVE = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time64("us"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("us", tz="UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", tz="UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("us"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}
MOST_LEVELS = 32


def fields_of_avro(schema: Any, named: Mapping[str, Any]) -> list[Any]:
    """The pyarrow fields of a record's schema, as fastavro parsed it; `named` has the types that it refers to.
    `TypesDiffer` for a schema that no columns can have."""
    if not isinstance(schema, Mapping) or schema.get("type") != "record":
        raise TypesDiffer("the schema is no record; only the fields of a record can be columns")
    return _fields(schema, dict(named), "", 0)


def _fields(schema: Mapping[str, Any], named: dict[str, Any], place: str, level: int) -> list[Any]:
    _learn(schema, named)
    return [
        pa.field(field["name"], _type(field["type"], named, f"{place}{field['name']}", level + 1))
        for field in schema["fields"]
    ]


def _learn(schema: Mapping[str, Any], named: dict[str, Any]) -> None:
    if "name" in schema:
        named[schema["name"]] = schema


def _type(schema: Any, named: dict[str, Any], place: str, level: int) -> Any:
    if level > MOST_LEVELS:
        raise TypesDiffer(f"field {place} is nested more than {MOST_LEVELS} deep, or refers to itself")
    if isinstance(schema, list):
        rest = [each for each in schema if each != "null"]
        if len(rest) != 1:
            raise TypesDiffer(f"field {place} is a union of {len(rest)} types; a column has one, or null")
        return _type(rest[0], named, place, level)
    if isinstance(schema, str):
        if schema in _PRIMITIVE:
            return _PRIMITIVE[schema]
        if schema in named:
            return _type(named[schema], named, place, level + 1)
        raise TypesDiffer(f"field {place} has the type {schema}, which no column can have")
    _learn(schema, named)
    kind, logical = schema["type"], schema.get("logicalType")
    if logical == "decimal" and int(schema.get("precision", 0)) <= MOST_DIGITS:
        return pa.decimal128(int(schema["precision"]), int(schema.get("scale", 0)))
    if logical == "uuid" and kind == "string":
        return pa.string()
    if (kind, logical) in _LOGICAL:
        return _LOGICAL[kind, logical]
    match kind:
        case "record" | "error":
            fields = _fields(schema, named, f"{place}.", level)
            if not fields:
                raise TypesDiffer(f"field {place} is a record without fields, which no column can have")
            return pa.struct(fields)
        case "array":
            return pa.list_(pa.field("element", _type(schema["items"], named, f"{place}[]", level + 1)))
        case "map":
            return pa.map_(pa.string(), _type(schema["values"], named, f"{place}[]", level + 1))
        case "enum":
            return pa.string()
        case "fixed":
            return pa.binary(int(schema["size"]))
    return _type(kind, named, place, level + 1)
