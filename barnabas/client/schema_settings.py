"""Settings of producers and consumers that use a schema registry, under the names that Confluent's clients have."""

from __future__ import annotations

from typing import Any, TypedDict

from barnabas.client.serialization import SCHEMA_KINDS, Deserialize, Serialize, deserializer_of, serializer_of
from barnabas.client.settings import ClientSettings

DEFAULT_STRATEGY = "TopicNameStrategy"


class RegistrySettings(ClientSettings):
    """How to reach a registry."""

    schema_registry_url: str = ""
    """One address or more, with commas between them."""
    schema_registry_basic_auth_user_info: str = ""
    """`user:password`."""


class SchemaReadingSettings(RegistrySettings):
    """Settings of a client that reads with schemas."""

    def deserializer(self, part: str, option: Any) -> Deserialize:
        """The deserializer of the `key` or `value`. ConfigException."""
        setting = f"{part}_deserializer"
        if isinstance(option, str) and option in SCHEMA_KINDS:
            from barnabas.client.schemas.serializing import SchemaDeserializer

            option = SchemaDeserializer(option, dict(self), is_key=part == "key")
        return deserializer_of(option, setting)


class SchemaWritingSettings(RegistrySettings):
    """Settings of a client that writes with schemas."""

    auto_register_schemas: bool = True
    """Register schemas that the registry does not know."""
    use_latest_version: bool = False
    """Write with the newest version of the subject, whatever schema is given."""
    normalize_schemas: bool = False
    key_schema: Any = None
    """The schema of keys, as text or a `Path`; messages of Protobuf bring their own."""
    value_schema: Any = None
    """The schema of values, as text or a `Path`."""
    key_subject_name_strategy: Any = DEFAULT_STRATEGY
    """TopicNameStrategy, RecordNameStrategy or TopicRecordNameStrategy, or a function of (topic, is_key, record)."""
    value_subject_name_strategy: Any = DEFAULT_STRATEGY

    def serializer(self, part: str, option: Any) -> Serialize:
        """The serializer of the `key` or `value`. ConfigException."""
        setting = f"{part}_serializer"
        if isinstance(option, str) and option in SCHEMA_KINDS:
            from barnabas.client.schemas.serializing import SchemaSerializer

            option = SchemaSerializer(option, dict(self), is_key=part == "key")
        return serializer_of(option, setting)


class SchemaReadingOptions(TypedDict, total=False):
    """Keyword arguments; `SchemaReadingSettings` has their meanings."""

    schema_registry_url: str
    schema_registry_basic_auth_user_info: str


class SchemaWritingOptions(SchemaReadingOptions, total=False):
    """Keyword arguments; `SchemaWritingSettings` has their meanings."""

    auto_register_schemas: bool
    use_latest_version: bool
    normalize_schemas: bool
    key_schema: Any
    value_schema: Any
    key_subject_name_strategy: Any
    value_subject_name_strategy: Any
