"""Avro by fastavro."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

import fastavro

from barnabas.client.errors import SerializationException
from barnabas.client.schemas.lookup import NewSchema, RegisteredSchema, RegistryLookup
from barnabas.client.schemas.wire import HEADER_BYTES


class _AvroCodec:
    def __init__(self, registered: RegisteredSchema) -> None:
        named: dict[str, Any] = {}
        try:
            for _, text in registered.references:
                fastavro.parse_schema(json.loads(text), named_schemas=named)
            self._schema = fastavro.parse_schema(json.loads(registered.schema), named_schemas=named)
        except Exception as error:  # fastavro raises many kinds of errors for a schema that it does not take
            raise SerializationException(f"schema {registered.id}: {error}") from error

    def write(self, topic: str, value: Any) -> bytes:
        buffer = BytesIO()
        try:
            fastavro.schemaless_writer(buffer, self._schema, value)
        except Exception as error:  # the value may be anything
            raise SerializationException(f"topic {topic}: {type(error).__name__}: {error}") from error
        return buffer.getvalue()

    def read(self, topic: str, data: bytes) -> Any:
        try:
            return fastavro.schemaless_reader(BytesIO(data[HEADER_BYTES:]), self._schema, None)
        except Exception as error:  # the bytes may be anything
            raise SerializationException(f"topic {topic}: {type(error).__name__}: {error}") from error


class _Avro:
    form = ""

    def key_of(self, schema: str | None, value: Any) -> object:
        return schema

    def record_name(self, schema: str | None, value: Any) -> str | None:
        found = json.loads(schema or "null")
        if not isinstance(found, dict) or "name" not in found:
            return None
        space = found.get("namespace")
        return f"{space}.{found['name']}" if space and "." not in found["name"] else str(found["name"])

    def new_schema(self, schema: str | None, value: Any, registry: RegistryLookup, registers: bool) -> NewSchema:
        return NewSchema("AVRO", _given(schema))

    def writer(self, registered: RegisteredSchema, value: Any) -> _AvroCodec:
        return _AvroCodec(registered)

    def reader(self, registered: RegisteredSchema) -> _AvroCodec:
        return _AvroCodec(registered)


def _given(schema: str | None) -> str:
    if schema is None:
        raise SerializationException('an "avro" serializer needs a schema: value_schema or key_schema')
    return schema


FORMAT = _Avro()
