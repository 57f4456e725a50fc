"""JSON that is checked by jsonschema."""

from __future__ import annotations

import json
from typing import Any

from jsonschema import Draft7Validator
from jsonschema.exceptions import ValidationError
from jsonschema.validators import validator_for
from referencing import Registry
from referencing.jsonschema import DRAFT7

from barnabas.client.errors import SerializationException
from barnabas.client.schemas.lookup import NewSchema, RegisteredSchema, RegistryLookup
from barnabas.client.schemas.wire import HEADER_BYTES


class _JsonCodec:
    def __init__(self, registered: RegisteredSchema) -> None:
        try:
            schema = json.loads(registered.schema)
            kept = [(name, DRAFT7.create_resource(json.loads(text))) for name, text in registered.references]
            known: Registry[Any] = Registry().with_resources(kept)
            known = known.with_resources((resource.id() or name, resource) for name, resource in kept)
            self._validator = validator_for(schema, default=Draft7Validator)(schema, registry=known)
        except (ValueError, TypeError) as error:
            raise SerializationException(f"schema {registered.id}: {error}") from error

    def write(self, topic: str, value: Any) -> bytes:
        self._check(topic, value)
        try:
            return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise SerializationException(f"topic {topic}: value cannot be written as JSON: {error}") from error

    def read(self, topic: str, data: bytes) -> Any:
        try:
            value = json.loads(data[HEADER_BYTES:])
        except (ValueError, RecursionError) as error:
            raise SerializationException(f"topic {topic}: value is not valid JSON: {error}") from error
        self._check(topic, value)
        return value

    def _check(self, topic: str, value: Any) -> None:
        try:
            self._validator.validate(value)
        except ValidationError as error:
            raise SerializationException(f"topic {topic}: {error.json_path}: {error.message}") from error
        except Exception as error:  # a reference that leads nowhere, or a value of no JSON type
            raise SerializationException(f"topic {topic}: {type(error).__name__}: {error}") from error


class _Json:
    form = ""

    def key_of(self, schema: str | None, value: Any) -> object:
        return schema

    def record_name(self, schema: str | None, value: Any) -> str | None:
        found = json.loads(schema or "null")
        return found.get("title") if isinstance(found, dict) else None

    def new_schema(self, schema: str | None, value: Any, registry: RegistryLookup, registers: bool) -> NewSchema:
        if schema is None:
            raise SerializationException('a "json-schema" serializer needs a schema: value_schema or key_schema')
        return NewSchema("JSON", schema)

    def writer(self, registered: RegisteredSchema, value: Any) -> _JsonCodec:
        return _JsonCodec(registered)

    def reader(self, registered: RegisteredSchema) -> _JsonCodec:
        return _JsonCodec(registered)


FORMAT = _Json()
