"""Settings of producers and consumers that use a schema registry, under the names that Confluent's clients have."""

from __future__ import annotations

from typing import Any, TypedDict

from pydantic import SecretStr

from barnabas.client.serialization import SCHEMA_KINDS, Deserialize, Serialize, deserializer_of, serializer_of
from barnabas.client.settings import ClientSettings

DEFAULT_STRATEGY = "TopicNameStrategy"


class RegistrySettings(ClientSettings):
    """How to reach a registry."""

    schema_registry_url: str = ""
    """One address or more, with commas between them."""
    schema_registry_basic_auth_credentials_source: str = ""
    """URL, USER_INFO, or SASL_INHERIT: the user and password of the Kafka connection. Default: USER_INFO if there is
    one, or else URL."""
    schema_registry_basic_auth_user_info: str = ""
    """`user:password`."""
    schema_registry_bearer_auth_token: str = ""
    """A token to be sent in place of a user and a password."""
    schema_registry_ssl_truststore_type: str = "JKS"
    """PEM, PKCS12 or JKS."""
    schema_registry_ssl_truststore_location: str = ""
    """The issuers to trust over https; default: those of the system."""
    schema_registry_ssl_truststore_password: SecretStr | None = None
    schema_registry_ssl_truststore_certificates: SecretStr | None = None
    """The certificates of trusted issuers as PEM text."""
    schema_registry_ssl_keystore_type: str = "JKS"
    schema_registry_ssl_keystore_location: str = ""
    schema_registry_ssl_keystore_password: SecretStr | None = None
    schema_registry_ssl_key_password: SecretStr | None = None
    schema_registry_ssl_endpoint_identification_algorithm: str = "https"
    """Empty: the name of the registry is not compared with its certificate."""


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
    schema_registry_basic_auth_credentials_source: str
    schema_registry_basic_auth_user_info: str
    schema_registry_bearer_auth_token: str
    schema_registry_ssl_truststore_type: str
    schema_registry_ssl_truststore_location: str
    schema_registry_ssl_truststore_password: str
    schema_registry_ssl_truststore_certificates: str
    schema_registry_ssl_keystore_type: str
    schema_registry_ssl_keystore_location: str
    schema_registry_ssl_keystore_password: str
    schema_registry_ssl_key_password: str
    schema_registry_ssl_endpoint_identification_algorithm: str


class SchemaWritingOptions(SchemaReadingOptions, total=False):
    """Keyword arguments; `SchemaWritingSettings` has their meanings."""

    auto_register_schemas: bool
    use_latest_version: bool
    normalize_schemas: bool
    key_schema: Any
    value_schema: Any
    key_subject_name_strategy: Any
    value_subject_name_strategy: Any
