"""Core: records in JSON: what a producer sends, what it gets back, and what a reader gets.

A body has one record, or many, one after the other with or without white space between them, as Confluent's REST Proxy
v3 takes them: `{"key": {"type": "STRING", "data": "UA1545"}, "value": {"type": "JSON", "data": {"gate": 7}}}`.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from barnabas.client.errors import SerializationException
from barnabas.rest.errors import RestError, refused
from barnabas.times import moment_ms, time_text

if TYPE_CHECKING:
    from barnabas.client.consumer.record import ConsumerRecord
    from barnabas.client.producer.record_metadata import RecordMetadata

MOST_RECORDS = 1_000
"""Records in one body."""
FORMATS = ("string", "json", "binary", "schema")
Decode = Callable[[str, bytes], dict[str, Any]]
"""Topic and bytes → `type` and `data`, by a schema. Raises SerializationException."""
_KEYS = frozenset({"partition_id", "headers", "key", "value", "timestamp", "original_size"})
_BLANKS = " \t\r\n"


@dataclass(frozen=True, slots=True)
class GivenRecord:
    """One record to be written."""

    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None
    types: tuple[str | None, str | None] = (None, None)
    """Types of key and value as they were given; they are repeated in the answer."""


def records_in(body: bytes) -> Iterator[GivenRecord]:
    """The records of a body, in order. Raises `RestError` at the first that is not as it must be."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise refused("the body must be JSON in UTF-8") from None
    decoder = json.JSONDecoder()
    place = count = 0
    while True:
        while place < len(text) and text[place] in _BLANKS:
            place += 1
        if place == len(text):
            break
        count += 1
        if count > MOST_RECORDS:
            raise refused(f"a body may have at most {MOST_RECORDS} records")
        try:
            found, place = decoder.raw_decode(text, place)
        except (ValueError, RecursionError) as error:
            reason = error.msg if isinstance(error, json.JSONDecodeError) else "it is nested too deeply"
            raise refused(f"record {count} is not JSON: {reason}") from None
        yield _given(found, count)
    if count == 0:
        raise refused("the body has no record")


def _given(found: Any, number: int) -> GivenRecord:
    if not isinstance(found, dict):
        raise refused(f"record {number} must be a JSON object; got {_short(found)}")
    unknown = sorted(set(found) - _KEYS)
    if unknown:
        raise refused(f"record {number} has {unknown[0]}; allowed are {', '.join(sorted(_KEYS))}")
    partition = found.get("partition_id")
    if partition is not None and (type(partition) is not int or not 0 <= partition < 2**31):
        raise refused(f"record {number}: partition_id must be a number from 0; got {_short(partition)}")
    key_type, key = _data(found.get("key"), f"record {number}: key")
    value_type, value = _data(found.get("value"), f"record {number}: value")
    return GivenRecord(
        value,
        key,
        partition,
        tuple(_headers(found.get("headers"), number)),
        _timestamp(found.get("timestamp"), number),
        (key_type, value_type),
    )


def _data(found: Any, what: str) -> tuple[str | None, bytes | None]:
    """Type and bytes of a key or value."""
    if found is None:
        return None, None
    if not isinstance(found, dict) or "data" not in found:
        raise refused(f'{what} must be {{"type": …, "data": …}}; got {_short(found)}')
    kind, data = found.get("type", "BINARY"), found["data"]
    if kind not in ("BINARY", "STRING", "JSON"):
        raise refused(f"{what}: type must be BINARY, STRING or JSON; got {_short(kind)}")
    if data is None and kind != "JSON":
        return kind, None
    if kind == "JSON":
        return kind, json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    if not isinstance(data, str):
        raise refused(f"{what}: data of type {kind} must be a string; got {_short(data)}")
    if kind == "STRING":
        return kind, _utf8(data, what)
    return kind, _from_base64(data, what)


def _utf8(text: str, what: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise refused(f"{what} has characters that UTF-8 cannot express") from None


def _from_base64(text: str, what: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise refused(f"{what}: data of type BINARY must be base64; got {_short(text)}") from None


def _headers(found: Any, number: int) -> Iterator[tuple[str, bytes | None]]:
    if found is None:
        return
    if not isinstance(found, list):
        raise refused(f"record {number}: headers must be a list; got {_short(found)}")
    for each in found:
        if not isinstance(each, dict) or not isinstance(each.get("name"), str):
            raise refused(f'record {number}: a header must be {{"name": …, "value": base64}}; got {_short(each)}')
        value = each.get("value")
        if value is not None and not isinstance(value, str):
            raise refused(f"record {number}: the value of a header must be base64; got {_short(value)}")
        name = each["name"]
        _utf8(name, f"record {number}: the name of a header")
        yield name, None if value is None else _from_base64(value, f"record {number}: header {name}")


def _timestamp(found: Any, number: int) -> int | None:
    if found is None:
        return None
    time_ms = moment_ms(found) if isinstance(found, str) else None
    if time_ms is None:
        raise refused(f"record {number}: timestamp must be like 2026-01-31T12:00:00Z; got {_short(found)}")
    return time_ms


def written_json(given: GivenRecord, place: RecordMetadata, cluster_id: str) -> dict[str, Any]:
    """The answer for a record that is in the log."""
    answer: dict[str, Any] = {
        "error_code": 200,
        "cluster_id": cluster_id,
        "topic_name": place.topic,
        "partition_id": place.partition,
        "offset": place.offset,
        "timestamp": time_text(place.timestamp_ms),
    }
    for name, kind, data in zip(("key", "value"), given.types, (given.key, given.value), strict=True):
        if kind is not None:
            answer[name] = {"type": kind, "size": len(data or b"")}
    return answer


def failed_json(error: RestError) -> dict[str, Any]:
    """The answer for a record that is not in the log, or may not be."""
    return error.to_json()


def record_json(record: ConsumerRecord, formats: tuple[str, str], decode: Decode | None = None) -> dict[str, Any]:
    """A record for a reader. `formats`, of key and value, are of `FORMATS`; `schema` needs `decode`. Bytes that are not
    of the format come as base64 instead, and then `type` is BINARY."""
    return {
        "topic_name": record.topic,
        "partition_id": record.partition,
        "offset": record.offset,
        "timestamp": time_text(record.timestamp_ms),
        "headers": [
            {"name": name, "value": None if value is None else base64.b64encode(value).decode()}
            for name, value in record.headers
        ],
        "key": _shown(record.topic, record.key, formats[0], decode),
        "value": _shown(record.topic, record.value, formats[1], decode),
    }


def _shown(topic: str, data: bytes | None, kind: str, decode: Decode | None) -> dict[str, Any] | None:
    if data is None:
        return None
    try:
        if kind == "schema" and decode is not None:
            return decode(topic, data)
        if kind == "json":
            return {"type": "JSON", "data": json.loads(data)}
        if kind == "string":
            return {"type": "STRING", "data": data.decode()}
    except (ValueError, RecursionError, SerializationException):
        pass
    return {"type": "BINARY", "data": base64.b64encode(data).decode()}


def _short(found: object) -> str:
    text = repr(found)
    return text if len(text) <= 60 else f"{text[:57]}..."
