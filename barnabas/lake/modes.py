"""Ways to make rows of records: one for each mode of a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from barnabas.client.schemas.lookup import RegistryLookup
from barnabas.cluster.errors import WrongArgument
from barnabas.lake.column_types import RESERVED, TypesDiffer, fields_of
from barnabas.lake.config import TableSettings
from barnabas.lake.decoding import Convert
from barnabas.lake.rows import KEY_VALUE, TYPED_METADATA, key_value_rows
from barnabas.lake.typed import Decoder, JsonDecoder, TypedRows, columns_with
from barnabas.pipeline.columns import Columns


@dataclass(frozen=True, slots=True)
class Mode:
    """How records become rows."""

    topic: str
    fields: Sequence[Any]
    """pyarrow fields of the values, as far as the configuration knows them."""
    decoder: Decoder | None
    """None in key_value mode."""

    @property
    def schema(self) -> Any:
        """The pyarrow schema of a new table."""
        if self.decoder is None:
            return KEY_VALUE
        return pa.schema([pa.field(RESERVED, TYPED_METADATA), *self.fields])

    def convert(self, table: str, schema: Any) -> Convert:
        """The function for a reader. `schema` is that of the table. `WrongArgument` if the table has other columns."""
        place = TYPED_METADATA if self.decoder is not None else KEY_VALUE.field(RESERVED).type
        columns = {field.name: field for field in schema}
        if RESERVED not in columns or {each.name for each in columns[RESERVED].type} != {each.name for each in place}:
            raise WrongArgument(f"table {table} was made in another mode, or by something else")
        known = [field for field in schema if field.name != RESERVED]
        if self.decoder is None:
            if [field.name for field in known] != ["key", "value"]:
                raise WrongArgument(f"table {table} was made in another mode, or by something else")
            return _key_value
        try:
            return TypedRows(self.topic, columns_with(known, self.fields), self.decoder)
        except TypesDiffer as error:
            raise WrongArgument(f"table {table}: {error}") from None


def mode_of(settings: TableSettings, schema_registry: str) -> Mode:
    """Raises `WrongArgument`."""
    if settings.columns is not None and settings.mode != "json":
        raise WrongArgument(f"topic {settings.topic}: columns are for mode json; got mode {settings.mode}")
    if settings.avro_schema and settings.mode != "avro":
        raise WrongArgument(f"topic {settings.topic}: avro_schema is for mode avro; got mode {settings.mode}")
    match settings.mode:
        case "json":
            return _json(settings)
        case "avro":
            return _avro(settings, schema_registry)
        case _:
            return Mode(settings.topic, (), None)


def _json(settings: TableSettings) -> Mode:
    if not settings.columns:
        raise WrongArgument(f"topic {settings.topic}: mode json needs the names and types of columns")
    try:
        fields = columns_with([], fields_of(settings.columns, "columns"))
    except (ValueError, TypesDiffer) as error:
        raise WrongArgument(f"topic {settings.topic}: {error}") from None
    return Mode(settings.topic, fields, JsonDecoder(fields))


def _avro(settings: TableSettings, schema_registry: str) -> Mode:
    from barnabas.lake.avro_values import AvroReader, OneSchema, RegistryIds

    if not settings.avro_schema:
        if not schema_registry:
            raise WrongArgument(f"topic {settings.topic}: mode avro needs a schema registry, or a file as avro_schema")
        return Mode(settings.topic, (), RegistryIds(settings.topic, RegistryLookup(schema_registry.split(","))))
    try:
        text = Path(settings.avro_schema).read_text()
        fields = columns_with([], AvroReader(text).fields)
        return Mode(settings.topic, fields, OneSchema(text))
    except OSError as error:
        raise WrongArgument(f"{settings.avro_schema}: {error.strerror}") from None
    except TypesDiffer as error:
        raise WrongArgument(f"{settings.avro_schema}: {error}") from None


def _key_value(partition: int, columns: Columns) -> tuple[Any, None]:
    return key_value_rows(partition, columns), None
