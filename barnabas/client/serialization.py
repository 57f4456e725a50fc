"""Serializers and deserializers of keys and values. Knows nothing of batches, topics or clients.

A serializer is given by its name, as a callable of one argument, or as an object with `serialize` (a schema registry
needs the topic and the headers); a deserializer likewise. The named ones write the same bytes as Kafka's own, so that a
Java program can read them. None stays None in all of them: no key, or a value that deletes a key (a tombstone); no
callable is ever called with it.
"""

from __future__ import annotations

import difflib
import json
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable
from uuid import UUID

from barnabas.client.errors import ConfigException, SerializationException
from barnabas.protocol.errors import KafkaError

Headers = Sequence[tuple[str, bytes | None]]
UUID_CHARACTERS = 36
SCHEMA_KINDS = ("avro", "json-schema", "protobuf")
"""Names of serializers and deserializers that need a schema registry (`schema_settings.py`)."""
Function = TypeVar("Function")


@runtime_checkable
class TopicSerializer(Protocol):
    """A serializer that needs the topic and the headers of the record."""

    def serialize(self, topic: str, headers: Headers, value: Any) -> bytes | None: ...


@runtime_checkable
class TopicDeserializer(Protocol):
    """A deserializer that needs the topic and the headers of the record."""

    def deserialize(self, topic: str, headers: Headers, data: bytes) -> Any: ...


SerializerOption = str | TopicSerializer | Callable[[Any], bytes | None]
"""Types of `key_serializer` and `value_serializer`: a name (`SERIALIZERS`), an object, or any callable."""

DeserializerOption = str | TopicDeserializer | Callable[[bytes], Any]
"""Types of `key_deserializer` and `value_deserializer`."""

Serialize = Callable[[str, Headers, Any], bytes | None]
"""(topic, headers, value) to bytes. SerializationException if the serializer does not accept the value."""

Deserialize = Callable[[str, Headers, bytes | None], Any]
"""(topic, headers, bytes) to a value. SerializationException if the deserializer does not accept the bytes."""


def serializer_of(option: SerializerOption, setting: str = "value_serializer") -> Serialize:
    """The serializer that `option` names or is. ConfigException for an unknown name, or an object that is neither."""
    if isinstance(option, str):
        return _named(SERIALIZERS, option, setting)
    if isinstance(option, TopicSerializer):
        return _Custom(option.serialize, setting).serialize
    if callable(option):
        call: Callable[[Any], bytes | None] = option
        return _Custom(lambda topic, headers, value: call(value), setting).serialize
    raise ConfigException(f"{setting} must be a name, an object with serialize(), or a callable; got {option!r}")


def deserializer_of(option: DeserializerOption, setting: str = "value_deserializer") -> Deserialize:
    """The deserializer that `option` names or is. ConfigException as `serializer_of`."""
    if isinstance(option, str):
        return _named(DESERIALIZERS, option, setting)
    if isinstance(option, TopicDeserializer):
        return _Custom(option.deserialize, setting).deserialize
    if callable(option):
        call: Callable[[bytes], Any] = option
        return _Custom(lambda topic, headers, data: call(data), setting).deserialize
    raise ConfigException(f"{setting} must be a name, an object with deserialize(), or a callable; got {option!r}")


class _Custom:
    """A user's own callable; every exception in it becomes a SerializationException."""

    def __init__(self, call: Callable[[str, Headers, Any], Any], setting: str) -> None:
        self._call = call
        self._setting = setting

    def serialize(self, topic: str, headers: Headers, value: Any) -> bytes | None:
        if value is None:
            return None
        data = self._ask(topic, headers, value)
        if data is None or isinstance(data, bytes):
            return data
        if isinstance(data, bytearray | memoryview):
            return bytes(data)
        raise SerializationException(
            f"{self._setting} must return bytes or None; topic {topic} got {type(data).__name__}"
        )

    def deserialize(self, topic: str, headers: Headers, data: bytes | None) -> Any:
        return None if data is None else self._ask(topic, headers, data)

    def _ask(self, topic: str, headers: Headers, subject: Any) -> Any:
        try:
            return self._call(topic, headers, subject)
        except KafkaError:
            raise
        except Exception as error:  # the application's own function may raise anything
            reason = f"{type(error).__name__}: {error}"
            raise SerializationException(f"{self._setting}, topic {topic}: {reason}") from error


# Bytes, text


def _bytes_out(topic: str, headers: Headers, value: Any) -> bytes | None:
    if value is None or type(value) is bytes:
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        # A copy: the caller may change its buffer later.
        return bytes(value)
    hint = ' (or set a serializer such as "str" or "json")' if isinstance(value, str | dict | list | int) else ""
    raise _wrong(topic, "bytes" + hint, value)


def _bytes_in(topic: str, headers: Headers, data: bytes | None) -> bytes | None:
    return data


