"""Text and JSON forms of records: one command reads what the other writes."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.cli.record_text import KINDS, WrongText, json_of, parse_json, parse_text, text_of
from barnabas.client.consumer.record import ConsumerRecord, TimestampType
from barnabas.client.serialization import SERIALIZERS

SOME_BYTES = st.none() | st.binary(max_size=20) | st.text(max_size=10).map(lambda text: text.encode(errors="replace"))
HEADERS = st.lists(st.tuples(st.text(max_size=5), SOME_BYTES), max_size=3).map(tuple)


def record(key: Any, value: Any, headers: Any = ()) -> ConsumerRecord:
    return ConsumerRecord("t", 1, 7, 1000, TimestampType.CREATE_TIME, key, value, headers)


def test_kinds_are_those_of_the_client() -> None:
    assert set(KINDS) == set(SERIALIZERS)


@pytest.mark.feature("TO-08")
@given(SOME_BYTES, SOME_BYTES, HEADERS)
def test_json_brings_back_any_bytes(key: bytes | None, value: bytes | None, headers: Any) -> None:
    line = json.dumps(json_of(record(key, value, headers))).encode()
    found = parse_json(line, "bytes", "bytes")
    assert (found.key, found.value, tuple(found.headers)) == (key, value, headers)
    assert (found.partition, found.timestamp_ms) == (1, 1000)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("str", "ü"),
        ("int", -5),
        ("long", 2**40),
        ("double", 0.5),
        ("bool", True),
        ("json", {"a": [1, None, "b"]}),
        ("uuid", UUID(int=7)),
        ("void", None),
    ],
)
def test_values_of_a_kind_come_back_from_json_and_from_lines(kind: str, value: Any) -> None:
    line = json.dumps(json_of(record(None, value))).encode()
    assert parse_json(line, "bytes", kind).value == value
    text = text_of(value)
    assert parse_text(kind, b"" if text is None else text) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [("int", "x"), ("int", "1.5"), ("double", "x"), ("bool", "yes"), ("json", "{"), ("uuid", "1"), ("void", "x")],
)
def test_text_that_is_not_of_its_kind(kind: str, text: str) -> None:
    with pytest.raises(WrongText, match=f"not of kind {kind}"):
        parse_text(kind, text.encode())


def test_text_that_is_not_utf_8() -> None:
    assert parse_text("bytes", b"\xff") == b"\xff"
    with pytest.raises(WrongText, match=r"not of kind str: \\xff"):
        parse_text("str", b"\xff")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "invalid JSON"),
        ("[]", "must be a JSON object with a value"),
        ('{"key": "k"}', "must be a JSON object with a value"),
        ('{"value": "v", "val": 1}', "unknown field val"),
        ('{"value": 5}', "value must be text, null or"),
        ('{"value": {"base64": "?"}}', "value must be text, null or"),
        ('{"value": "v", "key": {"base64": "aa==", "x": 1}}', "key must be text, null or"),
        ('{"value": "v", "headers": {}}', "headers must be a list"),
        ('{"value": "v", "headers": [["k"]]}', "a header must be"),
        ('{"value": "v", "headers": [["k", 5]]}', "header k must be text"),
        ('{"value": "v", "partition": -1}', "partition must be a whole number"),
        ('{"value": "v", "timestamp": "now"}', "timestamp must be a whole number"),
        ('{"value": "\\ud800"}', "value must be text"),
    ],
)
def test_objects_that_are_not_records(line: str, message: str) -> None:
    with pytest.raises(WrongText, match=message):
        parse_json(line.encode(), "bytes", "bytes")


@pytest.mark.parametrize("kind", ["int", "uuid", "bool", "str"])
def test_an_object_is_not_a_plain_value(kind: str) -> None:
    with pytest.raises(WrongText, match="value must be of kind"):
        parse_json(b'{"value": {"a": 1}}', "bytes", kind)


def test_text_forms_of_values() -> None:
    assert text_of(None) is None
    assert text_of({"a": "ü"}) == '{"a":"ü"}'.encode()
    assert text_of("\ud800") == b"\\ud800"
    assert text_of(UUID(int=1)) == b"00000000-0000-0000-0000-000000000001"
