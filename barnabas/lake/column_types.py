"""Core: types of columns: as a configuration names them, and as two schemas agree on them.

A type is an Iceberg name (`long`, `decimal(10,2)`, `timestamptz`), a list of one type, or a mapping of names to types.
Here they are pyarrow types. Every column may be null.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

_NAMED = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", tz="UTC"),
    "string": pa.string(),
}
_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")
MOST_DIGITS = 38
RESERVED = "metadata"
"""The column with partition, offset and timestamp."""


class TypesDiffer(Exception):
    """Two schemas, or a schema and a table, cannot have one column; the message is one line."""


def type_of(spec: Any, place: str) -> Any:
    """The pyarrow type of a type in a configuration. ValueError with the place and what is allowed."""
    if isinstance(spec, Mapping):
        if not spec:
            raise ValueError(f"{place}: a struct needs fields")
        return pa.struct(fields_of(spec, place))
    if isinstance(spec, list) and len(spec) == 1:
        return pa.list_(pa.field("element", type_of(spec[0], f"{place}[]")))
    if isinstance(spec, str):
        decimal = _DECIMAL.fullmatch(spec.strip())
        if decimal is not None:
            precision, scale = int(decimal[1]), int(decimal[2])
            if 0 < precision <= MOST_DIGITS and scale <= precision:
                return pa.decimal128(precision, scale)
        elif spec.strip() in _NAMED:
            return _NAMED[spec.strip()]
    raise ValueError(
        f"{place}: {spec!r} is no type; types are {', '.join(_NAMED)}, decimal(P,S) with up to {MOST_DIGITS} digits,"
        ' a list ["TYPE"], and a struct {name = "TYPE"}'
    )


def fields_of(specs: Mapping[str, Any], place: str) -> list[Any]:
    """Fields of a struct or a table. ValueError."""
    return [pa.field(name, type_of(spec, f"{place}.{name}")) for name, spec in specs.items()]


def merged(known: Iterable[Any], new: Iterable[Any], place: str = "") -> list[Any]:
    """Fields that have the values of both: those of `known` first, then new ones. `TypesDiffer`."""
    fields = {field.name: field for field in known}
    lower = {name.lower(): name for name in fields}
    for field in new:
        there = fields.get(field.name)
        if there is None:
            other = lower.setdefault(field.name.lower(), field.name)
            if other != field.name:
                raise TypesDiffer(f"fields {place}{other} and {place}{field.name} differ in their case only")
            fields[field.name] = pa.field(field.name, field.type)
        else:
            fields[field.name] = pa.field(field.name, _common(there.type, field.type, f"{place}{field.name}"))
    return list(fields.values())


def _common(known: Any, new: Any, place: str) -> Any:
    """A type for values of both, as Iceberg may change a column: int to long, float to double, more digits."""
    if known == new:
        return known
    if pa.types.is_struct(known) and pa.types.is_struct(new):
        return pa.struct(merged(known, new, f"{place}."))
    if pa.types.is_list(known) and pa.types.is_list(new):
        return pa.list_(pa.field("element", _common(known.value_type, new.value_type, f"{place}[]")))
    if pa.types.is_map(known) and pa.types.is_map(new) and known.key_type == new.key_type:
        return pa.map_(known.key_type, _common(known.item_type, new.item_type, f"{place}[]"))
    for narrow, wide in ((pa.int32(), pa.int64()), (pa.float32(), pa.float64())):
        if {known, new} == {narrow, wide}:
            return wide
    if pa.types.is_decimal(known) and pa.types.is_decimal(new) and known.scale == new.scale:
        return known if known.precision >= new.precision else new
    raise TypesDiffer(f"field {place} is {name_of(new)}, and the table has {name_of(known)}")


def plain(kind: Any) -> Any:
    """The type without variants that mean the same: large strings, names of list elements, time zones of one offset."""
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(pa.field("element", plain(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, plain(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(plain(kind.key_type), plain(kind.item_type))
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp("us", tz="UTC")
    return kind


def name_of(kind: Any) -> str:
    """The type as a configuration names it, if it can."""
    for name, named in _NAMED.items():
        if kind == named:
            return name
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return str(kind)
