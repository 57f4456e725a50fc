"""Core: the bytes of answers: those of the proxy, and those of the broker where something in them has to change."""

from __future__ import annotations

from typing import Any

from barnabas.fault_proxy.endpoints import LocalAddress, has_addresses, limit_versions, replace_addresses
from barnabas.fault_proxy.error_answers import error_answer, merge, put_into_metadata
from barnabas.fault_proxy.requests import Asked
from barnabas.fault_proxy.topics import TEACHERS, TopicNames
from barnabas.fault_proxy.waiting import Waiting
from barnabas.protocol.api_keys import ApiKey, ApiSpec
from barnabas.protocol.errors import ErrorCode, MalformedMessage
from barnabas.protocol.framing import response_prefix
from barnabas.protocol.headers import ResponseHeader
from barnabas.protocol.schema import Message, decode_in_steps, decode_prefix, encode_chunks, encode_in_steps
from barnabas.protocol.throttle_times import FIELD as THROTTLE_FIELD
from barnabas.runtime.at_once import Stepwise
from barnabas.runtime.freeing import free_in_steps

LARGE_BYTES = 32 << 10
"""A longer answer is read and written in steps."""
_ANY_NUMBER = 1 << 40
"""An answer may have as many elements as its bytes hold."""


def answer_frame(asked: Asked, answer: Message, version: int) -> bytes:
    """The frame, without its size, of an answer of the proxy."""
    assert asked.spec is not None
    prefix = response_prefix(asked.correlation_id, asked.spec.response_header_version(version) == 1)
    return b"".join(encode_chunks(answer, version, prefix))


def changed_answer(
    waiting: Waiting, frame: bytes, topics: TopicNames, local: LocalAddress
) -> Stepwise[bytes]:
    """The broker's answer with the addresses of the proxy, and with what a rule puts into it. Bytes that do not decode
    stay as they are."""
    asked, spec = waiting.asked, waiting.asked.spec
    if spec is None or not _is_of_interest(waiting, spec):
        return frame
    body = yield from _read(frame, spec, asked.version)
    if body is None:
        return frame
    answer, position = body
    del body
    if spec.key in TEACHERS and asked.version in _WITH_IDS[spec.key]:
        yield from topics.learn_in_steps(answer)
    changed = _put_in(waiting, answer)
    has_changed = changed is not None
    if changed is not None:
        answer = changed
        del changed
    has_changed |= replace_addresses(answer, asked.version, local)
    has_changed |= spec.key is ApiKey.API_VERSIONS and limit_versions(answer)
    if has_changed and len(frame) > LARGE_BYTES:
        frame = b"".join((yield from encode_in_steps(answer, asked.version, frame[:position])))
    elif has_changed:
        frame = b"".join(encode_chunks(answer, asked.version, frame[:position]))
    holder = [answer]
    del answer
    yield from free_in_steps(holder)
    return frame


_WITH_IDS = {ApiKey.METADATA: range(10, 100), ApiKey.CREATE_TOPICS: range(7, 100)}
"""Versions of the responses that have ids of topics."""


def read_answer(frame: bytes, spec: ApiSpec, version: int, most_elements: int | None = None) -> Any:
    """The answer of a frame without its size; None if it does not decode, or has more than `most_elements`."""
    view = memoryview(frame)
    try:
        start = _start(view, spec, version)
        if start is None:
            return None
        answer, end = decode_prefix(spec.response_type(), view[start:], 0, version, most_elements)
    except MalformedMessage:
        return None
    return answer if end == len(view) - start else None


def _is_of_interest(waiting: Waiting, spec: ApiSpec) -> bool:
    return (
        waiting.rule is not None
        or waiting.refused is not None
        or spec.key is ApiKey.API_VERSIONS
        or spec.key in TEACHERS
        or has_addresses(spec.response_type(), waiting.asked.version)
    )


def _put_in(waiting: Waiting, answer: Any) -> Message | None:
    """The answer after what a rule did to it; None if it did nothing."""
    asked = waiting.asked
    if waiting.rule is None:
        return None
    fault, changed = waiting.rule.fault, None
    if waiting.refused is not None:
        merge(answer, waiting.refused, asked.version)
        changed = answer
    elif fault.error_code is not None and asked.is_metadata:
        put_into_metadata(answer, fault.error_code, fault.is_about_topic)
        changed = answer
    elif fault.error_code is not None:
        changed, _ = error_answer(asked.decoded, asked.version, fault.error_code)
        answer = changed
    if fault.throttle_ms and any(spec.name == THROTTLE_FIELD for spec in answer.FIELDS):
        answer.throttle_time_ms = max(answer.throttle_time_ms, fault.throttle_ms)
        changed = answer
    return changed


def _read(frame: bytes, spec: ApiSpec, version: int) -> Stepwise[tuple[Any, int] | None]:
    """The answer and the position of its body."""
    view, kind = memoryview(frame), spec.response_type()
    try:
        start = _start(view, spec, version)
        if start is None:
            return None
        if len(frame) > LARGE_BYTES:
            answer, end = yield from decode_in_steps(kind, view[start:], version, _ANY_NUMBER)
        else:
            answer, end = decode_prefix(kind, view[start:], 0, version)
    except MalformedMessage:
        return None
    return (answer, start) if end == len(view) - start else None


def _start(view: memoryview, spec: ApiSpec, version: int) -> int | None:
    """The position of the body; None for one in another version. Raises `MalformedMessage`."""
    if spec.key is ApiKey.API_VERSIONS and view[4:6] == ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big"):
        return None  # it is encoded in version 0 (KIP-511)
    if spec.response_header_version(version) == 1:
        _, position = decode_prefix(ResponseHeader, view, 0, 1)
        return position
    return 4
