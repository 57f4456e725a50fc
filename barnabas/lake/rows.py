"""Core: records as rows of a table.

In key_value mode a row has a struct `metadata` and the bytes of key and value. In a typed mode the value's fields are
columns, and the key's bytes are in `metadata`. Iceberg gives every column an id: `schema.py` makes the table's schema
from the same types.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from barnabas.pipeline.columns import HEADER_TYPE, Columns

TIMESTAMP = pa.timestamp("us", tz="UTC")
HEADERS = pa.list_(HEADER_TYPE)
_PLACE = [
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", TIMESTAMP),
    pa.field("headers", HEADERS),
]
KEY_VALUE_METADATA = pa.struct(_PLACE)
TYPED_METADATA = pa.struct([*_PLACE, pa.field("key", pa.binary())])
KEY_VALUE = pa.schema(
    [pa.field("metadata", KEY_VALUE_METADATA), pa.field("key", pa.binary()), pa.field("value", pa.binary())]
)

_MOST_MS = (2**63 - 1) // 1000


def key_value_rows(partition: int, columns: Columns) -> Any:
    """A pyarrow Table of `KEY_VALUE`."""
    place = metadata(partition, columns, with_key=False)
    return pa.Table.from_arrays([place, columns.keys, columns.values], schema=KEY_VALUE)


def metadata(partition: int, columns: Columns, *, with_key: bool) -> Any:
    """The struct `metadata` of the records, as a pyarrow array."""
    arrays = [
        pa.array(np.full(len(columns), partition, dtype=np.int32)),
        pa.array(columns.offsets),
        _times(columns),
        pa.nulls(len(columns), HEADERS) if columns.headers is None else columns.headers,
    ]
    if with_key:
        arrays.append(columns.keys)
    return pa.StructArray.from_arrays(arrays, fields=list(TYPED_METADATA if with_key else KEY_VALUE_METADATA))


def _times(columns: Columns) -> Any:
    """Null for a record without a timestamp."""
    micros = np.clip(columns.timestamps, -_MOST_MS, _MOST_MS) * 1000
    return pa.array(micros, mask=columns.timestamps < 0).cast(TIMESTAMP)
