"""Text and JSON forms of keys, values and records. `produce --json` reads the output of `consume --json`.

In JSON, bytes that are not UTF-8 are `{"base64": "…"}`.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from barnabas.cli.line_format import Showable
from barnabas.cluster.errors import WrongArgument

Headers = Sequence[tuple[str, bytes | None]]

WHOLE_NUMBERS = ("int", "long", "short")
NUMBERS = ("float", "double")
_NOT_SENT = ("topic", "offset", "delivery_count")
"""Fields of printed records that a producer does not choose."""
KINDS = ("bytes", "str", *WHOLE_NUMBERS, *NUMBERS, "bool", "json", "uuid", "void")
"""Names of the client's serializers."""
SCHEMA_KINDS = ("avro", "json-schema", "protobuf")
"""Names of those that need a schema registry."""


class WrongText(WrongArgument):
    """The text does not parse. The message does not contain the line number."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A record to send, in the form of `Producer.enqueue`."""

    key: Any
    value: Any
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class Incoming(Showable, Protocol):
    """A consumed record with deserialized key and value."""

    @property
    def key(self) -> Any: ...
    @property
    def value(self) -> Any: ...


def parse_text(kind: str, data: bytes) -> Any:
    """The argument for a serializer of that kind. Raises `WrongText`."""
    if kind == "bytes":
        return data
    try:
        text = data.decode()
        match kind:
            case "str":
                return text
            case "json" | "avro" | "json-schema":
                return json.loads(text)
            case "uuid":
                return UUID(text)
            case "bool" if text in ("true", "false"):
                return text == "true"
            case "void" if not text:
                return None
            case _ if kind in WHOLE_NUMBERS:
                return int(text)
            case _ if kind in NUMBERS:
                return float(text)
    except ValueError:
        pass
    raise WrongText(f"not of kind {kind}: {_short(data)}")


def text_of(value: Any) -> bytes | None:
    """Text form of a key or value; None for null."""
    match value:
        case None | bytes():
            return value
        case str():
            return value.encode(errors="backslashreplace")
        case bool() | dict() | list():
            return _compact(value)
        case _ if hasattr(value, "DESCRIPTOR"):
            return _compact(plain(value))
        case _:
            return str(value).encode()


def _compact(value: Any) -> bytes:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=plain)
    return text.encode(errors="backslashreplace")


def plain(value: Any) -> Any:
    """The JSON for a value that JSON does not have: a message of Protobuf, or bytes, times and decimals of Avro."""
    if isinstance(value, bytes):
        return _to_json(value)
    if hasattr(value, "DESCRIPTOR"):
        from google.protobuf.json_format import MessageToDict

        return MessageToDict(value, preserving_proto_field_name=True)
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def json_of(record: Incoming) -> dict[str, Any]:
    """JSON form of a record; that of a share group has its `delivery_count`."""
    deliveries = getattr(record, "delivery_count", None)
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": _to_json(record.key),
        "value": _to_json(record.value),
        "headers": [[name, _to_json(data)] for name, data in record.headers],
        **({} if deliveries is None else {"delivery_count": deliveries}),
    }


def parse_json(line: bytes, key_kind: str, value_kind: str) -> Outgoing:
    """Parses a JSON object with `value` and optional `key`, `headers`, `partition` and `timestamp`. Ignores `topic`,
    `offset` and `delivery_count`, which `consume --json` writes. Raises `WrongText`.
    """
    try:
        found = json.loads(line)
    except ValueError as error:
        raise WrongText(f"invalid JSON: {error}") from None
    if not isinstance(found, dict) or "value" not in found:
        raise WrongText("must be a JSON object with a value")
    unknown = sorted(found.keys() - {*_NOT_SENT, "partition", "timestamp", "key", "value", "headers"})
    if unknown:
        raise WrongText(f"unknown field {unknown[0]}")
    return Outgoing(
        key=_from_json(key_kind, "key", found.get("key")),
        value=_from_json(value_kind, "value", found["value"]),
        headers=_headers(found.get("headers", [])),
        partition=_whole(found, "partition"),
        timestamp_ms=_whole(found, "timestamp"),
    )


def _to_json(value: Any) -> Any:
    match value:
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError:
                return {"base64": base64.b64encode(value).decode()}
        case UUID():
            return str(value)
        case _ if hasattr(value, "DESCRIPTOR"):
            return plain(value)
        case _:
            return value


def _from_json(kind: str, name: str, value: Any) -> Any:
    if value is None or kind in ("json", "avro", "json-schema"):
        return value
    if kind == "bytes":
        return _bytes(name, value)
    if kind == "void" or (isinstance(value, int) and kind in NUMBERS):
        return value
    if isinstance(value, str):
        return parse_text(kind, value.encode(errors="surrogatepass"))
    wanted = {"bool": bool, **dict.fromkeys(WHOLE_NUMBERS, int), **dict.fromkeys(NUMBERS, float)}.get(kind)
    if wanted is not None and type(value) is wanted:
        return value
    raise WrongText(f"{name} must be of kind {kind}; got {_short(value)}")


def _bytes(name: str, value: Any) -> bytes | None:
    try:
        match value:
            case None:
                return None
            case str():
                return value.encode()
            case {"base64": str(text), **rest} if not rest:
                return base64.b64decode(text, validate=True)
    except (UnicodeEncodeError, binascii.Error):
        pass
    raise WrongText(f'{name} must be text, null or {{"base64": …}}; got {_short(value)}')


def _headers(value: Any) -> Headers:
    if not isinstance(value, list):
        raise WrongText(f"headers must be a list of [name, value]; got {_short(value)}")
    headers = []
    for each in value:
        if not (isinstance(each, list) and len(each) == 2 and isinstance(each[0], str)):
            raise WrongText(f"a header must be [name, value]; got {_short(each)}")
        headers.append((each[0], _bytes(f"header {each[0]}", each[1])))
    return headers


def _whole(found: dict[str, Any], name: str) -> int | None:
    value = found.get(name)
    if value is not None and (type(value) is not int or value < 0):
        raise WrongText(f"{name} must be a whole number; got {_short(value)}")
    return value


def _short(value: Any) -> str:
    text = value.decode(errors="backslashreplace") if isinstance(value, bytes) else json.dumps(value)
    return text if len(text) <= 60 else text[:59] + "…"
