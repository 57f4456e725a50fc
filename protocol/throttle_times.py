"""Core: the field `throttle_time_ms` of answers that are there as bytes, such as those of the controller."""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiSpec
from barnabas.protocol.errors import MalformedMessage
from barnabas.protocol.schema import decode_prefix, encode, parse_versions

FIELD = "throttle_time_ms"
INT32_BYTES = 4


def throttle_time_of(spec: ApiSpec, version: int, answer: bytes) -> int:
    """The value in an answer with its header; 0 if the version has none, or the answer is malformed."""
    place = _place(spec, version, answer)
    if place is not None:
        return max(0, int.from_bytes(answer[place : place + INT32_BYTES], "big", signed=True))
    if not _has_field(spec, version):
        return 0
    try:
        message, _ = decode_prefix(spec.response_type(), answer, _body(spec, version), version)
    except MalformedMessage:
        return 0
    return max(0, int(getattr(message, FIELD)))


def with_throttle_time(spec: ApiSpec, version: int, answer: bytes, throttle_ms: int) -> bytes:
    """The answer with this value, if its version has the field."""
    place = _place(spec, version, answer)
    if place is not None:
        return answer[:place] + throttle_ms.to_bytes(INT32_BYTES, "big") + answer[place + INT32_BYTES :]
    if not _has_field(spec, version):
        return answer
    body = _body(spec, version)
    try:
        message, _ = decode_prefix(spec.response_type(), answer, body, version)
    except MalformedMessage:
        return answer
    setattr(message, FIELD, throttle_ms)
    return answer[:body] + encode(message, version)


def _place(spec: ApiSpec, version: int, answer: bytes) -> int | None:
    """Where the field is, if it is the first one."""
    for field in spec.response_type().FIELDS:
        if version in parse_versions(field.versions):
            body = _body(spec, version)
            return body if field.name == FIELD and len(answer) >= body + INT32_BYTES else None
    return None


def _has_field(spec: ApiSpec, version: int) -> bool:
    return any(it.name == FIELD and version in parse_versions(it.versions) for it in spec.response_type().FIELDS)


def _body(spec: ApiSpec, version: int) -> int:
    """Size of the header: the correlation id, and in flexible versions an empty list of tagged fields."""
    return INT32_BYTES + (spec.response_header_version(version) == 1)
