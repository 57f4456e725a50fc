"""Values to bytes and back by a schema: one codec for each type. Codecs are made in threads, and used in any."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Protocol

from barnabas.client.errors import ConfigException
from barnabas.client.schemas.lookup import NewSchema, RegisteredSchema, RegistryLookup

MODULES = {
    "avro": "barnabas.client.schemas.avro",
    "json-schema": "barnabas.client.schemas.json_schema",
    "protobuf": "barnabas.client.schemas.protobuf",
}
"""Names of serializers, and the module of each."""


class Writer(Protocol):
    """Writes values of one schema."""

    def write(self, topic: str, value: Any) -> bytes:
        """Raises SerializationException."""


class Reader(Protocol):
    """Reads data of one schema, which begins at the fifth byte."""

    def read(self, topic: str, data: bytes) -> Any:
        """Raises SerializationException."""


class Format(Protocol):
    """One type of schemas."""

    form: str
    """The form in which schemas are asked for; empty: as they are kept."""

    def key_of(self, schema: str | None, value: Any) -> object:
        """The text of the schema, or the type of a message: values with the same key have the same schema."""

    def record_name(self, schema: str | None, value: Any) -> str | None:
        """The full name of the record."""

    def new_schema(self, schema: str | None, value: Any, registry: RegistryLookup, registers: bool) -> NewSchema:
        """The schema to register for a value. What it refers to is registered or looked up. Raises
        SerializationException."""

    def writer(self, registered: RegisteredSchema, value: Any) -> Writer:
        """Raises SerializationException."""

    def reader(self, registered: RegisteredSchema) -> Reader:
        """Raises SerializationException."""


def format_of(name: str, setting: str) -> Format:
    """Raises ConfigException if its packages are missing."""
    try:
        found: Format = import_module(MODULES[name]).FORMAT
    except ModuleNotFoundError as error:
        raise ConfigException(
            f"{setting} {name!r} needs the package {error.name}: install the extra `registry`"
        ) from None
    return found
