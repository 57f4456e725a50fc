"""Keys and values as JSON by a schema registry. Blocks: it is called in a thread, one call at a time or several."""

from __future__ import annotations

import base64
import math
from dataclasses import dataclass, field
from typing import Any

from barnabas.client.errors import ConfigException, SerializationException
from barnabas.client.schemas.codecs import Reader, format_of
from barnabas.client.schemas.lookup import RegistryLookup
from barnabas.client.schemas.wire import schema_id_of

MOST_READERS = 1_000
"""Schemas that are kept; then all are forgotten."""
_NAMES = {"AVRO": "avro", "JSON": "json-schema", "PROTOBUF": "protobuf"}
_TYPES = {"AVRO": "AVRO", "JSON": "JSONSCHEMA", "PROTOBUF": "PROTOBUF"}
"""Types of values in Confluent's REST Proxy."""


@dataclass
class SchemaValues:
    """The schemas of one registry that were needed."""

    registry: RegistryLookup
    _readers: dict[int, tuple[str, Reader]] = field(default_factory=dict)

    def batch(self) -> Batch:
        """For the records of one answer."""
        return Batch(self)

    def reader(self, schema_id: int) -> tuple[str, Reader]:
        """Type and reader of a schema. Raises SerializationException."""
        known = self._readers.get(schema_id)
        if known is None:
            known = self._learn(schema_id)
            if len(self._readers) >= MOST_READERS:
                self._readers.clear()
            self._readers[schema_id] = known
        return known

    def _learn(self, schema_id: int) -> tuple[str, Reader]:
        registered = self.registry.by_id(schema_id)
        if registered.schema_type not in _NAMES:
            raise SerializationException(f"schema {schema_id} is of type {registered.schema_type}")
        try:
            found = format_of(_NAMES[registered.schema_type], "the schema")
        except ConfigException as error:
            raise SerializationException(str(error.message)) from None
        if found.form:
            registered = self.registry.by_id(schema_id, found.form)
        return _TYPES[registered.schema_type], found.reader(registered)


class Batch:
    """The keys and values of one answer: a schema that is unavailable is asked for once."""

    def __init__(self, values: SchemaValues) -> None:
        self._values = values
        self._failed: dict[int, SerializationException] = {}

    def decode(self, topic: str, data: bytes) -> dict[str, Any]:
        """Type, id of the schema, and the value. Raises SerializationException."""
        schema_id = schema_id_of(topic, data)
        if schema_id in self._failed:
            raise self._failed[schema_id]
        try:
            kind, reader = self._values.reader(schema_id)
        except SerializationException as error:
            self._failed[schema_id] = error
            raise
        return {"type": kind, "schema_id": schema_id, "data": _plain(reader.read(topic, data))}


def _plain(value: Any) -> Any:
    """Return the value in JSON's types: bytes as base64, times in ISO 8601, decimals, ids, NaN and infinity as text."""
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    if hasattr(value, "DESCRIPTOR"):
        from google.protobuf.json_format import MessageToDict

        return MessageToDict(value, preserving_proto_field_name=True)
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