def _str_out(topic: str, headers: Headers, value: Any) -> bytes | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise _wrong(topic, "str", value)
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise SerializationException(f"topic {topic}: {value!r}: {error.reason}") from error


def _str_in(topic: str, headers: Headers, data: bytes | None) -> str | None:
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError as error:
        raise SerializationException(f"topic {topic}: not UTF-8 at byte {error.start}: {error.reason}") from error


def _json_out(topic: str, headers: Headers, value: Any) -> bytes | None:
    if value is None:
        return None
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise SerializationException(f"topic {topic}: value cannot be written as JSON: {error}") from error


def _json_in(topic: str, headers: Headers, data: bytes | None) -> Any:
    try:
        return None if data is None else json.loads(data)
    except (ValueError, RecursionError) as error:
        raise SerializationException(f"topic {topic}: value is not valid JSON: {error}") from error


def _uuid_out(topic: str, headers: Headers, value: Any) -> bytes | None:
    if value is None:
        return None
    if not isinstance(value, UUID):
        raise _wrong(topic, "uuid.UUID", value)
    return str(value).encode()


def _uuid_in(topic: str, headers: Headers, data: bytes | None) -> UUID | None:
    if data is None:
        return None
    try:
        if len(data) == UUID_CHARACTERS:
            return UUID(data.decode())
    except ValueError:
        pass  # raised below
    raise SerializationException(f"topic {topic}: expected the 36 characters of a UUID; got {data[:UUID_CHARACTERS]!r}")


def _void_out(topic: str, headers: Headers, value: Any) -> None:
    if value is not None:
        raise _wrong(topic, "None", value)


def _void_in(topic: str, headers: Headers, data: bytes | None) -> None:
    if data is not None:
        raise SerializationException(f"topic {topic}: expected no bytes; got {len(data)}")


# Numbers as in Java: fixed size, big-endian


def _number_out(code: str, kind: type[int] | type[float]) -> Serialize:
    pack = struct.Struct(code).pack
    bits = struct.calcsize(code) * 8

    def serialize(topic: str, headers: Headers, value: Any) -> bytes | None:
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, kind)):
            raise _wrong(topic, kind.__name__, value)
        try:
            return pack(value)
        except (struct.error, OverflowError) as error:
            raise SerializationException(f"topic {topic}: expected a number of {bits} bits; got {value}") from error

    return serialize


def _number_in(code: str) -> Deserialize:
    unpack = struct.Struct(code).unpack
    size_bytes = struct.calcsize(code)

    def deserialize(topic: str, headers: Headers, data: bytes | None) -> Any:
        if data is None:
            return None
        if len(data) != size_bytes:
            raise SerializationException(f"topic {topic}: expected {size_bytes} bytes; got {len(data)}")
        return unpack(data)[0]

    return deserialize


def _bool_out(topic: str, headers: Headers, value: Any) -> bytes | None:
    if value is None:
        return None
    if not isinstance(value, bool):
        raise _wrong(topic, "bool", value)
    return b"\x01" if value else b"\x00"


def _bool_in(topic: str, headers: Headers, data: bytes | None) -> bool | None:
    if data is None:
        return None
    if data not in (b"\x00", b"\x01"):
        raise SerializationException(f"topic {topic}: expected one byte, 0 or 1; got {data[:8]!r}")
    return data == b"\x01"


SERIALIZERS: Mapping[str, Serialize] = {
    "bytes": _bytes_out,
    "str": _str_out,
    "int": _number_out(">i", int),
    "long": _number_out(">q", int),
    "short": _number_out(">h", int),
    "float": _number_out(">f", float),
    "double": _number_out(">d", float),
    "bool": _bool_out,
    "json": _json_out,
    "uuid": _uuid_out,
    "void": _void_out,
}
"""`int`, `long` and `short` have Java's sizes: 4, 8 and 2 bytes; `uuid` is its text; `json` is compact UTF-8."""

DESERIALIZERS: Mapping[str, Deserialize] = {
    "bytes": _bytes_in,
    "str": _str_in,
    "int": _number_in(">i"),
    "long": _number_in(">q"),
    "short": _number_in(">h"),
    "float": _number_in(">f"),
    "double": _number_in(">d"),
    "bool": _bool_in,
    "json": _json_in,
    "uuid": _uuid_in,
    "void": _void_in,
}


def _named(table: Mapping[str, Function], name: str, setting: str) -> Function:
    found = table.get(name)
    if found is None and name in SCHEMA_KINDS:
        raise ConfigException(f"{setting} {name!r} needs a schema registry, which this client does not use")
    if found is None:
        known = [*table, *SCHEMA_KINDS]
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near and near[0] != name else ""
        raise ConfigException(f"{setting} must be one of {', '.join(known)}; got {name!r}{hint}")
    return found


def _wrong(topic: str, expected: str, value: Any) -> SerializationException:
    return SerializationException(f"topic {topic}: expected {expected}; got {type(value).__name__}")
