"""Keys and values on their way to bytes and back."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from barnabas.client.errors import ConfigException, InvalidTopicException, KafkaError, SerializationException
from barnabas.client.serialization import DESERIALIZERS, SERIALIZERS, Headers, deserializer_of, serializer_of
from barnabas.protocol.errors import ErrorCode

AN_ID = uuid.UUID("123e4567-e89b-12d3-a456-426614174000")

VALUES: dict[str, some.SearchStrategy[Any]] = {
    "bytes": some.binary(),
    "str": some.text(),
    "int": some.integers(-(2**31), 2**31 - 1),
    "long": some.integers(-(2**63), 2**63 - 1),
    "short": some.integers(-(2**15), 2**15 - 1),
    "float": some.floats(width=32, allow_nan=False),
    "double": some.floats(allow_nan=False),
    "bool": some.booleans(),
    "json": some.recursive(
        some.none() | some.booleans() | some.integers() | some.text(),
        lambda inner: some.lists(inner) | some.dictionaries(some.text(), inner),
    ),
    "uuid": some.uuids(),
    "void": some.none(),
}


def test_every_name_is_there_for_both_ways() -> None:
    assert list(SERIALIZERS) == list(DESERIALIZERS) == list(VALUES)


@pytest.mark.feature("CL-02")
@pytest.mark.parametrize("name", VALUES)
@given(data=some.data())
def test_written_values_are_read(name: str, data: some.DataObject) -> None:
    value = data.draw(VALUES[name])
    written = serializer_of(name)("t", (), value)
    assert written is None or type(written) is bytes
    assert deserializer_of(name)("t", (), written) == value


@pytest.mark.feature("CL-02")
@pytest.mark.parametrize(
    ("name", "value", "written"),
    [
        ("bytes", bytearray(b"x"), b"x"),
        ("bytes", memoryview(b"xy"), b"xy"),
        ("str", "Grüße", b"Gr\xc3\xbc\xc3\x9fe"),
        ("int", -2, b"\xff\xff\xff\xfe"),
        ("long", 1, b"\0\0\0\0\0\0\0\x01"),
        ("short", 258, b"\x01\x02"),
        ("float", 1.0, b"\x3f\x80\0\0"),
        ("double", 1, b"\x3f\xf0\0\0\0\0\0\0"),
        ("bool", True, b"\x01"),
        ("json", {"a": [1, "ü"]}, b'{"a":[1,"\xc3\xbc"]}'),
        ("uuid", AN_ID, b"123e4567-e89b-12d3-a456-426614174000"),
    ],
)
def test_on_the_wire_it_is_what_java_writes(name: str, value: object, written: bytes) -> None:
    assert serializer_of(name)("t", (), value) == written


@pytest.mark.parametrize("name", VALUES)
def test_none_is_none_both_ways(name: str) -> None:
    assert serializer_of(name)("t", (), None) is None
    assert deserializer_of(name)("t", (), None) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("bytes", "text"),
        ("bytes", 7),
        ("str", b"bytes"),
        ("str", "\ud800"),
        ("int", 2**31),
        ("int", "7"),
        ("int", True),
        ("int", 1.5),
        ("long", -(2**63) - 1),
        ("float", 1e300),
        ("double", "1"),
        ("bool", 1),
        ("json", {1, 2}),
        ("json", float("nan")),
        ("uuid", str(AN_ID)),
        ("void", b""),
    ],
)
def test_values_that_a_serializer_refuses(name: str, value: object) -> None:
    with pytest.raises(SerializationException, match="topic flights"):
        serializer_of(name)("flights", (), value)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("str", b"\xff"),
        ("int", b"\0\0\0"),
        ("long", b"\0\0\0\0"),
        ("float", b""),
        ("bool", b"\x02"),
        ("json", b"{"),
        ("json", b"[" * 100_000),
        ("uuid", b"no uuid"),
        ("uuid", b"\xff" * 36),
        ("void", b""),
    ],
)
def test_bytes_that_a_deserializer_refuses(name: str, data: bytes) -> None:
    with pytest.raises(SerializationException, match="topic flights"):
        deserializer_of(name)("flights", (), data)


def test_a_hint_for_who_sends_text() -> None:
    with pytest.raises(SerializationException, match=r'expected bytes .or set a serializer such as "str"'):
        serializer_of("bytes")("t", (), "hello")


@pytest.mark.feature("CL-02")
def test_any_callable_will_do() -> None:
    double = serializer_of(lambda value: bytearray(value * 2))
    assert double("t", (), b"ab") == b"abab"
    assert double("t", (), None) is None
    assert deserializer_of(len)("t", (), b"abc") == 3
    assert deserializer_of(len)("t", (), None) is None


def test_errors_of_a_users_callable_are_reported() -> None:
    with pytest.raises(SerializationException, match="value_serializer must return bytes or None; topic t got str"):
        serializer_of(str)("t", (), 7)
    with pytest.raises(SerializationException, match="key_serializer, topic t: ZeroDivisionError") as caught:
        serializer_of(lambda value: bytes([1 // value]), "key_serializer")("t", (), 0)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert not caught.value.retriable


def test_an_object_gets_topic_and_headers() -> None:
    class Registry:
        def serialize(self, topic: str, headers: Headers, value: Any) -> bytes:
            if topic == "secret":
                raise InvalidTopicException(ErrorCode.INVALID_TOPIC_EXCEPTION, "not for you")
            return f"{topic} {list(headers)} {value}".encode()

        def deserialize(self, topic: str, headers: Headers, data: bytes) -> str:
            return f"{topic} {data!r}"

    write, read = serializer_of(Registry()), deserializer_of(Registry())
    assert write("t", [("h", b"1")], 5) == b"t [('h', b'1')] 5"
    assert read("t", (), b"5") == "t b'5'"
    with pytest.raises(KafkaError, match="not for you"):
        write("secret", (), 5)


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(ConfigException, match=r"key_serializer must be .*; got 'jsn'; did you mean 'json'\?"):
        serializer_of("jsn", "key_serializer")
    with pytest.raises(ConfigException, match="must be one of bytes, str, int"):
        deserializer_of("thrift")
    with pytest.raises(ConfigException, match="must be a name"):
        serializer_of(7)  # type: ignore[arg-type]
    with pytest.raises(ConfigException, match="must be a name"):
        deserializer_of(None)  # type: ignore[arg-type]
