"""Core: pyarrow rows in the columns of a table: new columns are null, narrow numbers widen.

Columns are matched by Iceberg's field ids where the rows have them (rows of a file of the table), else by name.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

FIELD_ID = b"PARQUET:field_id"


def in_columns(rows: Any, schema: Any) -> Any:
    """A pyarrow Table with `schema`, whose fields have ids. ArrowInvalid if a value does not fit."""
    arrays = []
    for field in schema:
        place = _find(list(rows.schema), field)
        if place is None:
            arrays.append(pa.chunked_array([pa.nulls(len(rows), field.type)]))
        else:
            chunks = [_converted(chunk, field.type) for chunk in rows.column(place).chunks]
            arrays.append(pa.chunked_array(chunks, field.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def _converted(array: Any, kind: Any) -> Any:
    if not pa.types.is_struct(kind):
        return array.cast(kind)
    children = []
    for field in kind:
        place = _find(list(array.type), field)
        children.append(
            pa.nulls(len(array), field.type) if place is None else _converted(array.field(place), field.type)
        )
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=array.is_null())


def _find(fields: list[Any], wanted: Any) -> int | None:
    """The place of the field with the same id, or among fields without ids with the same name."""
    own = wanted.metadata[FIELD_ID]
    for place, field in enumerate(fields):
        field_id = (field.metadata or {}).get(FIELD_ID)
        if field_id == own if field_id is not None else field.name == wanted.name:
            return place
    return None
