"""Avro values: with ids of a schema registry, or all of one schema."""

from __future__ import annotations

import json
import threading
import uuid
from io import BytesIO
from typing import Any

import fastavro

from barnabas.client.errors import SerializationException
from barnabas.client.schemas.lookup import RegisteredSchema, RegistryLookup, RegistryUnavailable
from barnabas.client.schemas.wire import HEADER_BYTES, schema_id_of
from barnabas.lake.avro_types import fields_of_avro
from barnabas.lake.column_types import TypesDiffer
from barnabas.lake.errors import SchemaUnavailable
from barnabas.lake.json_values import Misfit


class AvroReader:
    """Reads values of one schema."""

    def __init__(self, text: str, references: tuple[str, ...] = ()) -> None:
        """`TypesDiffer` for a schema that no columns can have."""
        named: dict[str, Any] = {}
        try:
            for each in references:
                fastavro.parse_schema(json.loads(each), named_schemas=named)
            self._schema = fastavro.parse_schema(json.loads(text), named_schemas=named)
        except Exception as error:  # fastavro raises many kinds of errors for a schema that it does not take
            raise TypesDiffer(f"no Avro schema: {type(error).__name__}: {error}") from None
        self.fields = tuple(fields_of_avro(self._schema, named))

    def read(self, data: bytes) -> dict[str, Any]:
        """`Misfit`."""
        stream = BytesIO(data)
        try:
            value: Any = fastavro.schemaless_reader(stream, self._schema, None)
        except Exception as error:  # the bytes may be anything
            raise Misfit(f"no value of the Avro schema: {type(error).__name__}: {error}") from None
        if stream.tell() != len(data):
            raise Misfit(f"the value ends {len(data) - stream.tell()} bytes before the end of the record")
        return {name: _for_arrow(each) for name, each in value.items()}


class OneSchema:
    """All values have one schema, and nothing before it."""

    def __init__(self, text: str) -> None:
        """`TypesDiffer`."""
        self._reader = AvroReader(text)

    def read(self, data: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return self._reader.fields, self._reader.read(data)


class RegistryIds:
    """Values begin with the id of their schema in a registry."""

    def __init__(self, topic: str, registry: RegistryLookup) -> None:
        self._topic = topic
        self._registry = registry
        self._lock = threading.Lock()
        self._readers: dict[int, AvroReader | str] = {}
        """By id; a text is the reason why the schema cannot be used."""

    def read(self, data: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
        try:
            schema_id = schema_id_of(self._topic, data)
        except SerializationException as error:
            raise Misfit(str(error.message)) from None
        reader = self._readers.get(schema_id)
        if reader is None:
            with self._lock:
                reader = self._readers.get(schema_id) or self._look_up(schema_id)
                self._readers[schema_id] = reader
        if isinstance(reader, str):
            raise Misfit(reader)
        return reader.fields, reader.read(data[HEADER_BYTES:])

    def _look_up(self, schema_id: int) -> AvroReader | str:
        try:
            found: RegisteredSchema = self._registry.by_id(schema_id)
        except RegistryUnavailable as error:
            raise SchemaUnavailable(str(error.message)) from None
        except SerializationException as error:
            return f"schema {schema_id}: {error.message}"
        if found.schema_type != "AVRO":
            return f"schema {schema_id} is of type {found.schema_type}; this table takes AVRO"
        try:
            return AvroReader(found.schema, tuple(text for _, text in found.references))
        except TypesDiffer as error:
            return f"schema {schema_id}: {error}"


def _for_arrow(value: Any) -> Any:
    """Values in the forms that pyarrow takes: maps as pairs are made by it, ids as text here."""
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, dict):
        return {name: _for_arrow(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_for_arrow(each) for each in value]
    return value
