"""Serializers and deserializers by a schema registry, and their settings.

They never wait: what they do not know yet they ask for by `SchemaNeeded`, and the client looks it up in a thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from barnabas.client.errors import ConfigException
from barnabas.client.schema_needed import SchemaNeeded
from barnabas.client.schemas.access import registry_of
from barnabas.client.schemas.codecs import Format, Reader, Writer, format_of
from barnabas.client.schemas.lookup import RegisteredSchema
from barnabas.client.schemas.names import SubjectName, strategy_of
from barnabas.client.schemas.wire import schema_id_of, with_header
from barnabas.client.serialization import Headers


class SchemaSerializer:
    """Writes keys or values with the ids of their schemas."""

    def __init__(self, name: str, settings: Mapping[str, Any], *, is_key: bool) -> None:
        """`settings` has those of the registry. Raises ConfigException."""
        setting = "key_serializer" if is_key else "value_serializer"
        part = "key" if is_key else "value"
        self._format: Format = format_of(name, setting)
        self._registry = registry_of(settings, setting)
        self._schema = _text(settings.get(f"{part}_schema"), f"{part}_schema")
        strategy = f"{part}_subject_name_strategy"
        self._subject_name: SubjectName = strategy_of(settings.get(strategy, "TopicNameStrategy"), strategy)
        self._settings = settings
        self._is_key = is_key
        self._known: dict[tuple[str, object], tuple[int, Writer]] = {}

    def serialize(self, topic: str, headers: Headers, value: Any) -> bytes | None:
        """Raises SerializationException, and `SchemaNeeded` before the first value of a schema."""
        place = topic, self._format.key_of(self._schema, value)
        known = self._known.get(place)
        if known is None:
            raise SchemaNeeded(topic, lambda: self._learn(place, value))
        schema_id, writer = known
        return with_header(schema_id, writer.write(topic, value))

    def _learn(self, place: tuple[str, object], value: Any) -> None:
        """Blocks. Raises SerializationException."""
        record = self._format.record_name(self._schema, value)
        subject = self._subject_name(place[0], self._is_key, record)
        registered = self._registered(subject, value)
        self._known[place] = registered.id, self._format.writer(registered, value)

    def _registered(self, subject: str, value: Any) -> RegisteredSchema:
        settings, registry = self._settings, self._registry
        if settings["use_latest_version"]:
            return registry.latest(subject, self._format.form)
        registers, normalize = settings["auto_register_schemas"], settings["normalize_schemas"]
        new = self._format.new_schema(self._schema, value, registry, registers)
        if registers:
            schema_id = registry.register(subject, new, normalize=normalize)
        else:
            schema_id = int(registry.find(subject, new, normalize=normalize)["id"])
        return RegisteredSchema(schema_id, new.schema_type, new.schema)


class SchemaDeserializer:
    """Reads keys or values by the schemas that they were written with."""

    def __init__(self, name: str, settings: Mapping[str, Any], *, is_key: bool) -> None:
        """Raises ConfigException."""
        setting = "key_deserializer" if is_key else "value_deserializer"
        self._format: Format = format_of(name, setting)
        self._registry = registry_of(settings, setting)
        self._known: dict[int, Reader] = {}

    def deserialize(self, topic: str, headers: Headers, data: bytes) -> Any:
        """Raises SerializationException, and `SchemaNeeded` before the first value of a schema."""
        schema_id = schema_id_of(topic, data)
        reader = self._known.get(schema_id)
        if reader is None:
            raise SchemaNeeded(topic, lambda: self._learn(schema_id))
        return reader.read(topic, data)

    def _learn(self, schema_id: int) -> None:
        """Blocks. Raises SerializationException."""
        self._known[schema_id] = self._format.reader(self._registry.by_id(schema_id, self._format.form))


def _text(schema: object, setting: str) -> str | None:
    if schema is None or isinstance(schema, str):
        return schema
    if isinstance(schema, Path):
        try:
            return schema.read_text()
        except OSError as error:
            raise ConfigException(f"{setting} {schema}: {error.strerror}") from None
    raise ConfigException(f"{setting} must be text or a Path; got {type(schema).__name__}")
