"""Typed modes: the fields of values are columns. Records that do not fit become dead letters, with the reason.

Converting runs in worker threads, several at a time. The columns only grow: a field of a newer schema becomes a column.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Any, Protocol

import pyarrow as pa

from barnabas.lake.column_types import RESERVED, TypesDiffer, merged
from barnabas.lake.dead_letters import dead_letters
from barnabas.lake.json_values import Misfit, reader_of
from barnabas.lake.rows import TYPED_METADATA, metadata
from barnabas.pipeline.columns import Columns

log = logging.getLogger(__name__)

Fields = Sequence[Any]
"""pyarrow fields."""


class Decoder(Protocol):
    """Makes values of bytes."""

    def read(self, data: bytes) -> tuple[Fields, dict[str, Any]]:
        """The fields of the value's schema, and the value. `Misfit`; `SchemaUnavailable` if it must be asked again."""


class JsonDecoder:
    """JSON objects with fields of a configuration."""

    def __init__(self, fields: Fields) -> None:
        self._fields = fields
        self._read = reader_of(fields)

    def read(self, data: bytes) -> tuple[Fields, dict[str, Any]]:
        return self._fields, self._read(data)


class TypedRows:
    """Makes rows of records; `Convert` of a reader."""

    def __init__(self, topic: str, known: Fields, decoder: Decoder) -> None:
        """`known` are the columns that the table has, without `metadata`."""
        self._topic = topic
        self._decoder = decoder
        self._lock = threading.Lock()
        self._known = list(known)
        self._taken: dict[int, Fields] = {}
        """Schemas whose fields are in `_known`, by identity."""

    def __call__(self, partition: int, columns: Columns) -> tuple[Any, Any]:
        values: list[dict[str, Any]] = []
        reasons: dict[int, str] = {}
        for index, data in enumerate(columns.values.to_pylist()):
            try:
                # A record without a value is a row without fields.
                values.append({} if data is None else self._read(data))
            except Misfit as misfit:
                reasons[index] = str(misfit)
        fields = self._known
        kind = pa.struct(fields)
        array = _array(values, kind)
        if array is None:
            array = self._one_by_one(values, kind, reasons, len(columns))
        place = metadata(partition, columns, with_key=True)
        if reasons:
            place = place.take(pa.array([index for index in range(len(columns)) if index not in reasons], pa.int64()))
            self._log(partition, columns, reasons)
        schema = pa.schema([pa.field(RESERVED, TYPED_METADATA), *fields])
        rows = pa.Table.from_arrays([place, *array.flatten()], schema=schema) if len(place) else None
        return rows, dead_letters(partition, columns, reasons)

    def _read(self, data: bytes) -> dict[str, Any]:
        fields, value = self._decoder.read(data)
        if id(fields) not in self._taken:
            self._take_in(fields)
        return value

    def _take_in(self, fields: Fields) -> None:
        with self._lock:
            try:
                self._known = columns_with(self._known, fields)
            except TypesDiffer as error:
                raise Misfit(str(error)) from None
            self._taken[id(fields)] = fields

    def _one_by_one(self, values: list[dict[str, Any]], kind: Any, reasons: dict[int, str], count: int) -> Any:
        """Values as an array, without those that pyarrow does not take: these get a reason."""
        places = [index for index in range(count) if index not in reasons]
        good = []
        for index, value in zip(places, values, strict=True):
            if _array([value], kind) is None:
                reasons[index] = "the value is outside of what its column takes"
            else:
                good.append(value)
        return pa.array(good, kind)

    def _log(self, partition: int, columns: Columns, reasons: dict[int, str]) -> None:
        first = min(reasons)
        log.warning(
            "%s-%d: %d records do not fit the table and go to its dead letters; the first is at offset %d: %s",
            self._topic,
            partition,
            len(reasons),
            columns.offsets[first],
            reasons[first],
        )


def columns_with(known: Fields, new: Fields) -> list[Any]:
    """The columns that have the values of both. `TypesDiffer`."""
    if any(field.name.lower() == RESERVED for field in new):
        raise TypesDiffer(f"a field is called {RESERVED}, as the column with partition and offset is")
    return merged(known, new)


def _array(values: list[dict[str, Any]], kind: Any) -> Any | None:
    try:
        return pa.array(values, kind)
    except (pa.ArrowException, OverflowError, ValueError, TypeError):
        return None
