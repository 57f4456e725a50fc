"""Core: records that do not fit the columns of their table, with the reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from barnabas.lake.rows import HEADERS, TIMESTAMP, metadata
from barnabas.pipeline.columns import Columns

SCHEMA = pa.schema(
    [
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", TIMESTAMP),
        pa.field("headers", HEADERS),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("reason", pa.string()),
    ]
)


def dead_letters(partition: int, columns: Columns, reasons: Mapping[int, str]) -> Any:
    """A pyarrow Table of `SCHEMA`; `reasons` are by place in the columns. None if there are none."""
    if not reasons:
        return None
    places = pa.array(sorted(reasons), pa.int64())
    place = metadata(partition, columns, with_key=False).take(places)
    arrays = [
        *place.flatten(),
        columns.keys.take(places),
        columns.values.take(places),
        pa.array([reasons[index] for index in sorted(reasons)], pa.string()),
    ]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)
